"""Group the uses of a word by sense, and name each sense by its substitutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmore.base.messages import printable
from elmore.embedding.clustering import Groups
from elmore.errors import ConfigError
from elmore.language_model.sense_vectors import Array, Place, marked_place, unit
from elmore.report import PICTURES, TABLES, Report, Reported, Row
from elmore.senses.find import Hit, no_use
from elmore.senses.index import Index, Rows, Use
from elmore.senses.induction import divide, like_examples, sense_names
from elmore.text.tokenizer import Sentence
from elmore.text.word_vectors import write_word_vectors

# Uses of a sense that new ones are compared with, the most typical first.
_MIDDLE = 200


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
    """The senses of a word in a corpus; a single one if its uses are very much alike.

    Attributes:
        word: what was asked for: a word, a list or a pattern.
        senses: the most frequent one first.
        groups: the sense of each use, from 0, (n,).
        centres: the mean direction of the uses of each sense, unit vectors, (n_senses, dim).
        stability: how much uses belong to their senses, on average, up to 1.
        index: where they are.
        forms: the words that it stands for, in lower case.
    """

    word: str
    senses: tuple[Sense, ...]
    groups: Groups
    centres: Array
    stability: float
    index: Index
    forms: frozenset[str]

    def __len__(self) -> int:
        return len(self.senses)

    def __getitem__(self, k: int) -> Sense:
        return self.senses[k]

    def assign(self, places: Sequence[Place]) -> list[tuple[int, float]]:
        """The number of the most similar sense of uses in new text, and the mean similarity."""
        found = self.index.sense_vectors(places)
        middle = [self.index.substitutes(one.rows[:_MIDDLE]) for one in self.senses]
        cosines = np.stack([found.similarity(some).mean(axis=1) for some in middle], axis=1)
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
            {
                **{"sense": one.number, "kind": kind},
                **dict(zip(("left", "word", "right"), use.context(50), strict=True)),
                "where": use.place,
            }
            for one in self.senses
            for kind, uses in (("typical", one.typical), ("borderline", one.borderline))
            for use in uses
        ]
        shares: list[Row] = [
            {
                "source": source.rpartition("/")[2],
                **{f"sense {s.number}": s.sources[source] for s in self.senses},
            }
            for source in self.senses[0].sources
        ]
        metrics = {"senses": float(len(self)), "stability": self.stability}
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
        return f"{self.word}: {len(self)} senses in {n} uses (stability {self.stability:.2f})"

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
            for sense, centre in zip(one.senses, one.centres, strict=True)
        ]
        dim = found[0].centres.shape[1]
        write_word_vectors(path, vectors, n_words=len(vectors), dim=dim, overwrite=overwrite)
    elif suffix in TABLES:
        rows: list[Row] = [
            {
                **{"target": one.word, "sense": sense.number, "name": ", ".join(sense.name)},
                **Hit(one.index.use(row), None, about=one.index.about(row)).row(),
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
        name = f"{', '.join(one.word for one in found)} in {found[0].index.name}"
        bars = [["share"], [f"sense {k + 1}" for k in range(max(map(len, found)))]]
        Report(name=name, metrics={}, tables=tables, bars=bars).save(path, overwrite=overwrite)


def find_senses(
    index: Index,
    word: str | Sequence[str],
    *,
    n_senses: int | None = None,
    like: Mapping[str, Sequence[str]] | None = None,
    max_senses: int | None = None,
    seed: int = 0,
) -> WordSenses:
    """Divide the uses of a word, of some words or of a pattern; see `elmore.senses.induce`.

    Args:
        index: where the uses are.
        word: see `Index.rows`.
        n_senses: how many senses; by default up to 7, or one if the uses are very much alike.
        like: names of senses with examples, sentences with the word in brackets: each use joins the
            sense whose examples are most similar.
        max_senses: if more are found, divide into so many.
        seed: of the division.

    Raises:
        InputError: the index has no such word, or no use of it.
    """
    if max_senses is not None and max_senses < 1:
        raise ConfigError(f"max_senses={max_senses}; use 1 or more")
    rows = index.rows(word)
    label = word if isinstance(word, str) else ", ".join(word)
    if not len(rows):
        raise no_use(index, label)
    found = index.substitutes(rows)
    if like:
        places = [[marked_place(index, text) for text in some] for some in like.values()]
        memberships = like_examples(found, [index.sense_vectors(some) for some in places])
    else:
        memberships = divide(found, n_senses, seed)
        if max_senses is not None and memberships.shape[1] > max_senses:
            memberships = divide(found, max_senses, seed)
    return describe(index, label, rows, memberships, list(like or ()))


def describe(
    index: Index, word: str, rows: Rows, memberships: Array, names: Sequence[str] = ()
) -> WordSenses:
    """Name the senses of uses and find examples.

    Args:
        index: where the uses are.
        word: what was asked for.
        rows: the uses, (n,).
        memberships: how much each one belongs to each sense, (n, n_senses).
        names: of the senses, if somebody has named them; empty for those that have no name.
    """
    vectors = unit(index.vectors(rows))
    groups = memberships.argmax(axis=1)
    centres = unit(np.eye(memberships.shape[1], dtype=np.float32)[groups].T @ vectors)
    own = frozenset(use.tokens[use.position].lower() for use in map(index.use, rows))
    found = sense_names(index.substitutes(rows), groups, own)
    sources = index.source_of(rows)
    # The most typical uses belong to one sense alone, and are in the middle of it.
    near = np.einsum("nd,nd->n", vectors, centres[groups])
    certain = memberships.max(axis=1)
    senses = []
    for group, words in enumerate(found):
        here = np.flatnonzero(groups == group)
        here = here[np.lexsort((-near[here], -np.round(certain[here], 1)))]
        doubtful = here[np.argsort(certain[here], kind="stable")[:2]]
        senses.append(
            Sense(
                number=group + 1,
                name=(names[group], *words) if names and names[group] else words,
                rows=rows[here],
                share=len(here) / len(rows),
                typical=_different(index, rows[here], 3),
                borderline=tuple(map(index.use, rows[doubtful[certain[doubtful] < 1]])),
                sources={
                    index.sources[s]: float(np.mean(groups[sources == s] == group))
                    for s in np.unique(sources)
                },
            )
        )
    stability = float(certain.mean())
    return WordSenses(word, tuple(senses), groups, centres, stability, index, own)


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
