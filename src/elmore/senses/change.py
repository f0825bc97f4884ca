"""Compare the uses of words in two corpora: periods, regions or genres."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import Array, SenseVectors, unit
from elmore.report import Report, Reported, Row
from elmore.senses.groups import find_senses
from elmore.senses.index import Index, Rows, Use

Shares = NDArray[np.float64]
# What words can be ranked by.
SORTS = ("pairwise", "prototype", "beyond", "divergence")
# They have many uses, none of which is what a study of meanings looks for.
FUNCTION_WORDS = frozenset(
    """a about above after again against all also although am among an and another any are as at be
    because been before being below between both but by can cannot could did do does doing done down
    during each either else ever every few for from further had has have having he her here hers
    herself him himself his how however i if in into is it its itself just least less may me might
    mine more most much must my myself neither never no none nor not now of off often on once one
    only onto or other others ought our ours ourselves out over own per quite rather same shall she
    should since so some such than that the their theirs them themselves then there therefore these
    they this those though through thus till to too toward towards under unless until up upon us
    very was we were what whatever when where whether which while who whom whose why will with
    within without would yet you your yours yourself yourselves n't 's 'd 'll 'm 're 've""".split()
)
# Resamples of the confidence interval.
_RESAMPLES = 500
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
        low: lower end of its 95 % confidence interval, by resampling the uses.
        high: upper end.
        p: share of random divisions of the uses with a pairwise distance at least as large.
        q: p, corrected for the number of words (Benjamini and Hochberg 1995).
        beyond: by how many standard deviations the distance is beyond that of random divisions.
        prototype: cosine distance between the mean old and the mean new use.
        divergence: Jensen-Shannon divergence of the shares of senses, in bits, 0 to 1; None if the
            senses were not asked for.
        senses: the senses of both corpora together.
    """

    word: str
    n_old: int
    n_new: int
    pairwise: float
    low: float
    high: float
    p: float
    q: float
    beyond: float
    prototype: float
    divergence: float | None = None
    senses: tuple[SenseShare, ...] = ()

    def row(self) -> dict[str, str | int | float | None]:
        """The word as a row of a table, without its senses."""
        return {name: value for name, value in vars(self).items() if name != "senses"}


@dataclass(frozen=True, repr=False)
class Changes(Reported):
    """Words by falling change.

    Attributes:
        sort: what they are ranked by.
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
    sort: str = "pairwise"

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, k: int) -> WordChange:
        return self.words[k]

    @property
    def report(self) -> Report:
        """The ranking, and the senses of the words."""
        ranking: list[Row] = [one.row() for one in self.words]
        senses: list[Row] = [
            {
                "word": one.word,
                "old": sense.old,
                "new": sense.new,
                "substitutes": ("one sense: " if len(one.senses) == 1 else "")
                + ", ".join(sense.name),
                **dict(zip(("left", "form", "right"), sense.example.context(36), strict=True)),
                "where": sense.example.place,
            }
            for one in self.words
            for sense in one.senses
        ]
        words = [one.word for one in self.words]
        what = ", ".join(words) if len(words) < 4 else "change of words"
        names = " and ".join(label.rpartition("/")[2] for label in self.labels)
        rare = f"left out, with too few uses: {', '.join(self.rare)}"
        return Report(
            name=f"{what} in {names}",
            metrics={
                "words": float(self.n_compared),
                "changed (q < 0.05)": float(self.n_changed),
            },
            measured_on={"old": self.labels[0], "new": self.labels[1]},
            tables={f"change, by {self.sort}": ranking, "senses": senses},
            notes=[rare] if self.rare else [],
            bars=[["old"], ["new"]],
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
    sort: str = "pairwise",
    top: int | None = None,
    stop_words: Collection[str] = FUNCTION_WORDS,
    n_senses: int | None = None,
    seed: int = 0,
) -> Changes:
    """Rank words by how differently two corpora use them.

    Args:
        old: an index.
        new: another one, made with the same model, `k` and `candidates`.
        words: which words, or one word; all that both have by default.
        min_uses: leave out words with fewer uses in one of them.
        permutations: random divisions of the permutation test.
        sort: rank by "pairwise", "prototype", "divergence", or how far the pairwise distance is
            "beyond" chance.
        top: return only so many words; senses are found for them alone, which saves time.
        stop_words: left out if `words` is not given.
        n_senses: see `Index.senses`.
        seed: of the divisions and groups.

    Raises:
        ConfigError: a bad option, or vectors that cannot be compared.
        InputError: no word has enough uses, or one of `words` is missing.
    """
    if sort not in SORTS:
        raise ConfigError(f"sort={sort!r}; use one of {', '.join(SORTS)}")
    if difference := _difference(old.manifest, new.manifest):
        raise ConfigError(
            f"'{old.path}' and '{new.path}' were made with {difference}; index both with one"
        )
    for name, value in (("min_uses", min_uses), ("permutations", permutations)):
        if value < 1:
            raise ConfigError(f"{name}={value}; use 1 or more")
    shared = [word for word in old.words if word in new.words and word not in stop_words]
    if words is not None:
        shared = [words] if isinstance(words, str) else list(words)
    found: list[WordChange] = []
    rare = []
    for word in shared:
        rows = old.rows(word), new.rows(word)
        if min(map(len, rows)) >= min_uses:
            vectors = [unit(one.vectors(some)) for one, some in zip((old, new), rows, strict=True)]
            shift = pairwise_shift(vectors[0], vectors[1], permutations, seed)
            found.append(
                WordChange(
                    word=word,
                    n_old=len(rows[0]),
                    n_new=len(rows[1]),
                    q=1.0,
                    prototype=float(_distances(*(one.mean(axis=0)[None] for one in vectors))[0]),
                    **shift._asdict(),
                )
            )
        elif words is not None:
            rare.append(word)
    if not found:
        raise InputError(f"no word has {min_uses} uses in both indexes; lower min_uses")
    corrected = _corrected(np.array([one.p for one in found]))
    found = [replace(one, q=float(q)) for one, q in zip(found, corrected, strict=True)]
    n_changed, n_compared = sum(one.q < 0.05 for one in found), len(found)
    joined = JoinedIndex([old, new], ["old", "new"])
    if sort == "divergence":
        found = [_with_senses(joined, one, n_senses, seed) for one in found]
    found.sort(key=lambda one: (-getattr(one, sort), one.word))
    result = [
        one if one.senses else _with_senses(joined, one, n_senses, seed) for one in found[:top]
    ]
    labels = old.label, new.label
    return Changes(tuple(result), labels, n_compared, n_changed, tuple(rare), sort)


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


