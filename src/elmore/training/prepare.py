"""Text files → tokenised shards, counts, vocabulary and a held-out part.

First every block of text becomes a piece, on all processors; then every shard is gathered from all
pieces; then the shards are counted. Until the end all of it is in the folder OUT.partial, where an
interrupted run goes on. The result depends on the texts and options only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmore._io import atomic_file, atomic_folder, shown, write_error
from elmore._progress import SILENT, Progress
from elmore._version import __version__
from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.text.tokenizer import Convention
from elmore.text.vocabulary import Vocabulary
from elmore.training.corpus import (
    BLOCK_BYTES,
    LINES_PER_DOCUMENT,
    Errors,
    Position,
    Reading,
    TextFile,
    Workers,
    expand_inputs,
    read_blocks,
)
from elmore.training.prepared import (
    COUNTS,
    HELDOUT,
    VOCABULARY,
    Part,
    Prepared,
    VocabularyChoice,
    WordCounts,
    is_prepared,
    write_manifest,
)
from elmore.training.shards import KEYS, Shard, read_shard

__all__ = ["count_words", "prepare"]

_log = logging.getLogger(__name__)
_VERSION = 1  # of what pieces look like and how blocks are cut
_LISTED_FILES = 1000  # more input files are told in prepared.json by number and digest only


def prepare(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    vocabulary: int | str | Path | None = None,
    min_count: int | None = None,
    tokenized: bool = False,
    split_sentences: bool = False,
    tokenizer: Convention = "ptb",
    errors: Errors = "strict",
    heldout: float = 0.005,
    heldout_files: Sequence[str | Path] = (),
    seed: int = 0,
    shard_tokens: int = 1_000_000,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Prepared:
    """Turn text files into a corpus to train on.

    The files hold a sentence a line, with blank lines between documents; they may be compressed
    (gz, bz2, xz, zst). Stopped and called again, it goes on where it was.

    Args:
        inputs: files and patterns.
        out: the folder to make.
        vocabulary: the number of words, specials included (50,000 unless `min_count` is given), or
            a vocabulary file to be used as it is.
        min_count: leave out words that occur less often.
        tokenized: lines are tokens separated by single spaces.
        split_sentences: documents are running text.
        tokenizer: the convention for text that is not tokenized.
        errors: what to do with lines that are not UTF-8.
        heldout: the share of the documents to hold out, at least one unless 0; not used with
            `heldout_files`.
        heldout_files: files and patterns to hold out as a whole; also left out of `inputs`.
        seed: decides which documents are held out, and how the others are shuffled.
        shard_tokens: about so many tokens make a shard.
        workers: processes to use; as many as there are processors by default.
        overwrite: replace a prepared corpus that is there.
        progress: told the number of tokens.

    Raises:
        InputError: nothing to read, or not UTF-8.
        ConfigError: a bad option, or `out` exists.
    """
    reading = Reading(
        tokenized=tokenized, split_sentences=split_sentences, tokenizer=tokenizer, errors=errors
    )
    choice = VocabularyChoice.of(vocabulary, min_count)
    _check_options(heldout, seed, shard_tokens)
    out = Path(os.path.abspath(out))
    _check_out(out, overwrite)
    paths, held_paths = _input_paths(inputs, heldout_files)
    with Workers.of(workers, [*paths, *held_paths]) as pool, _Workspace.open(out) as work:
        files = _inspect(paths, held_paths, pool)
        pieces = _make_pieces(work, files, reading, seed, pool, progress or SILENT)
        plan = _Plan.of(pieces, 0.0 if held_paths else heldout, shard_tokens)
        shards, heldout_file = _make_shards(work, plan, pool)
        counts, sizes = _count(shards)
        words = choice.make(counts)
        held = _Heldout.of(heldout_file, words)
        facts = {
            "elmore": __version__,
            "options": {
                "vocabulary": choice.described(),
                "min_count": min_count,
                **asdict(reading),
                "heldout": "files" if held_paths else heldout,
                "seed": seed,
                "shard_tokens": shard_tokens,
            },
            "inputs": _describe(files),
            "tokenizer": reading.convention,
            "training": _training_facts(sizes, counts, words),
            "heldout": held.facts(),
            "shards": [{"file": _shard_name(k), **asdict(size)} for k, size in enumerate(sizes)],
            "notes": _notes(files, pieces, counts, held),
        }
        with atomic_folder(out, overwrite=overwrite, looks_ours=is_prepared) as folder:
            _fill(folder, shards, heldout_file, words, counts)
            write_manifest(folder, facts)
        work.remove()
    return Prepared.open(out)


def count_words(
    inputs: Sequence[str | Path],
    *,
    tokenized: bool = False,
    split_sentences: bool = False,
    tokenizer: Convention = "ptb",
    errors: Errors = "strict",
    workers: int | None = None,
    progress: Progress | None = None,
) -> WordCounts:
    """Count the words of text files; arguments as in `prepare`."""
    reading = Reading(
        tokenized=tokenized, split_sentences=split_sentences, tokenizer=tokenizer, errors=errors
    )
    paths, _ = _input_paths(inputs, ())
    counts = WordCounts()
    with Workers.of(workers, paths) as pool:
        files = _inspect(paths, [], pool)
        requests = (
            (_request("count", files, block.segments, reading, seed=0), block.data)
            for block in read_blocks(files)
        )
        for _, reply in pool.map(requests):
            counts.add(reply["words"], reply["counts"])
            (progress or SILENT).update(reply["tokens"])
    if not counts.n_tokens:
        raise _empty(len(files))
    return counts


# --------------------------------------------------------------------------- arguments


def _check_options(heldout: float, seed: int, shard_tokens: int) -> None:
    if not 0 <= heldout < 1:
        raise ConfigError(f"heldout={heldout} is no share; pass a number from 0 to below 1")
    if not 0 <= seed < 1 << 63:
        raise ConfigError(f"seed={seed} is out of range; pass a number from 0 to 2**63 - 1")
    if not 1 <= shard_tokens <= 100_000_000:
        raise ConfigError(f"shard_tokens={shard_tokens} is out of range; pass 1 to 100000000")


def _check_out(out: Path, overwrite: bool) -> None:
    """Refuse at once what `atomic_folder` would refuse in the end."""
    label = f"'{shown(out, 140)}'"
    if not out.parent.is_dir():
        raise ConfigError(f"cannot write {label}: its folder does not exist; create it first")
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_dir():
        raise ConfigError(f"{label} is not a folder; choose another name")
    if not any(out.iterdir()):
        return
    if not is_prepared(out):
        raise ConfigError(
            f"{label} holds files that elmore did not write; choose another name or empty it"
        )
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")


def _input_paths(
    inputs: Sequence[str | Path], heldout_files: Sequence[str | Path]
) -> tuple[list[Path], list[Path]]:
    held = expand_inputs(heldout_files)
    real = {os.path.realpath(path) for path in held}
    paths = [path for path in expand_inputs(inputs) if os.path.realpath(path) not in real]
    if not paths:
        raise InputError("no input files; name at least one text file")
    return paths, held


def _inspect(paths: Sequence[Path], held: Sequence[Path], pool: Workers) -> list[TextFile]:
    names = [os.fspath(path) for path in [*paths, *held]]
    step = max(1, len(names) // 256)
    requests = (
        ({"task": "inspect", "paths": names[k : k + step]}, b"") for k in range(0, len(names), step)
    )
    found = [file for _, reply in pool.map(requests) for file in reply["files"]]
    return [TextFile(**file, heldout=k >= len(paths)) for k, file in enumerate(found)]


def _describe(files: Sequence[TextFile]) -> dict[str, Any]:
    lines = [[shown(f.path, 1000), f.size, f.sha256, f.heldout] for f in files]
    described: dict[str, Any] = {
        "n_files": len(files),
        "bytes": sum(f.size for f in files),
        "sha256": _digest(lines),
    }
    if len(files) <= _LISTED_FILES:
        keys = ("path", "size", "sha256", "heldout")
        described["files"] = [dict(zip(keys, line, strict=True)) for line in lines]
    return described


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _empty(n_files: int) -> InputError:
    files = "the input file has" if n_files == 1 else f"the {n_files} input files have"
    return InputError(f"{files} no tokens; name files with text")


# --------------------------------------------------------------------------- pieces


@dataclass(frozen=True, kw_only=True)
class _PieceRecord:
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


def _request(
    task: str, files: Sequence[TextFile], segments: Any, reading: Reading, seed: int
) -> dict[str, Any]:
    used = [files[segment.start.file] for segment in segments]
    return {
        "task": task,
        "segments": [asdict(segment) for segment in segments],
        "names": [file.path for file in used],
        "linewise": [file.linewise for file in used],
        "reading": asdict(reading),
        "seed": seed,
    }


def _make_pieces(
    work: _Workspace,
    files: Sequence[TextFile],
    reading: Reading,
    seed: int,
    pool: Workers,
    progress: Progress,
) -> list[_PieceRecord]:
    """Tokenise what is not tokenised yet."""
    texts = [[file.sha256, file.linewise, file.heldout] for file in files]
    records = work.resume(_digest([_VERSION, BLOCK_BYTES, asdict(reading), seed, texts]))
    if records:
        _log.info("going on after %d pieces that are done", len(records))
        progress.update(sum(record.tokens for record in records))
    start = Position(*records[-1].end) if records else None

    def requests() -> Iterator[tuple[dict[str, Any], bytes]]:
        for k, block in enumerate(read_blocks(files, start), len(records)):
            request = _request("piece", files, block.segments, reading, seed)
            request["path"] = os.fspath(work.piece(k))
            end = (block.end.file, block.end.offset, block.end.line, block.end.document)
            request["record"] = {"end": end, "heldout": block.heldout, "n_cut": block.n_cut}
            yield request, block.data

    done = list(records)
    for request, reply in pool.map(requests()):
        record = _PieceRecord(**request["record"], **reply)
        work.append(record)
        done.append(record)
        progress.update(record.tokens)
    if not sum(record.tokens for record in done if not record.heldout):
        work.remove()
        raise _empty(sum(not file.heldout for file in files))
    return done


# --------------------------------------------------------------------------- shards


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """How documents are dealt.

    Attributes:
        n_pieces: all of them.
        n_inputs: the first of them, which are not held out as a whole.
        n_shards: shards to make; some may turn out empty.
        limit: documents with smaller hashes are held out.
    """

    n_pieces: int
    n_inputs: int
    n_shards: int
    limit: int

    @classmethod
    def of(cls, pieces: Sequence[_PieceRecord], share: float, shard_tokens: int) -> _Plan:
        inputs = [piece for piece in pieces if not piece.heldout]
        n_documents = sum(piece.documents for piece in inputs)
        n_tokens = sum(piece.tokens for piece in inputs)
        least = min(piece.least_hash for piece in inputs)
        limit = math.ceil(share * KEYS) if n_documents > 1 else 0
        if limit and least >= limit:
            limit = least + 1  # the share of a small corpus is less than one document
        return cls(
            n_pieces=len(pieces),
            n_inputs=len(inputs),
            n_shards=max(1, min(n_documents, round(n_tokens / shard_tokens))),
            limit=limit,
        )


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def _make_shards(work: _Workspace, plan: _Plan, pool: Workers) -> tuple[list[Path], Path | None]:
    """Gather the shards that are not there yet; give those with documents, and the held-out one."""
    folder = work.shards(plan)
    bounds = [-(-k * KEYS // plan.n_shards) for k in range(plan.n_shards + 1)]
    common = {
        "task": "shard",
        "pieces": [os.fspath(work.piece(k)) for k in range(plan.n_pieces)],
        "n_inputs": plan.n_inputs,
        "limit": plan.limit,
    }
    paths = [folder / _shard_name(k) for k in range(plan.n_shards)]
    requests: list[dict[str, Any]] = [
        {**common, "path": os.fspath(path), "low": low, "high": high}
        for path, low, high in zip(paths, bounds, bounds[1:], strict=False)
    ]
    held = folder / HELDOUT
    requests.append({**common, "path": os.fspath(held), "low": 0, "high": KEYS, "heldout": True})
    missing = ((request, b"") for request in requests if not os.path.exists(request["path"]))
    for _ in pool.map(missing):
        pass
    shards = [path for path in paths if path.exists()]
    if not shards:
        raise InputError("every document is held out; lower heldout or give more text")
    return shards, held if held.exists() else None


def _part(shard: Shard) -> Part:
    return Part(tokens=shard.n_tokens, sentences=shard.n_sentences, documents=shard.n_documents)


def _count(paths: Sequence[Path]) -> tuple[WordCounts, list[Part]]:
    counts, sizes = WordCounts(), []
    for path in paths:
        shard = read_shard(path)
        counts.add(shard.types, shard.type_counts().tolist())
        sizes.append(_part(shard))
    return counts, sizes


def _training_facts(sizes: Sequence[Part], counts: WordCounts, words: Vocabulary) -> dict[str, int]:
    whole = sum(sizes, Part())
    return {**asdict(whole), "types": len(counts), "oov": whole.tokens - counts.covered(words)}


def _fill(
    folder: Path,
    shards: Sequence[Path],
    heldout: Path | None,
    words: Vocabulary,
    counts: WordCounts,
) -> None:
    """Move and write everything but the manifest into the folder."""
    for k, path in enumerate(shards):
        os.replace(path, folder / _shard_name(k))
    if heldout is not None:
        os.replace(heldout, folder / HELDOUT)
    (folder / VOCABULARY).write_bytes(words.to_bytes())
    with (folder / COUNTS).open("wb") as stream:
        stream.writelines(f"{word}\t{count}\n".encode() for word, count in counts.ranked())


@dataclass(frozen=True)
class _Heldout:
    """What is held out, and how much of it is not in the vocabulary."""

    size: Part
    oov: int

    @classmethod
    def of(cls, path: Path | None, words: Vocabulary) -> _Heldout:
        if path is None:
            return cls(Part(), 0)
        shard = read_shard(path)
        counts = WordCounts()
        counts.add(shard.types, shard.type_counts().tolist())
        return cls(_part(shard), shard.n_tokens - counts.covered(words))

    def facts(self) -> dict[str, int] | None:
        return {**asdict(self.size), "oov": self.oov} if self.size.tokens else None


def _notes(
    files: Sequence[TextFile], pieces: Sequence[_PieceRecord], counts: WordCounts, held: _Heldout
) -> list[str]:
    notes = []
    linewise = sum(file.linewise for file in files)
    if linewise:
        notes.append(
            f"files without blank lines: {linewise}; there every {LINES_PER_DOCUMENT} lines count "
            "as a document"
        )
    for name, text in (
        ("n_replaced", "lines with invalid UTF-8 replaced"),
        ("n_skipped", "lines with invalid UTF-8 skipped"),
        ("n_cut", "documents of over 16 MiB cut"),
    ):
        if number := sum(getattr(piece, name) for piece in pieces):
            notes.append(f"{text}: {number}")
    if counts.pruned:
        notes.append(f"counts are not exact: rare words were dropped {counts.pruned} times")
    if not held.size.tokens:
        notes.append("nothing is held out")
    return notes


# --------------------------------------------------------------------------- OUT.partial


class _Workspace:
    """The folder OUT.partial: pieces with a journal, then shards; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    @contextlib.contextmanager
    def open(cls, out: Path) -> Iterator[_Workspace]:
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
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise write_error(error, folder) from error
        try:
            _lock(lock, out)
            (folder / "pieces").mkdir(exist_ok=True)
            work = cls(folder)
            try:
                yield work
            except ElmoreError:
                if not any((folder / "pieces").glob("*")):
                    work.remove()  # nothing to go on with
                raise
        finally:
            os.close(lock)

    def piece(self, number: int) -> Path:
        return self._folder / "pieces" / f"piece-{number:06d}.safetensors"

    def resume(self, fingerprint: str) -> list[_PieceRecord]:
        """Give the pieces that are done, if they are from the same texts and options."""
        records: list[_PieceRecord] = []
        with (
            contextlib.suppress(OSError, ValueError, TypeError, KeyError),
            (self._folder / "journal").open(encoding="utf-8") as stream,
        ):
            header = json.loads(stream.readline())
            for line in stream if header["fingerprint"] == fingerprint else ():
                record = _PieceRecord(**json.loads(line))  # a torn line is no JSON
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

    def append(self, record: _PieceRecord) -> None:
        try:
            with (self._folder / "journal").open("ab") as journal:
                journal.write(f"{json.dumps(asdict(record))}\n".encode())
        except OSError as error:
            raise write_error(error, self._folder / "journal") from error

    def shards(self, plan: _Plan) -> Path:
        """Give the folder for the shards of a plan; those of other plans are removed."""
        with (self._folder / "journal").open("rb") as stream:
            journal = hashlib.sha256(stream.read()).hexdigest()
        folder = self._folder / f"shards-{_digest([journal, asdict(plan)])[:16]}"
        for old in self._folder.glob("shards-*"):
            if old != folder:
                shutil.rmtree(old)
        folder.mkdir(exist_ok=True)
        return folder

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _lock(descriptor: int, out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 40).decode("ascii", "replace")
        raise ElmoreError(
            f"'{shown(out, 120)}' is being prepared by process {shown(owner.strip() or '?', 30)}; "
            "wait for it or choose another folder"
        ) from None
    except OSError:
        return  # a file system without locks
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
