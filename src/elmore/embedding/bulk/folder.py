"""The folder of a bulk run: shards, a journal while it goes on, a manifest when it is whole.

    shard-000000.parquet ...    each appears under its name when it is complete
    journal.jsonl, lock         while the run is not finished: what it is, and what is done
    manifest.json               in their place when it is: settings, digests, counts, shards

Nothing in the finished folder depends on the number of processes, the time or the interruptions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmore._atomic import atomic_file, clean_partials, write_error
from elmore._json import read_json
from elmore._locks import locked
from elmore._messages import shown
from elmore.embedding.reading import Counts
from elmore.embedding.writers import WRITERS
from elmore.errors import ConfigError, FormatError, ResumeError
from elmore.limits import LIMITS

__all__ = ["BulkFolder", "BulkResult", "ShardRecord", "run_facts"]

_FORMAT = "elmore-vectors"
_VERSION = 1
_MANIFEST = "manifest.json"
_JOURNAL = "journal.jsonl"
_LOCK = "lock"
_SHARD = re.compile(r"shard-\d{6,}\.[a-z0-9]+")
# Of a manifest that we wrote ourselves: ten million shards are 5 TB of text.
_LIMITS = dataclasses.replace(LIMITS, json_bytes=1 << 32, json_nodes=1 << 28)


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """A shard that is done.

    Attributes:
        number: from 0.
        file: its name in the folder.
        first: number of its first sentence.
        sentences: how many there are.
        tokens: in all.
        empty: sentences without tokens.
        cut: tokens that the model does not see whole.
        bytes: of the file.
        sha256: of the file.
    """

    number: int
    file: str
    first: int
    sentences: int
    tokens: int
    empty: int
    cut: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class BulkResult:
    """A finished bulk run.

    Attributes:
        folder: where it is.
        shards: its files, in the order of the input.
        counts: what was met on the way.
    """

    folder: Path
    shards: tuple[Path, ...]
    counts: Counts


class BulkFolder:
    """The folder while it is written; made by `opened`.

    Args:
        path: the folder.
        form: format of the shards.
    """

    def __init__(self, path: Path, form: str) -> None:
        self.path = path
        self._suffix = WRITERS[form].suffixes[0]
        self._done: dict[int, ShardRecord] = {}
        self._facts: dict[str, Any] = {}

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, form: str, *, overwrite: bool) -> Iterator[BulkFolder]:
        """Make or find a folder, and keep others from it.

        Args:
            path: the folder; its parent must exist.
            form: format of the shards.
            overwrite: forget what an earlier run left there.

        Raises:
            ConfigError: something that is not ours is there.
            ElmoreError: another process works on it.
        """
        _check_ours(path)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise write_error(error, path) from error
        busy = (
            f"'{shown(path, 120)}' is being filled by process {{owner}}; wait for it or choose "
            "another folder"
        )
        with locked(path / _LOCK, busy):
            folder = cls(path, form)
            try:
                if overwrite:
                    folder._clear()
                yield folder
            finally:
                clean_partials(path, alone=True)
                # Without a journal there is nothing to go on with: leave no trace, or a whole run.
                if not (path / _JOURNAL).exists():
                    with contextlib.suppress(OSError):
                        (path / _LOCK).unlink()
                        path.rmdir()

    def shard(self, number: int) -> Path:
        """Give the file of a shard."""
        return self.path / f"shard-{number:06d}{self._suffix}"

    def resume(self, facts: Mapping[str, Any]) -> dict[int, ShardRecord]:
        """Find the shards that are done, and start or go on with the journal.

        Args:
            facts: what the run is: settings, model, software, inputs.

        Raises:
            ResumeError: the folder holds another run.
        """
        self._facts = json.loads(json.dumps(facts))
        records: list[ShardRecord] = []
        found = self._found()
        if found is not None:
            earlier, records = found
            _check_same(self.path, earlier, self._facts)
        self._done = {r.number: r for r in records if _size(self.path / r.file) == r.bytes}
        lines = [self._facts, *(asdict(record) for record in self._done.values())]
        with atomic_file(self.path / _JOURNAL, overwrite=True) as stream:
            stream.writelines(_line(line) for line in lines)
        (self.path / _MANIFEST).unlink(missing_ok=True)
        return dict(self._done)

    def add(self, record: ShardRecord) -> None:
        """Note that a shard is done."""
        self._done[record.number] = record
        try:
            with (self.path / _JOURNAL).open("ab") as stream:
                stream.write(_line(asdict(record)))
        except OSError as error:
            raise write_error(error, self.path / _JOURNAL) from error

    def finish(self, read: Counts) -> BulkResult:
        """Write the manifest.

        Args:
            read: lines that were not UTF-8.
        """
        records = [self._done[number] for number in sorted(self._done)]
        counts = Counts(
            sentences=sum(record.sentences for record in records),
            tokens=sum(record.tokens for record in records),
            empty=sum(record.empty for record in records),
            cut=sum(record.cut for record in records),
            replaced=read.replaced,
            skipped=read.skipped,
        )
        manifest = {
            **self._facts,
            "counts": asdict(counts),
            "shards": [asdict(record) for record in records],
        }
        kept = {record.file for record in records} | {_JOURNAL, _LOCK}
        for entry in self.path.iterdir():  # of an earlier run that got further
            if entry.name not in kept and _SHARD.fullmatch(entry.name):
                entry.unlink()
        with atomic_file(self.path / _MANIFEST, overwrite=True) as stream:
            stream.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
        (self.path / _JOURNAL).unlink()
        shards = tuple(self.path / record.file for record in records)
        return BulkResult(folder=self.path, shards=shards, counts=counts)

    def _found(self) -> tuple[dict[str, Any], list[ShardRecord]] | None:
        """Read the manifest or the journal; None where there is neither."""
        if (self.path / _MANIFEST).exists():
            manifest = read_json(self.path / _MANIFEST, _LIMITS, follow=False)
            shards = manifest.pop("shards", [])
            manifest.pop("counts", None)
            try:
                return manifest, [ShardRecord(**shard) for shard in shards]
            except TypeError:
                raise FormatError(
                    f"'{shown(self.path / _MANIFEST, 120)}' is damaged; pass overwrite=True "
                    "(--force) to start anew"
                ) from None
        try:
            data = (self.path / _JOURNAL).read_bytes()
        except FileNotFoundError:
            return None
        head, *lines = data.split(b"\n")
        records = []
        with contextlib.suppress(ValueError, TypeError):  # the last line may be torn
            for line in lines:
                if line:
                    records.append(ShardRecord(**json.loads(line)))
        return json.loads(head), records

    def _clear(self) -> None:
        for name in (_MANIFEST, _JOURNAL):
            (self.path / name).unlink(missing_ok=True)
        for entry in self.path.iterdir():
            if _SHARD.fullmatch(entry.name):
                entry.unlink()


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def _check_ours(path: Path) -> None:
    """Refuse to fill anything but a new, an empty or one of our own folders."""
    label = f"'{shown(path, 140)}'"
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {label}: its folder does not exist; create it first")
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise ConfigError(f"{label} is not a folder; choose another name")
    ours = (_MANIFEST, _JOURNAL, _LOCK)
    names = {entry.name for entry in path.iterdir()}
    foreign = [n for n in names if n not in ours and not _SHARD.fullmatch(n) and n[0] != "."]
    unmarked = names and not names & set(ours)
    manifest = path / _MANIFEST
    if foreign or unmarked or (manifest.exists() and not _is_ours(manifest)):
        raise ConfigError(
            f"{label} holds files that elmore did not write; choose another name or empty it"
        )


def _is_ours(manifest: Path) -> bool:
    try:
        return read_json(manifest, _LIMITS, follow=False).get("format") == _FORMAT
    except FormatError:
        return False


def _check_same(path: Path, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    fix = "choose another folder, or pass overwrite=True (--force) to start anew"
    label = f"'{shown(path, 100)}'"
    for part in ("settings", "software"):
        old, new = earlier.get(part, {}), now[part]
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                raise ResumeError(
                    f"{label} was started with {key}={shown(old.get(key), 40)}, not "
                    f"{shown(new.get(key), 40)}; {fix}"
                )
    if earlier.get("model") != now["model"]:
        raise ResumeError(f"{label} was started with another model; {fix}")
    _check_inputs(label, earlier.get("inputs", []), now["inputs"], fix)


def _check_inputs(
    label: str, old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], fix: str
) -> None:
    if len(old) != len(new):
        raise ResumeError(f"{label} was started with {len(old)} inputs, not {len(new)}; {fix}")
    for before, after in zip(old, new, strict=True):
        if before["sha256"] != after["sha256"]:
            raise ResumeError(
                f"{label} was started with another content of '{shown(after['path'], 100)}'; {fix}"
            )


def run_facts(
    settings: Mapping[str, Any],
    worker: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Describe a run.

    Args:
        settings: of the job.
        worker: what a worker tells of its model and software.
        inputs: path, size and SHA-256 of each file.
    """
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "settings": settings,
        "model": worker["model"],
        "software": worker["software"],
        "inputs": list(inputs),
    }
