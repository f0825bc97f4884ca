"""Files that are mapped: compressed blocks, and arrays to be filled in any order.

Each block can be read alone. Where each of them ends is at the end of the file, 8 bytes each.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from elmore.base.atomic import write_error

_T = TypeVar("_T")
# A block that states more was made to fill the memory.
_MAX_BYTES = 1 << 28
# Blocks that are kept in memory.
_KEPT = 64
# Bytes that are written at once.
_AT_ONCE = 1 << 20


class Blocks(Generic[_T]):
    """Items in the blocks of a file that may be damaged. The file is mapped, not read.

    Args:
        path: the file.
        n: how many items it has.
        size: how many each block has; the last one may have fewer.
        decode: turns the bytes of a block into so many items; None if they are not.
        refuse: called with what is wrong with the file.
    """

    def __init__(
        self,
        path: Path,
        n: int,
        size: int,
        decode: Callable[[bytes, int], _T | None],
        refuse: Callable[[str], NoReturn],
    ) -> None:
        self._name, self._n, self._size = path.name, n, size
        self._decode, self._refuse = decode, refuse
        self._raw = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        self._end = len(self._raw) - 8 * -(-n // size)
        if self._end < 0:
            refuse(f"{path.name} has fewer than {n} items")
        self._ends = np.frombuffer(self._raw[self._end :].tobytes(), "<i8")
        # Of each file: a cache of the class would keep the file.
        self.read = lru_cache(_KEPT)(self._read)

    def _read(self, number: int) -> _T:
        """The items of a block."""
        start, end = int(self._ends[number - 1]) if number else 0, int(self._ends[number])
        found = None
        if 0 <= start <= end <= self._end:
            inflater = zlib.decompressobj()
            try:
                data = inflater.decompress(self._raw[start:end].tobytes(), _MAX_BYTES)
            except zlib.error as error:
                self._refuse(f"{self._name}, block {number}: {error}")
            if inflater.eof:
                found = self._decode(data, min(self._size, self._n - number * self._size))
        if found is None:
            self._refuse(f"{self._name}: block {number} is not what it should be")
        return found


def write_blocks(path: Path, blocks: Iterable[bytes], *, repeats: bool = True) -> None:
    """Compress blocks one by one and write them to a file.

    Args:
        path: the file.
        blocks: what to compress.
        repeats: look for repeated strings, as in text. For numbers it takes four times as long and
            saves nothing.
    """
    strategy = zlib.Z_DEFAULT_STRATEGY if repeats else zlib.Z_RLE
    ends = [0]
    try:
        with path.open("wb") as stream:
            for block in blocks:
                deflater = zlib.compressobj(strategy=strategy)
                found = deflater.compress(block) + deflater.flush()
                ends.append(ends[-1] + stream.write(found))
            stream.write(np.array(ends[1:], "<i8").tobytes())
    except OSError as error:
        raise write_error(error, path) from None


def reserved_array(path: Path, kind: np.dtype[Any], n: int) -> np.memmap[Any, Any]:
    """A new array file, mapped for writing, whose bytes are all on the disk already.

    Writing to a mapped file that the disk has no space for ends the process without a message.
    """
    try:
        found = np.lib.format.open_memmap(path, "w+", kind, (n,), version=(1, 0))
        with path.open("rb+") as stream:
            stream.seek(found.offset)
            for left in range(found.nbytes, 0, -_AT_ONCE):
                stream.write(bytes(min(left, _AT_ONCE)))
    except OSError as error:
        raise write_error(error, path) from None
    return found
