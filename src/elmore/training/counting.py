"""The words of text files, counted on all processors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elmore._progress import SILENT, Progress
from elmore.text.tokenizer import Convention
from elmore.training.blocks import read_blocks
from elmore.training.input_files import input_paths, inspect_files, no_tokens
from elmore.training.pieces import block_request
from elmore.training.reading import Errors, Reading
from elmore.training.word_counts import WordCounts
from elmore.training.worker_processes import Workers

__all__ = ["count_words"]


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
    paths, _ = input_paths(inputs, ())
    counts = WordCounts()
    with Workers.of(workers, paths) as pool:
        files = inspect_files(paths, [], pool)
        requests = (
            (block_request("count", files, block.segments, reading, seed=0), block.data)
            for block in read_blocks(files)
        )
        for _, reply in pool.map(requests):
            counts.add(reply["words"], reply["counts"])
            (progress or SILENT).update(reply["tokens"])
    if not counts.n_tokens:
        raise no_tokens(len(files))
    return counts
