"""A trained task as a folder: task.json, model.safetensors, words.txt, and elmo/ inside it.

task.json holds the recipe, the labels, and the SHA-256 of the other two files. Nothing in the
folder is code, and reading it needs no torch.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore._version import __version__
from elmore.base.atomic import atomic_folder
from elmore.base.io import open_checked, read_lines, sha256_file
from elmore.base.json import from_json, read_json
from elmore.base.manifest import FolderFormat, check_file
from elmore.base.messages import shown
from elmore.config import ComputePrecision
from elmore.elmo import Elmo
from elmore.errors import ConfigError, FormatError, ModelNotFound
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors
from elmore.limits import LIMITS
from elmore.options import Start
from elmore.published.hub import fetch_hugging_face, home, is_hugging_face

__all__ = [
    "FACTS",
    "TaskFolder",
    "WordList",
    "bilm_of",
    "find_model",
    "find_task",
    "read_facts",
    "read_task",
    "ready_models",
    "runs_of",
    "write_task",
]

# The file by which the folder of a trained task is known.
FACTS = "task.json"
_FORMAT = FolderFormat(name="elmore-task", version=1, label="a trained task", fix="check the path")
_MODEL, _WORDS, _ELMO = "model.safetensors", "words.txt", "elmo"
# Those that ship with elmore, by task.
_READY = Path(__file__).parents[1] / "models"
_NAMES = {"tag": ("pos", "chunk"), "classify": ("sentiment", "sentiment-5")}


@dataclass(frozen=True, kw_only=True)
class TaskJson:
    """What task.json says."""

    task: str
    recipe: dict[str, Any]
    labels: dict[str, Any]
    n_trained_words: int | None
    elmo: str | None
    precision: ComputePrecision | None
    start: Start
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
    with atomic_folder(path, overwrite=overwrite, looks_ours=_may_replace) as place:
        write_safetensors(place / _MODEL, content.weights, {"task": content.task})
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
            "`elmore train`"
        )
    facts = read_facts(place)
    for name in (_MODEL, _WORDS):
        check_file(place / name, facts.sha256.get(name), fix="restore it")
    with read_safetensors(place / _MODEL, what=str(place / _MODEL)) as view:
        weights = {name: np.array(view.read(name)) for name in view.names()}
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
        precision=facts.precision,
        start=facts.start,
        scores=facts.scores,
    )
    inside = place / _ELMO
    return content, inside if inside.is_dir() else None


def read_facts(place: Path) -> TaskJson:
    """What the task.json of a folder says.

    Raises:
        FormatError: it is damaged, or a part of the folder is a link to somewhere else.
    """
    root = place.resolve()
    inside = place / _ELMO
    parts = sorted(inside.iterdir()) if inside.is_dir() else []
    for part in (place / FACTS, inside, *parts):
        # Another biLM or file must not enter by a link, which a copy of the folder would lose.
        if part.is_symlink() and not part.resolve().is_relative_to(root):
            raise FormatError(
                f"'{shown(part, 120)}' is a link out of the folder of the task; replace it by a "
                "copy of the file"
            )
    facts = read_json(place / FACTS)
    _FORMAT.check(facts, what=str(place / FACTS))
    return from_json(
        TaskJson, facts, what=str(place / FACTS), error=FormatError, fix="restore it", extra=True
    )


def _may_replace(path: Path) -> bool:
    """Whether a folder is a task and holds nothing else."""
    return _FORMAT.owns(path, FACTS, (_MODEL, _WORDS, _ELMO))


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


# --------------------------------------------------------------------- where models are


def ready_models() -> tuple[str, ...]:
    """The names of the taggers and classifiers that ship with elmore."""
    return tuple(name for names in _NAMES.values() for name in names)


def find_model(model: str | Path) -> Path:
    """The folder of a trained task: a path, a name of `ready_models`, or one on the hub."""
    place = find_task(model)
    if place is not None:
        return place
    for task, names in _NAMES.items():
        if str(model) in names:
            return _READY / f"{task}-{model}"
    if is_hugging_face(str(model)) and not Path(model).exists():
        return _copied(fetch_hugging_face(str(model)), str(model))
    raise ModelNotFound(
        f"'{shown(model, 120)}' is not a trained model; use {', '.join(ready_models())}, the "
        "folder of one that `elmore train` made, or owner/name on the hub"
    )


def _copied(folder: Path, name: str) -> Path:
    """A folder of files instead of the hub's folder of links, which is not trusted."""
    place = home() / "tasks" / f"{re.sub('[^A-Za-z0-9.-]+', '--', name)}-{folder.name[:12]}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
            shutil.copytree(folder, Path(temporary, "task"))
            with contextlib.suppress(OSError):  # another process was faster
                Path(temporary, "task").rename(place)
    if find_task(place) is None:
        raise FormatError(f"'{shown(name, 100)}' on the hub is not a trained task; check the name")
    return place


def bilm_of(
    content: TaskFolder,
    inside: Path | None,
    elmo: Elmo | None,
    what: str,
    *,
    device: str = "cpu",
    threads: int | None = None,
) -> Elmo:
    """The biLM that a task was trained with: the given one, the one inside, or the included one.

    Raises:
        ConfigError: the given one is another one.
        FormatError: the one inside is.
    """
    if elmo is None:
        # Not by its name: a folder called "english" in the working directory would be found first.
        elmo = Elmo.load(
            inside,
            device=device,
            precision=content.precision,
            threads=threads,
            start=content.start,
        )
    else:
        inside = None
    if elmo.digest != content.elmo:
        if inside is not None:
            raise FormatError(
                f"'{shown(inside, 120)}' is not the biLM that the task was trained with; restore it"
            )
        raise ConfigError(
            f"'{what}' was trained with another biLM or has none inside; pass the right elmo= "
            "(--model)"
        )
    return elmo
