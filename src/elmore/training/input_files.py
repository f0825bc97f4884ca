"""The input files of a corpus: found, inspected by the workers, described."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore._json import json_digest
from elmore._messages import shown
from elmore.errors import InputError
from elmore.training.text_files import TextFile, expand_inputs
from elmore.training.worker_processes import Workers

__all__ = ["describe_files", "input_paths", "inspect_files", "no_tokens"]

_LISTED_FILES = 1000  # more files are told in prepared.json by number and digest only


def input_paths(
    inputs: Sequence[str | Path], heldout_files: Sequence[str | Path]
) -> tuple[list[Path], list[Path]]:
    """Find the files, and those to hold out, which are left out of the others."""
    held = expand_inputs(heldout_files)
    real = {os.path.realpath(path) for path in held}
    paths = [path for path in expand_inputs(inputs) if os.path.realpath(path) not in real]
    if not paths:
        raise InputError("no input files; name at least one text file")
    return paths, held


def inspect_files(paths: Sequence[Path], held: Sequence[Path], pool: Workers) -> list[TextFile]:
    """Read every file once, to know what it is."""
    names = [os.fspath(path) for path in [*paths, *held]]
    step = max(1, len(names) // 256)
    requests = (
        ({"task": "inspect", "paths": names[k : k + step]}, b"") for k in range(0, len(names), step)
    )
    found = [file for _, reply in pool.map(requests) for file in reply["files"]]
    return [TextFile(**file, heldout=k >= len(paths)) for k, file in enumerate(found)]


def describe_files(files: Sequence[TextFile]) -> dict[str, Any]:
    """Give what prepared.json tells of the files."""
    lines = [[shown(f.path, 1000), f.size, f.sha256, f.heldout] for f in files]
    described: dict[str, Any] = {
        "n_files": len(files),
        "bytes": sum(f.size for f in files),
        "sha256": json_digest(lines),
    }
    if len(files) <= _LISTED_FILES:
        keys = ("path", "size", "sha256", "heldout")
        described["files"] = [dict(zip(keys, line, strict=True)) for line in lines]
    return described


def no_tokens(n_files: int) -> InputError:
    """Say that the files are empty."""
    files = "the input file has" if n_files == 1 else f"the {n_files} input files have"
    return InputError(f"{files} no tokens; name files with text")
