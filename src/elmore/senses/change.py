"""Compare the uses of words in two corpora: periods, regions or genres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import Array, SenseVectors, unit
from elmore.report import Report, Reported, Row
from elmore.senses.groups import group_vectors, sense_names
from elmore.senses.index import Index, Use

Shares = NDArray[np.float64]
# Distances that float32 cannot tell apart.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class SenseShare:
    """A sense of a word in both corpora together.

    Attributes:
        name: the substitutes that are typical of it.
        old: its share of the uses in the old corpus.
        new: its share of the uses in the new one.
        example: its most typical use, from the corpus in which it is more frequent.
    """

    name: tuple[str, ...]
    old: float
    new: float
    example: Use


@dataclass(frozen=True)
class WordChange:
    """How differently two corpora use a word.

    Attributes:
        word: the word.
        n_old: uses in the old corpus.
        n_new: uses in the new one.
        pairwise: mean cosine distance between an old and a new use.
        prototype: cosine distance between the mean old and the mean new use.
        divergence: Jensen-Shannon divergence of the shares of senses, in bits, 0 to 1.
        p: share of random divisions of the uses with a prototype distance at least as large.
        q: p, corrected for the number of words (Benjamini and Hochberg 1995).
        senses: the senses of both corpora together.
    """

    word: str
    n_old: int
    n_new: int
    pairwise: float
    prototype: float
    divergence: float
    p: float
    q: float
    senses: tuple[SenseShare, ...]

    def row(self) -> dict[str, str | int | float]:
        """The word as a row of a table, without its senses."""
        names = ("word", "n_old", "n_new", "prototype", "pairwise", "divergence", "p", "q")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, repr=False)
class Changes(Reported):
    """Words by falling change.

    Attributes:
        words: the words, or the first of them.
        labels: the folders of both indexes.
        n_compared: how many words were compared.
        n_changed: how many of them have q below 0.05.
        rare: words that were asked for but have too few uses.
    """

    words: tuple[WordChange, ...]
    labels: tuple[str, str]
    n_compared: int
    n_changed: int
    rare: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, k: int) -> WordChange:
        return self.words[k]

    @property
    def report(self) -> Report:
        """The ranking, and the senses of the words that have several."""
        ranking: list[Row] = [one.row() for one in self.words]
        senses: list[Row] = [
            {
                "word": one.word,
                "old": sense.old,
                "new": sense.new,
                "substitutes": ", ".join(sense.name),
                "example": " ".join(sense.example.context(50)).strip(),
                "where": sense.example.place,
            }
            for one in self.words
            if len(one.senses) > 1
            for sense in one.senses
        ]
        notes = []
        if self.rare:
            notes.append(f"left out, with too few uses: {', '.join(self.rare)}")
        single = [one.word for one in self.words if len(one.senses) < 2]
        if single:  # a divergence of 0 and an empty table would look like no change
            notes.append(
                f"too similar to form senses: the uses of {', '.join(single)}; their prototype and "
                "pairwise distances still count, and elmore find shows the uses"
            )
        return Report(
            name="change",
            metrics={
                "words": float(self.n_compared),
                "changed (q < 0.05)": float(self.n_changed),
            },
            measured_on={"old": self.labels[0], "new": self.labels[1]},
            tables={"change": ranking, "senses": senses},
            notes=notes,
        )

    def draw(self, path: Path, *, overwrite: bool = False) -> None:
        """Draw the words that changed most."""
        from elmore.senses.pictures import draw_change

        draw_change(self, path, overwrite=overwrite)


def compare(
    old: Index,
    new: Index,
    words: Sequence[str] | None = None,
    *,
    min_uses: int = 20,
    permutations: int = 999,
    max_senses: int = 8,
    seed: int = 0,
) -> Changes:
    """Rank words by how differently two corpora use them.

    The ranking is by prototype distance less what chance gives, in standard deviations of the
    random divisions: a rare word has a large distance by chance alone.

    Args:
        old: an index.
        new: another one, made with the same model, `k` and `candidates`.
        words: which words, or one word; all that both have by default.
        min_uses: leave out words with fewer uses in one of them.
        permutations: random divisions of the permutation test.
        max_senses: see `Index.senses`.
        seed: of the divisions and groups.

    Raises:
        ConfigError: a bad option, or vectors that cannot be compared.
        InputError: no word has enough uses, or one of `words` is missing.
    """
    if difference := _difference(old.manifest, new.manifest):
        raise ConfigError(
            f"'{old.path}' and '{new.path}' were made with {difference}; index both with one"
        )
    for name, value in (("min_uses", min_uses), ("permutations", permutations)):
        if value < 1:
            raise ConfigError(f"{name}={value}; use 1 or more")
    shared = [word for word in old.words if word in new.words]
    if words is not None:
        shared = [words] if isinstance(words, str) else list(words)
    found: list[tuple[float, WordChange]] = []
    rare = []
    for word in shared:
        rows = old.rows(word), new.rows(word)
        if min(map(len, rows)) >= min_uses:
            found.append(_word_change(old, new, word, permutations, max_senses, seed))
        elif words is not None:
            rare.append(word)
    if not found:
        raise InputError(f"no word has {min_uses} uses in both indexes; lower min_uses")
    order = sorted(range(len(found)), key=lambda k: (-found[k][0], found[k][1].word))
    ranked = [found[k][1] for k in order]
    corrected = _corrected(np.array([one.p for one in ranked]))
    result = tuple(
        WordChange(**{**vars(one), "q": float(q)}) for one, q in zip(ranked, corrected, strict=True)
    )
    n_changed = sum(one.q < 0.05 for one in result)
    labels = old.label, new.label
    return Changes(result, labels, len(result), n_changed, tuple(rare))


def _difference(one: Mapping[str, Any], two: Mapping[str, Any]) -> str | None:
    """What keeps the vectors of two indexes from being compared, by their manifests."""
    same = one["model"]["sha256"] == two["model"]["sha256"]
    by_words = [index["model"].get("softmax", True) for index in (one, two)]
    if not same:  # the digest is also that of a precision, a start, and a softmax if it is used
        names = ["precision", "start", *["k"] * (by_words[0] != by_words[1])]
    else:
        names = ["k", "candidates"] if by_words[0] else ["layers"]
    values = [{**index["settings"], "layers": index["model"].get("layers")} for index in (one, two)]
    for name in names:
        was, now = (some.get(name) for some in values)
        if was != now:
            return f"{name}={was} and {name}={now}"
    return None if same else "different models"


def _word_change(
    old: Index, new: Index, word: str, permutations: int, max_senses: int, seed: int
) -> tuple[float, WordChange]:
    """How far a word is beyond chance, and what is known about it."""
    rows = old.rows(word), new.rows(word)
    n_old, n_new = map(len, rows)
    vectors = unit(np.concatenate([old.vectors(rows[0]), new.vectors(rows[1])]))
    shift = prototype_shift(vectors[:n_old], vectors[n_old:], permutations, seed)
    grouping = group_vectors(vectors, max_senses, seed)
    n = len(grouping.centres)
    shares = [
        np.bincount(part, minlength=n) / len(part)
        for part in (grouping.groups[:n_old], grouping.groups[n_old:])
    ]
    one, two = old.substitutes(rows[0]), new.substitutes(rows[1])
    both = SenseVectors(
        one.space, np.concatenate([one.ids, two.ids]), np.concatenate([one.weights, two.weights])
    )
    senses = []
    for group, name in enumerate(sense_names(both, grouping.groups, {word.lower()})):
        mine = np.flatnonzero(grouping.groups == group)
        # The example is from the corpus in which the sense is more frequent.
        mine = mine[(mine >= n_old) == (shares[1][group] > shares[0][group])]
        best = int(mine[np.argmax(vectors[mine] @ grouping.centres[group])])
        use = old.use(rows[0][best]) if best < n_old else new.use(rows[1][best - n_old])
        senses.append(SenseShare(name, float(shares[0][group]), float(shares[1][group]), use))
    change = WordChange(
        word=word,
        n_old=n_old,
        n_new=n_new,
        # The mean product of all pairs is the product of the means.
        pairwise=float(1 - vectors[:n_old].mean(axis=0) @ vectors[n_old:].mean(axis=0)),
        prototype=shift.distance,
        divergence=_divergence(*shares),
        p=shift.p,
        q=1.0,
        senses=tuple(senses),
    )
    return shift.score, change


class Shift(NamedTuple):
    """How far two sets of vectors are from each other.

    Attributes:
        distance: cosine distance of their means.
        score: in standard deviations of random divisions, from their mean.
        p: share of random divisions with a distance at least as large.
    """

    distance: float
    score: float
    p: float


def prototype_shift(old: Array, new: Array, permutations: int, seed: int) -> Shift:
    """Compare unit vectors of two corpora by a permutation test."""
    distance = float(_distances(old.mean(axis=0)[None], new.mean(axis=0)[None])[0])
    draws = np.random.default_rng(seed)
    random = _random_distances(np.concatenate([old, new]), len(old), permutations, draws)
    score = float((distance - random.mean()) / max(float(random.std()), 1e-9))
    p = float((1 + (random >= distance - _ROUNDING).sum()) / (1 + permutations))
    return Shift(distance, score, p)


def _random_distances(
    vectors: Array, n_old: int, permutations: int, draws: np.random.Generator
) -> Array:
    """Prototype distances if the uses were divided at random, (permutations,)."""
    chosen = np.zeros((permutations, len(vectors)), np.float32)
    for row in chosen:
        row[draws.permutation(len(vectors))[:n_old]] = 1
    sums = chosen @ vectors
    return _distances(sums, vectors.sum(axis=0) - sums)


def _distances(one: Array, two: Array) -> Array:
    distances = 1 - np.einsum("nd,nd->n", unit(one), unit(two))
    return np.asarray(np.where(distances < _ROUNDING, 0, distances), np.float32)


def _divergence(one: Shares, two: Shares) -> float:
    """The Jensen-Shannon divergence of two distributions, in bits."""
    mean = (one + two) / 2

    def information(shares: Shares) -> float:
        some = shares > 0
        return float((shares[some] * np.log2(shares[some] / mean[some])).sum())

    return max(0.0, (information(one) + information(two)) / 2)


def _corrected(p: Shares) -> Shares:
    """Benjamini and Hochberg's correction: the share of false alarms among all as small, (n,)."""
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    result = np.empty(len(p))
    result[order] = np.minimum.accumulate(scaled[::-1])[::-1].clip(max=1)
    return result
