"""Group the uses of a word by sense, and name each sense by its substitutes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import printable, shown
from elmore.embedding.centroids import first_centres, k_means
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import Array, Place, SenseVectors, unit
from elmore.report import PICTURES, TABLES, Report, Reported, Row
from elmore.senses.find import Hit
from elmore.senses.index import Index, Rows, Use
from elmore.text.tokenizer import Sentence
from elmore.text.word_vectors import write_word_vectors

Groups = NDArray[np.int64]
# Of uses that decide how many groups there are: all pairs of them are compared.
_MOST_USES = 1500
# A word has several senses if its groups are as separate as this (mean silhouette), if that is so
# many standard deviations more than in one cloud of the same shape or beyond doubt, and if parts
# of its uses give nearly the same groups (adjusted Rand index). Chosen on 110 ambiguous words of
# SemCor and 80 with one sense, of which 59 % then stay together; without the clouds 40 % did.
_SEPARATE, _BEYOND_CHANCE, _CLEAR, _STABLE = 0.35, 4.0, 0.6, 0.7
# A small sample of clouds has a standard deviation that is too small by chance.
_CLOUDS, _LEAST_DEVIATION = 5, 0.01
_NEARLY = 0.03
# A sense has so many uses, and this share of them; smaller groups join the nearest one.
_LEAST_USES, _LEAST_SHARE = 3, 0.03
_STARTS, _RESAMPLES = 4, 6
_NAME_WORDS = 6


@dataclass(frozen=True, eq=False)
class Grouping:
    """Vectors in groups, the largest group first.

    Attributes:
        groups: of each vector, (n,).
        centres: unit vectors, (n_groups, dim).
        silhouette: how separate the groups are, up to 1; 0 for one group.
        stability: how well parts of the vectors give the same groups, up to 1.
    """

    groups: Groups
    centres: Array
    silhouette: float
    stability: float


@dataclass(frozen=True, eq=False)
class Sense:
    """One sense of a word.

    Attributes:
        number: from 1, the most frequent sense first.
        name: the substitutes that are typical of it.
        rows: its uses in the index, (n,).
        share: of the uses of the word.
        typical: uses in the middle of it.
        borderline: uses that are nearly as close to another sense.
        sources: its share of the uses in each file.
    """

    number: int
    name: tuple[str, ...]
    rows: Rows
    share: float
    typical: tuple[Use, ...]
    borderline: tuple[Use, ...]
    sources: dict[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class WordSenses(Reported):
    """The senses of a word in a corpus; a single one if no division is clear.

    Attributes:
        word: what was asked for: a word, a list or a pattern.
        senses: the most frequent one first.
        grouping: the uses in groups.
        index: where they are.
        forms: the words that it stands for, in lower case.
    """

    word: str
    senses: tuple[Sense, ...]
    grouping: Grouping
    index: Index
    forms: frozenset[str]

    def __len__(self) -> int:
        return len(self.senses)

    def __getitem__(self, k: int) -> Sense:
        return self.senses[k]

    def assign(self, places: Sequence[Place]) -> list[tuple[int, float]]:
        """The number of the nearest sense of uses in new text, and the cosine with its middle."""
        cosines = unit(self.index.space.vectors(places).dense()) @ self.grouping.centres.T
        return [(int(row.argmax()) + 1, float(row.max())) for row in cosines]

    def assign_text(self, sentence: Sentence) -> list[tuple[int, int, float]]:
        """Position, sense and cosine of each use of the word, in all its forms, in a sentence."""
        here = [k for k, token in enumerate(sentence.tokens) if token.lower() in self.forms]
        found = self.assign([(sentence, k) for k in here]) if here else []
        return [(k, *one) for k, one in zip(here, found, strict=True)]

    @property
    def report(self) -> Report:
        """Senses, examples and shares as tables."""
        senses: list[Row] = [
            {
                "sense": one.number,
                "uses": len(one.rows),
                "share": one.share,
                "substitutes": ", ".join(one.name),
            }
            for one in self.senses
        ]
        examples: list[Row] = [
            {"sense": one.number, "kind": kind, "use": _marked(use), "where": use.place}
            for one in self.senses
            for kind, uses in (("typical", one.typical), ("borderline", one.borderline))
            for use in uses
        ]
        shares: list[Row] = [
            {"source": source, **{f"sense {s.number}": s.sources[source] for s in self.senses}}
            for source in self.senses[0].sources
        ]
        metrics = {
            "senses": float(len(self)),
            "silhouette": self.grouping.silhouette,
            "stability": self.grouping.stability,
        }
        return Report(
            name=f"senses of {self.word}",
            metrics=metrics,
            tables={self.title: senses, "examples": examples, "share of each source": shares},
        )

    @property
    def title(self) -> str:
        """How many senses there are, in one line."""
        n = sum(len(one.rows) for one in self.senses)
        if len(self) == 1:
            return f"{self.word}: one sense in {n} uses"
        g = self.grouping
        how = f"silhouette {g.silhouette:.2f}, stability {g.stability:.2f}"
        return f"{self.word}: {len(self)} senses in {n} uses ({how})"

    def __repr__(self) -> str:
        lines = [self.title]
        for one in self.senses:
            lines.append(f"  {one.number}. {one.share:4.0%}  {', '.join(one.name)}")
            lines += [f"           {_marked(use)}" for use in one.typical]
        return "\n".join(map(printable, lines))

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {"word": self.word, **self.report.to_dict()}

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the senses; see `save_senses`."""
        save_senses([self], path, overwrite=overwrite)


