"""SQuAD: paragraphs, questions and answers in one JSON document, answers as character offsets."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmore._io import open_text
from elmore._json import parse_json
from elmore.errors import FormatError, InputError
from elmore.limits import LIMITS
from elmore.text.splitter import sentence_spans
from elmore.text.tokenizer import Convention, tokenize

__all__ = ["Paragraph", "Question", "read_squad", "split_paragraph"]

# The official training file has 30 MB and 400,000 values.
_LIMITS = dataclasses.replace(LIMITS, json_bytes=1 << 30, json_nodes=50_000_000)


@dataclass(frozen=True)
class Paragraph:
    """A text and its tokens with their places in it.

    Attributes:
        text: as it was written.
        tokens: of all its sentences.
        places: first character of each token and the one after its last.
        sizes: tokens of each sentence.
    """

    text: str
    tokens: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]

    @property
    def sentences(self) -> list[tuple[str, ...]]:
        """The tokens, sentence by sentence."""
        ends = itertools.accumulate(self.sizes)
        return [self.tokens[end - size : end] for size, end in zip(self.sizes, ends, strict=True)]

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """Give first and last token that overlap characters start to end, or None."""
        inside = [k for k, (a, b) in enumerate(self.places) if a < end and b > start]
        return (inside[0], inside[-1]) if inside else None


@dataclass(frozen=True)
class Question:
    """A question on a paragraph.

    Attributes:
        id: its name in the file.
        paragraph: where the answer stands.
        tokens: of the question.
        answers: texts that count as right.
        starts: where each stands in the paragraph.
    """

    id: str
    paragraph: Paragraph
    tokens: tuple[str, ...]
    answers: tuple[str, ...]
    starts: tuple[int, ...]


def split_paragraph(text: str, convention: Convention = "ptb") -> Paragraph:
    """Tokenize running text sentence by sentence, with places in the whole."""
    tokens: list[str] = []
    places: list[tuple[int, int]] = []
    sizes: list[int] = []
    for start, end in sentence_spans(text):
        sentence = tokenize(text[start:end], convention)
        tokens += sentence.tokens
        sizes.append(len(sentence.tokens))
        places += [(start + a, start + b) for a, b in sentence.spans or ()]
    return Paragraph(text, tuple(tokens), tuple(places), tuple(sizes))


def read_squad(path: Path) -> Iterator[Question]:
    """Read a file of SQuAD 1.1, plain or packed.

    Raises:
        InputError: it is not of that form; says where in the document.
    """
    with open_text(path, what="SQuAD file") as stream:
        data = stream.read(_LIMITS.json_bytes + 1)
    try:
        whole = parse_json(data, what=f"'{path}'", limits=_LIMITS)
    except FormatError as error:
        raise InputError(f"{error} (is this SQuAD 1.1, one JSON document?)") from None

    def wrong(where: str, expected: str) -> InputError:
        return InputError(f"{where} is no {expected}; is this SQuAD 1.1?", file=str(path))

    def get(parent: Any, key: str, kind: type, where: str) -> Any:
        value = parent.get(key) if isinstance(parent, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise wrong(f"{where}.{key}", {list: "list", str: "text", int: "number"}[kind])
        return value

    for i, article in enumerate(get(whole, "data", list, "")):
        for j, entry in enumerate(get(article, "paragraphs", list, f"data[{i}]")):
            where = f"data[{i}].paragraphs[{j}]"
            text = get(entry, "context", str, where)
            paragraph = split_paragraph(text)
            for k, question in enumerate(get(entry, "qas", list, where)):
                place = f"{where}.qas[{k}]"
                answers = [
                    (get(answer, "text", str, place), get(answer, "answer_start", int, place))
                    for answer in get(question, "answers", list, place)
                ]
                yield Question(
                    id=get(question, "id", str, place),
                    paragraph=paragraph,
                    tokens=tokenize(get(question, "question", str, place)).tokens,
                    answers=tuple(answer for answer, _ in answers),
                    starts=tuple(start for _, start in answers),
                )
