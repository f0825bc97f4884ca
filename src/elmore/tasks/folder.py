"""A trained task as a folder: task.json, model.safetensors, words.txt, and elmo/ inside it.

task.json holds the recipe, the labels, and the SHA-256 of the other two files. Nothing in the
folder is code, and reading it needs no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore._atomic import atomic_folder
from elmore._io import open_checked, read_lines, sha256_file
from elmore._json import from_json, read_json
from elmore._manifest import FolderFormat, check_file
from elmore._messages import shown
from elmore._version import __version__
from elmore.config import ComputePrecision
from elmore.embedding.elmo import Elmo
from elmore.errors import FormatError
from elmore.formats.files.safetensors_files import read_safetensors, write_safetensors
from elmore.limits import LIMITS
from elmore.options import Start

__all__ = ["FACTS", "TaskFolder", "WordList", "find_task", "read_task", "runs_of", "write_task"]

# The file by which the folder of a trained task is known.
FACTS = "task.json"
_FORMAT = FolderFormat(name="elmore-task", version=1, label="a trained task", fix="check the path")
_MODEL, _WORDS, _ELMO = "model.safetensors", "words.txt", "elmo"


@dataclass(frozen=True, kw_only=True)
class _TaskJson:
    """What task.json says; `precision` and `start` are missing in older folders."""

    task: str
    recipe: dict[str, Any]
    labels: dict[str, Any]
    n_trained_words: int | None
    elmo: str | None
    precision: ComputePrecision | None = None
    start: Start | None = None
    scores: dict[str, Any]
    sha256: dict[str, Any]


@dataclass(frozen=True)
class WordList:
    """The words of a table in the order of its rows; the first `n_trained` are trained."""

    words: tuple[str, ...]
    n_trained: int

    def rows(self) -> dict[str, int]:
        """The row of each word, the first where it has two; 0 is padding, 1 unknown."""
        return {word: row for row, word in reversed(list(enumerate(self.words, 2)))}


@dataclass(frozen=True, kw_only=True)
class TaskFolder:
    """What a folder holds.

    Attributes:
        task: name of the task.
        recipe: as JSON values.
        labels: what the task learned to tell apart, as JSON values.
        words: of the word table, or None.
        weights: name to array.
        elmo: digest of the biLM that the task was trained with, or None.
        precision: how that biLM computes, or None.
        start: the state before each of its sentences.
        scores: of the best evaluation.
    """

    task: str
    recipe: Mapping[str, Any]
    labels: Mapping[str, Any]
    words: WordList | None
    weights: Mapping[str, NDArray[Any]]
    elmo: str | None
    precision: ComputePrecision | None
    start: Start
    scores: Mapping[str, float]


def write_task(
    path: Path, content: TaskFolder, elmo: Elmo | None, *, overwrite: bool = False
) -> None:
    """Write a folder, complete or not at all, with the biLM inside unless that is None."""
    with atomic_folder(path, overwrite=overwrite, looks_ours=_is_task) as place:
        with (place / _MODEL).open("wb") as stream:
            write_safetensors(stream, dict(content.weights), {"task": content.task})
        words = content.words
        lines = [f"{word}\n" for word in (words.words if words else ())]
        (place / _WORDS).write_bytes("".join(lines).encode("utf-8"))
        if elmo is not None:
            elmo.save(place / _ELMO)
        facts = {
            **_FORMAT.head(),
            "elmore": __version__,
            "task": content.task,
            "recipe": dict(content.recipe),
            "labels": dict(content.labels),
            "n_trained_words": words.n_trained if words else None,
            "elmo": content.elmo,
            "precision": content.precision,
            "start": content.start,
            "scores": dict(content.scores),
            "sha256": {name: sha256_file(place / name) for name in (_MODEL, _WORDS)},
        }
        (place / FACTS).write_text(
            json.dumps(facts, indent=2) + "\n", encoding="utf-8", newline="\n"
        )


def read_task(path: str | Path) -> tuple[TaskFolder, Path | None]:
    """Read a folder, or the trained model of a run.

    Returns:
        what it holds, and the folder of the biLM, if there is one inside.

    Raises:
        FormatError: not the folder of a task, or damaged.
    """
    place = find_task(path)
    if place is None:
        raise FormatError(
            f"'{shown(path, 140)}' holds no trained task; check the path, or train one with "
            "`elmore task train`"
        )
    facts = _facts(place)
    for name in (_MODEL, _WORDS):
        check_file(place / name, facts.sha256.get(name), fix="restore it")
    with read_safetensors(place / _MODEL, what=str(place / _MODEL)) as view:
        weights = {name: np.array(view.read(name, copy=True)) for name in view.names()}
    words = None
    if facts.n_trained_words is not None:
        with open_checked(place / _WORDS, what="words of a task", follow=False) as stream:
            limit = LIMITS.vocabulary_line_bytes
            lines = [line for _, line in read_lines(stream, what=_WORDS, max_line=limit)]
        words = WordList(tuple(lines), facts.n_trained_words)
    content = TaskFolder(
        task=facts.task,
        recipe=facts.recipe,
        labels=facts.labels,
        words=words,
        weights=weights,
        elmo=facts.elmo,
        # Without a precision: as the biLM inside is stored.
        precision=facts.precision,
        start=facts.start or "zeros",
        scores=facts.scores,
    )
    inside = place / _ELMO
    return content, inside if inside.is_dir() else None


def _facts(place: Path) -> _TaskJson:
    facts = read_json(place / FACTS)
    _FORMAT.check(facts, what=str(place / FACTS))
    return from_json(
        _TaskJson, facts, what=str(place / FACTS), error=FormatError, fix="restore it", extra=True
    )


def _is_task(path: Path) -> bool:
    return (path / FACTS).is_file()


def find_task(path: str | Path) -> Path | None:
    """The trained task in a folder or run; None if there is none.

    Raises:
        FormatError: it holds one run for each of several seeds.
    """
    path = Path(path)
    runs = runs_of(path)
    if runs != [path]:
        raise FormatError(
            f"'{shown(path, 100)}' holds several runs; name one, such as {shown(runs[0], 120)}"
        )
    return next((place for place in (path, path / "checkpoint") if _is_task(place)), None)


def runs_of(path: str | Path) -> list[Path]:
    """The runs in a folder that holds one for each of several seeds, or the folder itself."""
    path = Path(path)
    if _is_task(path) or _is_task(path / "checkpoint"):
        return [path]
    places = (place.parent for place in path.glob("seed-*/checkpoint") if _is_task(place))
    # seed-2 before seed-10.
    return sorted(places, key=lambda place: (len(place.name), place.name)) or [path]
