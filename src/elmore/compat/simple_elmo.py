"""simple_elmo's `ElmoModel` over elmore's parts: change the import, keep the code.

`from simple_elmo import ElmoModel` becomes `from elmore.compat.simple_elmo import ElmoModel`. Three
things are better than they were: padding never enters an average, the average of all layers keeps
the layers apart, and any model that elmore loads will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmore.compat import add_modules
from elmore.elmo import Elmo
from elmore.embedding.results import pool
from elmore.errors import ConfigError
from elmore.language_model.likely_words import next_words, previous_words

add_modules(__name__, {"elmo_helpers": "ElmoModel"}, {"ElmoModel": __name__})

Array = NDArray[np.float32]
Layers = Literal["average", "top", "all"]


class ElmoModel:
    """A model whose state is carried from batch to batch within a call, as in simple_elmo.

    Attributes:
        batch_size: sentences in a batch.
        vector_size: size of a token's vector.
        n_layers: number of layers, the token layer included.
        max_chars: characters of a token, markers included.
    """

    def __init__(self) -> None:
        self.batch_size: int | None = None
        self.max_chars: int | None = None
        self.vector_size: int | None = None
        self.n_layers: int | None = None
        self.full = False
        self._elmo: Elmo | None = None

    def load(
        self, directory: str | Path, max_batch_size: int = 32, limit: int = 100, full: bool = False
    ) -> str:
        """Load a model: a folder, a zip, or whatever `Elmo.load` takes.

        With `full` words will be predicted, which needs a softmax. `limit` has no effect.
        """
        if max_batch_size < 1:
            raise ConfigError(f"max_batch_size={max_batch_size} holds no sentence; use 1 or more")
        elmo = Elmo.load(directory)
        if full and elmo.checkpoint.softmax is None:
            raise ConfigError(
                f"full=True but '{directory}' has no softmax; use a TensorFlow checkpoint, or "
                "leave full out"
            )
        self._elmo, self.full = elmo, full
        self.batch_size = max_batch_size
        self.vector_size, self.n_layers = elmo.dim, elmo.n_layers
        alphabet = elmo.checkpoint.alphabet
        self.max_chars = None if alphabet is None else alphabet.max_chars
        return "The model is now loaded."

    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: Layers = "average"
    ) -> Array:
        """Embed tokenized sentences.

        `warmup` runs the first batch once before, so that it does not start from zeros.

        Returns:
            (n, longest, dim), with "all" (n, layers, longest, dim); zeros where a sentence ended.
        """
        longest = max((len(text) for text in texts), default=0)
        rows = list(self._rows(texts, warmup, layers))
        *first, dim = self._shape(layers)
        vectors = np.zeros((len(texts), *first, longest, dim), np.float32)
        for place, row in zip(vectors, rows, strict=True):
            place[..., : row.shape[-2], :] = row
        return vectors

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: Layers = "average"
    ) -> Array:
        """One vector of length 1 for each sentence: the mean of its tokens' vectors.

        Returns:
            (n, dim), with "all" (n, layers, dim) of length 1 over both axes; zeros for an empty
            sentence. simple_elmo counted padding as tokens.
        """
        rows = self._rows(texts, warmup, layers)
        means = [pool(row, "mean") for row in rows]
        vectors = [mean / (np.linalg.norm(mean) or 1) for mean in means]
        return np.stack(vectors) if vectors else np.zeros((0, *self._shape(layers)), np.float32)

    def get_elmo_substitutes(
        self, data: Sequence[str | Sequence[str]], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[dict[str, Any]]]:
        """The `topn` words that the language model expects in the place of each word.

        Sentences are tokens, or tokens separated by spaces. Markers are never listed.

        Returns:
            for each token of each sentence {"word", "forward": {"candidate_words", "candidates",
            "logp"}, "backward": the same}, the likeliest last, as simple_elmo had them; "logp" is
            a probability there, and here.
        """
        elmo = self._loaded()
        if not self.full:
            raise ConfigError("predictions need the softmax; load with full=True")
        rows = [one.split() if isinstance(one, str) else list(one) for one in data]
        return [
            [
                {
                    "word": word,
                    "forward": self._candidates(next_words(elmo, tokens[:k], topn)),
                    "backward": self._candidates(previous_words(elmo, tokens[k + 1 :], topn)),
                }
                for k, word in enumerate(tokens)
            ]
            for tokens in rows
        ]

    def _candidates(self, words: list[tuple[str, float]]) -> dict[str, list[Any]]:
        vocabulary = self._loaded().checkpoint.vocabulary
        # simple_elmo sorted ascending, so the likeliest word is the last.
        words = words[::-1]
        return {
            "candidate_words": [word for word, _ in words],
            "candidates": [vocabulary.find(word) if vocabulary else None for word, _ in words],
            "logp": [round(float(np.exp(log)), 4) for _, log in words],
        }

    def _rows(
        self, texts: Sequence[Sequence[str]], warmup: bool, layers: Layers
    ) -> Iterator[Array]:
        """Embed batch after batch, each row (time, dim) or (layers, time, dim)."""
        if layers not in get_args(Layers):
            raise ConfigError(f"layers={layers!r}; use one of {', '.join(get_args(Layers))}")
        elmo, size = self._loaded(), self.batch_size or 1
        # Every call of simple_elmo began with a fresh session.
        with elmo.stateful() as stream:
            # simple_elmo discarded these vectors; only the state that they leave is used.
            if warmup and texts:
                stream.layers(texts[:size], tokenized=True)
            for start in range(0, len(texts), size):
                for row in stream.layers(texts[start : start + size], tokenized=True):
                    if layers == "all":
                        yield row.values
                    else:
                        yield row.mix("mean" if layers == "average" else "top")

    def _shape(self, layers: Layers) -> tuple[int, ...]:
        elmo = self._loaded()
        return (elmo.n_layers, elmo.dim) if layers == "all" else (elmo.dim,)

    def _loaded(self) -> Elmo:
        if self._elmo is None:
            raise ConfigError("no model is loaded; call load(path) first")
        return self._elmo
