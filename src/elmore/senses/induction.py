"""Divide the uses of a word into senses by the substitutes that they share.

A use is the sparse vector of its substitutes (`SenseVectors.folded`), and the state from which they
were predicted. In each of several rounds half of all substitutes are hidden. The others are
projected on their leading axes, the states are put beside them, and average linkage divides the
uses into seven groups. Then groups are joined while the hidden substitutes do
not separate them: uses of both are nearly as similar as uses of one. Uses that share a group in
most rounds have one sense, by average linkage again.

So the number of senses is what the uses themselves support. It was chosen on SemEval-2010, SemCor
and synthetic uses; docs/senses.md has the figures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.embedding.clustering import (
    Groups,
    average_linkage,
    by_size,
    cut_linkage,
    leading_axes,
)
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import (
    Array,
    Place,
    SenseVectors,
    SubstituteSpace,
    marked_place,
    unit,
)
from elmore.text.patterns import is_word
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo


# Substitutes of a use: 100, 200 and 300 gave AVG 38.5, 39.1 and 40.8 on SemEval-2010.
_N_WORDS = 300
_ROUNDS, _HIDDEN, _AXES, _GROUPS = 40, 0.5, 20, 7
# How much of a cosine is that of the contexts, the rest is that of the substitutes. With 0, 0.3,
# 0.45 and 0.6 AVG is 40.0, 41.3, 41.1 and 42.3 (two seeds), but the adjusted Rand index .153, .154,
# .150 and .133 on 100 words of SemCor, and .237, .259, .239 and .214 on DWUG.
_CONTEXT = 0.3
# Two groups are joined if a use of the one and a use of the other are on average this much as
# similar as two uses of the looser group, by hidden substitutes. With 0.7, 0.75 and 0.8 AVG is
# 38, 41.1 and 40.9.
_JOIN = 0.75
# Uses that are in different groups in half of all rounds are different senses.
_APART = 0.5
# If the first axis has this share of all, the uses are much alike, as those of most words with one
# sense are: then only groups that are far apart are not joined.
_ALIKE, _JOIN_ALIKE = 0.42, 0.4
# Of all uses so many decide about the groups; the others join the most similar one.
_MOST_USES, _MOST_WORDS = 800, 16_000
# A smaller group is an exception, not a sense, so it joins the most similar group. With 2 or 3
# uses AVG is 41.1 and 40.3, and 38 or 48 % of SemCor's words with one sense stay whole.
_LEAST_USES, _LEAST_SHARE = 3, 0.01
# Fewer uses are not divided, unless a number of senses is asked for.
_FEW_USES = 6
# Cosines that float32 cannot tell from 0.
_ROUNDING = 1e-6
# A smaller membership says nothing.
_LEAST_MEMBERSHIP = 0.05
_NAME_WORDS = 6


@dataclass(frozen=True, eq=False)
class InducedSenses:
    """Uses divided into senses, the largest sense first.

    Attributes:
        labels: the sense of each use, (n,).
        memberships: how much each use belongs to each sense; rows add up to 1, (n, k).
        names: of each sense, the substitutes that distinguish it.
        words: the word of each use, as it is spelled, (n,).
    """

    labels: Groups
    memberships: Array
    names: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        sizes = np.bincount(self.labels, minlength=len(self))
        lines = [f"{len(self)} senses of {len(self.labels)} uses"]
        lines += [f"  {k}: {n} uses  {', '.join(self.names[k])}" for k, n in enumerate(sizes)]
        return "\n".join(lines)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row per use.

        Raises:
            MissingExtra: pandas is not installed.
        """
        pandas: Any = require("pandas", "sklearn", "to_pandas")
        columns: dict[str, Any] = {"word": self.words, "sense": self.labels}
        columns["name"] = [", ".join(self.names[k]) for k in self.labels]
        columns |= {f"membership {k}": self.memberships[:, k] for k in range(len(self))}
        return pandas.DataFrame(columns)


