"""Read HDF5 weight files without trusting them.

HDF5 is a file system in a file: links may lead to other files, and data may be stored elsewhere.
Both are refused before the first value is read (Keras followed external storage: CVE-2026-1669).
The library gets an open file, never a path, so it has no folder to search.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.arrays import Arrays
from elmore.limits import LIMITS

_MAGIC = b"\x89HDF\r\n\x1a\n"


def open_hdf5(stream: BinaryIO, *, what: str) -> Arrays:
    """Open an HDF5 file and check all of it except the values.

    Args:
        stream: the file, which is closed with the result.
        what: its name for messages.

    Raises:
        FormatError: not HDF5, truncated, or with anything that this module refuses.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(stream.close)
        # The library also searches for a signature at later offsets.
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise _refused(what, "is not an HDF5 file", "check the file or download it again")
        with _library(what):
            file = stack.enter_context(h5py.File(stream, "r"))
            found = dict(_datasets(file, what))
            shapes = {name: tuple(dataset.shape) for name, dataset in found.items()}
            types = {name: str(dataset.dtype.name) for name, dataset in found.items()}

        def read(name: str) -> NDArray[Any]:
            with _library(what):
                if not _is_written(found[name]):
                    problem = f"has no values in '{shown(name, 80)}', or not all of them"
                    raise _refused(what, problem, "download it again")
                return np.asarray(found[name][()])

        return Arrays(what, shapes, types, read, stack.pop_all().close)


def _datasets(file: Any, what: str) -> Iterator[tuple[str, Any]]:
    """Every dataset by its full name, through hard links only."""
    pending = [(file, "")]
    count = 0
    while pending:
        group, prefix = pending.pop()
        for key in group:
            name = prefix + key
            label = f"'{shown(name, 80)}'"
            count += 1
            # Hard links can make a group its own ancestor, and the walk endless.
            if count > LIMITS.hdf5_objects or name.count("/") > LIMITS.hdf5_depth:
                raise _refused(what, f"has too many objects, or nests {label} too deeply")
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise _refused(what, f"has the link {label}", "store the data itself")
            item = group[key]
            if isinstance(item, h5py.Group):
                pending.append((item, f"{name}/"))
            elif isinstance(item, h5py.Dataset):
                # Must come first: asking a virtual dataset for its shape opens its source files.
                if item.is_virtual or item.external:
                    raise _refused(what, f"stores {label} in another file", "store the data itself")
                if item.shape is None or item.dtype.kind not in "fiubS":
                    raise _refused(what, f"has {label} of a type that is not a number")
                yield name, item


def _is_written(dataset: Any) -> bool:
    """Whether all values are in the file; HDF5 gives zeros for those that are not."""
    if dataset.chunks is not None:
        pairs = zip(dataset.shape, dataset.chunks, strict=True)
        return bool(dataset.id.get_num_chunks() >= math.prod(-(-n // size) for n, size in pairs))
    return not dataset.size or bool(dataset.id.get_storage_size())


@contextlib.contextmanager
def _library(what: str) -> Iterator[None]:
    try:
        yield
    except FormatError:
        raise
    except Exception as error:  # broken files make the library raise almost anything
        reason = shown(str(error) or type(error).__name__, 80)
        raise _refused(what, f"is a broken HDF5 file: {reason}", "download it again") from error


def _refused(
    what: str, problem: str, fix: str = "convert it to plain float32 datasets"
) -> FormatError:
    return FormatError(f"'{shown(what, 100)}' {problem}; {fix}")