def _with_senses(
    joined: JoinedIndex, one: WordChange, n_senses: int | None, seed: int
) -> WordChange:
    """Divide the uses of both corpora together, as `Index.senses` divides those of one."""
    found = find_senses(joined, one.word, n_senses=n_senses, seed=seed)
    senses = []
    for sense in found.senses:
        late = joined.source_of(sense.rows)
        old, new = np.bincount(late, minlength=2) / (one.n_old, one.n_new)
        # The example is from the corpus in which the sense is more frequent.
        example = joined.use(int(sense.rows[np.argmax(late == (new > old))]))
        senses.append(SenseShare(sense.name, float(old), float(new), example))
    shares = np.array([(sense.old, sense.new) for sense in senses])
    return replace(one, senses=tuple(senses), divergence=divergence(*shares.T))


class JoinedIndex(Index):
    """Several indexes as one whose documents are these indexes; enough of it to find senses."""

    def __init__(self, parts: Sequence[Index], labels: Sequence[str]) -> None:
        self.__dict__.update(parts[0].__dict__)  # the model and its vocabulary
        self._parts, self._labels, self._chosen = parts, list(labels), None
        self._starts = np.cumsum([0, *(int(part.offsets[-1]) for part in parts)])

    @property
    def sources(self) -> list[str]:
        """The labels of the indexes."""
        return self._labels

    def rows(self, word: str | Sequence[str], *, literal: bool = False) -> Rows:
        """The uses of a word in all of them."""
        found, missing = [], None
        for part, start in zip(self._parts, self._starts, strict=False):
            try:
                found.append(part.rows(word, literal=literal) + start)
            except InputError as error:
                missing = error
        if missing is not None and not found:
            raise missing
        return np.concatenate(found)

    def source_of(self, rows: Rows) -> Rows:
        """The number of the index that each use is from."""
        return np.asarray(np.searchsorted(self._starts, rows, "right") - 1, np.int64)

    def vectors(self, rows: Rows) -> Array:
        """Dense vectors of uses."""
        return self._from_each(rows, lambda part, mine: part.vectors(mine))

    def substitutes(self, rows: Rows) -> SenseVectors:
        """Sparse vectors of uses."""
        ids = self._from_each(rows, lambda part, mine: part.substitutes(mine).ids)
        weights = self._from_each(rows, lambda part, mine: part.substitutes(mine).weights)
        layers = None if ids.shape[1] else self.vectors(rows)
        return SenseVectors(self._parts[0].substitutes(rows[:0]).space, ids, weights, layers=layers)

    def _from_each(self, rows: Rows, ask: Any) -> NDArray[Any]:
        numbers = self.source_of(rows)
        order = np.argsort(numbers, kind="stable")
        found = [
            ask(part, rows[numbers == k] - self._starts[k]) for k, part in enumerate(self._parts)
        ]
        result = np.concatenate(found)
        return np.asarray(result[np.argsort(order, kind="stable")])

    def use(self, row: int) -> Use:
        """A use with its sentence."""
        number = int(self.source_of(np.array([row]))[0])
        return self._parts[number].use(int(row - self._starts[number]))


class Shift(NamedTuple):
    """How far two sets of vectors are from each other; see `WordChange`."""

    pairwise: float
    low: float
    high: float
    p: float
    beyond: float


def mean_distance(old: Array, new: Array) -> float:
    """The mean cosine distance between a unit vector of one set and one of the other."""
    # The mean product of all pairs is the product of the means.
    return float(1 - old.mean(axis=0) @ new.mean(axis=0))


def pairwise_shift(old: Array, new: Array, permutations: int, seed: int) -> Shift:
    """Compare unit vectors of two corpora: a permutation test and a confidence interval."""
    distance, draws = mean_distance(old, new), np.random.default_rng(seed)
    both = np.concatenate([old, new])
    chosen = np.zeros((permutations, len(both)), np.float32)
    for row in chosen:
        row[draws.permutation(len(both))[: len(old)]] = 1
    sums = chosen @ both
    random = 1 - np.einsum("nd,nd->n", sums, both.sum(axis=0) - sums) / (len(old) * len(new))
    p = float((1 + (random >= distance - _ROUNDING).sum()) / (1 + permutations))
    beyond = (distance - float(random.mean())) / max(float(random.std()), _ROUNDING)
    means = [
        draws.multinomial(len(one), np.full(len(one), 1 / len(one)), _RESAMPLES) @ one / len(one)
        for one in (old, new)
    ]
    low, high = np.quantile(1 - np.einsum("nd,nd->n", *means), [0.025, 0.975])
    return Shift(distance, float(low), float(high), p, beyond)


def _distances(one: Array, two: Array) -> Array:
    distances = 1 - np.einsum("nd,nd->n", unit(one), unit(two))
    return np.asarray(np.where(distances < _ROUNDING, 0, distances), np.float32)


def divergence(one: Shares, two: Shares) -> float:
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
