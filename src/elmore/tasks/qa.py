"""Question answering: BiDAF with self-attention (Clark & Gardner 2017; supplement A.4).

The answer is a stretch of the paragraph, at most 17 tokens, cut out of the original text by its
offsets. A question whose answer is not in the paragraph is not learned from, but scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmore.errors import ConfigError, InputError
from elmore.tasks.layers.attention import Trilinear, masked_softmax
from elmore.tasks.layers.encoders import BiGru, BiLstm, VariationalDropout, start_linear
from elmore.tasks.layers.features import TokenFeatures, Tokens
from elmore.tasks.metrics.answers import answer_scores
from elmore.tasks.parts import Measured, Network, split_pairs
from elmore.tasks.readers.squad import Paragraph, read_squad, split_paragraph
from elmore.tasks.supervised import Task
from elmore.tasks.terminal import mark_spans, paint

__all__ = ["Qa", "QaExample", "QaSizes"]

_MOST_TOKENS = 17
# Impossible places; large enough to lose against any, small enough to stay finite in sums.
_NEVER = -1e7


@dataclass(frozen=True)
class QaExample:
    """A question on a paragraph.

    Attributes:
        paragraph: where the answer is sought.
        question: its tokens.
        answers: texts that count as right.
        span: first and last token of the answer to learn, or None.
        id: name of the question.
    """

    paragraph: Paragraph
    question: tuple[str, ...]
    answers: tuple[str, ...] = ()
    span: tuple[int, int] | None = None
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class QaSizes:
    """The section `model`.

    Attributes:
        rnn: "gru" as published, or "lstm", which our kernel runs twice as fast.
        dim: units of each direction of all of them.
        dropout: variational, around them.
        by_sentence: whether the biLM reads a paragraph sentence by sentence, which suits one that
            was trained so; the published ones read it as one sequence.
    """

    rnn: Literal["gru", "lstm"]
    dim: int
    dropout: float
    by_sentence: bool


class Qa(Task[QaExample, str]):
    """Answer a question by a stretch of a paragraph.

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
    left_out = "longer than data.max_length or without an answer at its place in the text"

    def read(self, path: Path) -> list[QaExample]:
        """Read SQuAD 1.1."""
        found = []
        for question in read_squad(path):
            span = None
            if question.answers:
                start = question.starts[0]
                end = start + len(question.answers[0])
                if question.paragraph.text[start:end] == question.answers[0] and start < end:
                    span = question.paragraph.tokens_of(start, end)
            found.append(
                QaExample(question.paragraph, question.tokens, question.answers, span, question.id)
            )
        if not found:
            raise InputError("there is no question; is this SQuAD 1.1?", file=str(path))
        return found

    def for_training(self, examples: list[QaExample]) -> list[QaExample]:
        """Leave out questions whose answer is not where the file says."""
        return [example for example in super().for_training(examples) if example.span is not None]

    def texts(self, example: QaExample) -> Sequence[Sequence[str]]:
        """Give what the biLM reads: the paragraph, whole or in sentences, and the question."""
        return (*self._parts(example.paragraph), example.question)

    def length(self, example: QaExample) -> int:
        """Count the tokens of the longer text."""
        return max(len(example.paragraph.tokens), len(example.question))

    def find_labels(self, examples: Sequence[QaExample]) -> dict[str, Any]:
        """There are none."""
        return {}

    def build(self, features: TokenFeatures) -> Network:
        """Make the network."""
        if self.recipe.elmo.trainable and self.recipe.model.by_sentence:
            raise ConfigError(
                "a biLM that is trained reads whole paragraphs; set model.by_sentence=false"
            )
        return _Reader(features, self.recipe.model)

    def loss(self, examples: Sequence[QaExample]) -> Tensor:
        """Give the mean cross-entropy of start plus that of end."""
        start, end, _ = self._scores(examples)
        gold = torch.tensor([e.span or (0, 0) for e in examples], device=start.device)
        return nn.functional.cross_entropy(start, gold[:, 0]) + nn.functional.cross_entropy(
            end, gold[:, 1]
        )

    def guess(self, examples: Sequence[QaExample]) -> list[str]:
        """Take the best stretch of at most 17 tokens."""
        start, end, lengths = self._scores(examples)
        if not start.shape[1]:
            return ["" for _ in examples]
        # Only the ends that each start may have, (batch, time, 17): all pairs would not fit.
        ends = nn.functional.pad(end, (0, _MOST_TOKENS - 1), value=-torch.inf)
        pairs = start[:, :, None] + ends.unfold(1, _MOST_TOKENS, 1)
        best = pairs.flatten(1).argmax(1).tolist()
        found = []
        for example, place, length in zip(examples, best, lengths.tolist(), strict=True):
            places = example.paragraph.places
            if length:
                first, more = divmod(place, _MOST_TOKENS)
                found.append(example.paragraph.text[places[first][0] : places[first + more][1]])
            else:
                found.append("")
        return found

    def _scores(self, examples: Sequence[QaExample]) -> tuple[Tensor, Tensor, Tensor]:
        paragraphs = self.tokens(
            [example.paragraph.tokens for example in examples],
            [self._parts(example.paragraph) for example in examples],
        )
        questions = self.tokens([example.question for example in examples])
        start, end = self.network(paragraphs, questions)
        return start, end, paragraphs.lengths

    def _parts(self, paragraph: Paragraph) -> list[tuple[str, ...]]:
        return paragraph.sentences if self.recipe.model.by_sentence else [paragraph.tokens]

    def measure(self, examples: Sequence[QaExample], found: Sequence[str]) -> Measured:
        """Score answers as the official script does."""
        without = sum(not example.answers for example in examples)
        notes = [f"questions without a right answer in the file, which score 0: {without}"]
        scores = answer_scores(found, [example.answers for example in examples])
        return Measured(scores, notes=notes if without else [])

    def parse(self, item: Sequence[str]) -> QaExample:
        """Take a pair (question, paragraph) of texts."""
        if isinstance(item, str) or len(item) != 2 or not all(isinstance(x, str) for x in item):
            raise ConfigError("qa predicts on pairs of texts; pass (question, paragraph)")
        return QaExample(split_paragraph(item[1]), self.tokenize(item[0]))

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        """Split lines at their tab; blank ones are no question."""
        return split_pairs(lines, file, "question TAB paragraph")

    def show(self, example: QaExample, found: str, *, colour: bool) -> str:
        """Put the answer behind the question."""
        question = mark_spans(example.question, (), colour=False)
        answer = " ".join(found.split()) or "(none)"
        shown = answer if answer.isprintable() else repr(answer)[1:-1]
        return f"{question}  {paint(shown, 1, colour=colour)}"

    def to_json(self, example: QaExample, found: str) -> dict[str, Any]:
        """Give question and answer."""
        return {"id": example.id, "question": list(example.question), "answer": found}


class _Reader(Network):
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
        # Starts at exp(-1): a word may attend to nothing.
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
        if not scores.shape[2]:
            scores = scores.new_full((*scores.shape[:2], 1), _NEVER)
        most = scores.masked_fill(
            ~question.mask[:, None, :] if question.mask.shape[1] else ~p.mask[:, :, None], _NEVER
        ).amax(2)
        summary = masked_softmax(most, p.mask)[:, None, :] @ x  # (batch, 1, width)
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
