"""Part of speech: what a linear probe finds in each layer (paper §5.3, Table 6).

The probe is one softmax over the classes on frozen vectors, without context or a hidden layer. l2
is chosen on the development file, and the optimiser is the same for all. The controls are the
most frequent tag of a form, static vectors, and a biLM of the same shape with random weights.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.analysis.probe import LayerProbe, percent
from elmore.base.optional import require
from elmore.embedding.layer_cache import CachedLayers
from elmore.errors import ConfigError, InputError
from elmore.options import LayerChoice
from elmore.report import Report, Row, Value
from elmore.tasks.data.columns import TagKind, read_conllu
from elmore.tasks.data.tags import usual_tags
from elmore.tasks.scores import class_scores
from elmore.text.records import TaggedSentence
from elmore.text.word_vectors import WordVectors

_logger = logging.getLogger(__name__)
_FILES = ("train", "dev", "test")
# From strong to weak: each fit starts from the one before.
_L2_CHOICES = (1e-2, 1e-3, 1e-4, 1e-5)
# Largest slope of the mean cross-entropy at which a fit ends.
_TOLERANCE = 1e-4
Half = NDArray[np.float16]
Labels = NDArray[np.int64]
Texts = Sequence[Sequence[TaggedSentence]]
# What a probe sees of the three files.
Features = tuple[Half, Half, Half]


class Fitted(NamedTuple):
    """A linear classifier of scikit-learn on standardised vectors.

    Attributes:
        model: the classifier.
        l2: the strength that was best on the development rows.
        accuracy: there.
    """

    model: Any
    l2: float
    accuracy: float

    def predict(self, features: Half) -> Labels:
        """The likeliest class of each row, (n,)."""
        return np.asarray(self.model.predict(features.astype(np.float32)))


def fit(
    features: Half,
    labels: Labels,
    dev_features: Half,
    dev_labels: Labels,
    *,
    l2_choices: Sequence[float] = _L2_CHOICES,
    max_steps: int = 200,
) -> Fitted:
    """Fit a classifier for each strength of l2 and keep the one that is best on other rows.

    Features are standardised; the mean cross-entropy plus l2/2 times the squared weights is
    minimised by L-BFGS.

    Args:
        features: (n, dim).
        labels: class of each, (n,).
        dev_features: rows to choose l2 by, (m, dim).
        dev_labels: their classes, (m,); -1 for a class that no training row has.
        l2_choices: strengths, tried from the largest to the smallest.
        max_steps: limit of iterations for one strength.
    """
    linear, preprocessing, pipeline = (
        require(f"sklearn.{part}", "analyze", "the linear probe")
        for part in ("linear_model", "preprocessing", "pipeline")
    )
    scaler: Any = preprocessing.StandardScaler()
    rows = scaler.fit_transform(features.astype(np.float32))
    model: Any = linear.LogisticRegression(warm_start=True, max_iter=max_steps, tol=_TOLERANCE)
    tried: list[Fitted] = []
    for l2 in sorted(l2_choices, reverse=True):
        # scikit-learn sums the losses that we average.
        model.C = 1 / (l2 * len(rows))
        with warnings.catch_warnings():
            # Few rows and weak l2 have no finite optimum; what max_steps reach is good enough.
            warnings.filterwarnings("ignore", "lbfgs failed to converge")
            model.fit(rows, labels)
        fitted = Fitted(pipeline.make_pipeline(scaler, copy.deepcopy(model)), l2, 0.0)
        accuracy = float((fitted.predict(dev_features) == dev_labels).mean())
        tried.append(fitted._replace(accuracy=accuracy))
    # The strongest of equally good ones.
    return max(tried, key=lambda one: one.accuracy)


@dataclass(eq=False, kw_only=True)
class Pos(LayerProbe):
    """The linear probe for parts of speech.

    Args:
        tags: which tags to learn: "upos" (universal), "xpos" (the language's own). The other
            arguments are those of `LayerProbe`.

    Examples:
        >>> report = Pos(elmo, tags=["upos"]).run(["train.conllu", "dev.conllu", "test.conllu"])
        >>> accuracy = report.metrics["upos mean"]
    """

    tags: Sequence[TagKind] = ("upos", "xpos")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tags or not set(self.tags) <= {"upos", "xpos"}:
            raise ConfigError(f"tags={','.join(self.tags)!r}; use upos, xpos or both")

    def run(self, data: Sequence[str | Path]) -> Report:
        """Fit and measure.

        Args:
            data: three CoNLL-U files: to learn from, to choose l2 by, to measure on.
        """
        if isinstance(data, str | Path) or len(data) != len(_FILES):
            raise ConfigError("pos takes three CoNLL-U files: TRAIN DEV TEST")
        # Dev and test stay complete, so that scores can be compared.
        limits = (self.limit, None, None)
        texts = [
            read_conllu(Path(path), limit=limit) for path, limit in zip(data, limits, strict=True)
        ]
        static = self.static_vectors()
        problems = {kind: _Problem.make(texts, kind, data[0]) for kind in self.tags}
        tables: dict[str, list[Row]] = {k: [p.most_frequent(texts)] for k, p in problems.items()}
        labels: dict[str, tuple[str, list[Row]]] = {}
        best: dict[str, float] = {}
        # All kinds of tags in turn: the vectors of one layer are large, and only one is held.
        for name, features in self._features(texts, static):
            for kind, problem in problems.items():
                train, dev, test = features
                tags, dev_tags, _ = problem.numbers
                fitted = fit(train, tags, dev, dev_tags)
                row = problem.row(name, test, fitted)
                tables[kind].append(row)
                _logger.info("%s, %s: %.2f", kind, name, row["test"])
                if not name.startswith("random") and fitted.accuracy > best.get(kind, -1):
                    best[kind] = fitted.accuracy
                    title = f"{kind}, each tag, by {name}, the best on dev"
                    labels[kind] = title, problem.per_label(test, fitted)
        return Report(
            name="pos",
            metrics={
                f"{kind} {row['vectors']}": float(row["test"] or 0)
                for kind, rows in tables.items()
                for row in rows
            },
            measured_on=self._measured_on(data, texts, static),
            tables={**tables, **dict(labels.values())},
            notes=[
                "accuracy in per cent on syntactic words; known, unseen: forms in the training "
                "file or not; ambiguous: forms with two or more tags there"
            ],
        )

    def _features(self, texts: Texts, static: WordVectors | None) -> Iterator[tuple[str, Features]]:
        """The vectors of the three files under the name of their row, one kind at a time."""
        if static is not None:
            parts = (static.take(list(_words(text))) for text in texts)
            yield "static vectors", _three(part.astype(np.float16) for part in parts)
        for prefix, cache in self.caches():
            cached = [cache.layers([s.words for s in t], progress=self.progress) for t in texts]
            elmo = cache.elmo
            for name, view in self.views:
                dim = elmo.dim
                if isinstance(view, int) and view == 0 and elmo.config.lstm.bidirectional:
                    dim //= 2  # the token layer is there twice
                yield prefix + name, _three(_matrix(text, view, dim) for text in cached)

    def _measured_on(
        self, data: Sequence[str | Path], texts: Texts, static: WordVectors | None
    ) -> dict[str, Value | Sequence[Value]]:
        measured: dict[str, Value | Sequence[Value]] = {"model": self.elmo.checkpoint.origin}
        for name, path, text in zip(_FILES, data, texts, strict=True):
            words = sum(len(sentence.words) for sentence in text)
            measured[name] = f"{path} ({len(text)} sentences, {words} words)"
        measured["limit"] = self.limit
        if static is not None:
            share = static.known(list(_words(texts[2])))
            measured["vectors"] = f"{self.vectors} ({share:.1%} of the test words)"
        measured["l2"] = list(_L2_CHOICES)
        return measured


@dataclass(frozen=True, eq=False)
class _Problem:
    """One kind of tag: numbers for tags, and what is known of the test words.

    Attributes:
        names: tag of each number.
        numbers: of every word of the three files; -1 for a tag that the training file lacks.
        known: whether the training file has the form, for the test words.
        ambiguous: whether it has it with two or more tags.
    """

    names: list[str]
    numbers: tuple[Labels, ...]
    known: NDArray[np.bool_]
    ambiguous: NDArray[np.bool_]

    @classmethod
    def make(cls, texts: Texts, kind: TagKind, file: str | Path) -> _Problem:
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
        return cls(names, numbers, counts > 0, counts > 1)

    def row(self, name: str, test: Half, fitted: Fitted) -> Row:
        return {
            "vectors": name,
            "dim": test.shape[1],
            "l2": fitted.l2,
            "dev": round(100 * fitted.accuracy, 3),
            **self._scores(fitted.predict(test)),
        }

    def most_frequent(self, texts: Texts) -> Row:
        """The baseline: the most frequent tag of a form."""
        tags = [self.names[number] for number in self.numbers[0]]
        usual = usual_tags(zip(_words(texts[0]), tags, strict=True))
        dev, test = (
            np.array([self.names.index(usual(word)) for word in _words(text)]) for text in texts[1:]
        )
        row = {"vectors": "most frequent tag", "dim": None, "l2": None}
        return {**row, "dev": percent(dev == self.numbers[1]), **self._scores(test)}

    def per_label(self, test: Half, fitted: Fitted) -> list[Row]:
        """How well each tag is found."""
        names = [*self.names, "another"]  # number -1
        gold, found = ([names[k] for k in n] for n in (self.numbers[2], fitted.predict(test)))
        return class_scores(gold, found, self.names)[1]

    def _scores(self, predicted: Labels) -> dict[str, float | None]:
        right = predicted == self.numbers[2]
        return {
            "test": percent(right),
            "known": percent(right[self.known]),
            "unseen": percent(right[~self.known]),
            "ambiguous": percent(right[self.ambiguous]),
        }


def _words(text: Sequence[TaggedSentence]) -> Iterator[str]:
    return (word for sentence in text for word in sentence.words)


def _three(parts: Iterable[Half]) -> Features:
    train, dev, test = parts
    return train, dev, test


def _matrix(text: CachedLayers, view: LayerChoice, dim: int) -> Half:
    """Gather one vector per word, (n_words, dim); float16, for all of them are held at once."""
    matrix = np.empty((text.n_tokens, dim), np.float16)
    row = 0
    for vectors in text.vectors(view):
        matrix[row : row + len(vectors)] = vectors[:, :dim]
        row += len(vectors)
    return matrix
