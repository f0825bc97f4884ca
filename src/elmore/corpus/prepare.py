"""From text files to tokenized shards, counts, a vocabulary and a held-out part.

First every block of text becomes a piece, on all processors. Then every shard is merged from all
pieces, and its words are counted. Until the end all of it is in the folder OUT.partial, where an
interrupted run resumes. The result depends on the texts and options only.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, astuple, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from elmore._version import __version__
from elmore.base.atomic import atomic_folder, check_folder
from elmore.base.io import Errors
from elmore.base.journal import FinishedFile, JournalFolder
from elmore.base.json import json_digest
from elmore.base.messages import Progress, ProgressOption, progress_of, shown
from elmore.base.pool import Pool
from elmore.corpus.pieces import (
    KEYS,
    inspect_files,
    make_piece,
    merge,
    open_pool,
)
from elmore.corpus.prepared import (
    COUNTS,
    HELDOUT,
    VOCABULARY,
    Part,
    Prepared,
    is_prepared,
    read_shard,
    write_manifest,
)
from elmore.corpus.texts import (
    BLOCK_BYTES,
    LINES_PER_DOCUMENT,
    Position,
    TextFile,
    describe_files,
    input_paths,
    read_blocks,
)
from elmore.corpus.words import VocabularyChoice, WordCounts
from elmore.errors import ConfigError, InputError
from elmore.text.reading import Reading
from elmore.text.segmenter import Tokenizer, sendable
from elmore.text.vocabulary import Vocabulary

_log = logging.getLogger(__name__)
_VERSION = 2  # of what pieces look like and where blocks end
_NAMES = re.compile(r"piece-\d{6,}\.safetensors|shards-[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True)
class _PieceRecord(FinishedFile):
    """What a piece holds, and where the next one starts."""

    tokens: int
    documents: int
    min_hash: int
    n_replaced: int
    n_skipped: int
    n_cut: int
    heldout: bool
    end: tuple[int, int, int, int]


_Journal = JournalFolder[_PieceRecord]


def prepare(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    vocabulary: int | str | Path | None = None,
    min_count: int | None = None,
    tokenized: bool = False,
    split_sentences: bool = False,
    tokenizer: Tokenizer = "ptb",
    errors: Errors = "strict",
    heldout: float = 0.005,
    heldout_files: Sequence[str | Path] = (),
    seed: int = 0,
    shard_tokens: int = 1_000_000,
    workers: int | None = None,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> Prepared:
    """Turn text files into a corpus to train on.

    The files hold one sentence per line, with blank lines between documents. They may be
    compressed (gz, bz2, xz, zst). If it is interrupted, call it again to resume.

    Args:
        inputs: files and patterns.
        out: the folder to create.
        vocabulary: the number of words, with the specials, or a vocabulary file to use as it is.
            By default the 50,000 most frequent words, without those that occur once: the model
            learns `<UNK>` from them.
        min_count: leave out words that occur less often.
        tokenized: lines are tokens separated by single spaces.
        split_sentences: documents are running text.
        tokenizer: what splits text that is not tokenized, as in `Elmo.load`; a function must be
            one that other processes can import.
        errors: what to do with lines that are not UTF-8.
        heldout: the share of the documents to hold out, at least one unless 0; not used with
            `heldout_files`.
        heldout_files: files and patterns to hold out completely; they are left out of `inputs`.
        seed: decides which documents are held out, and how the others are shuffled.
        shard_tokens: tokens per shard, roughly.
        workers: processes to use; as many as there are processors by default.
        overwrite: replace a prepared corpus that is there.
        progress: as in `Elmo.embed`, for tokens.

    Raises:
        InputError: nothing to read, or not UTF-8.
        ConfigError: a bad option, or `out` exists.
    """
    reading = Reading(
        tokenized=tokenized,
        split_sentences=split_sentences,
        tokenizer=sendable(tokenizer) or "ptb",
        errors=errors,
    )
    # Everything that can be wrong is checked before the hours of work.
    choice = VocabularyChoice(vocabulary, min_count)
    _check_options(heldout, seed, shard_tokens)
    out = Path(os.path.abspath(out))
    check_folder(out, overwrite, is_prepared)
    paths, held_paths = input_paths(inputs, heldout_files)
    partial = out.with_name(f"{out.name}.partial")
    busy = (
        f"'{shown(out, 120)}' is being prepared by another process; wait for it or choose "
        "another folder"
    )
    with (
        JournalFolder.opened(partial, _PieceRecord, _NAMES, busy=busy) as journal,
        open_pool(workers, [*paths, *held_paths]) as pool,
    ):
        files = inspect_files(paths, held_paths, pool)
        texts = [[file.sha256, file.linewise, file.heldout] for file in files]
        digest = json_digest([_VERSION, BLOCK_BYTES, asdict(reading), seed, texts])
        header = {"format": "elmore-pieces", "fingerprint": digest}
        with closing(progress_of(progress, unit="tokens")) as report:
            pieces = _make_pieces(journal, header, files, reading, seed, pool, report)
        share = 0.0 if held_paths else heldout
        shards, heldout_file = _make_shards(journal, header, pieces, share, shard_tokens, pool)
        # Without the held-out documents, whose words must not decide on the vocabulary.
        counts, sizes = _count(shards)
        words = choice.make(counts)
        held_counts, held_sizes = _count([heldout_file] if heldout_file else [])
        total, held = sum(sizes, Part()), sum(held_sizes, Part())
        notes = [*choice.notes(counts, words), *_notes(files, pieces)]
        if not held.tokens:
            notes.append("nothing is held out")
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
            "inputs": describe_files(files),
            "tokenizer": reading.convention,
            "segmenter": reading.segmenter,
            "training": {
                **asdict(total),
                "types": len(counts),
                "oov": total.tokens - counts.covered(words),
            },
            "heldout": {**asdict(held), "oov": held.tokens - held_counts.covered(words)}
            if held.tokens
            else None,
            "shards": [{"file": _shard_name(k), **asdict(size)} for k, size in enumerate(sizes)],
            "notes": notes,
        }
        with atomic_folder(out, overwrite=overwrite, looks_ours=is_prepared) as folder:
            _fill(folder, shards, heldout_file, words, counts)
            write_manifest(folder, facts)
        journal.clear()  # the folder itself goes when it is closed
    return Prepared.open(out)


def _check_options(heldout: float, seed: int, shard_tokens: int) -> None:
    if not 0 <= heldout < 1:
        raise ConfigError(f"heldout={heldout} is out of range; pass a number from 0 to below 1")
    if not 0 <= seed < 1 << 63:
        raise ConfigError(f"seed={seed} is out of range; pass a number from 0 to 2**63 - 1")
    if not 1 <= shard_tokens <= 100_000_000:
        raise ConfigError(f"shard_tokens={shard_tokens} is out of range; pass 1 to 100000000")


def _count(paths: Sequence[Path]) -> tuple[WordCounts, list[Part]]:
    counts, sizes = WordCounts(), []
    for path in paths:
        shard = read_shard(path)
        numbers = np.bincount(shard.tokens, minlength=len(shard.types)).tolist()
        counts.update(dict(zip(shard.types, numbers, strict=True)))
        n_documents = len(shard.documents) - 1
        sizes.append(
            Part(tokens=shard.n_tokens, sentences=shard.n_sentences, documents=n_documents)
        )
    return counts, sizes


def _fill(
    folder: Path,
    shards: Sequence[Path],
    heldout: Path | None,
    words: Vocabulary,
    counts: WordCounts,
) -> None:
    """Move and write everything but the manifest into the folder."""
    # Moved, not copied: OUT.partial is beside OUT, so on the same file system.
    # Shards that got no documents do not exist, so the others are numbered again.
    for k, path in enumerate(shards):
        os.replace(path, folder / _shard_name(k))
    if heldout is not None:
        os.replace(heldout, folder / HELDOUT)
    (folder / VOCABULARY).write_bytes(words.to_bytes())
    with (folder / COUNTS).open("wb") as stream:
        stream.writelines(f"{word}\t{count}\n".encode() for word, count in counts.ranked())


def _notes(files: Sequence[TextFile], pieces: Sequence[_PieceRecord]) -> list[str]:
    notes = []
    linewise = sum(file.linewise for file in files)
    if linewise:
        notes.append(
            f"files without blank lines: {linewise}; every {LINES_PER_DOCUMENT} lines of them "
            "count as a document"
        )
    for name, text in (
        ("n_replaced", "lines with invalid UTF-8 replaced"),
        ("n_skipped", "lines with invalid UTF-8 skipped"),
        ("n_cut", "documents longer than 16 MiB were cut"),
    ):
        if number := sum(getattr(piece, name) for piece in pieces):
            notes.append(f"{text}: {number}")
    return notes


def _piece_path(journal: _Journal, number: int) -> Path:
    return journal.path / f"piece-{number:06d}.safetensors"


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def _make_pieces(
    journal: _Journal,
    header: dict[str, str],
    files: Sequence[TextFile],
    reading: Reading,
    seed: int,
    pool: Pool,
    progress: Progress,
) -> list[_PieceRecord]:
    """Tokenize all blocks that are not pieces of the same texts and options yet."""
    found = journal.found()
    # Where a block starts is known from the one before it, so only pieces without a gap count.
    known = found[1] if found is not None and found[0] == header else []
    done = journal.begin(header, itertools.takewhile(journal.is_intact, known))
    if done:
        _log.info("resuming after %d finished pieces", len(done))
        progress.update(sum(record.tokens for record in done))
    start = Position(*done[-1].end) if done else None
    # What is known of the blocks that workers tokenize; their requests are taken in this order.
    ahead: list[dict[str, Any]] = []

    def requests() -> Iterator[partial[dict[str, Any]]]:
        for k, block in enumerate(read_blocks(files, start), len(done)):
            path, end = _piece_path(journal, k), astuple(block.end)
            known = {"file": path.name, "end": end, "heldout": block.heldout}
            ahead.append({**known, "n_cut": block.n_cut})
            yield partial(make_piece, path, block.segments, reading, seed, block.data)

    # In order, because a run resumes where the last recorded piece ends.
    records = list(done)
    for _, reply in pool.map(requests(), in_order=True):
        record = _PieceRecord(**ahead.pop(0), **reply)
        journal.add(record)
        records.append(record)
        progress.update(record.tokens)
    if not sum(record.tokens for record in records if not record.heldout):
        journal.clear()
        n_files = sum(not file.heldout for file in files)
        many = "the input file has" if n_files == 1 else f"the {n_files} input files have"
        raise InputError(f"{many} no tokens; name files with text")
    return records


def _make_shards(
    journal: _Journal,
    header: dict[str, str],
    pieces: Sequence[_PieceRecord],
    share: float,
    shard_tokens: int,
    pool: Pool,
) -> tuple[list[Path], Path | None]:
    """Merge the shards that do not exist yet, and hold out a share of the documents.

    Returns the shards that have documents, and the held-out one if there is any.
    """
    inputs = [piece for piece in pieces if not piece.heldout]
    n_documents = sum(piece.documents for piece in inputs)
    min_hash = min(piece.min_hash for piece in inputs)
    # Documents with smaller hashes are held out. Hashes are spread evenly below KEYS; a single
    # document is kept for training.
    limit = math.ceil(share * KEYS) if n_documents > 1 else 0
    if limit and min_hash >= limit:
        limit = min_hash + 1  # the share of a small corpus is less than one document
    n_tokens = sum(piece.tokens for piece in inputs)
    n_shards = max(1, min(n_documents, round(n_tokens / shard_tokens)))
    folder = journal.path / f"shards-{json_digest([header, n_shards, limit])[:16]}"
    for old in journal.path.glob("shards-*"):
        if old != folder:
            shutil.rmtree(old)
    folder.mkdir(exist_ok=True)
    shards, held = [folder / _shard_name(k) for k in range(n_shards)], folder / HELDOUT
    paths = [_piece_path(journal, k) for k in range(len(pieces))]
    kept = [(path, (limit, KEYS)) for path in paths[: len(inputs)]]
    held_out = [(path, (0, limit)) for path in paths[: len(inputs)]]
    held_out += [(path, (0, KEYS)) for path in paths[len(inputs) :]]

    def requests() -> Iterator[partial[dict[str, Any]]]:
        # Rounded up. The last bound is KEYS itself, so every key is in a shard.
        bounds = [-(-k * KEYS // n_shards) for k in range(n_shards + 1)]
        for path, between in zip([*shards, held], [*pairwise(bounds), (0, KEYS)], strict=True):
            # A shard gets its name when it is complete: one that exists was made by an earlier run.
            if not path.exists():
                yield partial(merge, path, held_out if path == held else kept, between)

    for _ in pool.map(requests()):
        pass
    found = [path for path in shards if path.exists()]
    if not found:
        raise InputError("every document is held out; lower heldout or give more text")
    return found, held if held.exists() else None
