"""bilm-tf's training data: text files as endless, packed batches."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.io import open_text, read_lines
from elmore.compat.bilm.data import UnicodeCharsVocabulary, Vocabulary
from elmore.errors import InputError
from elmore.limits import LIMITS
from elmore.text.batching import TokenIndexer
from elmore.training.bilm.streams import StreamBatches
from elmore.training.seeds import numpy_generator

__all__ = ["BidirectionalLMDataset", "LMDataset"]

Batch = dict[str, NDArray[Any] | None]


class _Dataset:
    """What both kinds share: the files, and how their sentences follow each other."""

    def __init__(
        self,
        filepattern: str | Path,
        vocab: Vocabulary,
        test: bool = False,
        shuffle_on_load: bool = False,
        seed: int = 0,
    ) -> None:
        self._files = sorted(glob.glob(str(filepattern)))
        if not self._files:
            raise InputError(f"no file is called '{filepattern}'; check the pattern")
        self._vocab = vocab
        self._test, self._shuffle, self._seed = test, shuffle_on_load, seed

    def _batches(self, rows: int, unroll: int, both: bool) -> Iterator[tuple[Batch, ...]]:
        """Batch after batch, with one part for each direction."""
        words = self._vocab.words
        alphabet = None
        if isinstance(self._vocab, UnicodeCharsVocabulary):
            alphabet = self._vocab.alphabet
        stream = StreamBatches(
            self._sentences(),
            TokenIndexer(alphabet, words),
            words,
            rows=rows,
            unroll=unroll,
            bidirectional=both,
        )
        while True:
            try:
                batch = stream.next()
            # A generator that ends inside another one raises RuntimeError (PEP 479).
            except (StopIteration, RuntimeError):  # the text of a test has ended
                return
            parts = []
            for read, aims in zip(batch.rows, batch.targets, strict=True):
                index = read.reshape(unroll, rows).T
                parts.append(
                    {
                        "token_ids": _taken(batch.word_ids, index),
                        "tokens_characters": _taken(batch.words, index, shift=1),
                        "next_token_id": aims.reshape(unroll, rows).T,
                    }
                )
            yield tuple(parts)

    def _sentences(self) -> Callable[[int, int], Iterator[list[str]]]:
        def stream(direction: int, skip: int) -> Iterator[list[str]]:
            epoch = 0
            while True:
                # Each direction and epoch has its own generator, so that none
                # depends on how far another is.
                generator = numpy_generator(self._seed, "files", direction, epoch)
                order = range(len(self._files))
                for k in order if self._test else generator.permutation(order).tolist():
                    lines = _read(self._files[k])
                    if self._shuffle and not self._test:
                        lines = [lines[j] for j in generator.permutation(len(lines)).tolist()]
                    yield from lines
                if self._test:
                    return
                epoch += 1

        return stream


class LMDataset(_Dataset):
    """Batches of one direction.

    Each direction has its own order of files and sentences. The order comes from `seed`, where
    bilm-tf drew from Python's global generator.

    Args:
        filepattern: text files, one sentence per line, tokens separated by white space.
        vocab: the targets; a `UnicodeCharsVocabulary` for characters too.
        reverse: whether the sentences run backward.
        test: read each file once, in order, and end.
        shuffle_on_load: shuffle the sentences of each file.
        seed: the one seed.
    """

    def __init__(
        self,
        filepattern: str | Path,
        vocab: Vocabulary,
        reverse: bool = False,
        test: bool = False,
        shuffle_on_load: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(filepattern, vocab, test, shuffle_on_load, seed)
        self._reverse = reverse

    def iter_batches(self, batch_size: int, num_steps: int) -> Iterator[Batch]:
        """Yield `token_ids`, `tokens_characters` or None, `next_token_id`: (rows, steps, …)."""
        for parts in self._batches(batch_size, num_steps, self._reverse):
            yield parts[-1]


class BidirectionalLMDataset(_Dataset):
    """Batches of both directions, which are independent of each other.

    Arguments are those of `LMDataset` without `reverse`.
    """

    def iter_batches(self, batch_size: int, num_steps: int) -> Iterator[Batch]:
        """The arrays of `LMDataset`, and those of the other direction with `_reverse`."""
        for forward, backward in self._batches(batch_size, num_steps, True):
            yield {**forward, **{f"{name}_reverse": value for name, value in backward.items()}}


def _read(path: str) -> list[list[str]]:
    with open_text(Path(path), what="text") as stream:
        return [
            line.split()
            for _, line in read_lines(stream, what=path, max_line=LIMITS.text_line_bytes)
        ]


def _taken(
    table: NDArray[Any] | None, index: NDArray[np.int64], shift: int = 0
) -> NDArray[Any] | None:
    return None if table is None else np.asarray(table[index] - shift)
