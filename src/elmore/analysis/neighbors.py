"""Nearest uses of a word in context, and the nearest words of a static vector (Table 4)."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import SILENT, Progress
from elmore.elmo import Elmo
from elmore.embedding.centroids import k_means
from elmore.embedding.layer_cache import cache_folder
from elmore.embedding.results import cosine, layer_weights, unit
from elmore.embedding.search import search
from elmore.errors import ConfigError, FormatError, InputError, ResumeError
from elmore.options import LayerChoice
from elmore.report import Report, Row
from elmore.senses.index import Index, Rows, Use
from elmore.senses.indexing import build_index
from elmore.text.reading import numbered_lines
from elmore.text.word_vectors import read_word_vectors

# Words around a hit that are shown.
_CONTEXT = 9
# Uses of a word that are kept: all of them.
_EVERY = 1 << 40
# Rows whose layers exist as float32 at once: 8 MB at 256 dimensions.
_BLOCK = 8192
# Occurrences that the sources are chosen from, when none is given.
_SAMPLE = 2000
Text = str | Path | Iterable[str] | Iterable[Sequence[str]]
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class _Source:
    """A word in a sentence, to find similar uses of."""

    tokens: tuple[str, ...]
    position: int
    vector: Vectors


@dataclass(eq=False)
class Neighbors:
    """Nearest occurrences of a word.

    Args:
        elmo: the model.
        layers: which layers to compare by, as in `Elmo.embed`; the paper's is the top one. An
            index has its own.
        vectors: a file of static word vectors; their nearest words are listed too.
        same_word: search among the occurrences of the word only, not among all words.
        top: how many neighbours to list.
        cache: a folder that keeps the index of a text for next time.
        progress: counts sentences.

    Examples:
        >>> report = Neighbors(elmo).run("corpus.txt", query="play")
        >>> report.save("neighbors.json")
    """

    elmo: Elmo
    _: KW_ONLY
    layers: LayerChoice = "top"
    vectors: str | Path | None = None
    same_word: bool = False
    top: int = 5
    cache: str | Path | None = None
    progress: Progress = SILENT

    def __post_init__(self) -> None:
        layer_weights(self.layers, self.elmo.n_layers)  # refuses what is not a choice
        if self.top < 1:
            raise ConfigError(f"top={self.top} asks for nothing; use 1 or more")

    def run(
        self,
        data: Text | Index,
        *,
        query: str,
        contexts: Sequence[str] = (),
        name: str | None = None,
    ) -> Report:
        """Find the nearest uses of a word.

        Args:
            data: a text file with one sentence per line, plain or compressed; a list of
                sentences, strings or token lists; or an index that was made with layers, or its
                folder. Of a text, an index of all its words is made first.
            query: the word.
            contexts: sentences with that word, to find similar uses of. Without them, the word's
                uses in the text are split into two clusters, and the most central of each is taken.
            name: what the report calls the text; that of the file by default.
        """
        name = name or (str(data) if isinstance(data, str | Path) else "sentences")
        if isinstance(data, str | Path) and Path(data).is_dir():
            data = Index.open(data, elmo=self.elmo)
        if isinstance(data, Index):
            data.layers(np.arange(0))  # refuses an index without layers,
            _ = data.space  # and another model
            return self._report(data, name, query, contexts)
        with cache_folder(self.cache) as folder:
            return self._report(self._index(folder, data, name), name, query, contexts)

    def _index(self, folder: Path, data: Text, name: str) -> Index:
        """An index of all words of a text by their layers; the one in the cache if it is there."""
        weights = layer_weights(self.layers, self.elmo.n_layers)
        digest = hashlib.sha256(f"{self.elmo.digest} {weights.tolist()}".encode())
        with tempfile.TemporaryDirectory() as temporary:
            text = Path(temporary, "text.jsonl")
            with text.open("wb") as stream:
                for tokens in _token_lists(data, self.elmo):
                    line = json.dumps({"tokens": list(tokens)}).encode() + b"\n"
                    stream.write(line)
                    digest.update(line)
            place = folder / f"uses-{digest.hexdigest()[:24]}"
            folder.mkdir(parents=True, exist_ok=True)
            settings: Any = {"min_count": 1, "max_uses": _EVERY, "k": 0, "column": "tokens"}
            settings |= {"layers": self.layers, "progress": self.progress}
            try:
                return build_index([text], place, model=self.elmo, **settings)
            except (FormatError, ResumeError):  # damaged, or of another version of elmore
                return build_index([text], place, model=self.elmo, overwrite=True, **settings)
            except InputError:
                raise InputError(
                    "the text has no words; is it the right file?", file=name
                ) from None

    def _report(self, index: Index, name: str, query: str, contexts: Sequence[str]) -> Report:
        found = index.rows(query) if query.lower() in index.words else np.zeros(0, np.int64)
        layers = index.manifest["model"]["layers"]
        sources = [self._given(context, query, layers) for context in contexts]
        if not sources:
            if not len(found):
                raise InputError(
                    f"the text has no '{query}'; give another word or --context", file=name
                )
            sources = self._chosen(index, found)
        tables: dict[str, list[Row]] = {}
        metrics: dict[str, float] = {"occurrences": float(len(found))}
        for number, source in enumerate(sources, 1):
            hits = self._hits(index, source, found)
            title = f"{number}. nearest to: {_snippet(source.tokens, source.position)}"
            tables[title] = [_row(rank, *hit) for rank, hit in enumerate(hits, 1)]
            if hits:
                metrics[f"nearest cosine, source {number}"] = round(hits[0][1], 4)
        if len(sources) == 2:
            both = cosine(sources[0].vector, sources[1].vector)
            metrics["cosine of the sources"] = round(float(both), 4)
        tables["static: nearest words of the token layer"] = self._token_layer(index, query)
        if self.vectors is not None:
            title = f"static: nearest words in {Path(self.vectors).name}"
            tables[title] = self._static(Path(self.vectors), query)
        return Report(
            name="neighbors",
            metrics=metrics,
            measured_on={
                "model": self.elmo.checkpoint.origin,
                "text": name,
                "uses": len(index),
                "query": query,
                "occurrences": len(found),
                "layers": str(layers),
            },
            tables=tables,
            notes=["cosine of normalised vectors; the source's own sentence is left out"],
        )

    def _given(self, context: str, query: str, layers: LayerChoice) -> _Source:
        tokens = self.elmo.tokenize(context).tokens
        lower = [token.lower() for token in tokens]
        if query.lower() not in lower:
            raise ConfigError(f"the context '{context[:60]}' has no '{query}'; write it there")
        position = lower.index(query.lower())
        vectors = self.elmo.embed([tokens], layers=layers, tokenized=True)[0]
        return _Source(tokens, position, vectors[position])

    def _chosen(self, index: Index, found: Rows) -> list[_Source]:
        """Split the uses of a word into two clusters, and take the most central of each."""
        sample = found[:: max(1, len(found) // _SAMPLE)]
        vectors = unit(index.layers(sample))
        uses = [(index.use(int(sample[place])), vectors[place]) for place in _two_central(vectors)]
        return [_Source(use.tokens, use.position, vector) for use, vector in uses]

    def _hits(self, index: Index, source: _Source, found: Rows) -> list[tuple[Use, float]]:
        """The nearest uses, without the source's sentence and sentences that repeat."""
        rows = found if self.same_word else np.arange(len(index))
        cosines = _cosines(index, rows, source.vector)
        hits: list[tuple[Use, float]] = []
        shown = {source.tokens}
        for place in np.argsort(-cosines, kind="stable"):
            use = index.use(int(rows[place]))
            if use.tokens not in shown:  # a corpus repeats sentences
                shown.add(use.tokens)
                hits.append((use, float(cosines[place])))
            if len(hits) == self.top:
                break
        return hits

    def _token_layer(self, index: Index, query: str) -> list[Row]:
        words = index.forms()
        vectors = self.elmo.engine.token_vectors([query, *words])
        return _nearest_words({query}, vectors[0], words, vectors[1:], self.top)

    def _static(self, path: Path, query: str) -> list[Row]:
        table = read_word_vectors(path)
        row = table.row(query)
        if row is None:
            return []
        itself = {query, table.words[row]}
        return _nearest_words(itself, table.vectors[row], table.words, table.vectors, self.top)


