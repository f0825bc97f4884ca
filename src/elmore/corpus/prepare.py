"""From text files to tokenized shards, counts, a vocabulary and a held-out part.

First every block of text becomes a piece, on all processors. Then every shard is merged from all
pieces, and its words are counted. Until the end all of it is in the folder OUT.partial, where an
interrupted run resumes. The result depends on the texts and options only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from elmore._version import __version__
from elmore.base.atomic import atomic_folder
from elmore.base.messages import ProgressOption, progress_of, shown
from elmore.corpus.pieces import (
    PieceRecord,
    ShardPlan,
    Workspace,
    make_pieces,
    make_shards,
    shard_name,
)
from elmore.corpus.prepared import (
    COUNTS,
    HELDOUT,
    VOCABULARY,
    Part,
    Prepared,
    is_prepared,
    write_manifest,
)
from elmore.corpus.shards import Shard, read_shard
from elmore.corpus.texts import LINES_PER_DOCUMENT, TextFile, describe_files, input_paths
from elmore.corpus.words import VocabularyChoice, WordCounts
from elmore.corpus.worker_tasks import inspect_files, open_pool
from elmore.errors import ConfigError
from elmore.text.reading import Errors, Reading
from elmore.text.segmenter import Tokenizer, sendable
from elmore.text.vocabulary import Vocabulary

__all__ = ["prepare"]


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
    choice = VocabularyChoice.of(vocabulary, min_count)
    _check_options(heldout, seed, shard_tokens)
    out = Path(os.path.abspath(out))
    _check_out(out, overwrite)
    paths, held_paths = input_paths(inputs, heldout_files)
    with open_pool(workers, [*paths, *held_paths]) as pool, Workspace.opened(out) as work:
        files = inspect_files(paths, held_paths, pool)
        with closing(progress_of(progress, unit="tokens")) as report:
            pieces = make_pieces(work, files, reading, seed, pool, report)
        plan = ShardPlan.of(pieces, 0.0 if held_paths else heldout, shard_tokens)
        shards, heldout_file = make_shards(work, plan, pool)
        # Without the held-out documents, whose words must not decide on the vocabulary.
        counts, sizes = _count(shards)
        words = choice.make(counts)
        held = _Heldout.of(heldout_file, words)
        total = sum(sizes, Part())
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
            "heldout": held.facts(),
            "shards": [{"file": shard_name(k), **asdict(size)} for k, size in enumerate(sizes)],
            "notes": [*choice.notes(counts, words), *_notes(files, pieces, counts, held)],
        }
        with atomic_folder(out, overwrite=overwrite, looks_ours=is_prepared) as folder:
            _fill(folder, shards, heldout_file, words, counts)
            write_manifest(folder, facts)
        work.journal.clear()  # the folder itself goes when it is closed
    return Prepared.open(out)


def _check_options(heldout: float, seed: int, shard_tokens: int) -> None:
    if not 0 <= heldout < 1:
        raise ConfigError(f"heldout={heldout} is out of range; pass a number from 0 to below 1")
    if not 0 <= seed < 1 << 63:
        raise ConfigError(f"seed={seed} is out of range; pass a number from 0 to 2**63 - 1")
    if not 1 <= shard_tokens <= 100_000_000:
        raise ConfigError(f"shard_tokens={shard_tokens} is out of range; pass 1 to 100000000")


def _check_out(out: Path, overwrite: bool) -> None:
    """Refuse now what `atomic_folder` would refuse at the end."""
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


def _part(shard: Shard) -> Part:
    return Part(tokens=shard.n_tokens, sentences=shard.n_sentences, documents=shard.n_documents)


def _count(paths: Sequence[Path]) -> tuple[WordCounts, list[Part]]:
    counts, sizes = WordCounts(), []
    for path in paths:
        shard = read_shard(path)
        counts.add(shard.types, shard.type_counts().tolist())
        sizes.append(_part(shard))
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
        os.replace(path, folder / shard_name(k))
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
    files: Sequence[TextFile], pieces: Sequence[PieceRecord], counts: WordCounts, held: _Heldout
) -> list[str]:
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
    if counts.pruned:
        notes.append(f"counts are not exact: rare words were dropped {counts.pruned} times")
    if not held.size.tokens:
        notes.append("nothing is held out")
    return notes
