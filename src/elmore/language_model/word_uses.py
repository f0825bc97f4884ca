"""A word in its contexts: where it is used, and how similar its uses are."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.results import SentenceLayers, cosine, layer_weights
from elmore.options import LayerChoice
from elmore.text.patterns import is_word
from elmore.text.vocabulary import Vocabulary


class Use(NamedTuple):
    """Where a word is: the number of a sentence, and of a token in it."""

    sentence: int
    position: int


def find_uses(sentences: Sequence[Sequence[str]], word: str) -> tuple[Use, ...]:
    """The places of a word, however it is capitalized."""
    wanted = word.casefold()
    return tuple(
        Use(number, position)
        for number, tokens in enumerate(sentences)
        for position, token in enumerate(tokens)
        if token.casefold() == wanted
    )


def use_layers(
    layers: Sequence[SentenceLayers] | Mapping[int, SentenceLayers], uses: Sequence[Use]
) -> NDArray[np.float32]:
    """All layers of some uses, at least one, (n, layers, dim), from those of their sentences."""
    return np.stack([layers[use.sentence].values[:, use.position] for use in uses])


def similarity(values: NDArray[np.float32], layers: LayerChoice = "mean") -> NDArray[np.float32]:
    """The cosine of every two uses, (n, n), with layers mixed as in `Elmo.embed`."""
    mixed = np.einsum("l,nld->nd", layer_weights(layers, values.shape[1]), values)
    return np.asarray(cosine(mixed, mixed))


def inner_products(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inner products of every two layers of every two uses, (n, layers, n, layers).

    They are enough for the similarity or a map of any mix: a page that has them can change the mix
    without a model.
    """
    n_uses, n_layers, _ = values.shape
    flat = values.reshape(n_uses * n_layers, -1)
    return np.asarray((flat @ flat.T).reshape(n_uses, n_layers, n_uses, n_layers))


def repeated_words(sentences: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    """The words that are used twice or more, with their counts, the most frequent first.

    A word is spelled as where it first occurs; punctuation is left out.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for tokens in sentences:
        for token in tokens:
            if is_word(token):
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
