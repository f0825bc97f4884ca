"""From tokens to a network's input: the word table, the features, and the weights in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from elmore.base.messages import ProgressOption, progress_of, shown
from elmore.elmo import Elmo
from elmore.embedding.layer_cache import CachedLayers, LayerCache
from elmore.errors import ConfigError, FormatError
from elmore.limits import LIMITS
from elmore.nn.inputs import TensorBatch
from elmore.tasks.folder import TrainedTask, word_rows
from elmore.tasks.layers.features import ElmoMixes, SpellingCnn, TokenFeatures, Tokens, WordTable
from elmore.tasks.recipe import TaskRecipe, WordsRecipe
from elmore.text.tokenizer import respell
from elmore.text.word_vectors import WordVectors
from elmore.training.seeds import numpy_generator

__all__ = [
    "FrozenLayers",
    "TokenIndex",
    "build_features",
    "check_weights",
    "choose_words",
    "word_vectors_of",
]

Vectors = NDArray[np.float32] | None

# Deviation of vectors that start from nothing; GloVe's own entries are about four times as large.
_START = 0.1


def choose_words(
    counts: Counter[str], vectors: WordVectors | None, recipe: WordsRecipe, seed: int
) -> tuple[tuple[str, ...], NDArray[np.float32], NDArray[np.float32]]:
    """Choose the words of a table and the vectors that they start from.

    Words that a saved folder cannot hold are left out: they are unknown words from the start.

    Returns:
        the words; vectors of those that are trained, (n, dim); of those that stay, (m, dim).
    """
    generator = numpy_generator(seed, "words")
    frequent = [w for w, n in sorted(counts.items()) if n >= recipe.min_count and _is_line(w)]
    if vectors is None:
        start = generator.normal(0, _START, (len(frequent), recipe.dim)).astype(np.float32)
        none = np.zeros((0, recipe.dim), np.float32)
        return tuple(frequent), start, none
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
        return words, np.zeros((0, vectors.dim), np.float32), matrix[fixed]
    # Trained rows come first in the table: found in the file, then those that start from nothing.
    own = [word for word in frequent if vectors.row(word) is None]
    start = generator.normal(0, _START, (len(own), vectors.dim)).astype(np.float32)
    words = (*(vectors.words[row] for row in kept), *own, *(vectors.words[r] for r in others))
    return words, np.concatenate([matrix[kept], start]), matrix[others]


def _is_line(word: str) -> bool:
    """Whether a word that is written as a line of UTF-8 is read back as it was."""
    try:
        size = len(word.encode("utf-8"))
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell
        return False
    same = "\n" not in word and not word.endswith("\r") and not word.startswith("\ufeff")
    return same and size <= LIMITS.vocabulary_line_bytes


class FrozenLayers:
    """All layers of sentences that were announced before, from the disk cache."""

    def __init__(self, cache: LayerCache) -> None:
        self.cache = cache
        self._places: dict[tuple[str, ...], tuple[CachedLayers, int]] = {}

    def announce(
        self, sentences: Iterable[Sequence[str]], progress: ProgressOption = False
    ) -> None:
        """Compute what is not there yet."""
        new = list({tuple(s): None for s in sentences if tuple(s) not in self._places})
        if new:
            # The biLM knows quotes only as its training text spelled them.
            convention = self.cache.elmo.checkpoint.tokenizer
            read = [respell(tokens, convention) for tokens in new]
            with closing(progress_of(progress, unit="sentences", total=len(new))) as report:
                layers = self.cache.layers(read, progress=report)
            self._places.update({tokens: (layers, k) for k, tokens in enumerate(new)})

    def batch(self, texts: Sequence[Sequence[Sequence[str]]], time: int) -> torch.Tensor:
        """The padded layers of texts of one or more sentences each, (layers, batch, time, dim)."""
        self.announce(tokens for text in texts for tokens in text)
        elmo = self.cache.elmo
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
    """Turns token lists into `Tokens`; of each word at most `max_chars` bytes are read."""

    def __init__(self, words: Sequence[str], max_chars: int, device: str = "cpu") -> None:
        self._row = word_rows(words)
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
            parts: the sentences of each text, where the biLM reads them one by one.
        """
        texts = [[tokens] for tokens in sentences] if parts is None else parts
        lengths = np.array([len(tokens) for tokens in sentences], np.int64)
        time = int(lengths.max(initial=0))
        words = np.zeros((len(sentences), time), np.int64)
        spelled = np.zeros((len(sentences), time), np.int64)
        distinct: dict[str, int] = {}  # the CNN reads each word of a batch once
        for row, tokens in enumerate(sentences):
            for place, token in enumerate(tokens):
                words[row, place] = self._row(token)
                spelled[row, place] = distinct.setdefault(token, len(distinct))

        def tensor(array: NDArray[np.int64]) -> torch.Tensor:
            return torch.from_numpy(array).to(self._device)

        layers = bilm = read_at = None
        if self.live is not None:
            convention = self.live.checkpoint.tokenizer
            read = [respell(part, convention) for text in texts for part in text] or [()]
            bilm = TensorBatch.from_batch(self.live.engine.indexer.batch(read), self._device)
            read_at = tensor(_places(texts, max(map(len, read)), time))
        elif self.layers is not None:
            layers = self.layers.batch(texts, time).to(self._device)

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
            read_at=read_at,
        )

    def _spell(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The bytes of words, shifted by one because 0 is padding, (n_words, chars)."""
        raw = [word.encode("utf-8", "surrogatepass")[: self._max_chars] for word in words]
        longest = max(map(len, raw), default=0)
        spellings = np.zeros((len(raw), max(1, longest)), np.int64)
        for row, data in enumerate(raw):
            spellings[row, : len(data)] = np.frombuffer(data, np.uint8).astype(np.int64) + 1
        return spellings


def _places(texts: Sequence[Sequence[Sequence[str]]], longest: int, time: int) -> NDArray[np.int64]:
    """Where each token of texts is in the padded batch of all their sentences, (texts, time)."""
    places = np.zeros((len(texts), time), np.int64)
    number = 0
    for row, text in enumerate(texts):
        start = 0
        for tokens in text:
            places[row, start : start + len(tokens)] = number * longest + np.arange(len(tokens))
            start += len(tokens)
            number += 1
    return places


def build_features(
    recipe: TaskRecipe, elmo: Elmo | None, trained: Vectors, fixed: Vectors
) -> TokenFeatures:
    """The features of a token that a task model reads.

    Word vectors are trained, (n, dim), or fixed, (m, dim); both are None for no words at all.

    Raises:
        ConfigError: nothing goes in.
    """
    characters, use = recipe.characters, recipe.elmo
    words = spelling = mixes = None
    if trained is not None and fixed is not None:
        words = WordTable(torch.from_numpy(trained), torch.from_numpy(fixed))
    if characters.filters:
        spelling = SpellingCnn(characters.filters, characters.dim, characters.dropout)
    if elmo is not None and (use.input or use.output):
        mixes = ElmoMixes(
            elmo.n_layers,
            elmo.dim,
            places=use.input + use.output,
            layers=use.layers,
            dropout=use.dropout,
            layer_norm=use.layer_norm,
        )
    if words is None and spelling is None and not (mixes is not None and use.input):
        raise ConfigError(
            "the model has no input: neither words, characters nor ELMo; set words.dim or pass "
            "vectors"
        )
    return TokenFeatures(words, spelling, mixes, elmo_input=use.input, elmo_output=use.output)


def word_vectors_of(content: TrainedTask, what: str) -> tuple[Vectors, Vectors]:
    """The trained and the fixed word vectors of a saved task, None where it has no words."""
    if content.words is None:
        return None, None
    name = "features.words."
    fixed = content.weights.get(f"{name}fixed")
    if fixed is None or fixed.ndim != 2:
        raise FormatError(f"'{what}' lacks the vectors of its words; restore it")
    trained = content.weights.get(f"{name}trained", np.zeros((0, fixed.shape[1]), np.float32))
    if trained.ndim != 2 or len(trained) + len(fixed) != len(content.words):
        raise FormatError(
            f"'{what}' has {len(content.words)} words, but vectors of shapes {trained.shape} and "
            f"{fixed.shape}; restore it"
        )
    return trained.astype(np.float32, copy=False), fixed.astype(np.float32, copy=False)


class _Unfilled(TorchFunctionMode):
    """Skips random numbers: for tensors without memory they would import half of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ == "normal_":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def check_weights(
    build: Callable[[], nn.Module], weights: Mapping[str, NDArray[Any]], what: str
) -> None:
    """Check the names and shapes of saved weights before the network takes memory.

    Raises:
        FormatError: they are not those of the network that `build` makes.
    """
    try:
        # A hostile recipe may ask for terabytes: on the meta device nothing is allocated.
        with torch.device("meta"), _Unfilled():
            own = build().state_dict()
    except RuntimeError as error:  # sizes beyond what torch can count
        raise FormatError(
            f"'{what}' has an impossible recipe: {shown(error, 60)}; restore it"
        ) from None
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())[0]
        raise FormatError(f"'{what}' does not fit its recipe at {shown(odd, 60)!r}; restore it")
    for name, value in own.items():
        if tuple(value.shape) != weights[name].shape:
            raise FormatError(f"'{what}' has a wrong shape at {name!r}; restore it")
