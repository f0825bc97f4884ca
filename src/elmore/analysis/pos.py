"""Part of speech: what a linear probe finds in each layer (paper §5.3, Table 6).

One softmax over the classes on frozen vectors, no context and no hidden layer; l2 chosen on the
development file, the same optimiser for all. Beside it the controls: the most frequent tag of a
form, static vectors, and a biLM of the same shape with random weights.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore._messages import SILENT, Progress
from elmore.analysis.conllu import TaggedSentence, TagKind, read_conllu
from elmore.analysis.controls import random_twin
from elmore.analysis.linear_probe import L2_CHOICES, Fitted, fit
from elmore.analysis.probe import layer_views
from elmore.embedding.cache_folder import cache_folder
from elmore.embedding.elmo import Elmo
from elmore.embedding.layer_cache import MAX_BYTES, CachedLayers, LayerCache
from elmore.embedding.layers import LayerChoice
from elmore.errors import ConfigError, InputError
from elmore.tasks.task import Report, Row
from elmore.text.word_vectors import WordVectors, read_word_vectors

__all__ = ["Pos"]

_logger = logging.getLogger(__name__)
_BASELINE = "most frequent tag"
_FILES = ("train", "dev", "test")
Half = NDArray[np.float16]
# What a probe sees of the three files, under the name of its row.
Features = tuple[str, tuple[Half, Half, Half]]


class Pos:
    """The linear probe for parts of speech.

    Args:
        elmo: the model.
        tags: which tags to learn: "upos" (universal), "xpos" (the language's own).
        layers: "all" (each layer and their mean), or a choice as in `Elmo.embed`.
        vectors: a file of static word vectors as a control.
        random: measure a biLM with random weights too.
        limit: learn from so many sentences of the training file only.
        seed: of the random weights.
        cache: a folder that keeps the layers for next time.
        max_bytes: what that folder may hold.
        progress: counts sentences.

    Examples:
        >>> report = Pos(elmo, tags=["upos"]).run(["train.conllu", "dev.conllu", "test.conllu"])
        >>> accuracy = report.metrics["upos mean"]
    """

    def __init__(
        self,
        elmo: Elmo,
        *,
        tags: Sequence[TagKind] = ("upos", "xpos"),
        layers: LayerChoice | str = "all",
        vectors: str | Path | None = None,
        random: bool = True,
        limit: int | None = None,
        seed: int = 0,
        cache: str | Path | None = None,
        max_bytes: int = MAX_BYTES,
        progress: Progress = SILENT,
    ) -> None:
        self.elmo = elmo
        self.tags = tuple(tags)
        if not self.tags or not set(self.tags) <= {"upos", "xpos"}:
            raise ConfigError(f"tags={','.join(self.tags)!r}; use upos, xpos or both")
        self.views = layer_views(layers, elmo.n_layers)
        self.vectors = None if vectors is None else Path(vectors)
        self.random = random
        self.limit = limit
        self.seed = seed
        self.cache = cache
        self.max_bytes = max_bytes
        self.progress = progress

    def run(self, data: Sequence[str | Path]) -> Report:
        """Fit and measure.

        Args:
            data: three CoNLL-U files: to learn from, to choose l2 by, to measure on.
        """
        if isinstance(data, str | Path) or len(data) != len(_FILES):
            raise ConfigError("pos takes three CoNLL-U files: TRAIN DEV TEST")
        limits = (self.limit, None, None)
        texts = [
            read_conllu(Path(path), limit=limit) for path, limit in zip(data, limits, strict=True)
        ]
        static = None if self.vectors is None else read_word_vectors(self.vectors)
        problems = {kind: _Problem.make(texts, kind, data[0]) for kind in self.tags}
        tables: dict[str, list[Row]] = {kind: [] for kind in self.tags}
        labels: dict[str, tuple[str, list[Row]]] = {}
        best: dict[str, float] = {}
        for kind, problem in problems.items():
            tables[kind].append(problem.most_frequent(texts))
        for name, features in self._features(texts, static):
            for kind, problem in problems.items():
                fitted = problem.fit(features)
                row = problem.row(name, features[2], fitted)
                tables[kind].append(row)
                _logger.info("%s, %s: %.2f (%d steps)", kind, name, row["test"], fitted.steps)
                if not name.startswith("random") and fitted.accuracy > best.get(kind, -1):
                    best[kind] = fitted.accuracy
                    title = f"{kind}, each tag, by {name}, the best on dev"
                    labels[kind] = title, problem.per_label(features[2], fitted)
        return Report(
            name="pos",
            metrics={
                f"{kind} {row['vectors']}": _number(row["test"])
                for kind, rows in tables.items()
                for row in rows
            },
            measured_on=self._measured_on(data, texts, static),
            tables={**tables, **dict(labels.values())},
            notes=[
                "accuracy in per cent on syntactic words; known, unseen: forms in the training "
                "file or not; ambiguous: forms with two or more tags there",
            ],
        )

    def _features(
        self, texts: Sequence[Sequence[TaggedSentence]], static: WordVectors | None
    ) -> Iterator[Features]:
        """Give the vectors of the three files, one kind after the other."""
        if static is not None:
            parts = [static.take([w for s in text for w in s.words]) for text in texts]
            yield "static vectors", _three(part.astype(np.float16) for part in parts)
        with cache_folder(self.cache) as folder:
            yield from self._layers(self.elmo, folder, texts, "")
            if self.random:
                yield from self._layers(
                    random_twin(self.elmo, self.seed), folder, texts, "random, "
                )

    def _layers(
        self,
        elmo: Elmo,
        folder: Path,
        texts: Sequence[Sequence[TaggedSentence]],
        prefix: str,
    ) -> Iterator[Features]:
        cache = LayerCache(elmo, folder, max_bytes=self.max_bytes)
        cached = [cache.layers([s.words for s in t], progress=self.progress) for t in texts]
        for name, view in self.views:
            dim = elmo.dim
            if isinstance(view, int) and view == 0 and elmo.config.lstm.bidirectional:
                dim //= 2  # the token layer stands there twice
            yield prefix + name, _three(_matrix(text, view, dim) for text in cached)

    def _measured_on(
        self,
        data: Sequence[str | Path],
        texts: Sequence[Sequence[TaggedSentence]],
        static: WordVectors | None,
    ) -> dict[str, str | int | float | list[str | int | float | bool | None] | None]:
        measured: dict[str, str | int | float | list[str | int | float | bool | None] | None] = {
            "model": self.elmo.checkpoint.origin
        }
        for name, path, text in zip(_FILES, data, texts, strict=True):
            words = sum(len(sentence.words) for sentence in text)
            measured[name] = f"{path} ({len(text)} sentences, {words} words)"
        measured["limit"] = self.limit
        if static is not None:
            share = static.known([w for s in texts[2] for w in s.words])
            measured["vectors"] = f"{self.vectors} ({share:.1%} of the test words)"
        measured["l2"] = list(L2_CHOICES)
        return measured


@dataclass(frozen=True, eq=False)
class _Problem:
    """One kind of tag: numbers for tags, and what is known of the test words.

    Attributes:
        kind: which tags.
        names: tag of each number.
        numbers: of every word of the three files; -1 for a tag that the training file lacks.
        known: whether the training file has the form, for the test words.
        ambiguous: whether it has it with two or more tags.
    """

    kind: TagKind
    names: list[str]
    numbers: tuple[NDArray[np.int64], ...]
    known: NDArray[np.bool_]
    ambiguous: NDArray[np.bool_]

    @classmethod
    def make(
        cls, texts: Sequence[Sequence[TaggedSentence]], kind: TagKind, file: str | Path
    ) -> _Problem:
        tags = [[tag for s in text for tag in getattr(s, kind)] for text in texts]
        names = sorted(set(tags[0]))
        if len(names) < 2:
            raise InputError(
                f"column {kind} holds nothing but '{names[0]}'; choose other tags (--tags)",
                file=str(file),
            )
        ids = {name: number for number, name in enumerate(names)}
        numbers = tuple(np.array([ids.get(tag, -1) for tag in part], np.int64) for part in tags)
        seen: dict[str, set[str]] = {}
        for word, tag in zip(_words(texts[0]), tags[0], strict=True):
            seen.setdefault(word, set()).add(tag)
        counts = np.array([len(seen.get(word, ())) for word in _words(texts[2])])
        return cls(kind, names, numbers, counts > 0, counts > 1)

    def fit(self, features: tuple[Half, Half, Half]) -> Fitted:
        train, dev, _ = features
        return fit(train, self.numbers[0], dev, self.numbers[1], n_classes=len(self.names))

    def row(self, name: str, test: Half, fitted: Fitted) -> Row:
        return {
            "vectors": name,
            "dim": test.shape[1],
            "l2": fitted.l2,
            "dev": round(100 * fitted.accuracy, 3),
            **self._scores(fitted.predict(test)),
        }

    def most_frequent(self, texts: Sequence[Sequence[TaggedSentence]]) -> Row:
        """The commonest tag of a form; for unseen ones that of the forms seen once."""
        counts: dict[str, Counter[int]] = {}
        for word, number in zip(_words(texts[0]), self.numbers[0], strict=True):
            counts.setdefault(word, Counter())[int(number)] += 1
        once = Counter(next(iter(c)) for c in counts.values() if c.total() == 1)
        other = (once or Counter(self.numbers[0].tolist())).most_common(1)[0][0]
        usual = {word: c.most_common(1)[0][0] for word, c in counts.items()}
        dev, test = (
            np.array([usual.get(word, other) for word in _words(text)]) for text in texts[1:]
        )
        accuracy = _percent(dev == self.numbers[1])
        return {"vectors": _BASELINE, "dim": None, "l2": None, "dev": accuracy} | self._scores(test)

    def per_label(self, test: Half, fitted: Fitted) -> list[Row]:
        """Recall and precision of every tag."""
        predicted, gold = fitted.predict(test), self.numbers[2]
        rows: list[Row] = []
        for number, name in enumerate(self.names):
            mine, said = gold == number, predicted == number
            rows.append(
                {
                    "tag": name,
                    "words": int(mine.sum()),
                    "precision": _percent(gold[said] == number),
                    "recall": _percent(said[mine]),
                }
            )
        return rows

    def _scores(self, predicted: NDArray[np.int64]) -> dict[str, float | None]:
        right = predicted == self.numbers[2]
        return {
            "test": _percent(right),
            "known": _percent(right[self.known]),
            "unseen": _percent(right[~self.known]),
            "ambiguous": _percent(right[self.ambiguous]),
        }


def _words(text: Sequence[TaggedSentence]) -> Iterator[str]:
    return (word for sentence in text for word in sentence.words)


def _percent(right: NDArray[np.bool_]) -> float | None:
    return round(100 * float(right.mean()), 3) if len(right) else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _three(parts: Iterable[Half]) -> tuple[Half, Half, Half]:
    train, dev, test = parts
    return train, dev, test


def _matrix(text: CachedLayers, view: LayerChoice, dim: int) -> Half:
    """Gather one vector a word, (n_words, dim)."""
    matrix = np.empty((text.n_tokens, dim), np.float16)
    row = 0
    for vectors in text.vectors(view):
        matrix[row : row + len(vectors)] = vectors[:, :dim]
        row += len(vectors)
    return matrix
