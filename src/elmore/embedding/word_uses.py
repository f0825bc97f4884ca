"""A word in its contexts: where it is used, and how alike its uses are."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.layers import LayerChoice, SentenceLayers, layer_weights
from elmore.embedding.similarity import cosine
from elmore.text.vocabulary import Vocabulary

__all__ = ["Use", "WordUses", "find_uses", "repeated_words", "shared_word", "word_uses"]


class Use(NamedTuple):
    """Where a word stands: the number of a sentence, and of a token in it."""

    sentence: int
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class WordUses:
    """All layers of every use of a word.

    Attributes:
        places: where the word stands, (n,).
        values: (n, layers, dim).
    """

    places: tuple[Use, ...]
    values: NDArray[np.float32]

    def similarity(self, layers: LayerChoice = "mean") -> NDArray[np.float32]:
        """Give the cosine of every two uses, (n, n), as `Elmo.embed` would mix the layers."""
        weights = layer_weights(layers, self.values.shape[1])
        mixed = np.einsum("l,nld->nd", weights, self.values)
        return np.asarray(cosine(mixed, mixed))

    def inner_products(self) -> NDArray[np.float32]:
        """Give the inner products of every two layers of every two uses, (n, layers, n, layers).

        They say all that a similarity or a map of any mix needs: whoever has them can change the
        mix without a model.
        """
        n_uses, n_layers, _ = self.values.shape
        flat = self.values.reshape(n_uses * n_layers, -1)
        return np.asarray((flat @ flat.T).reshape(n_uses, n_layers, n_uses, n_layers))


def find_uses(sentences: Sequence[Sequence[str]], word: str) -> tuple[Use, ...]:
    """List where a word stands, however it is capitalised."""
    wanted = word.casefold()
    return tuple(
        Use(number, position)
        for number, tokens in enumerate(sentences)
        for position, token in enumerate(tokens)
        if token.casefold() == wanted
    )


def word_uses(layers: Sequence[SentenceLayers], places: Sequence[Use]) -> WordUses:
    """Gather the layers of some places.

    Args:
        layers: all layers of each sentence.
        places: which tokens; one at least.
    """
    values = np.stack([layers[use.sentence].values[:, use.position] for use in places])
    return WordUses(tuple(places), values)


def repeated_words(sentences: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    """List the words that are used twice or more, with their counts, the most frequent first.

    A word is written as it was first; punctuation is left out.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for tokens in sentences:
        for token in tokens:
            if any(character.isalnum() for character in token):
                counts[token.casefold()] += 1
                first.setdefault(token.casefold(), token)
    return [(first[word], count) for word, count in counts.most_common() if count > 1]


def shared_word(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary | None = None
) -> str | None:
    """Choose the word that several uses tell most about: in many sentences, and not a common one.

    Args:
        sentences: tokens of each.
        vocabulary: tells how rare a word is, as it stands in the order of frequency; without one
            a long word counts as rare.

    Returns:
        the word as it was first written, or None where no word is used twice.
    """
    inside: dict[str, set[int]] = defaultdict(set)
    for number, tokens in enumerate(sentences):
        for token in tokens:
            inside[token.casefold()].add(number)
    repeated = repeated_words(sentences)
    if not repeated:
        return None

    def worth(item: tuple[str, int]) -> float:
        word = item[0].casefold()
        rarity = float(len(word))
        if vocabulary is not None:
            rank = vocabulary.find(word)
            rarity = math.log(2 + (len(vocabulary) if rank is None else rank))
        return len(inside[word]) * rarity

    return max(repeated, key=worth)[0]
