"""Notebooks as pages of the documentation: text, code, and what it printed or showed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["folder", "page_of"]

SITE = re.compile(r"\(https://elmore-nlp\.github\.io/elmore/([\w-]+)\.html")
SOURCE = "https://github.com/elmore-nlp/elmore/blob/main/examples/notebooks"


def page_of(name: str, notebook: Any) -> str:
    """The page of a notebook.

    Args:
        name: of its file.
        notebook: as `nbformat.read` gives it, with its outputs.
    """
    title, *cells = notebook.cells
    parts = [
        f"<!-- made of examples/notebooks/{name} by tests/contract/test_notebooks.py -->",
        _text(title.source),
        f"This page is a notebook. [Download it]({SOURCE}/{name}) to run it and change it.",
    ]
    for cell in cells:
        if cell.cell_type == "markdown":
            parts.append(_text(cell.source))
            continue
        # Not called python: other tests run such blocks, and these have run.
        parts.append(f"```py\n{cell.source}\n```")
        parts += [_shown(output) for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def _text(source: str) -> str:
    """Links to the site go to the pages beside this one."""
    return SITE.sub(r"(../\1.md", source)


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    page = output.data.get("text/html")
    if page is None:
        return f"```text\n{output.data['text/plain'].rstrip()}\n```"
    # Blank lines would end the block of HTML.
    return '<div class="notebook-output">\n' + re.sub(r"\n\s*\n", "\n", page) + "\n</div>"


def folder() -> Path:
    """Where the notebooks are."""
    return Path(__file__).resolve().parents[1] / "examples" / "notebooks"
