"""Grammar by minimal pairs (BLiMP, Warstadt et al. 2020): which of two sentences is likelier?

A file has one JSON object per line: `good`, `bad`, and optionally `task` and `phenomenon`. A pair
is right if the model gives the good sentence the higher log probability.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import SILENT, Progress
from elmore.elmo import Elmo
from elmore.errors import InputError
from elmore.language_model.predictions import LanguageModel
from elmore.language_model.scores import pipe_scores
from elmore.report import Report, Row
from elmore.text.reading import json_records

_DIRECTIONS = ("forward", "backward", "both")
# Pairs whose sentences are sorted by length together.
_AT_ONCE = 256


class Pair(NamedTuple):
    """A grammatical sentence and one that is not."""

    good: str
    bad: str
    task: str
    phenomenon: str


def read_pairs(path: Path) -> Iterator[Pair]:
    """Read minimal pairs.

    Raises:
        InputError: a line is not such a pair.
    """
    error = "not a minimal pair ({reason}); it needs good and bad"
    return (pair for _, pair in json_records(path, _pair, error))


def _pair(record: Any) -> Pair:
    task = record.get("task") or record.get("UID") or "pairs"
    phenomenon = record.get("phenomenon") or record.get("linguistics_term") or task
    good = record["good"] if "good" in record else record["sentence_good"]
    bad = record["bad"] if "bad" in record else record["sentence_bad"]
    pair = Pair(good, bad, task, phenomenon)
    if not all(isinstance(value, str) for value in pair):
        raise TypeError("a value is not a string")
    return pair


class Blimp:
    """Accuracy on minimal pairs, forward, backward and by the sum of both.

    Args:
        elmo: a model that has a softmax.
        limit: the first so many pairs of each task only.
        progress: counts pairs.

    Examples:
        >>> accuracy = Blimp(elmo).run("blimp.jsonl").metrics["both"]
    """

    def __init__(
        self, elmo: Elmo, *, limit: int | None = None, progress: Progress = SILENT
    ) -> None:
        self.elmo, self.limit, self.progress = elmo, limit, progress
        self._model = LanguageModel(elmo)

    def run(self, data: str | Path) -> Report:
        """Measure on a file."""
        right: dict[tuple[str, str], list[NDArray[np.bool_]]] = defaultdict(list)
        stream = self._limited(read_pairs(Path(data)))
        while pairs := list(islice(stream, _AT_ONCE)):
            for pair, found in zip(pairs, self.differences(pairs) > 0, strict=True):
                right[pair.phenomenon, pair.task].append(found)
            self.progress.update(len(pairs))
        if not right:
            raise InputError("there is no pair; is it the right file?", file=str(data))
        names = _DIRECTIONS if self._model.bidirectional else _DIRECTIONS[:1]
        tasks = {key: 100 * np.mean(found, axis=0) for key, found in right.items()}
        phenomena: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
        for (phenomenon, _), score in tasks.items():
            phenomena[phenomenon].append(score)
        every = np.mean(list(tasks.values()), axis=0)

        def row(first: Row, score: NDArray[np.float64]) -> Row:
            values = [round(float(value), 2) for value in score]
            return {**first, **dict(zip(names, values, strict=False))}

        return Report(
            name="blimp",
            metrics={name: round(float(v), 3) for name, v in zip(names, every, strict=False)},
            measured_on={
                "model": self.elmo.checkpoint.origin,
                "data": str(data),
                "pairs": sum(map(len, right.values())),
                "tasks": len(tasks),
            },
            tables={
                "by phenomenon": [
                    *(
                        row({"phenomenon": name, "tasks": len(scores)}, np.mean(scores, axis=0))
                        for name, scores in sorted(phenomena.items())
                    ),
                    row({"phenomenon": "mean over tasks", "tasks": len(tasks)}, every),
                ],
                "by task": [
                    row({"task": task, "pairs": len(right[name, task])}, score)
                    for (name, task), score in sorted(tasks.items(), key=lambda item: item[0][1])
                ],
            },
            notes=["per cent of pairs whose good sentence is likelier; chance is 50"],
        )

    def differences(self, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        """How much likelier good sentences are, in natural logarithms: forward, backward, sum.

        (n, 3), or (n, 1) for a model of one direction.
        """
        scores = list(pipe_scores(self.elmo, [text for pair in pairs for text in pair[:2]]))
        totals = [[score.forward_total, score.backward_total or 0.0] for score in scores]
        sums = np.array(totals).reshape(len(pairs), 2, 2)  # pair, sentence, direction
        difference = sums[:, 0] - sums[:, 1]
        if not self._model.bidirectional:
            return np.asarray(difference[:, :1])
        return np.concatenate([difference, difference.sum(axis=1, keepdims=True)], axis=1)

    def _limited(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        seen: dict[str, int] = defaultdict(int)
        for pair in pairs:
            seen[pair.task] += 1
            if self.limit is None or seen[pair.task] <= self.limit:
                yield pair
