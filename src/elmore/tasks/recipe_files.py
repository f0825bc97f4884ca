"""The recipes of tasks that ship with elmore, as text."""

from __future__ import annotations

from pathlib import Path

from elmore.training.recipe_files import recipe_names, recipe_text

__all__ = ["task_recipe_names", "task_recipe_text"]

_FOLDER = Path(__file__).parent / "recipes"


def task_recipe_names() -> list[str]:
    """List the shipped recipes, such as ner-laptop."""
    return recipe_names(_FOLDER)


def task_recipe_text(name: str) -> str:
    """Give the text of a shipped recipe."""
    return recipe_text(name, _FOLDER)
