"""Lexical substitution (SemEval-2007 task 10): which words could replace a word?

A file has one JSON object per line: `lemma`, `tokens`, `index`, `gold` (substitute to the number
of people who gave it) and `candidates`. Candidates are ranked and scored by generalised average
precision (GAP, Kishida 2005) and by the share of first-ranked words that somebody gave. Candidates
and answers of several words are left out; candidates outside the vocabulary are ranked last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import SILENT, Progress
from elmore.elmo import Elmo
from elmore.errors import InputError
from elmore.language_model.sense_vectors import SubstituteSpace
from elmore.report import Report
from elmore.text.reading import json_records
from elmore.text.tokenizer import Sentence


class SubstitutionItem(NamedTuple):
    """A word in a sentence, and what people would put in its place."""

    lemma: str
    sentence: Sentence
    position: int
    gold: dict[str, float]
    candidates: tuple[str, ...]


def read_items(path: Path) -> Iterator[SubstitutionItem]:
    """Read items that have a gold substitute of one word.

    Raises:
        InputError: a line is not such an item.
    """
    error = "not an item of lexical substitution ({reason})"
    return (item for _, item in json_records(path, _item, error) if item.gold)


def _item(record: Any) -> SubstitutionItem:
    item = SubstitutionItem(
        record["lemma"],
        Sentence(tuple(record["tokens"])),
        record["index"],
        {word: float(n) for word, n in record["gold"].items() if _single(word)},
        tuple(word for word in record["candidates"] if _single(word)),
    )
    if not 0 <= item.position < len(item.sentence):
        raise ValueError(f"index {item.position} of {len(item.sentence)} tokens")
    if not all(isinstance(token, str) for token in (*item.sentence.tokens, item.lemma)):
        raise TypeError("a token is not a string")
    return item


def gap(ranked: Sequence[float], gold: Sequence[float]) -> float:
    """Generalised average precision: 1 if the ranking is ideal.

    Args:
        ranked: gold weights of the candidates in the order of the ranking, 0 for a wrong one.
        gold: all gold weights.
    """

    def precisions(weights: Sequence[float]) -> float:
        means = np.cumsum(weights) / np.arange(1, len(weights) + 1)
        return float(means[np.asarray(weights) > 0].sum())

    return precisions(ranked) / precisions(sorted(gold, reverse=True))


class LexicalSubstitution:
    """Rank substitutes by the model's predictions.

    Args:
        elmo: a model that has a softmax.
        limit: the first so many items only.
        progress: counts items.

    Examples:
        >>> score = LexicalSubstitution(elmo).run("lexsub.jsonl").metrics["GAP place"]
    """

    def __init__(
        self, elmo: Elmo, *, limit: int | None = None, progress: Progress = SILENT
    ) -> None:
        self.elmo, self.limit, self.progress = elmo, limit, progress
        self._space = SubstituteSpace(elmo)

    def run(self, data: str | Path) -> Report:
        """Measure on a file."""
        items = list(read_items(Path(data)))[: self.limit]
        if not items:
            raise InputError("there is no item; is it the right file?", file=str(data))
        scores: dict[str, list[tuple[float, bool]]] = {}
        for item in items:
            mine = self._ids(item.candidates)
            word, place = self._word(item), (item.sentence, item.position)
            ways = {
                "word": self._space.likeness(word, mine),
                "place": self._space.values(place, mine),
                "place and word": self._space.substitution(place, word, mine),
            }
            for name, value in ways.items():
                # A word that the vocabulary lacks has the id -1, which picked the last word's
                # value.
                known = np.where(mine < 0, -np.inf, value)
                ranked = [
                    item.gold.get(item.candidates[k], 0.0)
                    for k in np.argsort(-known, kind="stable")
                ]
                right = bool(ranked) and ranked[0] > 0
                scores.setdefault(name, []).append((gap(ranked, [*item.gold.values()]), right))
            self.progress.update(1)
        means = {name: 100 * np.mean(found, axis=0) for name, found in scores.items()}
        return Report(
            name="substitutes",
            metrics={
                f"{metric} {name}": round(float(value), 3)
                for name, pair in means.items()
                for metric, value in zip(("GAP", "P@1"), pair, strict=True)
            },
            measured_on={
                "model": self.elmo.checkpoint.origin,
                "data": str(data),
                "items": len(items),
            },
            tables={
                "substitutes": [
                    {"ranked by": name, "GAP": round(float(g), 2), "P@1": round(float(p), 2)}
                    for name, (g, p) in means.items()
                ]
            },
            notes=[
                "word: cosine of candidate and word, without the sentence; place: probability in "
                "the sentence; place and word: both"
            ],
        )

    def _ids(self, candidates: Sequence[str]) -> NDArray[np.int64]:
        found = (self._space.find(word) for word in candidates)
        return np.array([-1 if k is None else k for k in found], np.int64)

    def _word(self, item: SubstitutionItem) -> int | None:
        word = self._space.find(item.sentence.tokens[item.position])
        return self._space.find(item.lemma.partition(".")[0]) if word is None else word


def _single(word: str) -> bool:
    return " " not in word
