"""Find the uses of a word that are most similar to a given one, as a concordance."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmore.base.atomic import atomic_file
from elmore.base.messages import printable, spreadsheet_safe
from elmore.embedding.search import largest
from elmore.errors import ConfigError
from elmore.language_model.sense_vectors import Array, Place, SenseVectors, marked_place, unit
from elmore.report import Report, Reported, Row
from elmore.senses.index import Index, Rows, Use

__all__ = ["Concordance", "Hit", "find_similar", "read_place"]

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
        score: its mean cosine with the examples, less that with the counterexamples.
        shared: why: the substitutes that it shares with the first example.
    """

    use: Use
    score: float
    shared: tuple[str, ...]

    def row(self, width: int = 60) -> dict[str, str | int | float]:
        """The hit as a row of a table."""
        left, word, right = self.use.context(width)
        return {
            "cosine": round(self.score, 4),
            "left": left,
            "word": word,
            "right": right,
            "source": self.use.source,
            "line": self.use.line,
            "shared": ", ".join(self.shared),
        }


@dataclass(frozen=True, repr=False)
class Concordance(Reported):
    """Uses one below the other, the most similar first."""

    query: str
    hits: tuple[Hit, ...]

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, k: int) -> Hit:
        return self.hits[k]

    def lines(self, width: int = 100) -> list[str]:
        """The hits as lines of about so many characters, aligned at the word."""
        side = max(12, (width - 30) // 2)
        contexts = [tuple(map(printable, hit.use.context(side))) for hit in self.hits]
        longest = max((len(word) for _, word, _ in contexts), default=0)
        left = max((len(before) for before, _, _ in contexts), default=0)
        return [
            f"{hit.score:6.3f}  {before:>{left}}  {word:<{longest}}  {after:<{side}}  "
            f"{printable(hit.use.source.rpartition('/')[2])}:{hit.use.line}"
            for hit, (before, word, after) in zip(self.hits, contexts, strict=True)
        ]

    def __repr__(self) -> str:
        return "\n".join([f"uses like: {printable(self.query)}", *self.lines()])

    @property
    def report(self) -> Report:
        """The hits as a table."""
        rows: list[Row] = [hit.row() for hit in self.hits]
        return Report(name="find", metrics={}, tables={f"uses like: {self.query}": rows})

    def to_dict(self) -> dict[str, Any]:
        """The hits as JSON values, with complete sentences."""
        hits = [
            {**hit.row(), "tokens": list(hit.use.tokens), "position": hit.use.position}
            for hit in self.hits
        ]
        return {"query": self.query, "hits": hits}

    def draw(self, path: Path, *, overwrite: bool = False) -> None:
        """Draw the hits as bars."""
        from elmore.senses.pictures import draw_find

        draw_find(self, path, overwrite=overwrite)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the hits as the suffix says: .csv, .html, .json, .txt or a picture (.svg, .png)."""
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".json"):
            super().save(path, overwrite=overwrite)
            return
        values = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        with atomic_file(path, overwrite=overwrite) as stream:
            text = values if suffix == ".json" else self.to_csv()
            stream.write(text.encode("utf-8", "backslashreplace"))

    def to_csv(self) -> str:
        """The hits as CSV; a cell that a spreadsheet would take for a formula starts with '."""
        text = io.StringIO()
        names = ["cosine", "left", "word", "right", "source", "line", "shared"]
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        for hit in self.hits:
            cells = hit.row(10_000).items()
            safe = {
                k: spreadsheet_safe(printable(v)) if isinstance(v, str) else v for k, v in cells
            }
            writer.writerow(safe)
        return text.getvalue()


def find_similar(
    index: Index,
    place: str | Place,
    *,
    word: str | Sequence[str] | None = None,
    k: int = 10,
    like: Sequence[str | Place] = (),
    unlike: Sequence[str | Place] = (),
) -> Concordance:
    """The uses in an index that are most similar to one of a word.

    Args:
        index: where to search.
        place: a sentence with the word in brackets, or a sentence and a position.
        word: search the uses of these words; see `Index.rows`. By default the same word; "*" for
            all words.
        k: how many.
        like: further examples.
        unlike: counterexamples.
    """
    if k < 1:
        raise ConfigError(f"k={k} asks for no use; use 1 or more")
    asked = [read_place(index, one) for one in (place, *like, *unlike)]
    sentence, position = asked[0]
    n_like = 1 + len(like)
    signs = np.array([1 / n_like] * n_like + [-1 / max(1, len(unlike))] * len(unlike), np.float32)
    found = index.space.vectors(asked)
    query = signs @ unit(found.dense())
    n_best = max(k, _RERANKED)
    same = sentence.tokens[position]
    rows = index.rows(same, literal=True) if word is None else index.rows(word)
    best = rows[largest(_scores(index, rows, query), n_best)]
    best = np.sort(best)  # the order of the text decides between equals
    stored = index.substitutes(best)
    scores = stored.similarity(found) @ signs
    hits = []
    for row in largest(scores, k):
        pair = SenseVectors(
            found.space,
            np.concatenate([found.ids[:1], stored.ids[[row]]]),
            np.concatenate([found.weights[:1], stored.weights[[row]]]),
        )
        shared = tuple(name for name, _ in pair.shared(0, 1, 5))
        hits.append(Hit(index.use(int(best[row])), float(scores[row]), shared))
    text = " ".join([*sentence.tokens[:position], f"[{sentence.tokens[position]}]"])
    return Concordance(" ".join([text, *sentence.tokens[position + 1 :]]), tuple(hits))


def read_place(index: Index, place: str | Place) -> Place:
    """A place, which may be given as a sentence with the word in brackets."""
    return marked_place(index, place) if isinstance(place, str) else place


def _scores(index: Index, rows: Rows, query: Array) -> Array:
    """The product of a vector with those of uses, in blocks, (n,)."""
    scores = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        scores[part] = index.products(rows[part], query)
    return scores
