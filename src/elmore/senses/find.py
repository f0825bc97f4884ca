"""Find the uses of a word that are most similar to a given one, as a concordance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from elmore.base.messages import printable, shown
from elmore.embedding.search import largest
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import Place, SenseVectors, marked_place, unit
from elmore.report import Report, Reported, Row
from elmore.text.patterns import is_expression, is_word

if TYPE_CHECKING:
    from elmore.senses.index import Index, Rows, Use

Sort = Literal["similarity", "left", "right", "text"]
# The row of a use, its score, and why it was found.
_Found = tuple[int, float | None, tuple[str, ...]]

# Rows whose vectors exist as float32 at once, 1.6 MB at 192 dimensions. With 8192 rows each block
# was new memory from the system, and search over 5.8 million uses took five times as long.
_BLOCK = 2048
# The best by dense vectors, of which the sparse ones pick: they separate senses a little better.
_RERANKED = 300


@dataclass(frozen=True)
class Hit:
    """A use that was found.

    Attributes:
        use: the use.
        score: its mean cosine with the examples, less that with the counterexamples; in a plain
            concordance the cosine with the mean of all uses, if they are sorted by it.
        shared: why: the substitutes that it shares with the first example.
        about: what is known about its document.
        group: of documents, if there are some.
    """

    use: Use
    score: float | None
    shared: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    group: str = ""

    def row(self, width: int | None = None) -> dict[str, str | int | float]:
        """The hit as a row of a table: for files, or with so many characters on each side."""
        context = zip(("left", "word", "right"), self.use.context(width), strict=True)
        where: dict[str, str | int | float] = {"source": self.use.source, "line": self.use.line}
        return {
            **({"group": self.group} if self.group else {}),
            **({} if self.score is None else {"cosine": round(self.score, 4)}),
            **dict(context),
            **(where if width is None else {"where": self.use.place}),
            **({"shared": ", ".join(self.shared)} if self.shared else {}),
            **(self.about if width is None else {}),
        }


@dataclass(frozen=True, repr=False)
class Concordance(Reported):
    """Uses one below the other.

    Attributes:
        query: the sentence whose word was searched for, or the word.
        hits: the uses.
        n_uses: how many there are of which these are the first.
        corpus: where they are.
    """

    query: str
    hits: tuple[Hit, ...]
    n_uses: int
    corpus: str

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, k: int) -> Hit:
        return self.hits[k]

    @property
    def title(self) -> str:
        """What was searched for, in one line."""
        query = f'"{self.query}"' if "[" in self.query else self.query
        return f"{query} in {self.corpus}"

    def lines(self, width: int = 100) -> list[str]:
        """The hits as lines of about so many characters, aligned at the word."""
        side = max(12, (width - 30) // 2)
        contexts = [tuple(map(printable, hit.use.context(side))) for hit in self.hits]
        longest = max((len(word) for _, word, _ in contexts), default=0)
        left = max((len(before) for before, _, _ in contexts), default=0)
        lines, group = [], ""
        for hit, (before, word, after) in zip(self.hits, contexts, strict=True):
            if hit.group != group:
                group = hit.group
                lines.append(printable(f"{group}:"))
            score = "" if hit.score is None else f"{hit.score:6.3f}  "
            where = printable(hit.use.place)
            lines.append(f"{score}{before:>{left}}  {word:<{longest}}  {after:<{side}}  {where}")
        return lines

    def __repr__(self) -> str:
        return "\n".join([printable(self.title), *self.lines()])

    @property
    def report(self) -> Report:
        """The hits as a table for people."""
        rows: list[Row] = [hit.row(48) for hit in self.hits]
        n = f"{len(self)} of {self.n_uses}" if len(self) < self.n_uses else f"{len(self)}"
        return Report(name=self.title, metrics={}, tables={f"{n} uses": rows})

    @property
    def tidy(self) -> Report:
        """The hits with complete sentences and all that is known about their documents."""
        rows: list[Row] = [hit.row() for hit in self.hits]
        return Report(name=self.title, metrics={}, tables={"uses": rows})

    def to_dict(self) -> dict[str, Any]:
        """The hits as JSON values, with complete sentences."""
        hits = [
            {**hit.row(), "tokens": list(hit.use.tokens), "position": hit.use.position}
            for hit in self.hits
        ]
        return {"query": self.query, "hits": hits}


def find_uses(
    index: Index,
    place: str | Place,
    *,
    word: str | Sequence[str] | None = None,
    k: int = 10,
    like: Sequence[str | Place] = (),
    unlike: Sequence[str | Place] = (),
    sort: Sort | None = None,
    by: str | None = None,
    period: int | None = None,
) -> Concordance:
    """The uses in an index that are most similar to one of a word, or all uses of a word.

    Args:
        index: where to search.
        place: a sentence with the word in brackets, or a sentence and a position; or a word or
            pattern without brackets, for a plain concordance.
        word: search the uses of these words; see `Index.rows`. By default the same word; "*" for
            all words.
        k: how many, in each group.
        like: further examples.
        unlike: counterexamples.
        sort: "similarity", "left" or "right" (by the words on that side), or "text", as they
            occur. A sentence finds the `k` most similar uses first, whatever the order; a plain
            concordance is sorted before its first `k` uses are taken.
        by: a field of the documents, to list the uses in groups.
        period: join so many years in a group.

    Raises:
        InputError: the index has no such word, or no use of it in the chosen documents.
    """
    if k < 1:
        raise ConfigError(f"k={k} asks for no use; use 1 or more")
    if sort not in (None, *get_args(Sort)):
        raise ConfigError(f"sort={sort!r} is unknown; use {', '.join(get_args(Sort))}")
    # A regular expression may have brackets of its own.
    marked = not isinstance(place, str) or ("[" in place and not is_expression(place))
    if not marked and (like or unlike or word is not None):
        raise ConfigError(f"put one word of '{shown(place, 60)}' in [brackets] to compare its uses")
    query, own = str(place), ""
    if marked:
        given = (place, *like, *unlike)
        asked = [marked_place(index, one) if isinstance(one, str) else one for one in given]
        sentence, position = asked[0]
        own, vectors = sentence.tokens[position], index.sense_vectors(asked)
        query = " ".join(
            [*sentence.tokens[:position], f"[{own}]", *sentence.tokens[position + 1 :]]
        )
    groups = {"": index} if by is None else index.groups(by, period)
    hits: list[Hit] = []
    n_uses = 0
    for label, part in groups.items():
        if marked:
            rows = part.rows(own, literal=True) if word is None else part.rows(word)
            found = _most_similar(part, rows, vectors, 1 + len(like), k)
        else:
            rows = part.rows(query)
            # The index is in the order of words, the uses of each in that of the text.
            some = rows if sort in ("left", "right") else rows[:k]
            found = [(row, None, ()) for row in some.tolist()]
            if sort == "similarity":
                found = _typical(part, rows, k)
        mine = [Hit(part.use(row), score, why, part.about(row), label) for row, score, why in found]
        if sort in ("left", "right", "text"):
            mine.sort(key=lambda hit: _side(hit.use, sort))
        hits, n_uses = hits + mine[:k], n_uses + len(rows)
    if not n_uses:
        raise no_use(index, own or query)
    return Concordance(query, tuple(hits), n_uses, index.name)


def no_use(index: Index, word: str) -> InputError:
    """What to say of a word or pattern without a use in the chosen documents."""
    other = "a word" if index.whole is index else "documents"
    return InputError(f"no use of '{shown(word, 60)}' in {index.name}; choose {other} with uses")


def _side(use: Use, side: Sort) -> list[str] | int:
    """What a use is sorted by."""
    if side not in ("left", "right"):
        return use.row
    before, after = use.tokens[: use.position], use.tokens[use.position + use.width :]
    near = before[::-1] if side == "left" else after
    return [token.lower() for token in near if is_word(token)]


def _typical(index: Index, rows: Rows, k: int) -> list[_Found]:
    """The uses that are most similar to the mean of all."""
    if not len(rows):
        return []
    cosines = index.products(rows, unit(index.vectors(rows).mean(axis=0)[None])[0])
    return [(int(rows[one]), float(cosines[one]), ()) for one in largest(cosines, k)]


def _most_similar(
    index: Index, rows: Rows, examples: SenseVectors, n_like: int, k: int
) -> list[_Found]:
    """The uses that are most similar to the first examples, and least to the others."""
    n_unlike = len(examples) - n_like
    signs = np.array([1 / n_like] * n_like + [-1 / max(1, n_unlike)] * n_unlike, np.float32)
    query = signs @ unit(examples.dense())
    blocks = np.split(rows, range(_BLOCK, len(rows), _BLOCK))
    products = np.concatenate([index.products(some, query) for some in blocks])
    # The order of the text decides between equals.
    best = np.sort(rows[largest(products, max(k, _RERANKED))])
    stored = index.substitutes(best)
    scores = stored.similarity(examples) @ signs
    found: list[_Found] = []
    for row in largest(scores, k):
        pair = SenseVectors(
            examples.space,
            np.concatenate([examples.ids[:1], stored.ids[[row]]]),
            np.concatenate([examples.weights[:1], stored.weights[[row]]]),
        )
        shared = tuple(name for name, _ in pair.shared(0, 1, 5))
        found.append((int(best[row]), float(scores[row]), shared))
    return found
