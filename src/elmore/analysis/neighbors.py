"""Nearest uses of a word in context, beside the nearest words of a static vector (Table 4)."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore._messages import SILENT, Progress
from elmore.analysis.occurrences import FoundToken, Occurrences
from elmore.embedding.centroids import k_means
from elmore.embedding.elmo import Elmo
from elmore.embedding.layer_cache import MAX_BYTES, LayerCache, cache_folder, make_room
from elmore.embedding.results import LayerChoice, cosine, layer_weights
from elmore.embedding.search import search
from elmore.errors import ConfigError, FormatError, InputError
from elmore.report import Report, Row
from elmore.text.reading import numbered_lines
from elmore.text.word_vectors import read_word_vectors

__all__ = ["Neighbors"]

# Words around a hit that are shown.
_CONTEXT = 9
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
        layers: which layers to compare by, as in `Elmo.embed`; the paper's is the top one.
        vectors: a file of static word vectors; their nearest words are listed too.
        same_word: search among the occurrences of the word only, not among all words.
        top: how many neighbours to list.
        limit: index so many sentences only.
        cache: a folder that keeps layers and index for next time.
        max_bytes: what that folder may hold.
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
    limit: int | None = None
    cache: str | Path | None = None
    max_bytes: int = MAX_BYTES
    progress: Progress = SILENT

    def __post_init__(self) -> None:
        layer_weights(self.layers, self.elmo.n_layers)  # refuses what is not a choice
        if self.top < 1:
            raise ConfigError(f"top={self.top} asks for nothing; use 1 or more")

    def run(
        self, data: Text, *, query: str, contexts: Sequence[str] = (), name: str | None = None
    ) -> Report:
        """Find the nearest uses of a word.

        Args:
            data: a text file with one sentence per line, plain or compressed; or a list of
                sentences, strings or token lists.
            query: the word.
            contexts: sentences with that word, to find similar uses of. Without them, the word's
                uses in the text are split into two clusters, and the most central of each is taken.
            name: what the report calls the text; that of the file by default.
        """
        text = _TokenLists(data, self.elmo, self.limit, name)
        with cache_folder(self.cache) as folder:
            index = self._index(folder, text)
            return self._report(index, text, query, contexts)

    def _index(self, folder: Path, text: _TokenLists) -> Occurrences:
        cache = LayerCache(self.elmo, folder, max_bytes=self.max_bytes)
        weights = layer_weights(self.layers, self.elmo.n_layers)
        digest = hashlib.sha256(f"{cache.model} {weights.tolist()}".encode())
        for tokens in text:
            # With their lengths, no two lists of tokens give the same line.
            line = "".join(f"{len(token)}:{token}" for token in tokens)
            digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
        key = digest.hexdigest()
        place = folder / f"occurrences-{key[:24]}"
        if place.exists():
            try:
                index = Occurrences.open(place, key)
                os.utime(place)  # used just now: the cache removes what is oldest
                return index
            except FormatError:
                shutil.rmtree(place, ignore_errors=True)
        layers = cache.layers(text, progress=self.progress)
        if not layers.n_tokens:
            raise InputError("the text has no words; is it the right file?", file=text.name)
        folder.mkdir(parents=True, exist_ok=True)
        # The index is in the same folder as the layers, and counts towards what it may hold.
        make_room(folder, max(0, self.max_bytes - layers.n_tokens * self.elmo.dim * 2))
        return Occurrences.write(place, key, text, layers, self.layers)

    def _report(
        self, index: Occurrences, text: _TokenLists, query: str, contexts: Sequence[str]
    ) -> Report:
        found = index.find(query)
        sources = [self._given(context, query) for context in contexts]
        if not sources:
            if not len(found):
                raise InputError(
                    f"the text has no '{query}'; give another word or --context", file=text.name
                )
            sources = self._chosen(index, found)
        tables: dict[str, list[Row]] = {}
        metrics: dict[str, float] = {"occurrences": float(len(found))}
        for number, source in enumerate(sources, 1):
            hits = self._hits(index, source, found)
            title = f"{number}. nearest to: {_snippet(source.tokens, source.position)}"
            tables[title] = [_row(index, rank, hit) for rank, hit in enumerate(hits, 1)]
            if hits:
                metrics[f"nearest cosine, source {number}"] = round(hits[0].cosine, 4)
        if len(sources) == 2:
            both = cosine(sources[0].vector, sources[1].vector)
            metrics["cosine of the sources"] = round(float(both), 4)
        tables["static: nearest words of the token layer"] = self._token_layer(index, query)
        if self.vectors is not None:
            name = Path(self.vectors).name
            tables[f"static: nearest words in {name}"] = self._static(Path(self.vectors), query)
        return Report(
            name="neighbors",
            metrics=metrics,
            measured_on={
                "model": self.elmo.checkpoint.origin,
                "text": text.name,
                "tokens": len(index.word_ids),
                "query": query,
                "occurrences": len(found),
                "layers": str(self.layers),
            },
            tables=tables,
            notes=["cosine of normalised vectors; the source's own sentence is left out"],
        )

    def _given(self, context: str, query: str) -> _Source:
        tokens = self.elmo.tokenize(context).tokens
        lower = [token.lower() for token in tokens]
        if query.lower() not in lower:
            raise ConfigError(f"the context '{context[:60]}' has no '{query}'; write it there")
        position = lower.index(query.lower())
        vectors = self.elmo.embed_tokens([tokens], layers=self.layers)[0]
        return _Source(tokens, position, vectors[position])

    def _chosen(self, index: Occurrences, found: NDArray[np.int64]) -> list[_Source]:
        """Split the uses of a word into two clusters, and take the most central of each."""
        step = max(1, len(found) // _SAMPLE)
        sample = found[::step]
        sources = []
        for place in _two_central(index.take(sample)):
            sentence, position = index.sentence_of(int(sample[place]))
            tokens = tuple(index.tokens(sentence))
            vector = index.take(sample[place : place + 1])[0]
            sources.append(_Source(tokens, position, vector))
        return sources

    def _hits(
        self, index: Occurrences, source: _Source, found: NDArray[np.int64]
    ) -> list[FoundToken]:
        """Search for more until enough is left without the source and sentences that repeat."""
        among = found if self.same_word else None
        size = len(found) if self.same_word else len(index.word_ids)
        wanted = 4 * self.top  # a corpus repeats sentences
        while True:
            hits: list[FoundToken] = []
            shown = {source.tokens}
            workers = self.elmo.engine.workers
            for hit in index.search(source.vector, wanted, workers=workers, among=among):
                tokens = tuple(index.tokens(index.sentence_of(hit.token)[0]))
                if tokens not in shown:
                    shown.add(tokens)
                    hits.append(hit)
                if len(hits) == self.top:
                    return hits
            if wanted >= size:
                return hits
            wanted *= 8

    def _token_layer(self, index: Occurrences, query: str) -> list[Row]:
        vectors = self.elmo.token_vectors([query, *index.words])
        return _nearest_words({query}, vectors[0], index.words, vectors[1:], self.top)

    def _static(self, path: Path, query: str) -> list[Row]:
        table = read_word_vectors(path)
        row = table.row(query)
        if row is None:
            return []
        itself = {query, table.words[row]}
        return _nearest_words(itself, table.vectors[row], table.words, table.vectors, self.top)


class _TokenLists:
    """A text as token lists, read again each time: for the key, the layers and the index."""

    def __init__(self, data: Text, elmo: Elmo, limit: int | None, name: str | None) -> None:
        # An iterator can be read only once.
        if not isinstance(data, str | Path) and iter(data) is data:
            data = list(data)
        self._data = data
        self._elmo = elmo
        self._limit = limit
        self.name = name or (str(data) if isinstance(data, str | Path) else "sentences")

    def __iter__(self) -> Iterator[Sequence[str]]:
        items: Iterable[str | Sequence[str]] = (
            (line for _, line in numbered_lines(Path(self._data)))
            if isinstance(self._data, str | Path)
            else self._data
        )
        for number, item in enumerate(items):
            if self._limit is not None and number >= self._limit:
                return
            yield self._elmo.tokenize(item).tokens if isinstance(item, str) else item


def _row(index: Occurrences, rank: int, hit: FoundToken) -> Row:
    sentence, position = index.sentence_of(hit.token)
    tokens = index.tokens(sentence)
    return {
        "rank": rank,
        "cosine": round(hit.cosine, 4),
        "sentence": sentence + 1,
        "word": tokens[position],
        "context": _snippet(tokens, position),
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
