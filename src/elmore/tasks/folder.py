"""A trained task as a folder: task.json, model.safetensors, words.txt, and elmo/ inside it.

task.json holds the recipe, the labels, and the SHA-256 of the other two files. Nothing in the
folder is code, and reading it needs no torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmore._version import __version__
from elmore.base.atomic import atomic_folder
from elmore.base.io import open_checked, read_lines, sha256_file
from elmore.base.json import from_json, read_json
from elmore.base.manifest import FolderFormat, check_file
from elmore.base.messages import shown
from elmore.base.optional import require
from elmore.config import ComputePrecision
from elmore.elmo import Elmo
from elmore.errors import ConfigError, FormatError, ModelNotFound
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors
from elmore.limits import LIMITS
from elmore.options import Start
from elmore.published.hub import fetch_hugging_face, home, is_hugging_face
from elmore.tasks import OWN_TASKS, TASKS
from elmore.tasks.predictions import Predictor
from elmore.text.segmenter import Tokenizer

if TYPE_CHECKING:
    from elmore.tasks.task import Task

# The file by which the folder of a trained task is known.
FACTS = "task.json"
_FORMAT = FolderFormat(name="elmore-task", version=1, label="a trained task", fix="check the path")
_MODEL, _WORDS, _ELMO = "model.safetensors", "words.txt", "elmo"
# Those that ship with elmore, by task.
_READY = Path(__file__).parents[1] / "models"
_NAMES = {"tag": ("pos", "chunk"), "classify": ("sentiment", "sentiment-5")}


@dataclass(frozen=True, kw_only=True)
class TrainedTask:
    """What a folder holds: the keys of task.json, then what the other files add."""

    task: str  # name of the task
    recipe: dict[str, Any]  # as JSON values
    labels: dict[str, Any]  # what the task learned to tell apart, as JSON values
    elmo: str | None  # digest of the biLM that the task was trained with, or None
    precision: ComputePrecision | None  # how that biLM computes, or None
    start: Start  # the state before each of its sentences
    scores: dict[str, Any]  # of the best evaluation
    sha256: dict[str, Any] = field(default_factory=dict)  # of the other files
    # of the word table in the order of its rows, or None without a table
    words: tuple[str, ...] | None = None
    weights: dict[str, Any] = field(default_factory=dict)  # name to array
    inside: Path | None = None  # the folder of the biLM, if there is one inside


_OF_JSON = ("task", "recipe", "labels", "elmo", "precision", "start", "scores")


def write_task(
    path: Path, content: TrainedTask, elmo: Elmo | None, *, overwrite: bool = False
) -> None:
    """Write a folder, complete or not at all, with the biLM inside unless that is None."""

    ours = functools.partial(_FORMAT.owns, manifest=FACTS, more=(_MODEL, _WORDS, _ELMO))
    with atomic_folder(path, overwrite=overwrite, looks_ours=ours) as place:
        write_safetensors(place / _MODEL, content.weights, {"task": content.task})
        lines = [f"{word}\n" for word in content.words or ()]
        (place / _WORDS).write_bytes("".join(lines).encode("utf-8"))
        if elmo is not None:
            elmo.save(place / _ELMO)
        facts = {
            **_FORMAT.head(),
            "elmore": __version__,
            **{key: getattr(content, key) for key in _OF_JSON},
            "sha256": {name: sha256_file(place / name) for name in (_MODEL, _WORDS)},
        }
        (place / FACTS).write_text(
            json.dumps(facts, indent=2) + "\n", encoding="utf-8", newline="\n"
        )


def read_task(path: str | Path) -> TrainedTask:
    """Read a folder, or the trained model of a run; FormatError if it is neither, or damaged."""
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
        weights = {name: np.array(view.read(name)) for name in view.shapes}
    words = None
    if "features.words.unknown" in weights:
        with open_checked(place / _WORDS, what="words of a task", follow=False) as stream:
            limit = LIMITS.vocabulary_line_bytes
            lines = read_lines(stream, what=_WORDS, max_line=limit)
            words = tuple(line for _, line in lines)
    inside = place / _ELMO
    return dataclasses.replace(
        facts, words=words, weights=weights, inside=inside if inside.is_dir() else None
    )


def read_facts(place: Path) -> TrainedTask:
    """What the task.json of a folder says, without the other files.

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
    what = str(place / FACTS)
    facts = read_json(place / FACTS)
    _FORMAT.check(facts, what=what)
    known = {key: facts[key] for key in (*_OF_JSON, "sha256") if key in facts}
    return from_json(TrainedTask, known, what=what, error=FormatError, fix="restore it")


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
    return next((p for p in (path, path / "checkpoint") if (p / FACTS).is_file()), None)


