"""A folder that is filled file by file, over several runs if need be.

    lock             held by the process that writes; a second one is refused
    journal.jsonl    first line: what is made, from what and how; then one line per finished file

A file gets its name when it is complete, and its line after that. So a kill at any moment costs
only the files that were being written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from elmore.base.atomic import atomic_file, locked, write_error
from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ConfigError, FormatError

_JOURNAL, _LOCK = "journal.jsonl", "lock"


@dataclass(frozen=True, kw_only=True)
class FinishedFile:
    """A file of the folder that is complete, and its size; a subclass adds what else is known."""

    file: str
    bytes: int


_R = TypeVar("_R", bound=FinishedFile)


class JournalFolder(Generic[_R]):
    """The folder while it is written; made by `opened`, which explains the arguments."""

    def __init__(self, path: Path, record: type[_R], files: re.Pattern[str]) -> None:
        self.path = path
        self._record = record
        self._files = files
        self._begun = False
        self._n_records = 0

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls,
        path: Path,
        record: type[_R],
        files: re.Pattern[str],
        *,
        busy: str,
        marks: Collection[str] = (),
    ) -> Iterator[JournalFolder[_R]]:
        """Create or find a folder, and keep other processes out of it.

        If nothing was finished at the end, nothing is left.

        Args:
            path: the folder; its parent must exist.
            record: the type of the journal's lines.
            files: the names of what may be in it, besides journal and lock.
            busy: the message if another process holds it.
            marks: further names by which a folder of ours is known.

        Raises:
            ConfigError: something that is not ours is there.
            ElmoreError: another process holds it.
        """
        _check_ours(path, files, {_JOURNAL, _LOCK, *marks})
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise write_error(error, path) from error
        try:
            with locked(path / _LOCK, busy):
                folder = cls(path, record, files)
                try:
                    yield folder
                finally:
                    if folder._begun and not folder._n_records:
                        folder.clear()
                    # The lock file goes with the journal: a finished folder holds nothing else.
                    # Before the lock is released, because then it may be another process's lock;
                    # Windows, which removes no open file, does it afterwards.
                    if not (path / _JOURNAL).exists():
                        with contextlib.suppress(OSError):
                            (path / _LOCK).unlink()
        finally:
            with contextlib.suppress(OSError):
                path.rmdir()  # which fails unless it is empty

    def found(self) -> tuple[dict[str, Any], list[_R]] | None:
        """The first line of the journal and its records; None without a journal.

        Raises:
            FormatError: the first line is damaged, which a kill cannot do, or it is a link.
        """
        journal = self.path / _JOURNAL
        if not os.path.lexists(journal):
            return None
        # Somebody else may have made the folder, so links are not followed.
        with open_checked(journal, what="journal", follow=False) as stream:
            first, *lines = stream.read().split(b"\n")
        records = []
        damage = (ValueError, RecursionError)
        try:
            header = msgspec.json.decode(first, type=dict[str, Any])
            with contextlib.suppress(*damage):  # a kill may cut off the last line
                for line in filter(None, lines):
                    records.append(msgspec.json.decode(line, type=self._record))
        except damage:
            raise FormatError(
                f"'{shown(journal, 120)}' is damaged; remove "
                f"'{shown(self.path, 120)}' to start again"
            ) from None
        return header, records

    def is_intact(self, record: _R) -> bool:
        """Whether the file of a record is there, with the recorded size."""
        if not self._files.fullmatch(str(record.file)):
            return False  # an edited journal may name any file
        try:
            found = (self.path / record.file).lstat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == record.bytes

    def begin(self, header: Mapping[str, Any], records: Iterable[_R]) -> list[_R]:
        """Start or resume the journal.

        Args:
            header: its first line.
            records: what earlier runs finished and is still wanted; other files are removed, but
                not folders.

        Returns:
            the records whose files are intact.
        """
        # The journal is rewritten before files are removed: a kill in between leaves
        # files without a line, which the next run removes.
        kept = list(filter(self.is_intact, records))
        with atomic_file(self.path / _JOURNAL, overwrite=True) as stream:
            stream.writelines(map(_line, [header, *map(asdict, kept)]))
        self._begun = True
        self._n_records = len(kept)
        names = {record.file for record in kept}
        for entry in self._entries():
            if entry.name not in names and not entry.is_dir():
                entry.unlink()
        return kept

    def add(self, record: _R) -> None:
        """Record a finished file."""
        self._n_records += 1
        try:
            # Not synced: a line that a crash loses costs one file, which is made again.
            with (self.path / _JOURNAL).open("ab") as stream:
                stream.write(_line(asdict(record)))
        except OSError as error:
            raise write_error(error, self.path / _JOURNAL) from error

    def finish(self) -> None:
        """End the journal; the files stay."""
        self._begun = False
        (self.path / _JOURNAL).unlink(missing_ok=True)

    def clear(self) -> None:
        """End the journal, and remove all files and folders that it was for."""
        self._begun = False
        for entry in self._entries():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
        (self.path / _JOURNAL).unlink(missing_ok=True)

    def _entries(self) -> list[Path]:
        return [entry for entry in self.path.iterdir() if self._files.fullmatch(entry.name)]


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"


def _check_ours(path: Path, files: re.Pattern[str], marks: Collection[str]) -> None:
    """Refuse to fill anything but a new folder, an empty one, or one of our own."""
    label = f"'{shown(path, 140)}'"
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {label}: its folder does not exist; create it first")
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise ConfigError(f"{label} is not a folder; choose another name")
    names = {entry.name for entry in path.iterdir()}
    foreign = {n for n in names if n not in marks and not files.fullmatch(n) and n[0] != "."}
    if foreign or (names and names.isdisjoint(marks)):
        raise ConfigError(
            f"{label} holds files that elmore did not write; choose another name or empty it"
        )
