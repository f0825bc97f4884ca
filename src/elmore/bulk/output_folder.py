"""The folder of a bulk run: shards, a journal until it is complete, then a manifest.

    shard-000000.parquet ...    each appears under its name when it is complete
    journal.jsonl, lock         while the run is not finished (base/journal.py)
    manifest.json               when it is: settings, digests, counts, shards

Nothing in the finished folder depends on the number of processes, the time or the interruptions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from elmore.base.atomic import atomic_file
from elmore.base.journal import FinishedFile, JournalFolder
from elmore.base.json import read_json
from elmore.base.manifest import FolderFormat
from elmore.base.messages import shown
from elmore.errors import ConfigError, FormatError, ResumeError
from elmore.text.reading import Counts

_AGAIN = "pass overwrite=True (--force) to start again"
_FORMAT = FolderFormat(name="elmore-vectors", version=1, label="bulk vectors", fix=_AGAIN)
MANIFEST = "manifest.json"
_SHARD = re.compile(r"shard-\d{6,}\.[a-z0-9]+")
# Of a manifest that we wrote ourselves: ten million shards are 5 TB of text.
_MANIFEST_BYTES = 1 << 32


@dataclass(frozen=True, kw_only=True)
class ShardRecord(FinishedFile):
    """A finished shard, counted from 0; `first` is the number of its first sentence.

    The counts are those of `text.reading.Counts`.
    """

    number: int
    first: int
    sentences: int
    tokens: int
    empty: int
    cut: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class BulkResult:
    """A finished bulk run.

    Attributes:
        folder: where it is.
        shards: its files, in the order of the input.
        counts: sentences, tokens, and what was unusual.
    """

    folder: Path
    shards: tuple[Path, ...]
    counts: Counts


class _Input(msgspec.Struct):
    sha256: str


class _Facts(msgspec.Struct):
    """What is compared of an earlier run; an edited file may say anything."""

    settings: dict[str, Any]
    software: dict[str, Any]
    model: dict[str, Any]
    inputs: list[_Input]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[JournalFolder[ShardRecord]]:
    """Create or find a folder, whose parent must exist, and keep other processes out of it.

    Raises:
        ConfigError: something that is not ours is there.
        ElmoreError: another process is writing to it.
    """
    check_manifest(path, _FORMAT)
    busy = (
        f"'{shown(path, 120)}' is being written by another process; wait for it or choose "
        "another folder"
    )
    with JournalFolder.opened(path, ShardRecord, _SHARD, busy=busy, marks=(MANIFEST,)) as folder:
        yield folder


def resume(
    folder: JournalFolder[ShardRecord], facts: Mapping[str, Any], *, overwrite: bool
) -> dict[int, ShardRecord]:
    """Find the finished shards, and start or resume the journal.

    Args:
        folder: the folder.
        facts: what the run is: settings, model, software, inputs.
        overwrite: forget what an earlier run left there.

    Raises:
        ResumeError: the folder holds another run.
    """
    # As it will be read back, with lists for tuples, so that the comparison is fair.
    now = json.loads(json.dumps({**_FORMAT.head(), **facts}))
    records: list[ShardRecord] = []
    found = None if overwrite else read_manifest(folder.path) or folder.found()
    if found is not None:
        earlier, records = found
        check_same_run(folder.path, earlier, now)
    kept = folder.begin(now, records)
    # Only now: if we are killed between the two, the manifest still names every shard.
    (folder.path / MANIFEST).unlink(missing_ok=True)
    return {record.number: record for record in kept}


def finish(
    folder: JournalFolder[ShardRecord],
    facts: Mapping[str, Any],
    done: Mapping[int, ShardRecord],
    read: Counts,
) -> BulkResult:
    """Write the manifest; `read` has counted the lines that were not UTF-8."""
    records = [done[number] for number in sorted(done)]
    names = ("sentences", "tokens", "empty", "cut")
    totals = {name: sum(getattr(record, name) for record in records) for name in names}
    counts = dataclasses.replace(read, **totals)
    shards = [asdict(record) for record in records]
    manifest = {**_FORMAT.head(), **facts, "counts": asdict(counts), "shards": shards}
    with atomic_file(folder.path / MANIFEST, overwrite=True) as stream:
        stream.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
    folder.finish()
    files = tuple(folder.path / record.file for record in records)
    return BulkResult(folder=folder.path, shards=files, counts=counts)


def read_manifest(folder: Path) -> tuple[dict[str, Any], list[ShardRecord]] | None:
    """What a finished run was, and its shards; None if there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    manifest = read_json(path, max_bytes=_MANIFEST_BYTES, follow=False)
    _FORMAT.check(manifest, what=str(path))
    shards = manifest.pop("shards", [])
    manifest.pop("counts", None)
    try:
        return manifest, msgspec.convert(shards, list[ShardRecord])
    except msgspec.ValidationError:
        raise FormatError(f"'{shown(path, 120)}' is damaged; {_AGAIN}") from None


def check_manifest(folder: Path, form: FolderFormat) -> None:
    """Refuse a folder with a manifest that is not of this format: its files are not ours."""
    path = folder / MANIFEST
    if not path.exists():
        return
    with contextlib.suppress(FormatError):
        if read_json(path, max_bytes=_MANIFEST_BYTES, follow=False).get("format") == form.name:
            return
    raise ConfigError(
        f"'{shown(folder, 140)}' holds something other than {form.label}; choose another name or "
        "empty it"
    )


def check_same_run(path: Path, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume a run of other settings, software, model or inputs."""
    fix = "choose another folder, or pass overwrite=True (--force) to start again"
    label = f"'{shown(path, 100)}'"
    try:
        began = msgspec.convert(earlier, _Facts)
    except msgspec.ValidationError as error:
        raise FormatError(
            f"what {label} says of its run is damaged ({shown(error, 100)}); {fix}"
        ) from None
    for part in ("settings", "software"):
        old, new = getattr(began, part), now[part]
        for key in sorted({*old, *new}):
            was, wanted = str(old.get(key)), str(new.get(key))
            if was != wanted:
                # Digests and long lists tell people nothing.
                long = max(len(was), len(wanted)) > 40
                what = f"other {key}" if long else f"{key}={shown(was)}, not {shown(wanted)}"
                raise ResumeError(f"{label} was started with {what}; {fix}")
    if began.model != now["model"]:
        raise ResumeError(f"{label} was started with another model; {fix}")
    olds, news = began.inputs, now["inputs"]
    if len(olds) != len(news):
        raise ResumeError(f"{label} was started with {len(olds)} inputs, not {len(news)}; {fix}")
    for before, after in zip(olds, news, strict=True):
        if before.sha256 != after["sha256"]:
            raise ResumeError(
                f"'{shown(after['path'], 100)}' changed since {label} was started; {fix}"
            )
