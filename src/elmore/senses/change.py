"""Compare the uses of words in two or more corpora: periods, regions or genres."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import Array, SenseVectors, join_vectors, unit
from elmore.report import Report, Reported, Row, Value
from elmore.senses.groups import Sense, WordSenses
from elmore.senses.index import Index, Rows, Use
from elmore.text.statistics import ROUNDING, corrected_p, divergence, pairwise_shift
from elmore.text.stop_words import FUNCTION_WORDS as FUNCTION_WORDS

Shares = NDArray[np.float64]
T = TypeVar("T")
# What words can be ranked by.
SORTS = ("pairwise", "prototype", "divergence")


def _nothing() -> Shares:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class WordChange:
    """How differently corpora use a word: the first and the last, and those between them.

    Attributes:
        word: the word.
        uses: how many uses each corpus has, (n_corpora,).
        pairwise: mean cosine distance between a use of the first and one of the last corpus.
        low: lower end of its 95 % confidence interval, by resampling the uses.
        high: upper end.
        p: share of random divisions of the uses with a pairwise distance at least as large.
        q: p, corrected for the number of words (Benjamini and Hochberg 1995).
        prototype: cosine distance between the mean use of the first and of the last corpus.
        divergence: Jensen-Shannon divergence of the shares of senses, in bits, 0 to 1; None if the
            senses were not asked for.
        distances: pairwise, of each corpus and the first; NaN where there are too few uses,
            (n_corpora,).
        per_million: frequency in each corpus, per million words, (n_corpora,).
        senses: of all corpora together.
        shares: of each sense in each corpus, (n_corpora, n_senses).
        examples: of each sense its most typical use where it is most frequent.
    """

    word: str
    uses: Rows
    pairwise: float
    low: float
    high: float
    p: float
    q: float
    prototype: float
    divergence: float | None = None
    distances: Shares = field(default_factory=_nothing)
    per_million: Shares = field(default_factory=_nothing)
    senses: tuple[Sense, ...] = ()
    shares: Shares = field(default_factory=_nothing)
    examples: tuple[Use, ...] = ()

    def row(self) -> Row:
        """The word as a row of a table, without its senses."""
        figures = ("pairwise", "low", "high", "p", "q", "prototype", "divergence")
        counts = {"n_old": int(self.uses[0]), "n_new": int(self.uses[-1])}
        return {"word": self.word, **counts, **{name: getattr(self, name) for name in figures}}

    def sense_rows(self) -> list[Row]:
        """A row per sense, with its shares in the first and the last corpus."""
        return [
            {
                "word": self.word,
                "old": float(share[0]),
                "new": float(share[-1]),
                "substitutes": ("one sense: " if len(self.senses) == 1 else "")
                + ", ".join(sense.name),
                **dict(zip(("left", "form", "right"), example.context(36), strict=True)),
                "where": example.place,
            }
            for sense, share, example in zip(self.senses, self.shares.T, self.examples, strict=True)
        ]

    def rows(self, labels: Sequence[str]) -> list[Row]:
        """A row per corpus."""
        return [
            {
                "group": label,
                "uses": int(self.uses[k]),
                "per_million": float(self.per_million[k]),
                "distance": None if np.isnan(self.distances[k]) else float(self.distances[k]),
                **{f"sense {s + 1}": float(share) for s, share in enumerate(self.shares[k])},
            }
            for k, label in enumerate(labels)
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Changes(Reported):
    """Words by falling change.

    Attributes:
        words: the words, or the first of them.
        labels: of the corpora, in order.
        n_compared: how many words were compared.
        n_changed: how many of them have q below 0.05.
        rare: words that were asked for but have too few uses.
        sort: what they are ranked by.
    """

    words: tuple[WordChange, ...]
    labels: tuple[str, ...]
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
        """The ranking; the senses of the words, or with several corpora a table per word."""
        several = len(self.labels) > 2
        tables: dict[str, Sequence[Row]] = {
            f"change, by {self.sort}": [one.row() for one in self.words]
        }
        if several:
            tables |= {title(one.word, one.senses): one.rows(self.labels) for one in self.words}
        else:
            tables["senses"] = [row for one in self.words for row in one.sense_rows()]
        words = [one.word for one in self.words]
        what = ", ".join(words) if len(words) < 4 else "change of words"
        ends = [self.labels[k].rpartition("/")[2] for k in (0, -1)]
        senses = max((len(one.senses) for one in self.words), default=0)
        notes = [f"left out, with too few uses: {', '.join(self.rare)}"] if self.rare else []
        notes += ["distance: mean of all pairs with the first group"] if several else []
        bars = [["distance"], [f"sense {k + 1}" for k in range(senses)]]
        return Report(
            name=f"{what} in {(' to ' if several else ' and ').join(ends)}",
            metrics={
                "words": float(self.n_compared),
                "changed (q < 0.05)": float(self.n_changed),
            },
            measured_on={"old": self.labels[0], "new": self.labels[-1]},
            tables=tables,
            notes=notes,
            bars=bars if several else [["old"], ["new"]],
        )

    @property
    def tidy(self) -> Report:
        """With several corpora one row per word, corpus and sense."""
        if len(self.labels) < 3:
            return self.report
        rows: list[Row] = []
        for one in self.words:
            for group, shares in zip(one.rows(self.labels), one.shares, strict=True):
                plain = {name: v for name, v in group.items() if not name.startswith("sense ")}
                for sense, share in zip(one.senses, shares.tolist(), strict=True):
                    more: dict[str, Value] = {
                        "sense": sense.number,
                        "substitutes": ", ".join(sense.name),
                        "share": share,
                    }
                    rows.append({"word": one.word, **plain, **more})
        return Report(name="change", metrics={}, tables={"change": rows})

    def draw(self, path: Path, *, overwrite: bool = False) -> None:
        """Draw the words that changed most; with several corpora a curve per word."""
        from elmore.senses.pictures import draw_change, draw_trends

        draw = draw_change if len(self.labels) < 3 else draw_trends
        draw(self, path, overwrite=overwrite)


def compare(
    *corpora: Index,
    words: str | Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    min_uses: int = 20,
    permutations: int = 999,
    sort: str = "pairwise",
    top: int | None = None,
    stop_words: Collection[str] = FUNCTION_WORDS,
    n_senses: int | None = None,
    seed: int = 0,
) -> Changes:
    """Rank words by how differently the first and the last corpus use them; follow them between.

    Args:
        corpora: two indexes or more, in order, made with the same model, `k` and `candidates`; or
            parts of one, `*index.groups("date", 10).values()`.
        words: which words, or one word; all that the first and the last have by default.
        labels: of the corpora; their own by default.
        min_uses: leave out words with fewer uses in the first or the last; a corpus between them
            with fewer has no distance.
        permutations: random divisions of the permutation test.
        sort: rank by "pairwise", "prototype" or "divergence".
        top: return only so many words; senses are found for them alone, which saves time.
        stop_words: left out if `words` is not given.
        n_senses: see `Index.senses`.
        seed: of the divisions and groups.

    Raises:
        ConfigError: a bad option, or vectors that cannot be compared.
        InputError: no word has enough uses, or one of `words` is missing.
    """
    if len(corpora) < 2:
        raise ConfigError(f"{len(corpora)} group of documents; a comparison needs 2 or more")
    if sort not in SORTS:
        raise ConfigError(f"sort={sort!r}; use one of {', '.join(SORTS)}")
    for one in corpora:
        if not isinstance(one, Index):
            raise ConfigError(f"{shown(repr(one), 60)} is not an index; use `Index.open(path)`")
    old, new = corpora[0], corpora[-1]
    for other in corpora[1:]:
        if difference := _difference(old.manifest, other.manifest):
            raise ConfigError(
                f"'{old.path}' and '{other.path}' were made with {difference}; index both with one"
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
            means = [unit(one.mean(axis=0)) for one in vectors]
            prototype = float(1 - means[0] @ means[1])
            prototype = 0.0 if prototype < ROUNDING else prototype
            uses = np.array([*map(len, rows)], np.int64)
            found.append(WordChange(word, uses, **shift._asdict(), q=1.0, prototype=prototype))
        elif words is not None:
            rare.append(word)
    if not found:
        raise InputError(f"no word has {min_uses} uses in both indexes; lower min_uses")
    corrected = corrected_p(np.array([one.p for one in found]))
    found = [replace(one, q=float(q)) for one, q in zip(found, corrected, strict=True)]
    n_changed, n_compared = sum(one.q < 0.05 for one in found), len(found)
    joined = JoinedIndex(corpora, labels or [one.label for one in corpora])

    def followed(some: Sequence[WordChange]) -> list[WordChange]:
        return [
            one if one.senses else _followed(joined, one, min_uses, n_senses=n_senses, seed=seed)
            for one in some
        ]

    if sort == "divergence":
        found = followed(found)
    found.sort(key=lambda one: (-getattr(one, sort), one.word))
    result = tuple(followed(found[:top]))
    return Changes(result, tuple(joined.sources), n_compared, n_changed, tuple(rare), sort)


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


def _followed(joined: JoinedIndex, one: WordChange, min_uses: int, **options: Any) -> WordChange:
    """Divide the uses of all corpora together, and describe the word in each of them."""
    parts, rows = joined.parts, joined.rows(one.word)
    number, vectors = joined.source_of(rows), unit(joined.vectors(rows))
    uses = np.bincount(number, minlength=len(parts))
    first = vectors[number == 0].mean(axis=0)
    distances = [
        float(1 - first @ vectors[number == k].mean(axis=0)) if uses[k] >= min_uses else np.nan
        for k in range(len(parts))
    ]
    # The parts of one index have the senses that `Index.senses` finds in all of it.
    base = parts[0].whole
    if all(part.whole is base for part in parts):
        senses, use = base.senses(one.word, **options).senses, base.use
        inside = [[part.has(sense.rows) for sense in senses] for part in parts]
    else:
        senses, use = joined.senses(one.word, **options).senses, joined.use
        where = [joined.source_of(sense.rows) for sense in senses]
        inside = [[mine == k for mine in where] for k in range(len(parts))]
    shares = _shares(inside)
    return replace(
        one,
        uses=uses,
        divergence=divergence(shares[0], shares[-1]),
        distances=np.array(distances),
        per_million=1e6
        * np.array([_frequency(part, one.word) for part in parts])
        / np.array([max(1, part.n_words.sum()) for part in parts]),
        senses=senses,
        shares=shares,
        examples=tuple(
            use(int(sense.rows[np.argmax(inside[part][number])]))
            for number, (sense, part) in enumerate(zip(senses, shares.argmax(axis=0), strict=True))
        ),
    )


class JoinedIndex(Index):
    """Several indexes as one whose documents are these indexes; enough of it to find senses."""

    def __init__(self, parts: Sequence[Index], labels: Sequence[str]) -> None:
        self.__dict__.update(parts[0].__dict__)  # the model and its vocabulary
        self.parts, self._labels, self._chosen = parts, list(labels), None
        self._starts = np.cumsum([0, *(int(part.offsets[-1]) for part in parts)])

    @property
    def sources(self) -> list[str]:
        """The labels of the indexes."""
        return self._labels

    def rows(self, word: str | Sequence[str], *, literal: bool = False) -> Rows:
        """The uses of a word in all of them."""
        found, missing = [], None
        for part, start in zip(self.parts, self._starts, strict=False):
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
        found, back = self._from_each(rows, lambda part, mine: part.vectors(mine))
        return np.concatenate(found)[back]

    def substitutes(self, rows: Rows) -> SenseVectors:
        """Sparse vectors of uses."""
        found, back = self._from_each(rows, lambda part, mine: part.substitutes(mine))
        return join_vectors(found)[back]

    def _from_each(
        self, rows: Rows, ask: Callable[[Index, Rows], T]
    ) -> tuple[list[T], NDArray[np.int64]]:
        """What each index says of its uses, and where each of `rows` is in that."""
        numbers = self.source_of(rows)
        parts = enumerate(self.parts)
        found = [ask(part, rows[numbers == k] - self._starts[k]) for k, part in parts]
        return found, np.argsort(np.argsort(numbers, kind="stable"), kind="stable")

    def use(self, row: int) -> Use:
        """A use with its sentence."""
        number = int(self.source_of(np.array([row]))[0])
        return self.parts[number].use(int(row - self._starts[number]))


def sense_shares(found: Sequence[WordSenses], groups: Mapping[str, Index]) -> Report:
    """The senses of words in groups of the documents of their index."""
    tables: dict[str, Sequence[Row]] = {}
    names: list[str] = []
    for one in found:
        inside = [[part.has(sense.rows) for sense in one.senses] for part in groups.values()]
        mine = [f"sense {sense.number}" for sense in one.senses]
        names = max(names, mine, key=len)
        tables[title(one.word, one.senses)] = [
            {
                "group": label,
                "uses": int(np.concatenate(uses).sum()),
                **dict(zip(mine, shares, strict=True)),
            }
            for label, uses, shares in zip(groups, inside, _shares(inside).tolist(), strict=True)
        ]
    words = ", ".join(one.word for one in found)
    return Report(name=f"senses of {words}", metrics={}, tables=tables, bars=[names])


def title(word: str, senses: Sequence[Sense]) -> str:
    """A word and its senses, in one line."""
    names = [f"{one.number} {', '.join(one.name[:3])}" for one in senses]
    return f"{word}: {' | '.join(names) if len(names) > 1 else 'one sense'}"


def _shares(inside: Sequence[Sequence[NDArray[np.bool_]]]) -> Shares:
    """The share of each sense in each part, by which uses of the sense the part has."""
    counts = np.array([[mine.sum() for mine in part] for part in inside], np.float64)
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))


def _frequency(index: Index, word: str) -> int:
    try:
        return int(index.frequency(word).sum())
    except InputError:  # another corpus has it
        return 0
