"""A file of compressed blocks, each of which can be read alone.

The blocks follow each other; where each of them ends is at the end of the file, 8 bytes each.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np

from elmore.base.atomic import write_error


class Blocks:
    """The blocks of a file that may be damaged; the file is mapped, not read.

    Args:
        path: the file.
        n: how many blocks it has.
        refuse: called with what is wrong with it.
    """

    def __init__(self, path: Path, n: int, refuse: Callable[[str], NoReturn]) -> None:
        self._name, self._refuse, table = path.name, refuse, 8 * n
        self._raw = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        self._size = len(self._raw) - table
        if self._size < 0:
            refuse(f"{path.name} has fewer than {n} blocks")
        self._ends = np.frombuffer(self._raw[self._size :].tobytes(), "<i8")

    def read(self, number: int, max_bytes: int) -> bytes:
        """A block, which must not have more than `max_bytes`."""
        start, end = int(self._ends[number - 1]) if number else 0, int(self._ends[number])
        if not 0 <= start <= end <= self._size:
            self._refuse(f"{self._name} says that block {number} is outside of the file")
        inflater = zlib.decompressobj()
        try:
            found = inflater.decompress(self._raw[start:end].tobytes(), max_bytes)
        except zlib.error as error:
            self._refuse(f"{self._name}, block {number}: {error}")
        if not inflater.eof:
            self._refuse(f"{self._name}, block {number} is cut off or too long")
        return found


def write_blocks(path: Path, blocks: Iterable[bytes]) -> None:
    """Compress blocks one by one and write them to a file."""
    ends = [0]
    try:
        with path.open("wb") as stream:
            for block in blocks:
                ends.append(ends[-1] + stream.write(zlib.compress(block)))
            stream.write(np.array(ends[1:], "<i8").tobytes())
    except OSError as error:
        raise write_error(error, path) from None
