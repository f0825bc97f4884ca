"""A run folder: resume training from it, or load it as a model.

recipe.json    what is trained, on which data, with which seed
log.jsonl      one line for every few steps and for every evaluation on held-out text
checkpoint/    the newest model, an elmore folder
best/          the model that did best on the held-out text
resume/        the two newest states to resume from; of a finished run only its counters
"""

from __future__ import annotations

import contextlib
import html
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from elmore.base.atomic import atomic_file, atomic_folder, locked
from elmore.base.io import sha256_file
from elmore.base.json import json_digest, read_json
from elmore.base.manifest import FolderFormat
from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError, FormatError, ResumeError
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors
from elmore.training.bilm.recipe import Recipe

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from elmore.elmo import Elmo

_FORMAT = FolderFormat(name="elmore-run", version=1, label="a training run", fix="check the path")
_KEPT_STATES = 2  # the newest may be damaged by a crash of the machine
# Sections that may change when a run resumes: they do not affect what was learned.
_FREE = ("schedule", "run", "name")
# What must be changed to resume a run whose loss became infinite.
_FREE_KEYS = ("optimizer.lr", "optimizer.muon_lr", "optimizer.clip_norm")
_FIXED_KEYS = ("run.autocast",)  # it rounds what is learned
# All that a run folder holds, with the text of a fine-tuning; nothing else is ever removed.
_OWN = {
    *("recipe.json", "log.jsonl", "lock", "checkpoint", "best", "resume"),
    *("data", "vocab.txt", "tensorboard", "report.json", "results.json", "curve.svg"),
}
# What reading a damaged folder raises; showing it must not.
_DAMAGE = (ElmoreError, OSError, ValueError, KeyError, TypeError)
# What restoring a state of other types, shapes or keys raises.
_UNFIT = (AttributeError, LookupError, TypeError, ValueError, OverflowError, RuntimeError)
# Of an evaluation of a language model, in its repr.
_SHOWN = ("perplexity", "without_unknown")
# What is compared by its digest, which would mean nothing in a message.
_OTHER = {
    "data": "other training data",
    "dev": "other development data, or none",
    "elmo": "another biLM, or none",
    "vectors": "other word vectors, or none",
}


