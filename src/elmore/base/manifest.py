"""Manifests: JSON files that say what a folder is and which bytes its files must have."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

import msgspec

from elmore.base.io import open_checked, sha256_file, sha256_stream
from elmore.base.json import read_json
from elmore.base.messages import shown
from elmore.errors import FormatError

_T = TypeVar("_T")
# Files up to this size are compared with their SHA-256 when they are opened, which takes a
# millisecond.
_COMPARED = 1 << 20
# Of a JSON file. Two million words are 30 MB.
_MAX_JSON = 1 << 28
# What `owns` reads: the largest is that of a corpus, with 26,000 shards in 4 MiB.
_MANIFEST_BYTES = 1 << 27


@dataclass(frozen=True, kw_only=True)
class FolderFormat:
    """A format of ours, as its manifests state it.

    Attributes:
        name: the value of the key `format`.
        version: the newest version that can be read.
        label: what a file of this format belongs to, for messages: "a prepared corpus".
        fix: what to do if it is damaged, for messages.
    """

    name: str
    version: int
    label: str
    fix: str

    def head(self) -> dict[str, Any]:
        """The first keys of a manifest of the newest version."""
        return {"format": self.name, "version": self.version}

    def check(self, data: Mapping[str, Any], *, what: str) -> None:
        """Refuse another format, and a version that cannot be read."""
        # The format first: the version of another format means nothing.
        if data.get("format") != self.name:
            raise FormatError(f"'{shown(what, 120)}' does not belong to {self.label}; {self.fix}")
        version = data.get("version")
        # bool is an int in Python: `"version": true` must not pass for version 1.
        if type(version) is not int or version < 1:
            raise FormatError(f"'{shown(what, 120)}' has version {shown(version)}; {self.fix}")
        if version > self.version:
            raise FormatError(
                f"'{shown(what, 120)}' has format version {version}, this elmore reads up to "
                f"{self.version}; upgrade elmore"
            )

    def owns(self, folder: Path, manifest: str, more: Collection[str] = ()) -> bool:
        """Whether a folder states this format and holds nothing unknown, so it may be replaced.

        Args:
            folder: the folder.
            manifest: name of the file that states the format and lists the other `files`.
            more: names that may be there although they are not listed.
        """
        try:
            stated = read_json(folder / manifest, max_bytes=_MANIFEST_BYTES, follow=False)
            self.check(stated, what=manifest)
            found = {entry.name for entry in folder.iterdir()}
        except (FormatError, OSError):
            return False
        files = stated.get("files")
        return found <= {manifest, *more, *(files if isinstance(files, dict) else ())}


class ListedFiles:
    """The files of a folder that may come from elsewhere, as its manifest lists them.

    Only regular files are read, and none whose size is not the listed one.

    Args:
        folder: the folder.
        entries: `size` and `sha256` of each file.
        fix: what to do if one is damaged, for messages.
    """

    def __init__(self, folder: Path, entries: Mapping[str, Mapping[str, Any]], fix: str) -> None:
        self.folder, self.entries, self.fix = folder, entries, fix

    def open(self, name: str, *, compare: bool = False) -> BinaryIO:
        """Open a file; small ones are compared with their SHA-256 in any case."""
        path, entry = self.folder / name, self.entries[name]
        stream = open_checked(path, what="file", follow=False)
        try:
            check_size(os.fstat(stream.fileno()).st_size, entry["size"], what=path, fix=self.fix)
            if compare or entry["size"] <= _COMPARED:
                check_sum(stream, entry["sha256"], what=path, fix=self.fix)
                stream.seek(0)
            return stream
        except BaseException:
            stream.close()
            raise

    def json(self, name: str, kind: type[_T]) -> _T:
        """Read a JSON file of a type that msgspec knows; compressed if its name ends in .gz."""
        with self.open(name, compare=True) as stream:
            try:
                plain = gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream
                data = plain.read(_MAX_JSON + 1)
            except (OSError, EOFError, zlib.error) as error:
                self.refuse(f"{name}: {error}")
        if len(data) > _MAX_JSON:
            self.refuse(f"{name} has more than {_MAX_JSON} bytes")
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.refuse(f"{name}: {error}")

    def verify(self) -> None:
        """Compare all files with their SHA-256; this reads all of them."""
        for name in self.entries:
            self.open(name, compare=True).close()

    def refuse(self, reason: str) -> NoReturn:
        """Say that the folder is damaged."""
        raise FormatError(
            f"'{shown(self.folder, 100)}' is damaged ({shown(reason, 80)}); {self.fix}"
        )


def file_entries(folder: Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """The size and SHA-256 of files in a folder, by name; of all without `names`."""
    chosen = sorted(path.name for path in folder.iterdir()) if names is None else names
    return {
        name: {"size": (folder / name).stat().st_size, "sha256": sha256_file(folder / name)}
        for name in chosen
    }


def check_size(size: int, expected: object, *, what: object, fix: str) -> None:
    """Compare a size with that of a manifest, which may be anything that JSON can hold."""
    if size != expected:
        raise FormatError(
            f"'{shown(what, 120)}' has {size} bytes, the manifest says {shown(expected, 30)}; {fix}"
        )


def check_sum(stream: BinaryIO, sha256: object, *, what: object, fix: str) -> None:
    """Compare what is left in a stream with a SHA-256."""
    if sha256_stream(stream) != sha256:
        raise FormatError(
            f"'{shown(what, 120)}' differs from its SHA-256 in the manifest; it is damaged, {fix}"
        )


def check_file(path: Path, sha256: object, *, fix: str) -> None:
    """Compare a file with a SHA-256."""
    with open_checked(path, what="file", follow=False) as stream:
        check_sum(stream, sha256, what=path, fix=fix)
