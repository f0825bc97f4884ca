"""Word senses by nearest neighbours in each layer (paper §5.3, Table 5).

The vector of an instance is the mean over its tokens. Candidates are the senses of the same lemma
and part of speech seen in the training corpus: by their average vector, or by the one instance
that is nearest (both by cosine; ties go to the order of the dictionary). A lemma never seen takes
its first sense. Every instance is answered, so that F1 is accuracy.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore._messages import SILENT, Progress
from elmore.analysis.controls import random_twin
from elmore.analysis.probe import Views, layer_views
from elmore.analysis.wsd_data import Instance, WsdData, read_wsd
from elmore.embedding.cache_folder import cache_folder
from elmore.embedding.elmo import Elmo
from elmore.embedding.layer_cache import MAX_BYTES, LayerCache
from elmore.embedding.layers import LayerChoice, layer_weights
from elmore.tasks.task import Report, Row, Value
from elmore.text.word_vectors import WordVectors, read_word_vectors

__all__ = ["Wsd"]

_logger = logging.getLogger(__name__)
# The development set of Raganato et al.; the paper's figures are without it.
_DEVELOPMENT = "semeval2007"
_FIRST, _FREQUENT, _STATIC = "first sense", "most frequent sense", "static vectors"
_METHODS = ("sense averages", "nearest instance")
# Cosines that differ by less are ties: equal words have equal vectors in layer 0.
_DIGITS = 6
# Gives the vectors of tokens by sentence and position, (n, layers, dim).
Tokens = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]


class Wsd:
    """Nearest-neighbour disambiguation.

    Args:
        elmo: the model.
        layers: "all" (each layer and their mean), or a choice as in `Elmo.embed`.
        vectors: a file of static word vectors as a control.
        random: measure a biLM with random weights too.
        limit: learn from so many sentences of the training corpus only.
        seed: of the random weights.
        cache: a folder that keeps the layers for next time.
        max_bytes: what that folder may hold.
        progress: counts sentences.

    Examples:
        >>> f1 = Wsd(elmo).run("wsd/").metrics["ALL layer 2, sense averages"]
    """

    def __init__(
        self,
        elmo: Elmo,
        *,
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
        self.views = layer_views(layers, elmo.n_layers)
        self.vectors = vectors
        self.random = random
        self.limit = limit
        self.seed = seed
        self.cache = cache
        self.max_bytes = max_bytes
        self.progress = progress

    def run(self, data: str | Path) -> Report:
        """Disambiguate all test sets.

        Args:
            data: a folder with training corpus, test sets and inventory (see `wsd_data`).
        """
        static = None if self.vectors is None else read_word_vectors(Path(self.vectors))
        texts = read_wsd(Path(data), limit=self.limit)
        scorer = _Scorer(texts)
        rows = [
            scorer.row(_FIRST, None, scorer.first_sense()),
            scorer.row(_FREQUENT, None, scorer.frequent_sense()),
        ]
        # One text for all sets, in the order of the scorer's instances.
        asked = [s for text in texts.tests.values() for s in text.sentences]
        if static is not None:
            known = _static_tokens(static, texts.training.sentences)
            views: Views = [(_STATIC, 0)]
            answers = scorer.nearest(known, _static_tokens(static, asked), views)
            rows += [scorer.row(name, method, right) for (name, method), right in answers]
        models = [("", self.elmo)]
        if self.random:
            models.append(("random, ", random_twin(self.elmo, self.seed)))
        with cache_folder(self.cache) as folder:
            for prefix, elmo in models:
                cache = LayerCache(elmo, folder, max_bytes=self.max_bytes)
                learned = cache.layers(texts.training.sentences, progress=self.progress)
                tests = cache.layers(asked, progress=self.progress)
                answers = scorer.nearest(learned.tokens, tests.tokens, self.views)
                rows += [scorer.row(prefix + name, how, right) for (name, how), right in answers]
        return Report(
            name="wsd",
            metrics={
                f"{column} {_label(row)}": float(value)
                for row in rows
                for column, value in row.items()
                if column.startswith("ALL") and isinstance(value, int | float)
            },
            measured_on={
                "model": self.elmo.checkpoint.origin,
                "data": str(data),
                "training sentences": len(texts.training.sentences),
                "limit": self.limit,
                "instances": [
                    f"{name} {len(text.instances)}" for name, text in texts.tests.items()
                ],
                "choices": int(scorer.choice.sum()),
            },
            tables={"wsd": rows},
            notes=[
                "F1 in per cent; choices: accuracy on instances of ALL whose lemma was seen with "
                "two or more senses",
                "much of the score by nearest instance is the frequency of senses: compare it "
                "with the random weights",
            ],
        )


class _Scorer:
    """The test instances of all sets in one list, and what is known without vectors."""

    def __init__(self, texts: WsdData) -> None:
        self._senses = texts.senses
        self.instances: list[Instance] = []
        self.sets: dict[str, slice] = {}
        offset = 0
        for name, text in texts.tests.items():
            start = len(self.instances)
            for one in text.instances:
                moved = Instance(one.sentence + offset, one.start, one.end, one.lemma, one.senses)
                self.instances.append(moved)
            offset += len(text.sentences)
            self.sets[name] = slice(start, len(self.instances))
        self.places: dict[str, list[int]] = defaultdict(list)
        for place, instance in enumerate(self.instances):
            self.places[instance.lemma].append(place)
        self.seen: dict[str, list[Instance]] = defaultdict(list)
        for instance in texts.training.instances:
            self.seen[instance.lemma].append(instance)
        several = {lemma for lemma in self.seen if len(self.candidates(lemma)) > 1}
        self.choice = np.array([instance.lemma in several for instance in self.instances])

    def candidates(self, lemma: str) -> list[str]:
        """Give the senses of a lemma that were seen, in the order of the dictionary."""
        order = {key: rank for rank, key in enumerate(self._senses[lemma])}
        keys = {key for instance in self.seen.get(lemma, ()) for key in instance.senses}
        return sorted(keys, key=lambda key: (order.get(key, len(order)), key))

    def first_sense(self) -> NDArray[np.bool_]:
        """Answer by the dictionary alone."""
        return np.array([self._senses[one.lemma][0] in one.senses for one in self.instances])

    def frequent_sense(self) -> NDArray[np.bool_]:
        """Answer by the sense seen most often, ties and unseen lemmas by the dictionary."""
        usual = {}
        for lemma in self.places:
            counts = Counter(key for one in self.seen.get(lemma, ()) for key in one.senses)
            usual[lemma] = max(self._senses[lemma], key=lambda key, c=counts: c[key])  # type: ignore[misc]  # mypy cannot infer a default
        return np.array([usual[one.lemma] in one.senses for one in self.instances])

    def nearest(
        self, known: Tokens, asked: Tokens, views: Views
    ) -> Iterator[tuple[tuple[str, str], NDArray[np.bool_]]]:
        """Answer every test instance by each view and method.

        Args:
            known: tokens of the training corpus.
            asked: tokens of the test sets, one after the other.
            views: the layers to go by.

        Yields:
            (view, method) and whether each answer is right, (n_instances,).
        """
        right = {(name, method): self.first_sense() for name, _ in views for method in _METHODS}
        for lemma, places in self.places.items():
            seen = self.seen.get(lemma)
            if not seen:
                continue  # the first sense stands
            candidates = self.candidates(lemma)
            chosen = _choose(
                _spans(known, seen),
                _spans(asked, [self.instances[place] for place in places]),
                [[candidates.index(key) for key in instance.senses] for instance in seen],
                len(candidates),
                views,
            )
            for name, method, senses in chosen:
                for place, sense in zip(places, senses, strict=True):
                    gold = self.instances[place].senses
                    right[name, method][place] = candidates[sense] in gold
        yield from right.items()

    def row(self, vectors: str, method: str | None, right: NDArray[np.bool_]) -> Row:
        """Score answers on every set and on all."""
        row: dict[str, Value] = {"vectors": vectors, "method": method}
        row |= {name: _percent(right[place]) for name, place in self.sets.items()}
        row["ALL"] = _percent(right)
        if _DEVELOPMENT in self.sets and len(self.sets) > 1:
            others = np.ones(len(right), bool)
            others[self.sets[_DEVELOPMENT]] = False
            row[f"ALL but {_DEVELOPMENT}"] = _percent(right[others])
        row["choices"] = _percent(right[self.choice])
        return row


def _label(row: Row) -> str:
    return str(row["vectors"]) if row["method"] is None else f"{row['vectors']}, {row['method']}"


def _percent(right: NDArray[np.bool_]) -> float | None:
    return round(100 * float(right.mean()), 3) if len(right) else None


def _static_tokens(vectors: WordVectors, sentences: Sequence[Sequence[str]]) -> Tokens:
    def tokens(numbers: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.float32]:
        words = [sentences[s][t] for s, t in zip(numbers, positions, strict=True)]
        return vectors.take(words)[:, None]

    return tokens


def _spans(tokens_at: Tokens, instances: Sequence[Instance]) -> NDArray[np.float32]:
    """Give the mean over the tokens of each instance, (n, layers, dim)."""
    lengths = np.array([one.end - one.start for one in instances])
    starts = np.cumsum(lengths) - lengths
    sentences = np.repeat([one.sentence for one in instances], lengths)
    inside = np.arange(len(sentences)) - np.repeat(starts, lengths)
    positions = np.repeat([one.start for one in instances], lengths) + inside
    tokens = tokens_at(sentences, positions)
    if len(tokens) == len(instances):
        return tokens
    sums = np.add.reduceat(tokens, starts, axis=0)
    return np.asarray(sums / lengths[:, None, None].astype(np.float32))


def _choose(
    seen: NDArray[np.float32],
    asked: NDArray[np.float32],
    senses: Sequence[Sequence[int]],
    n_senses: int,
    views: Views,
) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Choose a sense for each instance of one lemma.

    Args:
        seen: training instances, (n, layers, dim).
        asked: test instances, (m, layers, dim).
        senses: numbers of the senses of each training instance.
        n_senses: how many senses were seen.
        views: the layers to go by.

    Yields:
        name of the view, method, and the chosen senses, (m,).
    """
    ranks = np.array([min(mine) for mine in senses])
    order = np.argsort(ranks, kind="stable")  # among equally near instances the first sense wins
    member = np.zeros((n_senses, len(senses)))
    for place, mine in enumerate(senses):
        member[list(mine), place] = 1
    member /= member.sum(1, keepdims=True)
    for name, view in views:
        weights = layer_weights(view, seen.shape[1]).astype(np.float64)
        known = np.einsum("l,nld->nd", weights, seen)
        queries = _unit(np.einsum("l,nld->nd", weights, asked))
        near = np.round(queries @ _unit(member @ known).T, _DIGITS)
        yield name, _METHODS[0], near.argmax(1)
        near = np.round(queries @ _unit(known[order]).T, _DIGITS)
        yield name, _METHODS[1], ranks[order[near.argmax(1)]]


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms == 0, 1, norms))