class AnyRecipe(Protocol):
    """A recipe, of a language model or of a task: sections of keys."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""


class Run:
    """The folder of a training run.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.log_path = self.path / "log.jsonl"
        self.checkpoint_path = self.path / "checkpoint"
        self.best_path = self.path / "best"
        self.resume_path = self.path / "resume"

    def __repr__(self) -> str:
        try:
            return f"<Run '{self.path}': {self._summary()}>"
        except _DAMAGE:
            return f"<Run '{self.path}'>"

    def _summary(self) -> str:
        if not self.exists():
            return "not started"
        unit = "tokens" if self.task is None else "examples"
        lines = self.log()
        seen = f"{lines[-1][unit]:,} {unit}" if lines else "no step yet"
        found = [line["heldout"] for line in lines if "heldout" in line]
        last = found[-1].items() if found else ()
        scores = [f"{name} {value:.4g}" for name, value in last if name in _SHOWN or self.task]
        return ", ".join([self.recipe_name, seen, *scores[:2]])

    def _repr_html_(self) -> str:
        from elmore.training.bilm.curves import curve_html

        try:
            return curve_html(self)
        except _DAMAGE:
            return f"<p>{html.escape(repr(self))}</p>"

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run that exists.

        Raises:
            ResumeError: the folder is not a run.
        """
        run = cls(path)
        if not run.exists():
            raise ResumeError(f"'{path}' holds no training run; check the path")
        return run

    def exists(self) -> bool:
        """Whether training was started here."""
        return (self.path / "recipe.json").is_file()

    def check_new(self, *, resume: bool, overwrite: bool = False) -> None:
        """Refuse to start where there is a run already, unless it is resumed or replaced."""
        if resume and overwrite:
            raise ConfigError("a run is either resumed or replaced; pass --resume or --force")
        if self.exists() and not resume and not overwrite:
            raise ResumeError(
                f"'{self.path}' holds a run; pass resume=True (--resume), overwrite=True (--force) "
                "or another folder"
            )

    def clear(self) -> None:
        """Remove a run, so that another can start in its folder; nothing if there is none.

        Raises:
            ResumeError: the folder holds something that no run of ours writes, or is in use.
        """
        if not self.exists():
            return
        self._facts()  # raises if another program wrote the file
        unknown = sorted({entry.name for entry in self.path.iterdir()} - _OWN)
        if unknown:
            raise ResumeError(
                f"'{self.path}' holds '{unknown[0]}', which is not part of a run; move it or "
                "choose another folder"
            )
        with self.locked():
            # The recipe last: as long as it is there, what is left is known as ours.
            for name in [*sorted(_OWN - {"lock", "recipe.json"}), "recipe.json"]:
                entry = self.path / name
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)

    def elmo(self, *, best: bool = True, **options: Any) -> Elmo:
        """Load the trained model, the best one if there is one; options as in `Elmo.load`."""
        from elmore.elmo import Elmo

        return Elmo.load(self.model_path(best=best), **options)

    def model_path(self, *, best: bool = True) -> Path:
        """The folder of the trained model, of the best one if there is one."""
        folder = self.best_path if best and self.best_path.is_dir() else self.checkpoint_path
        if not folder.is_dir():
            raise ResumeError(f"'{self.path}' has no checkpoint yet; let it train a little longer")
        return folder

    @property
    def task(self) -> str | None:
        """The task that is trained; None for a language model."""
        task = self._facts().get("task")
        return None if task is None else str(task)

    @property
    def recipe_name(self) -> str:
        """The name of the recipe, of a language model or of a task."""
        return str(self._facts()["recipe"].get("name", "own"))

    @property
    def recipe(self) -> Recipe:
        """The recipe that the run follows."""
        return Recipe.from_json(self._facts()["recipe"], what=str(self.path / "recipe.json"))

    def log(self) -> list[dict[str, Any]]:
        """Read the log.

        Raises:
            FormatError: a line is damaged; the last may be half a line.
        """
        if not self.log_path.is_file():
            return []
        # After the last newline there may be half a line: of a killed process, or being written.
        lines = self.log_path.read_bytes().split(b"\n")[:-1]
        found = []
        for number, line in enumerate(lines, 1):
            value = None
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
            if not isinstance(value, dict) or not isinstance(value.get("step"), int):
                raise FormatError(
                    f"{shown(self.log_path, 120)}:{number}: not a line of a log; remove the line"
                )
            found.append(value)
        return found

    def start(self, recipe: AnyRecipe, facts: dict[str, Any]) -> None:
        """Write what is trained; the folder is a run from now on."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write({"recipe": recipe.to_json(), **facts})

    def check(self, recipe: AnyRecipe, facts: dict[str, Any], *, write: bool = True) -> None:
        """Compare what is asked for with what the run did so far.

        Args:
            recipe: how to continue.
            facts: seed, data and the like.
            write: store the recipe, whose schedule may differ.

        Raises:
            ResumeError: the model, data, loss or optimizer differ, or the text or seed.
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
            free = key.partition(".")[0] in _FREE or key in _FREE_KEYS
            if not free or key in _FIXED_KEYS:
                raise ResumeError(
                    f"'{self.path}' was trained with {key}={old!r}, not {new!r}; "
                    f"pass {key}={json.dumps(old)} or start in another folder"
                )
        if write:
            self._write({"recipe": recipe.to_json(), **facts})

    def changed(self, recipe: AnyRecipe) -> dict[str, tuple[Any, Any]]:
        """The keys in which a recipe differs from the run's, with both values."""
        # Only keys that the file has are compared: one that a newer version added is not a change.
        asked = json.loads(json.dumps(recipe.to_json()))  # tuples become lists, as in the file
        return {
            f"{section}.{key}": (old, new)
            for section, values in self._facts()["recipe"].items()
            if section != "name"
            for key, old in values.items()
            if (new := asked.get(section, {}).get(key)) != old
        }

    def append(self, line: dict[str, Any]) -> None:
        """Add a line to the log."""
        with self.log_path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(line) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop the log's lines of steps that a resumed run will do again."""
        kept = [line for line in self.log() if line["step"] <= step]
        # Replaced in one step: a crash here must not lose the log.
        with atomic_file(self.log_path, overwrite=True) as stream:
            stream.write("".join(f"{json.dumps(line)}\n" for line in kept).encode())

    def keep_newest_state(self) -> None:
        """Drop all states but the newest."""
        for old in _states(self.resume_path)[:-1]:
            shutil.rmtree(old, ignore_errors=True)

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder for this process; a second one gets a `ResumeError`."""
        self.path.mkdir(parents=True, exist_ok=True)
        busy = (
            f"'{shown(self.path, 120)}' is in use by another process; wait for it, stop it, or "
            "train in another folder"
        )
        return locked(self.path / "lock", busy, error=ResumeError)

    def _facts(self) -> dict[str, Any]:
        facts = read_json(self.path / "recipe.json")
        _FORMAT.check(facts, what=f"{self.path}/recipe.json")
        recipe = facts.get("recipe")
        sections = recipe if isinstance(recipe, dict) else {"": None}
        if not all(isinstance(v, dict) for name, v in sections.items() if name != "name"):
            raise FormatError(f"'{self.path}/recipe.json' has no recipe; check the path")
        return facts

    def _write(self, facts: dict[str, Any]) -> None:
        data = {**_FORMAT.head(), **facts}
        with atomic_file(self.path / "recipe.json", overwrite=True) as stream:
            stream.write((json.dumps(data, indent=2) + "\n").encode())


# --------------------------------------------------------------------------- states to resume from


def save_state(
    folder: Path, step: int, tensors: Mapping[str, Tensor], facts: dict[str, Any]
) -> None:
    """Write the state after a step, then drop all but the two newest."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: t.detach().cpu().contiguous().numpy() for name, t in tensors.items()}
    with atomic_folder(
        folder / f"step-{step:010d}", overwrite=True, looks_ours=_looks_ours
    ) as place:
        write_safetensors(place / "state.safetensors", arrays, {})
        # A failing disk or a crash can leave a file of the right size with other contents.
        facts = {**facts, "step": step, "sha256": sha256_file(place / "state.safetensors")}
        facts["digest"] = json_digest(facts)
        (place / "state.json").write_text(json.dumps(facts), encoding="utf-8", newline="\n")
    # After the new one is complete, so that there is always one to resume from.
    for old in _states(folder)[:-_KEPT_STATES]:
        shutil.rmtree(old, ignore_errors=True)


