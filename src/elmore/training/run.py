"""A training run: one folder that can always be gone on with or embedded from.

recipe.json    what is trained, on which data, with which seed
log.jsonl      one line for every few steps and for every look at the held-out text
checkpoint/    the newest model, an elmore folder
best/          the model that did best on the held-out text
resume/        the two newest states to go on from
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from elmore._atomic import atomic_file
from elmore._json import read_json
from elmore.errors import FormatError, ResumeError
from elmore.training.recipe import Recipe

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo

__all__ = ["Run"]

_FORMAT, _VERSION = "elmore-run", 1
# Sections that may change between two stretches of a run: they do not touch what was learned.
_FREE = ("schedule", "run", "name")
# What a run that met infinite numbers must be able to change.
_FREE_KEYS = ("optimizer.lr", "optimizer.muon_lr", "optimizer.clip_norm")
# What is known by a digest, which says nothing to a reader.
_OTHER = {
    "data": "other training data",
    "dev": "other development data, or none",
    "elmo": "another biLM, or none",
    "vectors": "other word vectors, or none",
}


class Settings(Protocol):
    """A recipe, of a language model or of a task: sections of keys."""

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values."""


class Run:
    """The folder of a training.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.log_path = self.path / "log.jsonl"
        self.checkpoint_path = self.path / "checkpoint"
        self.best_path = self.path / "best"
        self.resume_path = self.path / "resume"

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run that exists.

        Raises:
            ResumeError: the folder holds no run.
        """
        run = cls(path)
        if not run.exists():
            raise ResumeError(f"'{path}' holds no training run; check the path")
        return run

    def exists(self) -> bool:
        """Tell whether a training was started here."""
        return (self.path / "recipe.json").is_file()

    def elmo(self, *, best: bool = True, **options: Any) -> Elmo:
        """Load the trained model, the best one if there is one; options as in `Elmo.load`."""
        from elmore.embedding.elmo import Elmo

        folder = self.best_path if best and self.best_path.is_dir() else self.checkpoint_path
        if not folder.is_dir():
            raise ResumeError(f"'{self.path}' has no checkpoint yet; let it train a little longer")
        return Elmo.load(folder, **options)

    @property
    def task(self) -> str | None:
        """The task that is trained, None for a language model."""
        task = self._facts().get("task")
        return None if task is None else str(task)

    @property
    def recipe_name(self) -> str:
        """What the recipe is called, of a language model or of a task."""
        return str(self._facts()["recipe"].get("name", "own"))

    @property
    def recipe(self) -> Recipe:
        """The recipe that the run follows."""
        return Recipe.from_json(self._facts()["recipe"], what=str(self.path / "recipe.json"))

    def log(self) -> list[dict[str, Any]]:
        """Read the log."""
        if not self.log_path.is_file():
            return []
        # What follows the last line end was torn by a kill, or is being written.
        lines = self.log_path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines if line]

    def start(self, recipe: Settings, facts: dict[str, Any]) -> None:
        """Write what is trained; the folder is a run from now on."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write({"recipe": recipe.to_json(), **facts})

    def check(self, recipe: Settings, facts: dict[str, Any], *, write: bool = True) -> None:
        """Compare what is asked for with what the run did so far.

        Args:
            recipe: how to go on.
            facts: seed, data and the like.
            write: note the recipe, whose schedule may be another one.

        Raises:
            ResumeError: the model, data, loss or optimiser differ, or the text or seed.
        """
        before = self._facts()
        for key, new in facts.items():
            old = before.get(key)
            if old != new:
                other = _OTHER.get(key, f"{key}={str(old)[:40]!r}, not {str(new)[:40]!r}")
                raise ResumeError(
                    f"'{self.path}' was trained with {other}; use the same or start in another "
                    "folder"
                )
        for key, (old, new) in self.changed(recipe).items():
            if key.partition(".")[0] not in _FREE and key not in _FREE_KEYS:
                raise ResumeError(
                    f"'{self.path}' was trained with {key}={old!r}, not {new!r}; "
                    f"pass {key}={json.dumps(old)} or start in another folder"
                )
        if write:
            self._write({"recipe": recipe.to_json(), **facts})

    def changed(self, recipe: Settings) -> dict[str, tuple[Any, Any]]:
        """Give the keys in which a recipe differs from the run's, with both values."""
        asked = json.loads(json.dumps(recipe.to_json()))
        return {
            f"{section}.{key}": (old, new)
            for section, values in self._facts()["recipe"].items()
            if section != "name"
            for key, old in values.items()
            if (new := asked.get(section, {}).get(key)) != old
        }

    def append(self, line: dict[str, Any]) -> None:
        """Add a line to the log."""
        with self.log_path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop the log's lines of steps that a resumed run will do again."""
        kept: list[str] = []
        if self.log_path.is_file():
            for line in self.log_path.read_text(encoding="utf-8").split("\n"):
                try:
                    if line and json.loads(line)["step"] <= step:
                        kept.append(line)
                except (ValueError, KeyError):
                    continue  # torn by a kill
        with atomic_file(self.log_path, overwrite=True) as stream:
            stream.write("".join(f"{line}\n" for line in kept).encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; another one gets a clear refusal.

        The lock is the operating system's, so a dead process holds none.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a+") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                stream.seek(0)
                owner = stream.read().strip() or "unknown"
                raise ResumeError(
                    f"'{self.path}' is in use by process {owner}; wait for it, stop it, or train "
                    "in another folder"
                ) from None
            stream.truncate(0)
            stream.write(str(os.getpid()))
            stream.flush()
            yield

    def _facts(self) -> dict[str, Any]:
        facts = read_json(self.path / "recipe.json")
        if facts.get("format") != _FORMAT or not isinstance(facts.get("recipe"), dict):
            raise FormatError(f"'{self.path}/recipe.json' is not that of a run; check the path")
        if facts.get("version") != _VERSION:
            raise FormatError(f"'{self.path}' was made by a newer elmore; upgrade")
        return facts

    def _write(self, facts: dict[str, Any]) -> None:
        data = {"format": _FORMAT, "version": _VERSION, **facts}
        with atomic_file(self.path / "recipe.json", overwrite=True) as stream:
            stream.write((json.dumps(data, indent=2) + "\n").encode())
