"""A trained task as a folder: task.json, model.safetensors, words.txt, and elmo/ inside it.

task.json holds the recipe, the labels, and the SHA-256 of the other two files. Nothing in the
folder is code.
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
from elmore.config import Precision
from elmore.embedding.elmo import Elmo
from elmore.embedding.engine import Start
from elmore.errors import FormatError
from elmore.formats.files.safetensors_files import read_safetensors, write_safetensors
from elmore.limits import LIMITS
from elmore.tasks.inputs import WordList
from elmore.tasks.places import FACTS, find_task, is_task

__all__ = ["TaskFolder", "read_task", "write_task"]

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
    precision: Precision | None = None
    start: Start | None = None
    scores: dict[str, Any]
    sha256: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TaskFolder:
    """What a folder holds.

    Attributes:
        task: name of the task.
        recipe: as JSON values.
        labels: what the task learned to tell apart, as JSON values.
        words: of the word table, or None.
        weights: name to array.
        elmo: digest of the model that the task reads, or None.
        precision: how that model computes, or None.
        start: the state before each of its sentences.
        scores: of the best look.
    """

    task: str
    recipe: Mapping[str, Any]
    labels: Mapping[str, Any]
    words: WordList | None
    weights: Mapping[str, NDArray[Any]]
    elmo: str | None
    precision: Precision | None
    start: Start
    scores: Mapping[str, float]


def write_task(
    path: Path, content: TaskFolder, elmo: Elmo | None, *, overwrite: bool = False
) -> None:
    """Write a folder, whole or not at all.

    Args:
        path: the folder to make.
        content: all but the biLM.
        elmo: the biLM to put inside, or None.
        overwrite: replace a folder of a task.
    """
    with atomic_folder(path, overwrite=overwrite, looks_ours=is_task) as place:
        with (place / _MODEL).open("wb") as stream:
            write_safetensors(stream, dict(content.weights), {"task": content.task})
        words = content.words
        (place / _WORDS).write_bytes(
            "".join(f"{word}\n" for word in (words.words if words else ())).encode("utf-8")
        )
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
        (place / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def read_task(path: str | Path) -> tuple[TaskFolder, Path | None]:
    """Read a folder, or the trained model of a run.

    Returns:
        what it holds, and where its biLM lies, if inside.

    Raises:
        FormatError: no folder of a task, or damaged.
    """
    place = _find(path)
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


def _find(path: str | Path) -> Path:
    place = find_task(path)
    if place is None:
        raise FormatError(
            f"'{shown(path, 140)}' holds no trained task; check the path, or train one with "
            "`elmore task train`"
        )
    return place


def _facts(place: Path) -> _TaskJson:
    facts = read_json(place / FACTS)
    _FORMAT.check(facts, what=str(place / FACTS))
    return from_json(
        _TaskJson, facts, what=str(place / FACTS), error=FormatError, fix="restore it", extra=True
    )
