"""A word in its contexts: where it is used, and how similar its uses are."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.results import SentenceLayers, cosine, layer_weights
from elmore.options import LayerChoice
from elmore.text.vocabulary import Vocabulary


class Use(NamedTuple):
    """Where a word is: the number of a sentence, and of a token in it."""

    sentence: int
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class WordUses:
    """All layers of every use of a word.

    Attributes:
        places: where the word is, (n,).
        values: (n, layers, dim).
    """

    places: tuple[Use, ...]
    values: NDArray[np.float32]

    def similarity(self, layers: LayerChoice = "mean") -> NDArray[np.float32]:
        """The cosine of every two uses, (n, n), with layers mixed as in `Elmo.embed`."""
        weights = layer_weights(layers, self.values.shape[1])
        mixed = np.einsum("l,nld->nd", weights, self.values)
        return np.asarray(cosine(mixed, mixed))

    def inner_products(self) -> NDArray[np.float32]:
        """The inner products of every two layers of every two uses, (n, layers, n, layers).

        They are enough for the similarity or a map of any mix: a page that has them can change
        the mix without a model.
        """
        n_uses, n_layers, _ = self.values.shape
        flat = self.values.reshape(n_uses * n_layers, -1)
        return np.asarray((flat @ flat.T).reshape(n_uses, n_layers, n_uses, n_layers))


def find_uses(sentences: Sequence[Sequence[str]], word: str) -> tuple[Use, ...]:
    """The places of a word, however it is capitalized."""
    wanted = word.casefold()
    return tuple(
        Use(number, position)
        for number, tokens in enumerate(sentences)
        for position, token in enumerate(tokens)
        if token.casefold() == wanted
    )


def word_uses(
    layers: Sequence[SentenceLayers] | Mapping[int, SentenceLayers], places: Sequence[Use]
) -> WordUses:
    """The layers of some places, at least one, in sentences of which all layers are given."""
    values = np.stack([layers[use.sentence].values[:, use.position] for use in places])
    return WordUses(tuple(places), values)


def repeated_words(sentences: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    """The words that are used twice or more, with their counts, the most frequent first.

    A word is spelled as where it first occurs; punctuation is left out.
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
    """Choose the word whose uses are most worth comparing: in many sentences, and not common.

    Args:
        sentences: tokens of each.
        vocabulary: in order of frequency, which says how rare a word is; without one a long word
            counts as rare.

    Returns:
        the word as it is first spelled, or None if no word is used twice.
    """
    inside: dict[str, set[int]] = defaultdict(set)
    for number, tokens in enumerate(sentences):
        for token in tokens:
            inside[token.casefold()].add(number)
    repeated = repeated_words(sentences)
    if not repeated:
        return None

    # By count alone it would be "the": the log of the rank makes a rare word worth several uses.
    def worth(item: tuple[str, int]) -> float:
        word = item[0].casefold()
        rarity = float(len(word))
        if vocabulary is not None:
            rank = vocabulary.find(word)
            rarity = math.log(2 + (len(vocabulary) if rank is None else rank))
        return len(inside[word]) * rarity

    return max(repeated, key=worth)[0]