def _token_lists(data: Text, elmo: Elmo) -> Iterator[Sequence[str]]:
    items: Iterable[str | Sequence[str]] = (
        (line for _, line in numbered_lines(Path(data))) if isinstance(data, str | Path) else data
    )
    for item in items:
        yield elmo.tokenize(item).tokens if isinstance(item, str) else item


def _cosines(index: Index, rows: Rows, vector: Vectors) -> Vectors:
    """The cosine of a vector with the layers of uses, in blocks, (n,)."""
    direction = unit(vector[None])[0]
    parts = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    found = [unit(index.layers(part)) @ direction for part in parts]
    return np.concatenate([np.zeros(0, np.float32), *found])


def _row(rank: int, use: Use, cosine: float) -> Row:
    return {
        "rank": rank,
        "cosine": round(cosine, 4),
        "sentence": use.line,
        "word": use.tokens[use.position],
        "context": _snippet(use.tokens, use.position),
    }


def _snippet(tokens: Sequence[str], position: int) -> str:
    start, end = max(0, position - _CONTEXT), position + _CONTEXT + 1
    words = [f"[{token}]" if k == position else token for k, token in enumerate(tokens)]
    before, after = "… " if start else "", " …" if end < len(tokens) else ""
    return before + " ".join(words[start:end]) + after


def _nearest_words(
    itself: Collection[str], vector: Vectors, words: Sequence[str], vectors: Vectors, top: int
) -> list[Row]:
    found = zip(*search(vector, vectors, top + len(itself)), strict=True)
    others = [(words[k], float(score)) for k, score in found if words[k] not in itself]
    return [
        {"rank": rank, "cosine": round(score, 4), "word": word}
        for rank, (word, score) in enumerate(others[:top], 1)
    ]


def _two_central(vectors: Vectors) -> list[int]:
    """Split unit vectors into two clusters; the most central one of each."""
    # First centres far apart instead of random ones: the same text always gives the same uses.
    first = int((vectors @ vectors.mean(0)).argmin())
    second = int((vectors @ vectors[first]).argmin())
    if first == second:
        return [first]
    groups = k_means(vectors, vectors[[first, second]])
    clusters = [np.flatnonzero(groups == k) for k in (0, 1)]
    if not all(len(cluster) for cluster in clusters):
        return [first, second]
    return [int(c[(vectors[c] @ vectors[c].mean(0)).argmax()]) for c in clusters]
