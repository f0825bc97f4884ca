"""The folder OUT.partial, where `prepare` keeps what is done, so that another run goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmore._atomic import atomic_file, write_error
from elmore._json import json_digest
from elmore._locks import locked
from elmore._messages import shown
from elmore.errors import ConfigError, ElmoreError

__all__ = ["PieceRecord", "Workspace"]


@dataclass(frozen=True, kw_only=True)
class PieceRecord:
    """A line of the journal: what a piece holds, and where the next one starts."""

    size: int  # of the file
    tokens: int
    documents: int
    least_hash: int
    n_replaced: int
    n_skipped: int
    n_cut: int
    heldout: bool
    end: tuple[int, int, int, int]


class Workspace:
    """OUT.partial: pieces with a journal, then shards; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    @contextlib.contextmanager
    def open(cls, out: Path) -> Iterator[Workspace]:
        """Make or find the folder beside `out`, and keep others from it."""
        folder = out.with_name(f"{out.name}.partial")
        if os.path.lexists(folder) and (
            folder.is_symlink()
            or not folder.is_dir()
            or (any(folder.iterdir()) and not (folder / "lock").is_file())
        ):
            raise ConfigError(
                f"'{shown(folder, 140)}' is in the way and not ours; move it or choose another name"
            )
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise write_error(error, folder) from error
        busy = (
            f"'{shown(out, 120)}' is being prepared by process {{owner}}; wait for it or choose "
            "another folder"
        )
        with locked(folder / "lock", busy):
            (folder / "pieces").mkdir(exist_ok=True)
            work = cls(folder)
            try:
                yield work
            except ElmoreError:
                if not any((folder / "pieces").glob("*")):
                    work.remove()  # nothing to go on with
                raise

    def piece(self, number: int) -> Path:
        """Give the file of a piece."""
        return self._folder / "pieces" / f"piece-{number:06d}.safetensors"

    def resume(self, fingerprint: str) -> list[PieceRecord]:
        """Give the pieces that are done, if they are from the same texts and options."""
        records: list[PieceRecord] = []
        with (
            contextlib.suppress(OSError, ValueError, TypeError, KeyError),
            (self._folder / "journal").open(encoding="utf-8") as stream,
        ):
            header = json.loads(stream.readline())
            for line in stream if header["fingerprint"] == fingerprint else ():
                record = PieceRecord(**json.loads(line))  # a torn line is no JSON
                if self.piece(len(records)).stat().st_size != record.size:
                    break
                records.append(record)
        kept = {self.piece(k).name for k in range(len(records))}
        for path in (self._folder / "pieces").iterdir():
            if path.name not in kept:
                path.unlink()
        lines = [{"fingerprint": fingerprint}, *map(asdict, records)]
        with atomic_file(self._folder / "journal", overwrite=True) as journal:
            journal.writelines(f"{json.dumps(line)}\n".encode() for line in lines)
        return records

    def append(self, record: PieceRecord) -> None:
        """Note that a piece is done."""
        try:
            with (self._folder / "journal").open("ab") as journal:
                journal.write(f"{json.dumps(asdict(record))}\n".encode())
        except OSError as error:
            raise write_error(error, self._folder / "journal") from error

    def shards(self, plan: Mapping[str, Any]) -> Path:
        """Give the folder for the shards of a plan; those of other plans are removed."""
        with (self._folder / "journal").open("rb") as stream:
            journal = hashlib.sha256(stream.read()).hexdigest()
        folder = self._folder / f"shards-{json_digest([journal, plan])[:16]}"
        for old in self._folder.glob("shards-*"):
            if old != folder:
                shutil.rmtree(old)
        folder.mkdir(exist_ok=True)
        return folder

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
