"""Compare the uses of words in several corpora, or in the periods of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import unit
from elmore.report import Report, Reported, Row, Value
from elmore.senses.change import Changes, JoinedIndex, compare
from elmore.senses.groups import Sense, WordSenses
from elmore.senses.index import Index, Rows

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trend:
    """A word in one group of documents after the other.

    Attributes:
        word: the word.
        uses: how many uses each group has in the index, (n_groups,).
        per_million: its frequency in each, per million words, (n_groups,).
        distances: mean cosine distance between a use of a group and one of the first; NaN where
            there are too few uses, (n_groups,).
        senses: of all groups together.
        shares: of each sense in each group, (n_groups, n_senses).
    """

    word: str
    uses: Rows
    per_million: Shares
    distances: Shares
    senses: tuple[Sense, ...]
    shares: Shares

    def rows(self, labels: Sequence[str]) -> list[Row]:
        """A row of a table per group."""
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

    @property
    def title(self) -> str:
        """The word and its senses, in one line."""
        return _title(self.word, self.senses)


@dataclass(frozen=True, eq=False, repr=False)
class Trends(Reported):
    """Words in several groups of documents; those that changed most first.

    Attributes:
        labels: of the groups, in order.
        words: as many as were asked for.
        changes: the ranking: the first group compared with the last.
    """

    labels: tuple[str, ...]
    words: tuple[Trend, ...]
    changes: Changes

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, k: int) -> Trend:
        return self.words[k]

    @property
    def report(self) -> Report:
        """The ranking, and a table per word with its groups."""
        rows: dict[str, Row] = {one.word: one.row() for one in self.changes.words}
        whole = self.changes.report
        senses = max((len(one.senses) for one in self.words), default=0)
        tables: dict[str, Sequence[Row]] = {
            "change from first to last": [rows[one.word] for one in self.words]
        }
        tables |= {one.title: one.rows(self.labels) for one in self.words}
        return Report(
            name=f"{', '.join(one.word for one in self.words[:3])} from {self.labels[0]} to "
            f"{self.labels[-1]}",
            metrics=whole.metrics,
            measured_on={"first": self.labels[0], "last": self.labels[-1]},
            tables=tables,
            notes=[*whole.notes, "distance: mean of all pairs with the first group"],
            bars=[["distance"], [f"sense {k + 1}" for k in range(senses)]],
        )

    @property
    def tidy(self) -> Report:
        """One row per word, group and sense, for spreadsheets and statistics."""
        rows: list[Row] = []
        for one in self.words:
            for number, group in enumerate(one.rows(self.labels)):
                plain = {name: v for name, v in group.items() if not name.startswith("sense ")}
                for sense, share in zip(one.senses, one.shares[number], strict=True):
                    name = ", ".join(sense.name)
                    more: dict[str, Value] = {
                        "sense": sense.number,
                        "substitutes": name,
                        "share": float(share),
                    }
                    rows.append({"word": one.word, **plain, **more})
        return Report(name="change", metrics={}, tables={"change": rows})

    def draw(self, path: Path, *, overwrite: bool = False) -> None:
        """Draw a curve per word, and the shares of its senses over time."""
        from elmore.senses.pictures import draw_trends

        draw_trends(self, path, overwrite=overwrite)


def compare_periods(
    groups: Mapping[str, Index],
    words: str | Sequence[str] | None = None,
    *,
    min_uses: int = 20,
    top: int = 20,
    **options: Any,
) -> Trends:
    """Follow words through several corpora, or through groups of the documents of one.

    Args:
        groups: label to index, in order: of several folders, or of `Index.groups`.
        words: which; by default all that the first and the last group have.
        min_uses: leave out words with fewer uses in the first or the last group; a group between
            them with fewer has no distance.
        top: how many words get their curve and shares.
        options: of `compare`, which ranks the words by the first and the last group.

    Raises:
        ConfigError: fewer than two groups, or indexes of different models.
    """
    if len(groups) < 2:
        raise ConfigError(f"{len(groups)} group of documents; a comparison needs 2 or more")
    labels, parts = tuple(groups), list(groups.values())
    changes = compare(parts[0], parts[-1], words, min_uses=min_uses, top=top, **options)
    # The parts of one index have the senses that `Index.senses` finds in all of it.
    base = parts[0].whole
    joined = JoinedIndex(parts, labels)
    one_index = all(part.whole is base for part in parts)
    found = []
    for change in changes.words[:top]:
        rows = joined.rows(change.word)
        number = joined.source_of(rows)
        vectors = unit(joined.vectors(rows))
        uses = np.bincount(number, minlength=len(parts))
        means = [vectors[number == k].mean(axis=0) if uses[k] else None for k in range(len(parts))]
        senses = (base if one_index else joined).senses(change.word).senses
        shares = np.zeros((len(parts), len(senses)))
        for k, sense in enumerate(senses):
            mine = _groups_of(parts, sense.rows) if one_index else joined.source_of(sense.rows)
            shares[:, k] = np.bincount(mine[mine >= 0], minlength=len(parts))
        sizes = [part.n_words.sum() for part in parts]
        counts = [_frequency(part, change.word) for part in parts]
        found.append(
            Trend(
                word=change.word,
                uses=uses,
                per_million=1e6 * np.array(counts) / np.maximum(sizes, 1),
                # The mean product of all pairs is the product of the means.
                distances=np.array(
                    [
                        np.nan if mean is None or n < min_uses else 1 - means[0] @ mean
                        for mean, n in zip(means, uses, strict=True)
                    ]
                ),
                senses=senses,
                shares=_normed(shares),
            )
        )
    return Trends(labels, tuple(found), changes)


def sense_shares(found: Sequence[WordSenses], groups: Mapping[str, Index]) -> Report:
    """The senses of words in groups of the documents of their index."""
    parts, tables = list(groups.values()), dict[str, Sequence[Row]]()
    names: list[str] = []
    for one in found:
        numbers = [_groups_of(parts, sense.rows) for sense in one.senses]
        counts = np.stack([np.bincount(k[k >= 0], minlength=len(parts)) for k in numbers], axis=1)
        mine = [f"sense {sense.number}" for sense in one.senses]
        names = max(names, mine, key=len)
        tables[_title(one.word, one.senses)] = [
            {"group": label, "uses": int(row.sum()), **dict(zip(mine, shares, strict=True))}
            for label, row, shares in zip(groups, counts, _normed(counts).tolist(), strict=True)
        ]
    words = ", ".join(one.word for one in found)
    return Report(name=f"senses of {words}", metrics={}, tables=tables, bars=[names])


def _title(word: str, senses: Sequence[Sense]) -> str:
    names = [f"{one.number} {', '.join(one.name[:3])}" for one in senses]
    return f"{word}: {' | '.join(names) if len(names) > 1 else 'one sense'}"


def _normed(counts: NDArray[Any]) -> Shares:
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))


def _frequency(index: Index, word: str) -> int:
    try:
        return int(index.frequency(word).sum())
    except InputError:  # another corpus has it
        return 0


def _groups_of(parts: Sequence[Index], rows: Rows) -> Rows:
    """The number of the part that holds each row of their index, or -1."""
    found = np.full(len(rows), -1, np.int64)
    for number, part in enumerate(parts):
        found[part.has(rows)] = number
    return found