def runs_of(path: str | Path) -> list[Path]:
    """The runs in a folder that holds one for each of several seeds, or the folder itself."""
    path = Path(path)
    if any((place / FACTS).is_file() for place in (path, path / "checkpoint")):
        return [path]
    places = (place.parents[1] for place in path.glob(f"seed-*/checkpoint/{FACTS}"))
    # seed-2 before seed-10.
    return sorted(places, key=lambda place: (len(place.name), place.name)) or [path]


def word_rows(words: Sequence[str]) -> Callable[[str], int]:
    """What gives the row of a word in the table of words; 0 is padding, 1 an unknown word."""
    # Of a word that is there twice, the first.
    rows = {word: row for row, word in reversed(list(enumerate(words, 2)))}

    def row(word: str) -> int:
        # Files of vectors often have lower-case words only.
        found = rows.get(word)
        return rows.get(word.lower(), 1) if found is None else found

    return row


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
    content: TrainedTask,
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
    inside = content.inside if elmo is None else None
    if elmo is None:
        if content.precision == "int8":
            device = "cpu"  # the only place for it; the rest of the task may be on a GPU
        # Not by its name: a folder called "english" in the working directory would be found first.
        elmo = Elmo.load(
            inside, device=device, precision=content.precision, threads=threads, start=content.start
        )
    if elmo.digest == content.elmo:
        return elmo
    if inside is not None:
        raise FormatError(
            f"'{shown(inside, 120)}' is not the biLM that the task was trained with; restore it"
        )
    if elmo.precision != content.precision:
        raise ConfigError(
            f"'{what}' was trained with a biLM that computes in {content.precision}, not "
            f"{elmo.precision}; load it with that precision (--precision)"
        )
    raise ConfigError(
        f"'{what}' was trained with another biLM or has none inside; pass the right elmo= (--model)"
    )


# --------------------------------------------------------------------- loading


def task_class(name: str) -> type[Task[Any, Any]]:
    """The class of a task of `TASKS`; it needs torch."""
    require("torch", "tasks", f"the task {name}")
    module = importlib.import_module(f"elmore.tasks.{TASKS[name].module}")
    found: type[Task[Any, Any]] = getattr(module, TASKS[name].name)
    return found


def load(
    model: str | Path,
    *,
    light: bool = False,
    elmo: Elmo | None = None,
    device: str = "cpu",
    threads: int | None = None,
    tokenizer: Tokenizer | None = None,
    **options: Any,
) -> Predictor[Any, Any]:
    """Load a trained model of any task; its folder says which.

    Args:
        model: the folder of a trained task or of its run; "pos", "chunk", "sentiment" or
            "sentiment-5", which ship with elmore; or `owner/name` on the Hugging Face hub.
        light: only to predict. Taggers and classifiers then need no torch; all others, and those
            that read characters or were trained without ELMo, are loaded in full.
        elmo: the biLM, if the folder has none inside and it is not the included English one.
        device: where to compute.
        threads: processors to use; all by default.
        tokenizer: how raw text is split, as in `Elmo.load`.
        options: of a full model, as in `Task.load`: cache, progress; for tag and classify also
            text, label and separator.

    Returns:
        A `Predictor`. All have `predict` and `pipe`, which give the objects of the task; `lines`,
        which prints; and `items`, which turns the lines of a text file into what those take. To
        label raw sentences: `model.lines(sentences, "text", colour=True)`; a text file:
        `model.lines(model.items(numbered_lines, name), "jsonl")`; a table, with its columns kept:
        `label_table(model, "data.csv", "csv")`. A full model is a `Task` and can `evaluate` too.

    Examples:
        >>> import elmore.tasks
        >>> tagger = elmore.tasks.load("pos", light=True)
        >>> print(next(tagger.lines(["Rome fell."], "conll")))
        Rome	PROPN	NNP
        fell	VERB	VBD
        .	PUNCT	.
        <BLANKLINE>
    """
    place = find_model(model)
    name = read_facts(place).task
    if name not in TASKS:
        raise FormatError(
            f"'{shown(model, 120)}' is a model for {shown(name, 30)!r}, which is not a task of "
            "elmore; upgrade elmore"
        )
    if light and name in OWN_TASKS:
        from elmore.tasks.own.light import load_light  # only here: it imports the biLM's kernels

        content = read_task(place)
        found = load_light(
            content, str(model), elmo=elmo, device=device, threads=threads, tokenizer=tokenizer
        )
        if found is not None:
            return found
    task = task_class(name).load(place, elmo=elmo, device=device, threads=threads, **options)
    task.tokenizer = tokenizer
    return task
