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

from elmore.base.atomic import atomic_file
from elmore.base.journal import FinishedFile, JournalFolder
from elmore.base.json import read_json
from elmore.base.manifest import FolderFormat
from elmore.base.messages import shown
from elmore.embedding.vector_files import VECTOR_FORMATS
from elmore.errors import ConfigError, FormatError, ResumeError
from elmore.text.reading import Counts

__all__ = [
    "MANIFEST",
    "BulkFolder",
    "BulkResult",
    "ShardRecord",
    "check_manifest",
    "check_same_run",
    "read_manifest",
]

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


class BulkFolder:
    """The folder while it is written; made by `opened`, which explains the arguments."""

    def __init__(self, journal: JournalFolder[ShardRecord], suffix: str, overwrite: bool) -> None:
        self.path = journal.path
        self._journal = journal
        self._suffix = suffix
        self._overwrite = overwrite
        self._done: dict[int, ShardRecord] = {}
        self._facts: dict[str, Any] = {}

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, form: str, *, overwrite: bool) -> Iterator[BulkFolder]:
        """Create or find a folder, and keep other processes out of it.

        Args:
            path: the folder; its parent must exist.
            form: format of the shards.
            overwrite: forget what an earlier run left there, once this one is ready to start.

        Raises:
            ConfigError: something that is not ours is there.
            ElmoreError: another process is writing to it.
        """
        check_manifest(path, _FORMAT)
        busy = (
            f"'{shown(path, 120)}' is being written by another process; wait for it or choose "
            "another folder"
        )
        with JournalFolder.opened(
            path, ShardRecord, _SHARD, busy=busy, marks=(MANIFEST,)
        ) as journal:
            yield cls(journal, VECTOR_FORMATS[form][0], overwrite)

    def shard(self, number: int) -> Path:
        """The file of a shard."""
        return self.path / f"shard-{number:06d}{self._suffix}"

    def resume(self, facts: Mapping[str, Any]) -> dict[int, ShardRecord]:
        """Find the finished shards, and start or resume the journal.

        Args:
            facts: what the run is: settings, model, software, inputs.

        Raises:
            ResumeError: the folder holds another run.
        """
        # As it will be read back, with lists for tuples, so that the comparison is fair.
        self._facts = json.loads(json.dumps({**_FORMAT.head(), **facts}))
        records: list[ShardRecord] = []
        found = None if self._overwrite else read_manifest(self.path) or self._journal.found()
        if found is not None:
            earlier, records = found
            check_same_run(self.path, earlier, self._facts)
        kept = self._journal.begin(self._facts, records)
        # Only now: if we are killed between the two, the manifest still names every shard.
        (self.path / MANIFEST).unlink(missing_ok=True)
        self._done = {record.number: record for record in kept}
        return dict(self._done)

    def add(self, record: ShardRecord) -> None:
        """Record a finished shard."""
        self._done[record.number] = record
        self._journal.add(record)

    def finish(self, read: Counts) -> BulkResult:
        """Write the manifest; `read` has counted the lines that were not UTF-8."""
        records = [self._done[number] for number in sorted(self._done)]
        names = ("sentences", "tokens", "empty", "cut")
        totals = {name: sum(getattr(record, name) for record in records) for name in names}
        counts = dataclasses.replace(read, **totals)
        manifest = {
            **self._facts,
            "counts": asdict(counts),
            "shards": [asdict(record) for record in records],
        }
        with atomic_file(self.path / MANIFEST, overwrite=True) as stream:
            stream.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
        self._journal.finish()
        shards = tuple(self.path / record.file for record in records)
        return BulkResult(folder=self.path, shards=shards, counts=counts)


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
        return manifest, [ShardRecord(**shard) for shard in shards]
    except TypeError:
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
    for part in ("settings", "software"):
        old, new = earlier.get(part, {}), now[part]
        for key in sorted({*old, *new}):
            was, wanted = str(old.get(key)), str(new.get(key))
            if was != wanted:
                # Digests and long lists tell people nothing.
                long = max(len(was), len(wanted)) > 40
                what = f"other {key}" if long else f"{key}={shown(was)}, not {shown(wanted)}"
                raise ResumeError(f"{label} was started with {what}; {fix}")
    if earlier.get("model") != now["model"]:
        raise ResumeError(f"{label} was started with another model; {fix}")
    olds, news = earlier.get("inputs", []), now["inputs"]
    if len(olds) != len(news):
        raise ResumeError(f"{label} was started with {len(olds)} inputs, not {len(news)}; {fix}")
    for before, after in zip(olds, news, strict=True):
        if before["sha256"] != after["sha256"]:
            raise ResumeError(
                f"'{shown(after['path'], 100)}' changed since {label} was started; {fix}"
            )
