"""Predictions: the interface of all predictors, from scores to labels, and how labels are printed.

Nothing here needs torch.
"""

from __future__ import annotations

import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import printable
from elmore.embedding.inputs import check_listed
from elmore.errors import ConfigError
from elmore.tasks.data.tags import (
    Scheme,
    Span,
    are_names,
    are_tags,
    may_follow,
    spans_from_tags,
    split_tags,
    tags_from_spans,
)
from elmore.text.splitter import split_sentences

Array = NDArray[np.float32]
Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

# What a forbidden step costs: any path without one is better, and sums of it stay finite.
FORBIDDEN = -1e4
# Distinct on dark and on light ground; a label keeps its colour within a line.
_COLOURS = (34, 32, 35, 36, 33, 31)
# Characters of a text that are shown after its label.
_START = 100


class Predictor(ABC, Generic[Example, Prediction]):
    """A trained model: `Task` (torch) or `Light` (numpy); `elmore.tasks.load` gives one.

    For single predictions call `predict` or `pipe`. To print them, call `lines`, which takes the
    same items: sentences, or what `items` makes of the lines of a text file. For a table, call
    `elmore.tasks.label_table`, which keeps the columns and adds the labels.
    """

    name: ClassVar[str]  # of the task
    formats: ClassVar[tuple[str, ...]] = ("text", "jsonl")  # what `lines` can write
    labels: Mapping[str, Any]  # what it tells apart, as task.json has it

    def predict(self, items: Iterable[Any]) -> list[Prediction]:
        """Predict on new text: sentences or their tokens, or what `takes` of the task says.

        Examples:
            >>> import elmore
            >>> elmore.tagger("pos").predict(["Ada lives in Rome."])[0].tags
            ('PROPN+NNP', 'VERB+VBZ', 'ADP+IN', 'PROPN+NNP', 'PUNCT+.')
        """
        return list(self.pipe(items))

    def pipe(self, items: Iterable[Any]) -> Iterator[Prediction]:
        """Predict on a stream: lazy, in order, in bounded memory."""
        if isinstance(items, str):
            raise ConfigError(f"{self.name} takes a list; put the text in brackets")
        check_listed(items, "texts")
        return (found for _, found in self.answers(items))

    def lines(
        self, items: Iterable[Any], format: str = "text", *, colour: bool = False
    ) -> Iterator[str]:
        """Predict on a stream and print: one record per item, to be ended by a line feed.

        Args:
            items: as in `predict`.
            format: one of `formats`: "text" to read, "jsonl", or "conll" (one token per line).
            colour: whether labels are coloured in "text".
        """
        if format not in self.formats:
            raise ConfigError(f"{self.name} writes {', '.join(self.formats)}, not {format!r}")
        for example, found in self.answers(items):
            if format == "jsonl":
                yield json.dumps(self.to_json(example, found), ensure_ascii=False)
            elif format == "conll":
                yield self.conll(found)
            else:
                yield self.show(example, found, colour=colour)

    @abstractmethod
    def labels_fit(self, labels: Mapping[str, Any]) -> bool:
        """Whether labels from a file are those of such a model."""

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        """Turn numbered lines of a file into what `predict` takes: by default one item per line."""
        return (line for _, line in lines)

    @abstractmethod
    def answers(self, items: Iterable[Any]) -> Iterator[tuple[Example, Prediction]]:
        """Predict on a stream: what the model read of each item, and what it found."""

    @abstractmethod
    def show(self, example: Example, found: Prediction, *, colour: bool) -> str:
        """Render a prediction for a terminal."""

    @abstractmethod
    def to_json(self, example: Example, found: Prediction) -> dict[str, Any]:
        """A prediction as JSON values."""

    def conll(self, found: Prediction) -> str:
        """A prediction as one token per line with its tags, of taggers."""
        raise ConfigError(f"{self.name} has no tags")


# --------------------------------------------------------------------- labels


