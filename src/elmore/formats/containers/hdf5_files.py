"""Read HDF5 weight files without trusting them.

HDF5 is a file system in a file: links may lead to other files, data may be stored elsewhere,
filters may load code, chunks may decompress without end. All of this is refused before the first
value is read (Keras followed external storage: CVE-2026-1669). The library gets an open file, never
a path, so it has no folder to search.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.finite import finite_float32
from elmore.limits import LIMITS

__all__ = ["Hdf5Dataset", "Hdf5View", "open_hdf5"]

_MAGIC = b"\x89HDF\r\n\x1a\n"
_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
# Types whose values are in the dataset itself. Anything else (references, variable length,
# compounds, arrays, opaque, complex) points elsewhere or is never a weight.
_TYPES = {h5py.h5t.FLOAT, h5py.h5t.INTEGER, h5py.h5t.STRING, h5py.h5t.ENUM, h5py.h5t.BITFIELD}
_LIBRARY_ERRORS = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    AttributeError,
    NotImplementedError,
)


@dataclass(frozen=True)
class Hdf5Dataset:
    """Shape and numpy type of a dataset; `dtype` is None for types that we do not read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None


class Hdf5View:
    """A checked HDF5 file: its datasets, and their values as float32.

    Made by `open_hdf5`; valid until that block ends.
    """

    def __init__(self, file: Any, *, what: str, size: int) -> None:
        self._file = file
        self._what = shown(what, 100)
        self._size = size
        self._datasets: dict[str, Any] = {}
        self._infos: dict[str, Hdf5Dataset] = {}
        self._stored = 0
        with self._library():
            self._walk()

    def _error(
        self, problem: str, fix: str = "convert it to plain float32 datasets"
    ) -> FormatError:
        return FormatError(f"{self._what} {problem}; {fix}")

    @contextlib.contextmanager
    def _library(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except _LIBRARY_ERRORS as error:
            where = f" at '{shown(name, 60)}'" if name else ""
            reason = shown(str(error) or type(error).__name__, 80)
            raise self._error(
                f"is a broken HDF5 file{where}: {reason}", "download it again"
            ) from error

    # ------------------------------------------------------------- the walk

    def _walk(self) -> None:
        """Visit every object through its hard links, before any value is read."""
        root = h5py.h5g.open(self._file.id, b"/")
        pending: list[tuple[Any, str, int]] = [(root, "", 0)]
        # By address, not by name: hard links can make a group its own ancestor, and the
        # walk endless.
        groups = {self._address(root)}
        count = 0
        while pending:
            group, prefix, depth = pending.pop()
            if depth > LIMITS.hdf5_depth:
                raise self._error(
                    f"nests '{shown(prefix, 80)}' deeper than the {LIMITS.hdf5_depth} "
                    "levels allowed"
                )
            for link in self._links(group, LIMITS.hdf5_objects - count):
                count += 1
                name = prefix + link.decode("utf-8", "backslashreplace")
                self._check_link(group, link, name)
                item = h5py.h5o.open(group, link)
                if isinstance(item, h5py.h5g.GroupID):
                    address = self._address(item)
                    if address in groups:
                        raise self._error(f"reaches the group '{shown(name, 80)}' twice")
                    groups.add(address)
                    pending.append((item, name + "/", depth + 1))
                elif isinstance(item, h5py.h5d.DatasetID):
                    self._check_dataset(item, name)
                # The rest are named types, which have no data.

    def _address(self, item: Any) -> tuple[int, int]:
        info = h5py.h5o.get_info(item)
        return int(info.fileno), int(info.addr)

    def _links(self, group: Any, max_links: int) -> list[bytes]:
        found: list[bytes] = []

        def take(name: bytes) -> bool | None:
            found.append(name)
            return True if len(found) > max_links else None  # anything but None ends the iteration

        group.links.iterate(take)
        if len(found) > max_links:
            raise self._error(
                f"has more than the {LIMITS.hdf5_objects} objects allowed",
                "check that it is a weight file",
            )
        return found

    def _check_link(self, group: Any, link: bytes, name: str) -> None:
        kind = group.links.get_info(link).type
        if kind == h5py.h5l.TYPE_HARD:
            return
        kinds = {h5py.h5l.TYPE_SOFT: "soft", h5py.h5l.TYPE_EXTERNAL: "external"}
        raise self._error(
            f"has the {kinds.get(kind, 'user-defined')} link '{shown(name, 80)}'",
            "store the data itself",
        )

    def _check_dataset(self, dataset: Any, name: str) -> None:
        label = f"'{shown(name, 80)}'"
        plan = dataset.get_create_plist()
        layout = plan.get_layout()
        # Must come first: asking a virtual dataset for its shape opens its source files.
        if layout == h5py.h5d.VIRTUAL:
            raise self._error(f"has the virtual dataset {label}", "store the data itself")
        if plan.get_external_count():
            raise self._error(f"stores {label} in another file", "store the data itself")
        kind = dataset.get_type()
        if kind.get_class() not in _TYPES or (
            isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()
        ):
            raise self._error(f"has {label} of a type that is not a number or fixed text")
        for i in range(plan.get_nfilters()):
            code = plan.get_filter(i)[0]
            if code not in _FILTERS:
                raise self._error(f"compresses {label} by filter {code}", "use gzip or none")
        space = dataset.get_space()
        if space.get_simple_extent_type() == h5py.h5s.NULL:
            raise self._error(f"has no values in {label}", "download it again")
        shape = tuple(int(n) for n in space.get_simple_extent_dims())
        self._check_sizes(dataset, plan, shape, int(kind.get_size()), label)
        dtype: np.dtype[Any] | None = None
        # Other types are listed, so that a wrong file can be recognised; `read` refuses them.
        with contextlib.suppress(*_LIBRARY_ERRORS):
            dtype = np.dtype(kind.dtype)
        self._datasets[name] = dataset
        self._infos[name] = Hdf5Dataset(shape, dtype)

    def _check_sizes(
        self, dataset: Any, plan: Any, shape: tuple[int, ...], item: int, label: str
    ) -> None:
        """Compare what a dataset claims with what the file holds."""
        claimed = math.prod(shape) * item
        if claimed > LIMITS.model_bytes:
            raise self._error(
                f"claims {claimed} bytes for {label}, allowed are {LIMITS.model_bytes}",
                "download it again",
            )
        # Datasets may share bytes through crafted offsets; together they cannot take more
        # than the file.
        stored = int(dataset.get_storage_size())
        self._stored += stored
        if self._stored > self._size:
            raise self._error(
                f"claims more stored bytes up to {label} than its {self._size}", "download it again"
            )
        self._check_ratio(claimed, stored, label)
        layout = plan.get_layout()
        if layout == h5py.h5d.CONTIGUOUS and stored:
            offset = dataset.get_offset()
            if offset is None or offset + stored > self._size:
                raise self._error(f"ends before the values of {label}", "download it again")
        if layout == h5py.h5d.CHUNKED:
            self._check_chunks(dataset, math.prod(plan.get_chunk()) * item, claimed, label)

    def _check_ratio(self, claimed: int, stored: int, label: str) -> None:
        if claimed > LIMITS.hdf5_ratio_from and claimed > LIMITS.hdf5_ratio * stored:
            raise self._error(
                f"decompresses {label} from {stored} to {claimed} bytes, more than "
                f"{LIMITS.hdf5_ratio} times as many",
                "store it uncompressed",
            )

    def _check_chunks(self, dataset: Any, chunk: int, claimed: int, label: str) -> None:
        # The library allocates complete chunks, however little of one the dataset needs.
        if chunk > max(claimed, LIMITS.hdf5_ratio_from):
            raise self._error(
                f"splits {label} of {claimed} bytes into chunks of {chunk}", "do not chunk it"
            )
        if chunk > LIMITS.hdf5_ratio_from:
            for i in range(dataset.get_num_chunks()):
                self._check_ratio(chunk, int(dataset.get_chunk_info(i).size), label)

    # ------------------------------------------------------------- what readers use

    def names(self) -> dict[str, Hdf5Dataset]:
        """Return every dataset by its full name, such as 'CNN/W_cnn_0', without reading it."""
        return dict(self._infos)

    def read(self, name: str) -> NDArray[np.float32]:
        """Return the values of a dataset as float32, C-contiguous, in memory of their own.

        Args:
            name: one of `names()`. Its shape should have been compared with the options.

        Raises:
            FormatError: no such dataset, not a float type, never written, damaged, or not
                finite.
        """
        label = f"'{shown(name, 80)}'"
        if name not in self._infos:
            raise self._error(f"has no dataset {label}", "check that it fits the options")
        info = self._infos[name]
        if info.dtype is None or info.dtype.kind != "f" or info.dtype.itemsize not in (2, 4, 8):
            raise self._error(f"has {label} of type {info.dtype}, expected a float type")
        with self._library(name):
            written = _is_written(self._datasets[name], info.shape)
        if not written:
            raise self._error(f"has no values in {label}, or not all of them", "download it again")
        with self._library(name):
            raw = np.empty(info.shape, info.dtype)
            if raw.size:
                self._datasets[name].read(h5py.h5s.ALL, h5py.h5s.ALL, raw)
        return finite_float32(raw, what=self._what, name=name)


def _is_written(dataset: Any, shape: tuple[int, ...]) -> bool:
    """Whether all values are in the file; HDF5 gives zeros for those that are not."""
    plan = dataset.get_create_plist()
    if plan.get_layout() == h5py.h5d.CHUNKED:
        sizes: tuple[int, ...] = plan.get_chunk()
        chunks = math.prod(-(-n // size) for n, size in zip(shape, sizes, strict=True))
        return int(dataset.get_num_chunks()) >= chunks
    return not math.prod(shape) or bool(dataset.get_storage_size())


@contextlib.contextmanager
def open_hdf5(source: BinaryIO | Path, *, what: str) -> Iterator[Hdf5View]:
    """Open an HDF5 file and check all of it except the values.

    Args:
        source: a path, or a seekable stream, which stays open.
        what: the file for messages.

    Raises:
        FormatError: not HDF5, truncated, or with anything that this module refuses.
    """
    what = shown(what, 100)
    with contextlib.ExitStack() as stack:
        if isinstance(source, (str, os.PathLike)):
            stream = stack.enter_context(open_checked(Path(source), what="HDF5 file"))
        else:
            stream = source
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        # The library also searches for a signature at later offsets, behind bytes that we
        # did not check.
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise FormatError(f"{what} is not an HDF5 file; check the file or download it again")
        stream.seek(0)
        try:
            file = stack.enter_context(h5py.File(stream, "r"))
        except _LIBRARY_ERRORS as error:
            raise FormatError(
                f"{what} is a broken HDF5 file: {shown(error, 90)}; download it again"
            ) from error
        yield Hdf5View(file, what=what, size=size)