def load_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read the newest complete state, or None if there is none yet.

    Raises:
        ResumeError: there are states, but all are damaged.
    """
    states = _states(folder)
    problem = ""
    for place in reversed(states):
        try:
            return _read_state(place)
        except (FormatError, OSError) as error:
            problem = str(error)
    if states:
        raise ResumeError(f"no state in '{folder}' can be read ({problem}); start again elsewhere")
    return None


@contextlib.contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """Explain a state that cannot be restored: whoever edits one can change its digest too."""
    try:
        yield
    except ElmoreError:
        raise
    except _UNFIT as error:
        raise ResumeError(
            f"the state in '{shown(folder, 120)}' does not fit the run ({shown(repr(error), 80)}); "
            "start again elsewhere"
        ) from error


def state_part(
    tensors: Mapping[str, Tensor], name: str, device: torch.device | str
) -> dict[str, Tensor]:
    """The tensors of a state that were saved as `name`/..., on a device."""
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): tensor.to(device)
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }


def _read_state(place: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    import torch

    facts = read_json(place / "state.json")
    if facts.pop("digest", None) != json_digest(facts):
        raise FormatError(f"'{place / 'state.json'}' is damaged; remove '{place}'")
    file = place / "state.safetensors"
    if sha256_file(file) != facts.get("sha256"):
        raise FormatError(f"'{file}' is damaged; remove '{place}'")
    with read_safetensors(file, what=str(file)) as view:
        tensors = {name: torch.from_numpy(np.array(view.read(name))) for name in view.shapes}
    return tensors, facts


def _states(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if entry.name.startswith("step-"))


def _looks_ours(place: Path) -> bool:
    return (place / "state.json").is_file()