def induce(
    uses: Sequence[tuple[Sequence[str] | Sentence, int]] | Sequence[str],
    *,
    elmo: Elmo | None = None,
    n_senses: int | None = None,
    like: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
) -> InducedSenses:
    """Divide uses of a word into senses.

    Args:
        uses: tokens and the position of the word, or sentences with the word in [brackets].
        elmo: a model that has a softmax; the English model by default.
        n_senses: how many; by default as many as the uses support, mostly 1 to 6.
        like: names of senses with examples, sentences with the word in brackets. Each use joins the
            sense whose examples are most similar, and `n_senses` does not matter.
        seed: of what is hidden in each round.

    Examples:
        >>> found = induce(["the [bank] of the river", "the [bank] lent money"], n_senses=2)
        >>> sorted(found.labels.tolist())
        [0, 1]
    """
    from elmore.elmo import Elmo

    if not len(uses):
        raise InputError("there is no use to divide; pass at least one")
    elmo = Elmo.load() if elmo is None else elmo
    places: list[Place] = []
    for use in uses:
        if isinstance(use, str):
            places.append(marked_place(elmo, use))
        else:
            tokens, position = use
            known = tokens if isinstance(tokens, Sentence) else Sentence(tuple(tokens))
            places.append((known, position))
    space = SubstituteSpace(elmo, _N_WORDS)
    found = space.vectors(places)
    if like:
        examples = [[marked_place(elmo, text) for text in some] for some in like.values()]
        memberships = like_examples(found, [space.vectors(some) for some in examples])
    else:
        memberships = divide(found, n_senses, seed)
    words = tuple(sentence.tokens[position] for sentence, position in places)
    labels = memberships.argmax(axis=1)
    names: Sequence[tuple[str, ...]] = [(name,) for name in like or ()]
    names = names or sense_names(found, labels, {word.lower() for word in words})
    return InducedSenses(labels, memberships, tuple(names), words)


def like_examples(found: SenseVectors, examples: Sequence[SenseVectors]) -> Array:
    """How much each use belongs to senses that are given by examples, (n, n_senses)."""
    if any(not len(some) for some in examples):
        raise ConfigError("a sense has no example; give at least one sentence")
    return _shares(np.stack([found.similarity(some).mean(axis=1) for some in examples], axis=1))


def divide(found: SenseVectors, n_senses: int | None = None, seed: int = 0) -> Array:
    """How much each of n uses belongs to each sense, the largest sense first, (n, n_senses).

    Args:
        found: the sense vectors of the uses.
        n_senses: how many; fewer if there are fewer uses. By default see `induce`.
        seed: of what is hidden in each round.
    """
    if n_senses is not None and n_senses < 1:
        raise ConfigError(f"n_senses={n_senses}; use 1 or more")
    n, draws = len(found), np.random.default_rng(seed)
    wanted = n_senses and min(n, n_senses)
    if wanted == 1 or n < (_FEW_USES if wanted is None else 2):
        return np.ones((n, 1), np.float32)
    chosen = np.arange(n)
    if n > _MOST_USES:
        chosen = np.sort(draws.choice(n, _MOST_USES, replace=False))
    folded, words = found.folded(roots=False), np.zeros(0, np.int32)
    if found.ids.shape[1]:
        words = _frequent(folded[chosen])
        table = folded[chosen].table(words)
    else:  # a model without a softmax
        table = unit(found.dense()[chosen])
    context = None if found.context is None else found.context[chosen]
    together = _together(table, context, wanted, draws)
    merges, heights = average_linkage(1 - together)
    left = int((heights > _APART).sum()) + 1 if wanted is None else wanted
    groups = cut_linkage(merges, left)
    if wanted is None:
        groups = _without_exceptions(table, groups)
    groups = by_size(groups)
    member = np.eye(int(groups.max()) + 1, dtype=np.float32)[groups]
    result = np.empty((n, member.shape[1]), np.float32)
    if n == len(chosen):
        result[:] = together @ member / member.sum(axis=0)
        # Its own group comes first, even where another one is as near.
        result[np.arange(n), groups] = result.max(axis=1) + np.float32(1e-3)
        return _shares(result)
    centres = unit(member.T @ unit(table))
    for start in range(0, n, _MOST_USES):
        part = folded[np.arange(start, min(n, start + _MOST_USES))]
        own = part.table(words) if len(words) else unit(part.dense())
        result[start : start + len(part)] = unit(own) @ centres.T
    return _shares(result)


def _shares(scores: Array) -> Array:
    """Rows that add up to 1; small parts go, and what belongs nowhere joins the first group."""
    shares = np.maximum(scores, 0) ** 3
    shares[~shares.any(axis=1), 0] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    shares[shares < np.minimum(_LEAST_MEMBERSHIP, shares.max(axis=1, keepdims=True))] = 0
    return np.asarray(shares / shares.sum(axis=1, keepdims=True), np.float32)


def _frequent(folded: SenseVectors) -> NDArray[np.int32]:
    """All words, or those with the largest weights if there are too many."""
    words, columns = np.unique(folded.ids, return_inverse=True)
    sums = np.bincount(columns.ravel(), folded.weights.ravel(), minlength=len(words))
    return np.sort(words[np.argsort(-sums, kind="stable")[:_MOST_WORDS]])


