"""States to go on from: written whole or not at all, the two newest kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmore._atomic import atomic_folder
from elmore._io import sha256_file
from elmore._json import read_json
from elmore._manifest import check_file
from elmore.errors import FormatError, ResumeError
from elmore.formats.files.safetensors_files import read_safetensors, write_safetensors

__all__ = ["load_state", "save_state"]

_KEPT = 2


def save_state(
    folder: Path, step: int, tensors: Mapping[str, Tensor], facts: dict[str, Any]
) -> None:
    """Write the state after a step, then drop all but the two newest.

    Args:
        folder: where states live.
        step: number of the step.
        tensors: weights, optimiser, carried LSTM state.
        facts: cursor, counters; JSON values.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, NDArray[Any]] = {
        name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()
    }
    with atomic_folder(
        folder / f"step-{step:010d}", overwrite=True, looks_ours=_looks_ours
    ) as place:
        with (place / "state.safetensors").open("wb") as stream:
            write_safetensors(stream, arrays, {})
        facts = {**facts, "step": step, "sha256": sha256_file(place / "state.safetensors")}
        (place / "state.json").write_text(json.dumps(facts), encoding="utf-8")
    for old in _states(folder)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def load_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read the newest whole state, or None if there is none yet.

    Raises:
        ResumeError: there are states, but all are damaged.
    """
    states = _states(folder)
    problem = ""
    for place in reversed(states):
        try:
            return _read(place)
        except (FormatError, OSError) as error:
            problem = str(error)
    if states:
        raise ResumeError(f"no state in '{folder}' can be read ({problem}); start again elsewhere")
    return None


def _read(place: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    facts = read_json(place / "state.json")
    file = place / "state.safetensors"
    check_file(file, facts.get("sha256"), fix=f"remove '{place}'")
    with read_safetensors(file, what=str(file)) as view:
        tensors = {
            name: torch.from_numpy(np.array(view.read(name, copy=True))) for name in view.names()
        }
    return tensors, facts


def _states(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if entry.name.startswith("step-"))


def _looks_ours(place: Path) -> bool:
    return (place / "state.json").is_file()