def save_senses(found: Sequence[WordSenses], path: str | Path, *, overwrite: bool = False) -> None:
    """Write the senses of words as the suffix says.

    Args:
        found: of `Index.senses`.
        path: .html, .json or .txt for all tables; .csv or .tsv for one row per use; .svg, .png
            or .pdf for a picture; .vec or .bin for one vector per sense, called word%1, word%2
            and so on, which gensim's `KeyedVectors.load_word2vec_format` reads.
        overwrite: replace a file that is there.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        from elmore.senses.pictures import draw_senses

        draw_senses(found, path, overwrite=overwrite)
    elif suffix in (".vec", ".bin"):
        vectors = [
            (f"{one.word.replace(' ', '_')}%{sense.number}", centre)
            for one in found
            for sense, centre in zip(one.senses, one.grouping.centres, strict=True)
        ]
        dim = found[0].grouping.centres.shape[1]
        write_word_vectors(path, vectors, n_words=len(vectors), dim=dim, overwrite=overwrite)
    elif suffix in TABLES:
        rows: list[Row] = [
            {
                **{"target": one.word, "sense": sense.number, "name": ", ".join(sense.name)},
                **Hit(one.index.use(row), None, about=one.index.about(row)).row(10_000),
            }
            for one in found
            for sense in one.senses
            for row in sense.rows.tolist()
        ]
        Report(name="senses", metrics={}, tables={"uses": rows}).save(path, overwrite=overwrite)
    else:
        tables = {
            title if title.startswith(f"{one.word}: ") else f"{one.word}: {title}": table
            for one in found
            for title, table in one.report.tables.items()
        }
        name = f"senses of {', '.join(one.word for one in found)}"
        bars = [["share"], [f"sense {k + 1}" for k in range(max(map(len, found)))]]
        Report(name=name, metrics={}, tables=tables, bars=bars).save(path, overwrite=overwrite)


def find_senses(
    index: Index, word: str | Sequence[str], *, max_senses: int = 8, seed: int = 0
) -> WordSenses:
    """Group the uses of a word, of some words or of a pattern.

    How many senses there are is found: the division into 2 to `max_senses` groups with the highest
    silhouette, if it is clear and stable; otherwise the word has one sense.

    Args:
        index: where the uses are.
        word: see `Index.rows`.
        max_senses: the largest number to try.
        seed: of the first centres and the resamples.

    Raises:
        InputError: the index has no such word, or no use of it.
    """
    if max_senses < 1:
        raise ConfigError(f"max_senses={max_senses}; use 1 or more")
    rows = index.rows(word)
    label = word if isinstance(word, str) else ", ".join(word)
    if not len(rows):  # in an index of an earlier version
        raise InputError(
            f"the index has no use of '{shown(label, 60)}'; make it again with a larger --max-uses"
        )
    vectors = unit(index.vectors(rows))
    grouping = group_vectors(vectors, max_senses, seed)
    own = frozenset(use.tokens[use.position].lower() for use in map(index.use, rows))
    names = sense_names(index.substitutes(rows), grouping.groups, own)
    cosines = vectors @ grouping.centres.T
    sources = index.source_of(rows)
    senses = []
    for group in range(len(grouping.centres)):
        here = np.flatnonzero(grouping.groups == group)
        near = here[np.argsort(-cosines[here, group], kind="stable")]
        border: list[int] = []
        if len(grouping.centres) > 1:
            two = np.sort(cosines[here], axis=1)[:, -2:]
            border = here[np.argsort(two[:, 1] - two[:, 0], kind="stable")[:2]].tolist()
        senses.append(
            Sense(
                number=group + 1,
                name=names[group],
                rows=rows[here],
                share=len(here) / len(rows),
                typical=_different(index, rows[near], 3),
                borderline=tuple(index.use(row) for row in rows[border]),
                sources={
                    index.sources[s]: float(np.mean(grouping.groups[sources == s] == group))
                    for s in np.unique(sources)
                },
            )
        )
    return WordSenses(label, tuple(senses), grouping, index, own)


def sense_names(found: SenseVectors, groups: Groups, own: Collection[str]) -> list[tuple[str, ...]]:
    """The substitutes of each group that stand out from the other groups, the strongest first.

    Args:
        found: sparse vectors of n uses.
        groups: of each, (n,).
        own: the words themselves in lower case, which name no sense.
    """
    used, columns = np.unique(found.ids, return_inverse=True)
    columns = columns.reshape(found.ids.shape)
    sums = np.zeros((int(groups.max()) + 1, len(used)))
    for group in range(len(sums)):
        here = groups == group
        np.add.at(sums[group], columns[here], found.weights[here] / here.sum())
    names = []
    for group in range(len(sums)):
        # Words that all senses share would name none of them.
        others = np.delete(sums, group, axis=0)
        stands_out = sums[group] - (others.max(axis=0) if len(others) else 0)
        order = used[np.argsort(-stands_out, kind="stable")[: 4 * _NAME_WORDS]]
        words: dict[str, str] = {}  # one of Shore and shore is enough
        for k in order:
            words.setdefault(found.space.words[k].lower(), found.space.words[k])
        names.append(tuple(w for low, w in words.items() if low not in own)[:_NAME_WORDS])
    return names


def group_vectors(vectors: Array, max_groups: int = 8, seed: int = 0) -> Grouping:
    """Divide unit vectors into groups, or leave them together if no division is clear."""
    draws = np.random.default_rng(seed)
    sample = vectors
    if len(vectors) > _MOST_USES:
        sample = vectors[np.sort(draws.choice(len(vectors), _MOST_USES, replace=False))]
    least = _least(len(sample))
    found: dict[int, tuple[float, Groups]] = {}
    for k in range(2, min(max_groups, len(sample) // least) + 1):
        for _ in range(_STARTS):
            groups = _divided(sample, k, least, draws)
            n, value = int(groups.max()) + 1, _silhouette(sample, groups)
            if n > 1 and value > found.get(n, (_SEPARATE, groups))[0]:
                found[n] = value, groups
    best = max((value for value, _ in found.values()), default=0)
    # The fewest groups that are nearly as separate as the best; then the others.
    order = sorted(found, key=lambda n: (found[n][0] < best - _NEARLY, n))
    for n in order:
        value, groups = found[n]
        if value < _CLEAR and not _beyond_chance(sample, value, n, least, draws):
            continue
        stability = _stability(sample, groups, n, least, draws)
        if stability < _STABLE:
            continue
        every, centres = _assigned(vectors, _centres(sample, groups))
        if len(centres) > 1:
            return Grouping(every, centres, value, stability)
    zeros = np.zeros(len(vectors), np.int64)
    return Grouping(zeros, _centres(vectors, zeros), 0.0, 1.0)


def _divided(points: Array, k: int, least: int, draws: np.random.Generator) -> Groups:
    """k-means from centres far apart; small groups join the nearest."""
    groups = k_means(points, first_centres(points, k, draws))
    while True:
        sizes = np.bincount(groups)
        kept = np.argsort(-sizes, kind="stable")[: max(1, int((sizes >= least).sum()))]
        means = unit(np.stack([points[groups == g].mean(axis=0) for g in kept]))
        groups = k_means(points, means)
        # Points that were set free can draw others with them, out of groups that were large enough.
        if len(kept) == 1 or np.bincount(groups, minlength=len(kept)).min() >= least:
            return groups


def _assigned(vectors: Array, centres: Array) -> tuple[Groups, Array]:
    """The nearest centre of each vector, and the centres of groups that are large enough.

    Both are by falling size.
    """
    while True:
        groups = np.argmax(vectors @ centres.T, axis=1)
        sizes = np.bincount(groups, minlength=len(centres))
        order = np.argsort(-sizes, kind="stable")
        n_kept = max(1, int((sizes >= _least(len(vectors))).sum()))
        centres = centres[order[:n_kept]]
        if n_kept == len(sizes):
            return np.argsort(order)[groups], centres


def _least(n: int) -> int:
    """How many of n uses a sense must have."""
    return max(_LEAST_USES, int(_LEAST_SHARE * n))


def _centres(points: Array, groups: Groups) -> Array:
    n = int(groups.max()) + 1
    return unit(np.stack([points[groups == group].mean(axis=0) for group in range(n)]))


def _silhouette(points: Array, groups: Groups) -> float:
    """The mean of (b - a) / max(a, b) with the distances a to the own group, b to the next.

    The mean cosine with a group is the product with the mean of its vectors, so no matrix of all
    pairs is needed.
    """
    sizes = np.bincount(groups)
    if len(sizes) < 2 or sizes.min() < 2:
        return 0.0
    sums = np.stack([points[groups == g].sum(axis=0) for g in range(len(sizes))])
    products = points @ sums.T
    rows = np.arange(len(points))
    own = 1 - (products[rows, groups] - 1) / (sizes[groups] - 1)
    other = 1 - products / sizes
    other[rows, groups] = np.inf
    nearest = other.min(axis=1)
    return float(np.mean((nearest - own) / np.maximum(np.maximum(own, nearest), 1e-9)))


def _beyond_chance(
    points: Array, silhouette: float, k: int, least: int, draws: np.random.Generator
) -> bool:
    """Whether groups are more separate than those of normal clouds with the same covariance."""
    mean, values = points.mean(axis=0), []
    for _ in range(_CLOUDS):
        mix = draws.standard_normal((len(points), len(points)), dtype=np.float32)
        cloud = unit(mean + mix @ (points - mean) / np.sqrt(np.float32(len(points))))
        tries = [_divided(cloud, k, least, draws) for _ in range(_STARTS)]
        values.append(max(_silhouette(cloud, one) for one in tries))
    deviation = max(float(np.std(values)), _LEAST_DEVIATION)
    return silhouette > float(np.mean(values)) + _BEYOND_CHANCE * deviation


def _stability(
    points: Array, groups: Groups, k: int, least: int, draws: np.random.Generator
) -> float:
    """The mean adjusted Rand index of the groups and of those of four fifths of the points."""
    values = []
    for _ in range(_RESAMPLES):
        some = draws.choice(len(points), max(k, 4 * len(points) // 5), replace=False)
        tries = [_divided(points[some], k, max(2, 4 * least // 5), draws) for _ in range(_STARTS)]
        best = max(tries, key=lambda one: _silhouette(points[some], one))
        values.append(rand_index(groups[some], best))
    return float(np.mean(values))


def rand_index(one: Groups, two: Groups) -> float:
    """The adjusted Rand index: 1 for the same groups, about 0 by chance."""
    table = np.zeros((one.max() + 1, two.max() + 1))
    np.add.at(table, (one, two), 1)

    def pairs(counts: NDArray[np.float64]) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / max(pairs(np.array([len(one)], np.float64)), 1)
    most = (rows + columns) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def principal_axes(vectors: Array) -> Array:
    """Vectors (n, dim) on the two axes along which they differ most, for a map, (n, 2)."""
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    points = centred @ np.linalg.eigh(centred.T @ centred)[1][:, :-3:-1]
    # An axis has no sign of its own; a fixed one keeps the map from flipping.
    largest = points[np.abs(points).argmax(axis=0), range(points.shape[1])]
    return np.asarray(points * np.where(largest < 0, -1, 1))


def _different(index: Index, rows: Rows, n: int) -> tuple[Use, ...]:
    """The first uses whose sentences differ: corpora repeat some."""
    found: dict[tuple[str, ...], Use] = {}
    for row in rows:
        use = index.use(row)
        found.setdefault(use.tokens, use)
        if len(found) == n:
            break
    return tuple(found.values())


def _marked(use: Use) -> str:
    left, word, right = use.context(50)
    return f"{left} [{word}] {right}".strip()