def _together(
    table: Array, context: Array | None, n_groups: int | None, draws: np.random.Generator
) -> Array:
    """The share of rounds in which two uses are in one group, (n, n)."""
    n = len(table)
    if context is not None:  # what all uses of the word share says nothing
        own = unit(context - context.mean(axis=0))
        similar = np.float32(_CONTEXT) * (own @ own.T)
    first_axis = float(np.linalg.eigvalsh(table @ table.T)[-1])
    join = _JOIN if first_axis < _ALIKE * n else _JOIN_ALIKE
    together = np.zeros((n, n), np.float32)
    for _ in range(_ROUNDS):
        hidden = draws.random(table.shape[1]) < _HIDDEN
        axes = leading_axes(unit(table[:, ~hidden]), _AXES, draws)
        cosines = axes @ axes.T
        if context is not None:
            cosines = np.float32(1 - _CONTEXT) * cosines + similar
        merges, _ = average_linkage(1 - cosines)
        groups = cut_linkage(merges, min(n, max(_GROUPS, n_groups or 0)))
        groups = _join_alike(unit(table[:, hidden]), groups, join, n_groups)
        together += groups[:, None] == groups
    return together / np.float32(_ROUNDS)


def _join_alike(hidden: Array, groups: Groups, join: float, n_groups: int | None) -> Groups:
    """Join the most similar groups while the hidden substitutes do not separate them.

    Args:
        hidden: the weights of the hidden substitutes, rows of length 1, (n, n_words).
        groups: of each use, (n,).
        join: see `_JOIN`.
        n_groups: join until so many are left instead.
    """
    member = np.eye(int(groups.max()) + 1, dtype=np.float32)[groups]
    centres, sizes = member.T @ hidden, member.sum(axis=0)
    # Cosines between two groups, added up, without those of a use with itself.
    sums = centres @ centres.T - np.diag(member.T @ (hidden**2).sum(axis=1))
    while len(sums) > (n_groups or 1):
        pairs = np.outer(sizes, sizes) - np.diag(sizes)
        means = np.divide(sums, pairs, out=np.ones_like(sums), where=pairs > 0)
        within = np.minimum.outer(means.diagonal(), means.diagonal())
        ratios = means / np.maximum(within, _ROUNDING)
        np.fill_diagonal(ratios, -np.inf)
        one, two = sorted(divmod(int(ratios.argmax()), len(sums)))
        if n_groups is None and ratios[one, two] <= join:
            break
        both = np.delete(np.eye(len(sums), dtype=np.float32), two, axis=0)
        both[one, two] = 1
        sums, sizes, groups = both @ sums @ both.T, both @ sizes, both.argmax(axis=0)[groups]
    return groups


def _without_exceptions(table: Array, groups: Groups) -> Groups:
    """Groups of very few uses join the most similar group."""
    least = max(_LEAST_USES, int(_LEAST_SHARE * len(groups)))
    sizes = np.bincount(groups)
    large = np.flatnonzero(sizes >= min(least, sizes.max()))
    centres = unit(np.stack([table[groups == group].mean(axis=0) for group in large]))
    small = ~np.isin(groups, large)
    groups = groups.copy()
    groups[small] = large[(table[small] @ centres.T).argmax(axis=1)]
    return np.unique(groups, return_inverse=True)[1]


def sense_names(found: SenseVectors, groups: Groups, own: Collection[str]) -> list[tuple[str, ...]]:
    """The substitutes of each group that stand out from the other groups, the strongest first.

    Args:
        found: sparse vectors of n uses.
        groups: of each, (n,).
        own: the words themselves in lower case, which name no sense.
    """
    folded, bases = found.folded(), found.space.bases
    used, columns = np.unique(folded.ids, return_inverse=True)
    columns = columns.reshape(folded.ids.shape)
    sums = np.zeros((int(groups.max()) + 1, len(used)))
    for group in range(len(sums)):
        here = groups == group
        np.add.at(sums[group], columns[here], folded.weights[here] / max(1, here.sum()))
    hidden = {
        k for k, word in enumerate(found.space.words) if word.lower() in own or not is_word(word)
    }
    hidden |= {int(bases[k]) for k in hidden}
    names = []
    for group in range(len(sums)):
        # Words that all senses share would name none of them.
        others = np.delete(sums, group, axis=0)
        stands_out = sums[group] - (others.max(axis=0) if len(others) else 0)
        best = used[np.argsort(-stands_out, kind="stable")[: 4 * _NAME_WORDS]]
        some = [found.space.words[k] for k in best if k not in hidden]
        names.append(tuple(some[:_NAME_WORDS]))
    return names
