"""Predictions: what a label looks like, how it is printed, and the interface of all predictors."""

from __future__ import annotations

import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from elmore.base.messages import printable
from elmore.embedding.inputs import check_listed
from elmore.errors import ConfigError
from elmore.tasks.data.tags import Span, spans_to_json

__all__ = [
    "Classified",
    "Predictor",
    "Tagged",
    "class_line",
    "conll_lines",
    "mark_spans",
    "paint",
    "show_tagged",
]

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

# Distinct on dark and on light ground; a label keeps its colour within a line.
_COLOURS = (34, 32, 35, 36, 33, 31)
# Characters of a text that are shown after its label.
_START = 100


class Predictor(ABC, Generic[Example, Prediction]):
    """A trained model: `Task` (torch) or `Light` (numpy); `elmore.tasks.load` gives one.

    For single predictions call `predict` or `pipe`. To print them, call `lines`, which takes the
    same items: sentences, or what `items` makes of the lines of a text file. For a table, call
    `elmore.tasks.label_table`, which keeps the columns and adds the labels.

    Attributes:
        name: of the task.
        formats: what `lines` can write.
    """

    name: ClassVar[str]
    formats: ClassVar[tuple[str, ...]] = ("text", "jsonl")

    def predict(self, items: Iterable[Any]) -> list[Prediction]:
        """Predict on new text: sentences or their tokens, or what `parse` of the task says.

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

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        """Turn numbered lines of text into what `predict` takes: by default one item per line.

        Args:
            lines: of a text file.
            file: its name for messages.
        """
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
    """A sentence and its tags.

    Attributes:
        tokens: of the sentence.
        tags: one per token; IOB2 where they mark spans.
        spans: what the tags mark, or nothing.
        probabilities: how likely each tag is, by the model.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    spans: tuple[Span, ...] = ()
    probabilities: tuple[float, ...] = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "tokens": list(self.tokens),
            "tags": list(self.tags),
            "probabilities": [round(chance, 4) for chance in self.probabilities],
            "spans": spans_to_json(self.spans, self.tokens),
        }


@dataclass(frozen=True)
class Classified:
    """What a text was classified as.

    Attributes:
        label: a label, a tuple of labels, or a number.
        probabilities: of each label, by the model; none for a number.
    """

    label: str | tuple[str, ...] | float
    probabilities: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        chances = {name: round(chance, 4) for name, chance in self.probabilities.items()}
        return {"label": label, "probabilities": chances}


# --------------------------------------------------------------------- lines for a terminal


def paint(text: str, which: int, *, colour: bool) -> str:
    """Colour a text by a number."""
    return f"\x1b[1;{_COLOURS[which % len(_COLOURS)]}m{text}\x1b[0m" if colour else text


def mark_spans(tokens: Sequence[str], spans: Iterable[Span], *, colour: bool) -> str:
    """Put labelled brackets around spans that do not overlap: `[PER Ada Lovelace] wrote`."""
    words = [printable(token) for token in tokens]
    labels: dict[str, int] = {}
    for label, first, last in spans:
        which = labels.setdefault(label, sum(map(ord, label)))
        label = printable(label)
        inside = " ".join(words[first : last + 1])
        words[first] = paint(f"[{label} {inside}]", which, colour=colour)
        words[first + 1 : last + 1] = [""] * (last - first)
    return " ".join(word for word in words if word)


def show_tagged(found: Tagged, parts: Mapping[str, Sequence[str]], *, colour: bool) -> str:
    """Brackets around spans; else one token, the parts of its tag and its probability per line.

    Args:
        found: the tags of a sentence.
        parts: of each tag, as `split_tags` gives them; nothing where tags mark spans.
        colour: whether labels are coloured.
    """
    if not parts:
        return mark_spans(found.tokens, found.spans, colour=colour)
    words = [printable(token) for token in found.tokens]
    named = [parts[tag] for tag in found.tags]
    wide = max((_width(word) for word in words), default=0)
    widths = [max(map(len, column)) for column in zip(*named, strict=True)]
    lines = []
    for word, part, chance in zip(words, named, found.probabilities, strict=True):
        cells = "  ".join(printable(name).ljust(w) for name, w in zip(part, widths, strict=True))
        painted = paint(cells, sum(map(ord, part[0])), colour=colour)
        lines.append(f"{word}{' ' * (wide - _width(word))}  {painted}  {chance:.2f}")
    return "\n".join([*lines, ""])


def conll_lines(found: Tagged, parts: Mapping[str, Sequence[str]]) -> str:
    """One token per line with its tags, separated by tabs; a blank line follows the sentence."""
    rows = (
        "\t".join([token.replace("\t", " "), *parts.get(tag, (tag,))])
        for token, tag in zip(found.tokens, found.tags, strict=True)
    )
    return "\n".join([*rows, ""])


def class_line(found: Classified, text: str, *, colour: bool) -> str:
    """The label, its probability and the start of the text."""
    label, chances = found.label, found.probabilities
    if isinstance(label, float):
        named, chance = f"{label:10.3f}", ""
    else:
        names = (label,) if isinstance(label, str) else label
        wide = max((len(name) for name in chances), default=0)
        shown = printable(", ".join(names)) or "-"
        named = paint(shown.rjust(wide), sum(map(ord, shown)), colour=colour)
        chance = " ".join(f"{chances[name]:.2f}" for name in names if name in chances)
    start = text if len(text) <= _START else f"{text[: _START - 1]}…"
    return f"{named}  {chance:4}  {printable(start)}".rstrip()


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)
