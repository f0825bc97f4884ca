"""Question answering: BiDAF with self-attention (Clark & Gardner 2017; supplement A.4).

The answer is a span of the paragraph, at most 17 tokens, cut out of the original text by its
offsets. A question whose answer is not in the paragraph is scored, but not learned from.
"""

from __future__ import annotations

import functools
import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from elmore.base.io import open_text
from elmore.base.json import BelowOne, Count, parse_json
from elmore.base.messages import shown
from elmore.errors import FormatError, InputError
from elmore.report import Report
from elmore.tasks.data.columns import split_pairs
from elmore.tasks.encoders import (
    BiGru,
    BiLstm,
    Trilinear,
    VariationalDropout,
    masked_softmax,
    start_linear,
)
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.predictions import mark_spans, paint
from elmore.tasks.task import Task
from elmore.text.splitter import sentence_spans
from elmore.text.tokenizer import Convention, tokenize

# The longest answer that is considered, in tokens.
_MAX_TOKENS = 17
# Score of impossible places: it loses against any other and stays finite in sums.
_NEVER = -1e7
# The official training file has 30 MB and 400,000 values.
_FILE_BYTES = 1 << 30
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Paragraph:
    """A text and its tokens with their places in it."""

    text: str  # as it was written
    sentences: tuple[tuple[str, ...], ...]  # their tokens
    places: tuple[tuple[int, int], ...]  # first character of each token, and the one after its last

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:
        """Those of all sentences."""
        return tuple(itertools.chain(*self.sentences))

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last token that overlap characters start to end, or None."""
        inside = [k for k, (a, b) in enumerate(self.places) if a < end and b > start]
        return (inside[0], inside[-1]) if inside else None


@dataclass(frozen=True)
class QaExample:
    """A question on a paragraph."""

    paragraph: Paragraph  # where the answer is sought
    question: tuple[str, ...]  # its tokens
    answers: tuple[str, ...] = ()  # texts that count as right
    span: tuple[int, int] | None = None  # first and last token of the answer to learn
    id: str = ""  # name of the question


@dataclass(frozen=True, kw_only=True)
class QaSizes:
    """The section `model`."""

    # "gru" as published, or "lstm", which our kernel runs twice as fast
    rnn: Literal["gru", "lstm"]
    dim: Count  # units of each direction of all of them
    dropout: BelowOne  # variational, around them
    # whether the biLM reads a paragraph sentence by sentence, which suits one that was trained so;
    # the published ones read it as one sequence
    by_sentence: bool


class Qa(Task[QaExample, str]):
    """Answer a question by a span of a paragraph.

    Examples:
        >>> model = Qa(elmo, seed=0)
        >>> report = model.fit("train-v1.1.json", dev="dev-v1.1.json")
        >>> model.predict([("Where is the tower ?", "The tower stands in Paris, France.")])
        ['Paris']
    """

    name = "qa"
    metric = "f1"
    sizes = QaSizes
    example = QaExample
    reads = "SQuAD 1.1"
    takes = "a pair (question, paragraph) of texts"
    left_out = "longer than data.max_length or without an answer at its place in the text"

    def read(self, path: Path) -> Iterator[QaExample]:
        return read_squad(path)

    def for_training(self, examples: list[QaExample]) -> list[QaExample]:
        """Leave out questions whose answer is not where the file says."""
        return [example for example in super().for_training(examples) if example.span is not None]

    def texts(self, example: QaExample) -> Sequence[Sequence[str]]:
        """The paragraph, as one text or in sentences, and the question."""
        return (*self._parts(example.paragraph), example.question)

    def length(self, example: QaExample) -> int:
        return max(len(example.paragraph.tokens), len(example.question))

    def build(self, features: TokenFeatures) -> Network:
        return _QaNetwork(features, self.recipe.model)

    def loss(self, examples: Sequence[QaExample]) -> Tensor:
        """The mean cross-entropy of start plus that of end."""
        start, end, _ = self._scores(examples)
        gold = torch.tensor([e.span or (0, 0) for e in examples], device=start.device)
        return nn.functional.cross_entropy(start, gold[:, 0]) + nn.functional.cross_entropy(
            end, gold[:, 1]
        )

    def guess(self, examples: Sequence[QaExample]) -> list[str]:
        """The best span of at most 17 tokens."""
        start, end, lengths = self._scores(examples)
        # Only the ends that each start may have, (batch, time, 17): all pairs take too much memory.
        ends = nn.functional.pad(end, (0, _MAX_TOKENS - 1), value=-torch.inf)
        pairs = start[:, :, None] + ends.unfold(1, _MAX_TOKENS, 1)
        best = pairs.flatten(1).argmax(1).tolist()
        found = []
        for example, place, length in zip(examples, best, lengths.tolist(), strict=True):
            places = example.paragraph.places
            if length:
                first, more = divmod(place, _MAX_TOKENS)
                found.append(example.paragraph.text[places[first][0] : places[first + more][1]])
            else:
                found.append("")
        return found

    def _scores(self, examples: Sequence[QaExample]) -> tuple[Tensor, Tensor, Tensor]:
        paragraphs = self.index.batch(
            [example.paragraph.tokens for example in examples],
            [self._parts(example.paragraph) for example in examples],
        )
        questions = self.index.batch([example.question for example in examples])
        start, end = self.network(paragraphs, questions)
        return start, end, paragraphs.lengths

    def _parts(self, paragraph: Paragraph) -> tuple[tuple[str, ...], ...]:
        return paragraph.sentences if self.recipe.model.by_sentence else (paragraph.tokens,)

    def measure(self, examples: Sequence[QaExample], found: Sequence[str]) -> Report:
        without = sum(not example.answers for example in examples)
        notes = [f"questions without a right answer in the file, which score 0: {without}"]
        scores = answer_scores(found, [example.answers for example in examples])
        return Report(name=self.name, metrics=scores, notes=notes if without else [])

    def parse(self, item: Sequence[str]) -> QaExample:
        question, paragraph = item
        if isinstance(item, str) or not all(isinstance(text, str) for text in item):
            raise TypeError(item)
        return QaExample(split_paragraph(paragraph), self.split(question))

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        return split_pairs(lines, file, "question TAB paragraph")

    def show(self, example: QaExample, found: str, *, colour: bool) -> str:
        question = mark_spans(example.question, (), colour=False)
        answer = " ".join(found.split()) or "(none)"
        plain = answer if answer.isprintable() else repr(answer)[1:-1]
        return f"{question}  {paint(plain, 'a', colour=colour)}"

    def to_json(self, example: QaExample, found: str) -> dict[str, Any]:
        return {"id": example.id, "question": list(example.question), "answer": found}


def split_paragraph(text: str, convention: Convention = "ptb") -> Paragraph:
    """Tokenize running text sentence by sentence, with places in the complete text."""
    sentences: list[tuple[str, ...]] = []
    places: list[tuple[int, int]] = []
    for start, end in sentence_spans(text):
        sentence = tokenize(text[start:end], convention)
        sentences.append(sentence.tokens)
        places += [(start + a, start + b) for a, b in sentence.spans or ()]
    return Paragraph(text, tuple(sentences), tuple(places))


class _Answer(msgspec.Struct):
    text: str
    answer_start: int


class _Question(msgspec.Struct):
    id: str
    question: str
    answers: list[_Answer]


class _Entry(msgspec.Struct):
    context: str
    qas: list[_Question]


class _Article(msgspec.Struct):
    paragraphs: list[_Entry]


class _Squad(msgspec.Struct):
    data: list[_Article]


def read_squad(path: Path) -> Iterator[QaExample]:
    """Read SQuAD 1.1: one JSON document, answers as character offsets into their paragraph.

    Raises:
        InputError: it is not of that form; the message names the place in the document.
    """
    with open_text(path, what="SQuAD file") as stream:
        data = stream.read(_FILE_BYTES + 1)
    try:
        values = parse_json(data, what=f"'{path}'", max_bytes=_FILE_BYTES)
        document = msgspec.convert(values, _Squad)
    except FormatError as error:
        raise InputError(f"{error} (is this SQuAD 1.1, one JSON document?)") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{shown(error, 120)}; is this SQuAD 1.1?", file=str(path)) from None
    for entry in (entry for article in document.data for entry in article.paragraphs):
        paragraph = split_paragraph(entry.context)
        for question in entry.qas:
            answers = question.answers
            yield QaExample(
                paragraph,
                tokenize(question.question).tokens,
                tuple(answer.text for answer in answers),
                _answer_span(paragraph, answers[0]) if answers else None,
                question.id,
            )


def _answer_span(paragraph: Paragraph, answer: _Answer) -> tuple[int, int] | None:
    """First and last token of an answer; None if the text does not have it there."""
    start, end = answer.answer_start, answer.answer_start + len(answer.text)
    there = start < end and paragraph.text[start:end] == answer.text
    return paragraph.tokens_of(start, end) if there else None


def normalise(answer: str) -> str:
    """Lower-case, drop ASCII punctuation, then articles, then extra space."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(found: str, gold: str) -> float:
    """1 if both are equal once normalised, else 0."""
    return float(normalise(found) == normalise(gold))


