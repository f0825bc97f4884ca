"""From tokens to what a network reads: rows of the word table, spellings, layers of the biLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elmore._messages import SILENT, Progress
from elmore.embedding.elmo import Elmo
from elmore.embedding.layer_cache import MAX_BYTES, CachedLayers, LayerCache
from elmore.limits import LIMITS
from elmore.nn.inputs import TensorBatch
from elmore.tasks.layers.features import Tokens
from elmore.tasks.recipe import WordsRecipe
from elmore.text.tokenizer import respell
from elmore.text.word_vectors import WordVectors
from elmore.training.seeds import numpy_generator

__all__ = ["FrozenLayers", "TokenIndex", "WordList", "choose_words"]

# Of vectors that start from nothing; GloVe's own entries are about four times as large.
_START = 0.1
_UNKNOWN = 1


@dataclass(frozen=True)
class WordList:
    """The words of a table: those that are trained first.

    Attributes:
        words: in the order of the table's rows.
        n_trained: how many of them are trained.
    """

    words: tuple[str, ...]
    n_trained: int

    def rows(self) -> dict[str, int]:
        """Give the row of each word, the first where it has two; 0 is padding, 1 unknown."""
        return {word: row for row, word in reversed(list(enumerate(self.words, 2)))}


def choose_words(
    counts: Counter[str], vectors: WordVectors | None, recipe: WordsRecipe, seed: int
) -> tuple[WordList, NDArray[np.float32], NDArray[np.float32]]:
    """Choose the words of a table and the vectors that they start from.

    Words that a saved folder cannot hold are left out: they are unknown words from the start.

    Args:
        counts: how often each word occurs in the training data.
        vectors: vectors from a file, or None to learn all from nothing.
        recipe: which words.
        seed: the one seed.

    Returns:
        the words; vectors of those that are trained, (n, dim); of those that stay, (m, dim).
    """
    generator = numpy_generator(seed, "words")
    frequent = [w for w, n in sorted(counts.items()) if n >= recipe.min_count and _is_line(w)]
    if vectors is None:
        start = generator.normal(0, _START, (len(frequent), recipe.dim)).astype(np.float32)
        none = np.zeros((0, recipe.dim), np.float32)
        return WordList(tuple(frequent), len(frequent)), start, none
    matrix = vectors.vectors
    if recipe.unit:
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix = matrix / np.maximum(norms, 1e-12)
    found = {row for word in counts if (row := vectors.row(word)) is not None}
    first = range(min(recipe.most, len(matrix)))
    kept = [row for row in sorted(found) if _is_line(vectors.words[row])]
    others = [row for row in first if row not in found and _is_line(vectors.words[row])]
    if not recipe.trainable:
        fixed = [*kept, *others]
        words = tuple(vectors.words[row] for row in fixed)
        return WordList(words, 0), np.zeros((0, vectors.dim), np.float32), matrix[fixed]
    own = [word for word in frequent if vectors.row(word) is None]
    start = generator.normal(0, _START, (len(own), vectors.dim)).astype(np.float32)
    words = (*(vectors.words[row] for row in kept), *own, *(vectors.words[r] for r in others))
    trained = np.concatenate([matrix[kept], start])
    return WordList(words, len(trained)), trained, matrix[others]


def _is_line(word: str) -> bool:
    """Tell whether a word, written as a line of UTF-8, is read back as it was."""
    try:
        size = len(word.encode("utf-8"))
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell
        return False
    whole = "\n" not in word and not word.endswith("\r") and not word.startswith("\ufeff")
    return whole and size <= LIMITS.vocabulary_line_bytes


class FrozenLayers:
    """All layers of sentences that were announced before, from the disk cache.

    Args:
        elmo: the model.
        folder: of the cache.
        max_bytes: what it may hold.
        progress: counts sentences that are computed.
    """

    def __init__(
        self,
        elmo: Elmo,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        progress: Progress = SILENT,
    ) -> None:
        self._cache = LayerCache(elmo, folder, max_bytes=max_bytes)
        self._progress = progress
        self._places: dict[tuple[str, ...], tuple[CachedLayers, int]] = {}

    def of(self, elmo: Elmo) -> FrozenLayers:
        """Give the layers of another model, in the same folder."""
        cache = self._cache
        return FrozenLayers(elmo, cache.folder, max_bytes=cache.max_bytes, progress=self._progress)

    def announce(self, sentences: Iterable[Sequence[str]]) -> None:
        """Compute what is not there yet."""
        new = list({tuple(s): None for s in sentences if tuple(s) not in self._places})
        if new:
            convention = self._cache.elmo.checkpoint.tokenizer
            read = [respell(tokens, convention) for tokens in new]
            layers = self._cache.layers(read, progress=self._progress)
            self._places.update({tokens: (layers, k) for k, tokens in enumerate(new)})

    def batch(self, texts: Sequence[Sequence[Sequence[str]]], time: int) -> torch.Tensor:
        """Give the padded layers of texts, each of one or more sentences that were read apart.

        Returns:
            (layers, batch, time, dim).
        """
        self.announce(tokens for text in texts for tokens in text)
        elmo = self._cache.elmo
        values = np.zeros((elmo.n_layers, len(texts), time, elmo.dim), np.float32)
        for row, text in enumerate(texts):
            start = 0
            for tokens in text:
                if tokens:
                    layers, place = self._places[tuple(tokens)]
                    values[:, row, start : start + len(tokens)] = layers[place]
                start += len(tokens)
        return torch.from_numpy(values)


class TokenIndex:
    """Turns token lists into `Tokens`.

    Args:
        words: of the word table, or None.
        max_chars: bytes of a word that are read.
        device: where the tensors go.
    """

    def __init__(self, words: WordList | None, max_chars: int, device: str = "cpu") -> None:
        self._rows = {} if words is None else words.rows()
        self._max_chars, self._device = max_chars, device
        self.layers: FrozenLayers | None = None
        self.live: Elmo | None = None  # a biLM that is trained reads tokens itself

    def batch(
        self,
        sentences: Sequence[Sequence[str]],
        parts: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> Tokens:
        """Index sentences; an empty one is all padding.

        Args:
            sentences: their tokens.
            parts: what frozen layers are made of, where the biLM reads them in several pieces.
        """
        lengths = np.array([len(tokens) for tokens in sentences], np.int64)
        time = int(lengths.max(initial=0))
        words = np.zeros((len(sentences), time), np.int64)
        spelled = np.zeros((len(sentences), time), np.int64)
        distinct: dict[str, int] = {}
        for row, tokens in enumerate(sentences):
            for place, token in enumerate(tokens):
                words[row, place] = self._row(token)
                spelled[row, place] = distinct.setdefault(token, len(distinct))
        layers = bilm = None
        if self.live is not None:
            convention = self.live.checkpoint.tokenizer
            batch = self.live.engine.indexer.batch([respell(s, convention) for s in sentences])
            bilm = TensorBatch.from_batch(batch, self._device)
        elif self.layers is not None:
            texts = [[tokens] for tokens in sentences] if parts is None else parts
            layers = self.layers.batch(texts, time).to(self._device)

        def tensor(array: NDArray[np.int64]) -> torch.Tensor:
            return torch.from_numpy(array).to(self._device)

        places = torch.arange(time, device=self._device)
        counts = tensor(lengths)
        return Tokens(
            lengths=counts,
            mask=places < counts[:, None],
            words=tensor(words),
            spellings=tensor(self._spell(list(distinct))),
            spelled=tensor(spelled),
            layers=layers,
            bilm=bilm,
        )

    def _row(self, token: str) -> int:
        row = self._rows.get(token)
        return self._rows.get(token.lower(), _UNKNOWN) if row is None else row

    def _spell(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Give the bytes of words, shifted by one, (n_words, chars)."""
        raw = [word.encode("utf-8", "surrogatepass")[: self._max_chars] for word in words]
        longest = max(map(len, raw), default=0)
        spellings = np.zeros((len(raw), max(1, longest)), np.int64)
        for row, data in enumerate(raw):
            spellings[row, : len(data)] = np.frombuffer(data, np.uint8).astype(np.int64) + 1
        return spellings
