"""An index of the words of a text by their contextual vectors, for exact search.

A folder: `vectors.f16`, the normalised vectors of all tokens, mapped when searched; `words.i32`,
which word each token is; `words.json`; `sentences.jsonl`, the tokens; `sentences.i64`, for each
sentence its first token and its first byte in that file; `index.json`, sizes and digests.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore._atomic import atomic_folder
from elmore._json import read_json
from elmore.embedding.layer_cache import CachedLayers
from elmore.embedding.results import LayerChoice, unit
from elmore.embedding.search import largest
from elmore.errors import FormatError
from elmore.kernels.workers import Workers

__all__ = ["FoundToken", "Occurrences"]

_VERSION = 1
# Rows that are turned into float32 at a time: they stay in a processor's cache.
_BLOCK_ROWS = 4096


class FoundToken(NamedTuple):
    """A token that was found: its number in the text and its cosine."""

    token: int
    cosine: float


class Occurrences:
    """The index of a text; see `write` and `open`.

    Attributes:
        words: the different words.
        vectors: normalised, (n_tokens, dim), mapped from disk.
        word_ids: number of each token's word, (n_tokens,).
    """

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        self.folder = folder
        n_tokens, n_sentences, dim = (index[key] for key in ("n_tokens", "n_sentences", "dim"))
        self.vectors = _map(folder / "vectors.f16", np.float16, (n_tokens, dim))
        self.word_ids = _map(folder / "words.i32", np.int32, (n_tokens,))
        self._sentences = _map(folder / "sentences.i64", np.int64, (n_sentences, 2))
        self.words = json.loads((folder / "words.json").read_text("utf-8"))
        # Of objects: numpy would give each string the memory of the longest.
        self._lower = np.array([word.lower() for word in self.words], dtype=object)

    @classmethod
    def open(cls, folder: Path, key: str) -> Occurrences:
        """Open an index that was written.

        Raises:
            FormatError: it is not there, not complete, or of another text or model.
        """
        index = read_json(folder / "index.json")
        if index.get("version") != _VERSION or index.get("key") != key:
            raise FormatError(f"'{folder}' is an index of something else; write it again")
        try:
            return cls(folder, index)
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise FormatError(f"'{folder}' is damaged ({error}); write it again") from None

    @classmethod
    def write(
        cls,
        folder: Path,
        key: str,
        sentences: Iterable[Sequence[str]],
        layers: CachedLayers,
        choice: LayerChoice,
    ) -> Occurrences:
        """Write an index and open it; `key` is a digest of model, text and layers."""
        with atomic_folder(folder) as temporary:
            n_tokens, words = _write_words(temporary, sentences)
            with open(temporary / "vectors.f16", "wb") as stream:
                for vectors in layers.vectors(choice):
                    stream.write(unit(vectors).astype("<f2").tobytes())
            (temporary / "words.json").write_text(json.dumps(words), encoding="utf-8", newline="\n")
            index = {
                "version": _VERSION,
                "key": key,
                "n_tokens": n_tokens,
                "n_sentences": len(layers),
                "dim": layers.dim,
            }
            (temporary / "index.json").write_text(json.dumps(index), encoding="utf-8", newline="\n")
        return cls.open(folder, key)

    def find(self, word: str) -> NDArray[np.int64]:
        """The tokens that are a word, whatever their case, in the order of the text."""
        ids = np.flatnonzero(self._lower == word.lower())
        return np.flatnonzero(np.isin(self.word_ids, ids))

    def sentence_of(self, token: int) -> tuple[int, int]:
        """The number of the sentence that a token is in, and its place there."""
        starts = self._sentences[:, 0]
        number = int(np.searchsorted(starts, token, side="right")) - 1
        return number, int(token - starts[number])

    def tokens(self, sentence: int) -> list[str]:
        """Read the tokens of a sentence."""
        with open(self.folder / "sentences.jsonl", "rb") as stream:
            stream.seek(int(self._sentences[sentence, 1]))
            tokens: list[str] = json.loads(stream.readline())
        return tokens

    def take(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of tokens, (n, dim)."""
        return self.vectors[tokens].astype(np.float32)

    def search(
        self,
        query: NDArray[np.float32],
        k: int,
        *,
        workers: Workers,
        among: NDArray[np.int64] | None = None,
    ) -> list[FoundToken]:
        """The `k` tokens nearest to a vector (dim,); equally near ones in the order of the text."""
        direction = unit(np.asarray(query, np.float32)[None])[0]
        n = len(self.vectors) if among is None else len(among)
        cosines = np.empty(n, np.float32)

        def part(begin: int, end: int) -> None:
            for start in range(begin, end, _BLOCK_ROWS):
                rows = slice(start, min(end, start + _BLOCK_ROWS))
                block = self.vectors[rows] if among is None else self.vectors[among[rows]]
                # Not a BLAS product: its threads would meet after every block.
                cosines[rows] = np.einsum("nd,d->n", block.astype(np.float32), direction)

        borders = np.linspace(0, n, workers.count + 1).astype(int).tolist()
        workers.run([lambda p=p: part(*p) for p in itertools.pairwise(borders)])  # type: ignore[misc]  # mypy cannot infer a default
        best = largest(cosines, k)
        tokens = best if among is None else among[best]
        return [FoundToken(int(t), float(cosines[b])) for t, b in zip(tokens, best, strict=True)]


def _write_words(folder: Path, sentences: Iterable[Sequence[str]]) -> tuple[int, list[str]]:
    ids: dict[str, int] = {}
    first = place = 0
    with (
        open(folder / "sentences.jsonl", "wb") as texts,
        open(folder / "words.i32", "wb") as words,
        open(folder / "sentences.i64", "wb") as starts,
    ):
        for tokens in sentences:
            starts.write(np.array([first, place], "<i8").tobytes())
            numbers = [ids.setdefault(token, len(ids)) for token in tokens]
            words.write(np.array(numbers, "<i4").tobytes())
            place += texts.write(json.dumps(list(tokens)).encode() + b"\n")
            first += len(numbers)
    return first, list(ids)


def _map(path: Path, dtype: type[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    kind = np.dtype(dtype).newbyteorder("<")
    expected = int(np.prod(shape)) * kind.itemsize
    if path.stat().st_size != expected:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, expected {expected}")
    if not expected:
        return np.zeros(shape, kind)
    return np.asarray(np.memmap(path, kind, "r", shape=shape))
