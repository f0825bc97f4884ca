"""The text files of a corpus: which they are, and what each of them is."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmore._io import open_checked, open_text, sha256_stream
from elmore._messages import shown
from elmore.errors import InputError
from elmore.training.documents import has_border

__all__ = ["TextFile", "expand_inputs", "inspect_file"]


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of the corpus.

    Attributes:
        path: where it is.
        size: bytes, as stored.
        sha256: of the bytes as stored.
        linewise: it has no blank lines between documents.
        heldout: all of it is held out.
    """

    path: str
    size: int
    sha256: str
    linewise: bool
    heldout: bool = False


def expand_inputs(inputs: Iterable[str | Path]) -> list[Path]:
    """Turn names and patterns into the files they mean, in order, each once.

    Raises:
        InputError: a pattern without a match, a folder, or a file that is not there.
    """
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    found: dict[str, Path] = {}
    for name in inputs:
        text = os.fspath(name)
        if os.path.lexists(text) or not glob.has_magic(text):
            names = [text]
        else:
            names = sorted(n for n in glob.glob(text, recursive=True) if not os.path.isdir(n))
            if not names:
                raise InputError(f"'{shown(text, 140)}' matches no file; check the pattern")
        for file in names:
            if os.path.isdir(file):
                raise InputError(
                    f"'{shown(file, 140)}' is a folder; name its files, such as "
                    f"'{shown(os.path.join(file, '*.txt'), 140)}'"
                )
            if not os.path.exists(file):
                raise InputError(f"'{shown(file, 140)}' does not exist; check the path")
            found.setdefault(os.path.realpath(file), Path(file))
    return list(found.values())


def inspect_file(path: str) -> dict[str, Any]:
    """Find size, SHA-256 and kind of a file, as the fields of `TextFile`."""
    with open_checked(Path(path), what="input") as stream:
        size = os.fstat(stream.fileno()).st_size
        sha256 = sha256_stream(stream)
    with open_text(Path(path), what="input") as text:
        linewise = not has_border(text)
    return {"path": path, "size": size, "sha256": sha256, "linewise": linewise}
