"""From scores to labels and their probabilities, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.tasks.data.tags import (
    FORBIDDEN,
    Scheme,
    names_fit,
    spans_from_tags,
    tag_rules,
    tags_from_spans,
)
from elmore.tasks.predictions import Classified, Tagged
from elmore.text.splitter import split_sentences

__all__ = [
    "best_path",
    "class_labels_fit",
    "classified",
    "cut_text",
    "softmax",
    "steps_of",
    "tagged",
]

Array = NDArray[np.float32]


# --------------------------------------------------------------------- from scores to labels


@dataclass(frozen=True, eq=False)
class Steps:
    """The scores of a step from tag to tag, (tags, tags), of the first and of the last, (tags,)."""

    between: Array
    first: Array
    last: Array


def steps_of(tags: Sequence[str], scheme: Scheme, transitions: Array | None = None) -> Steps:
    """What a scheme forbids, and the learned scores of steps, (tags, tags), if there are any."""
    between, first, last = (
        np.where(np.array(mask, bool), 0.0, FORBIDDEN).astype(np.float32)
        for mask in tag_rules(tags, scheme)
    )
    learned = 0.0 if transitions is None else np.asarray(transitions, np.float32)
    return Steps(learned + between, first, last)


def tagged(
    tokens: Sequence[str], scores: Array, tags: Sequence[str], steps: Steps | None
) -> Tagged:
    """Choose the tags of a sentence.

    Args:
        tokens: of the sentence.
        scores: of each tag for each token, (time, tags).
        tags: their names.
        steps: of a CRF, or None for a softmax.
    """
    if not len(tokens):
        return Tagged((), ())
    if steps is None:
        chances = softmax(scores)
        path = chances.argmax(1)
        names = tuple(tags[k] for k in path)
        return Tagged(tuple(tokens), names, (), _picked(chances, path))
    path, chances = best_path(scores, steps), _marginals(scores, steps)
    spans = spans_from_tags([tags[k] for k in path])
    names = tuple(tags_from_spans(spans, len(tokens), "IOB2"))
    return Tagged(tuple(tokens), names, spans, _picked(chances, path))


def _picked(chances: Array, path: NDArray[np.int64]) -> tuple[float, ...]:
    return tuple(chances[np.arange(len(path)), path].tolist())


def best_path(scores: Array, steps: Steps) -> NDArray[np.int64]:
    """The tags with the highest sum of scores (Viterbi), (time, tags) to (time,)."""
    if not len(scores):
        return np.zeros(0, np.int64)
    best = scores[0] + steps.first
    before = []
    for row in scores[1:]:
        paths = best[:, None] + steps.between
        before.append(paths.argmax(0))
        best = paths.max(0) + row
    path = [int((best + steps.last).argmax())]
    for row in reversed(before):
        path.append(int(row[path[-1]]))
    return np.array(path[::-1])


def _marginals(scores: Array, steps: Steps) -> Array:
    """The probability of each tag at each position, over all allowed paths, (time, tags)."""
    # Both directions at once, scaled at each position: a third of the time of sums of logarithms.
    # The floor keeps the sums above 0.
    here = np.exp(np.maximum(scores - scores.max(1, keepdims=True), -100), dtype=np.float64)
    moves = np.exp(np.stack([steps.between, steps.between.T]), dtype=np.float64)
    before = np.exp(np.stack([steps.first, steps.last]), dtype=np.float64)[:, None]
    both = np.stack([here, here[::-1]], axis=1)[:, :, None]  # (time, directions, 1, tags)
    chances = np.empty_like(both)
    for k, own in enumerate(both):
        before = before / np.add.reduce(before, axis=2, keepdims=True)
        chances[k] = before
        before = (before * own) @ moves
    found = chances[:, 0, 0] * chances[::-1, 1, 0] * here
    return np.asarray(found / found.sum(1, keepdims=True), np.float32)


def softmax(scores: Array) -> Array:
    """Probabilities from scores, over the last axis."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def class_labels_fit(labels: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether labels from a file are those of a classifier whose weights have these shapes."""
    if labels.get("kind") == "number":
        numbers = all(type(labels.get(key)) in (int, float) for key in ("mean", "scale"))
        return numbers and shapes.get("output.bias") == (1,)
    return labels.get("kind") in ("label", "labels") and names_fit(labels.get("classes"), shapes)


def classified(scores: Array, labels: Mapping[str, Any]) -> Classified:
    """Choose the label of a text from its scores, (outputs,); `labels` as `task.json` has them."""
    if labels["kind"] == "number":
        return Classified(float(scores[0] * labels["scale"] + labels["mean"]))
    names = labels["classes"]
    if labels["kind"] == "labels":
        chances = np.asarray(1 / (1 + np.exp(-scores)), np.float32)
        chosen = tuple(n for n, p in zip(names, chances, strict=True) if p >= 0.5)
        return Classified(chosen, dict(zip(names, chances.tolist(), strict=True)))
    chances = softmax(scores)
    return Classified(names[int(chances.argmax())], dict(zip(names, chances.tolist(), strict=True)))


def cut_text(
    text: str, split: Callable[[str], Sequence[str]], max_tokens: int
) -> tuple[tuple[str, ...], ...]:
    """The sentences of a text as tokens, up to a number of tokens in all."""
    found: list[tuple[str, ...]] = []
    left = max_tokens
    for sentence in split_sentences(text):
        tokens = tuple(split(sentence))[:left]
        left -= len(tokens)
        if tokens:
            found.append(tokens)
        if left <= 0:
            break
    return tuple(found)