def word_f1(found: str, gold: str) -> float:
    """The F1 of the two bags of words."""
    guessed, right = normalise(found).split(), normalise(gold).split()
    same = sum((Counter(guessed) & Counter(right)).values())
    if not same:
        return 0.0
    precision, recall = same / len(guessed), same / len(right)
    return 2 * precision * recall / (precision + recall)


def answer_scores(found: Sequence[str], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """Score answers, each against the right answer that fits it best; empty counts as wrong.

    Returns:
        f1 and exact match in percent; 0 for a question without a right answer.
    """
    totals = [0.0, 0.0]
    for answer, rights in zip(found, gold, strict=True):
        totals[0] += max((word_f1(answer, right) for right in rights), default=0.0)
        totals[1] += max((exact_match(answer, right) for right in rights), default=0.0)
    n = max(1, len(found))
    return {"f1": 100 * totals[0] / n, "exact match": 100 * totals[1] / n}


class _QaNetwork(Network):
    """Encode both texts, attend between them, then within the paragraph, then point."""

    def __init__(self, features: TokenFeatures, sizes: QaSizes) -> None:
        super().__init__(features)
        dim, both = sizes.dim, 2 * sizes.dim
        rnn = BiGru if sizes.rnn == "gru" else BiLstm
        self.dropout = VariationalDropout(sizes.dropout)
        self.encoder = rnn(features.dim, dim)
        width = both + features.output_dim
        self.between = Trilinear(width)
        self.merge = nn.Sequential(nn.Linear(4 * width, both), nn.ReLU())
        self.own_encoder = rnn(both, dim)
        self.within = Trilinear(both)
        # A word may attend to nothing; this starts with a weight of exp(-1).
        self.nothing = nn.Parameter(torch.tensor(-1.0))
        self.own_merge = nn.Sequential(nn.Linear(3 * both, both), nn.ReLU())
        self.start_encoder = rnn(both, dim)
        self.start = nn.Linear(both, 1)
        self.end_encoder = rnn(2 * both, dim)
        self.end = nn.Linear(both, 1)
        start_linear(self)

    def _encode(self, tokens: Tokens) -> Tensor:
        x, elmo = self.features(tokens)
        hidden = self.dropout(self.encoder(self.dropout(x), tokens.lengths))
        return torch.cat([hidden, elmo], dim=2)

    def _attend_between(self, x: Tensor, q: Tensor, p: Tokens, question: Tokens) -> Tensor:
        """Bi-attention (Seo et al. 2017), (batch, time, 4 * width)."""
        scores = self.between(x, q)  # (batch, paragraph, question)
        attended = masked_softmax(scores, question.mask[:, None, :]) @ q
        best = scores.masked_fill(~question.mask[:, None, :], _NEVER).amax(2)
        summary = masked_softmax(best, p.mask)[:, None, :] @ x  # (batch, 1, width)
        return torch.cat([x, attended, x * attended, x * summary], dim=2)

    def _attend_within(self, x: Tensor, p: Tokens) -> Tensor:
        """Self-attention without the diagonal, (batch, time, 2 * dim)."""
        hidden = self.dropout(self.own_encoder(self.dropout(x), p.lengths))
        other = ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        weights = masked_softmax(
            self.within(hidden, hidden), p.mask[:, None, :] & other, nothing=self.nothing
        )
        attended = weights @ hidden
        merged: Tensor = self.own_merge(torch.cat([attended, hidden, attended * hidden], dim=2))
        return merged

    def forward(self, p: Tokens, question: Tokens) -> tuple[Tensor, Tensor]:
        """Score each token as start and as end of the answer, (batch, time) each."""
        x, q = self._encode(p), self._encode(question)
        merged = self.merge(self._attend_between(x, q, p, question))
        merged = self.dropout(merged + self._attend_within(merged, p))
        first = self.start_encoder(merged, p.lengths)
        last = self.end_encoder(torch.cat([merged, first], dim=2), p.lengths)
        start, end = self.start(first).squeeze(2), self.end(last).squeeze(2)
        return start.masked_fill(~p.mask, _NEVER), end.masked_fill(~p.mask, _NEVER)