@dataclass(frozen=True)
class Tagged:
    """A sentence and its tags."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]  # one per token; IOB2 where they mark spans
    spans: tuple[Span, ...] = ()  # what the tags mark, or nothing
    # how likely each tag is, by the model
    probabilities: tuple[float, ...] = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "tokens": list(self.tokens),
            "tags": list(self.tags),
            "probabilities": [round(chance, 4) for chance in self.probabilities],
            "spans": [
                {**span._asdict(), "text": " ".join(self.tokens[span.first : span.last + 1])}
                for span in self.spans
            ],
        }

    def cells(self) -> tuple[str, str]:
        """The columns `tokens` and `tags` of a table."""
        return " ".join(self.tokens), " ".join(self.tags)


@dataclass(frozen=True)
class Classified:
    """What a text was classified as: a label, several labels, or a number."""

    label: str | tuple[str, ...] | float
    # of each label, by the model; none for a number
    probabilities: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        chances = {name: round(chance, 4) for name, chance in self.probabilities.items()}
        return {"label": label, "probabilities": chances}

    def cells(self) -> tuple[str, str]:
        """The columns `label` and `probability` of a table."""
        if isinstance(self.label, float):
            return f"{self.label:g}", ""
        names = (self.label,) if isinstance(self.label, str) else self.label
        return ",".join(names), ",".join(f"{self.probabilities[name]:.4f}" for name in names)


# --------------------------------------------------------------------- from scores to labels


@dataclass(frozen=True, eq=False)
class Steps:
    """The scores of a step from tag to tag, (tags, tags), of the first and of the last, (tags,)."""

    between: Array
    first: Array
    last: Array


def steps_of(tags: Sequence[str], scheme: Scheme, transitions: Array | None = None) -> Steps:
    """What a scheme forbids, and the learned scores of steps, (tags, tags), if there are any."""

    def cost(before: Sequence[str], after: Sequence[str]) -> Array:
        allowed = [[may_follow(b, a, scheme) for b in after] for a in before]
        return np.where(np.array(allowed, bool), 0.0, FORBIDDEN).astype(np.float32)

    learned = 0.0 if transitions is None else np.asarray(transitions, np.float32)
    return Steps(learned + cost(tags, tags), cost("O", tags)[0], cost(tags, "O")[:, 0])


def tagged(
    tokens: Sequence[str], scores: Array, tags: Sequence[str], steps: Steps | None
) -> Tagged:
    """Choose the tags of a sentence by scores, (time, tags), and by the steps of a CRF, if any."""
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


# --------------------------------------------------------------------- lines for a terminal


def paint(text: str, label: str, *, colour: bool) -> str:
    """Give a text the colour of a label."""
    which = sum(map(ord, label)) % len(_COLOURS)
    return f"\x1b[1;{_COLOURS[which]}m{text}\x1b[0m" if colour else text


def mark_spans(tokens: Sequence[str], spans: Iterable[Span], *, colour: bool) -> str:
    """Put labelled brackets around spans that do not overlap: `[PER Ada Lovelace] wrote`."""
    words = [printable(token) for token in tokens]
    for label, first, last in spans:
        inside = " ".join(words[first : last + 1])
        words[first] = paint(f"[{printable(label)} {inside}]", label, colour=colour)
        words[first + 1 : last + 1] = [""] * (last - first)
    return " ".join(word for word in words if word)


class TagPredictor(Predictor[Example, Tagged]):
    """A trained tagger: how its tags are printed."""

    formats = ("text", "jsonl", "conll")

    def labels_fit(self, labels: Mapping[str, Any]) -> bool:
        kind, tags = labels.get("kind"), labels.get("tags")
        return are_tags(tags, "BIOUL") if kind == "spans" else kind == "tags" and are_names(tags)

    @property
    def tags(self) -> list[str]:
        """All tags that it tells apart."""
        return list(self.labels["tags"])

    @property
    def marks_spans(self) -> bool:
        """Whether its tags mark spans."""
        return bool(self.labels.get("kind") == "spans")

    @property
    def tag_parts(self) -> Mapping[str, Sequence[str]]:
        """The parts of each tag, such as NOUN and NN of NOUN+NN; nothing where tags mark spans."""
        return {} if self.marks_spans else split_tags(self.labels["tags"])

    def show(self, example: Example, found: Tagged, *, colour: bool) -> str:
        """Brackets around spans; else a line per token: parts of its tag, and its probability."""
        parts = self.tag_parts
        if not parts:
            return mark_spans(found.tokens, found.spans, colour=colour)
        words = [printable(token) for token in found.tokens]
        named = [parts[tag] for tag in found.tags]
        wide = max((_width(word) for word in words), default=0)
        widths = [max(map(len, column)) for column in zip(*named, strict=True)]
        lines = []
        for word, part, chance in zip(words, named, found.probabilities, strict=True):
            cells = "  ".join(printable(p).ljust(w) for p, w in zip(part, widths, strict=True))
            painted = paint(cells, part[0], colour=colour)
            lines.append(f"{word}{' ' * (wide - _width(word))}  {painted}  {chance:.2f}")
        return "\n".join([*lines, ""])

    def to_json(self, example: Example, found: Tagged) -> dict[str, Any]:
        return found.to_json()

    def conll(self, found: Tagged) -> str:
        """One token per line with its tags, separated by tabs; a blank line ends the sentence."""
        parts = self.tag_parts
        rows = (
            "\t".join([token.replace("\t", " "), *parts.get(tag, (tag,))])
            for token, tag in zip(found.tokens, found.tags, strict=True)
        )
        return "\n".join([*rows, ""])


class ClassPredictor(Predictor[Example, Classified]):
    """A trained classifier: how its labels are printed."""

    def labels_fit(self, labels: Mapping[str, Any]) -> bool:
        if not isinstance(labels.get("separator", ""), str):
            return False
        if labels.get("kind") == "number":
            return all(type(labels.get(key)) in (int, float) for key in ("mean", "scale"))
        return labels.get("kind") in ("label", "labels") and are_names(labels.get("classes"))

    @property
    def classes(self) -> list[str]:
        """All labels that it tells apart; none for a number."""
        return list(self.labels.get("classes", ()))

    @abstractmethod
    def text_of(self, example: Example) -> str:
        """What is printed of an example."""

    def show(self, example: Example, found: Classified, *, colour: bool) -> str:
        """The label, its probability and the start of the text."""
        label, chances, text = found.label, found.probabilities, self.text_of(example)
        if isinstance(label, float):
            named, chance = f"{label:10.3f}", ""
        else:
            names = (label,) if isinstance(label, str) else label
            wide = max((len(name) for name in chances), default=0)
            shown = printable(", ".join(names)) or "-"
            named = paint(shown.rjust(wide), shown, colour=colour)
            chance = " ".join(f"{chances[name]:.2f}" for name in names if name in chances)
        start = text if len(text) <= _START else f"{text[: _START - 1]}…"
        return f"{named}  {chance:4}  {printable(start)}".rstrip()

    def to_json(self, example: Example, found: Classified) -> dict[str, Any]:
        return {"text": self.text_of(example), **found.to_json()}


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)
