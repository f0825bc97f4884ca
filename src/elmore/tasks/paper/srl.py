"""Semantic roles: a deep alternating LSTM with highway gates (He et al. 2017; supplement A.5).

Predicates are given. A sentence is read once for each of them, with a feature that says which
token it is; tags are IOB2, chosen by Viterbi over log-probabilities under the scheme's rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count
from elmore.errors import ConfigError
from elmore.limits import LIMITS
from elmore.report import Report, Row
from elmore.tasks.data.columns import Predicate, read_documents
from elmore.tasks.data.tags import (
    Span,
    are_names,
    are_tags,
    spans_from_tags,
    tag_names,
    tags_from_spans,
)
from elmore.tasks.encoders import AlternatingLstm
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.predictions import best_path, mark_spans, steps_of
from elmore.tasks.scores import span_scores
from elmore.tasks.task import Task

# For each predicate its spans, V among them.
Frames = tuple[tuple[Span, ...], ...]
# A label and the places of its spans.
Argument = tuple[str, tuple[tuple[int, int], ...]]
# The label of the predicate itself, and of its parts.
_PREDICATE = ("V", "C-V")

# Tokens that are scored at once when predicting: each predicate brings its complete sentence.
_MAX_TOKENS = 1 << 15


@dataclass(frozen=True)
class SrlExample:
    """A sentence and its predicates."""

    tokens: tuple[str, ...]
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SrlSizes:
    """The section `model`."""

    dim: Count  # units of each layer
    n_layers: Annotated[int, Meta(ge=1, le=LIMITS.layers)]  # how many layers
    predicate_dim: Count  # size of the feature "is the predicate"
    dropout: BelowOne  # inside the recurrence


class Srl(Task[SrlExample, Frames]):
    """Find who did what to whom, for each predicate of a sentence.

    In plain text, a word is taken for a predicate if at least half of its uses in the training
    data were one. An item (tokens, [places]) names the predicates itself.

    Examples:
        >>> model = Srl(elmo, seed=0)
        >>> report = model.fit("train.gold_conll", dev="dev.gold_conll")
        >>> model.predict(["She sold the car ."])
        [((Span('ARG0', 0, 0), Span('V', 1, 1), Span('ARG1', 2, 3)),)]
    """

    name = "srl"
    metric = "f1"
    sizes = SrlSizes
    example = SrlExample
    reads = "CoNLL-2012"
    left_out = "longer than data.max_length or without a predicate"
    takes = "a sentence, its tokens, or (tokens, [places of predicates])"

    def read(self, path: Path) -> Iterator[SrlExample]:
        for document in read_documents(path):
            for sentence in document:
                yield SrlExample(sentence.tokens, sentence.predicates)

    def for_training(self, examples: list[SrlExample]) -> list[SrlExample]:
        """Leave out sentences without a predicate: there is nothing to learn in them."""
        return [example for example in super().for_training(examples) if example.predicates]

    def find_labels(self, examples: Sequence[SrlExample]) -> dict[str, Any]:
        roles = {"V"}
        seen: Counter[str] = Counter()
        marked: Counter[str] = Counter()
        for example in examples:
            seen.update(token.lower() for token in example.tokens)
            marked.update(example.tokens[p.index].lower() for p in example.predicates)
            roles |= {span.label for p in example.predicates for span in p.arguments}
        # Plain text has no marks: words that mostly were predicates are taken for one there.
        verbs = sorted(word for word, n in marked.items() if 2 * n >= seen[word])
        return {"tags": tag_names(roles, "IOB2"), "predicates": verbs}

    def labels_fit(self, labels: Mapping[str, Any]) -> bool:
        verbs = labels.get("predicates")
        return are_tags(labels.get("tags"), "IOB2") and (verbs == [] or are_names(verbs))

    def build(self, features: TokenFeatures) -> Network:
        return _SrlNetwork(features, self.recipe.model, len(self.labels["tags"]))

    def loss(self, examples: Sequence[SrlExample]) -> Tensor:
        """The cross-entropy, summed over tokens and averaged over predicates."""
        ((scores, rows, _),) = self._parts(examples)
        ids = {tag: k for k, tag in enumerate(self.labels["tags"])}
        gold = torch.full(scores.shape[:2], -100, dtype=torch.long)  # what cross_entropy ignores
        predicates = [(example, p) for example in examples for p in example.predicates]
        for row, (example, predicate) in enumerate(predicates):
            spans = (*predicate.arguments, predicate.verb)
            tags = tags_from_spans(spans, len(example.tokens), "IOB2")
            gold[row, : len(tags)] = torch.tensor([ids[tag] for tag in tags], dtype=torch.long)
        total = nn.functional.cross_entropy(
            scores.flatten(0, 1), gold.flatten().to(scores.device), reduction="sum"
        )
        return total / max(1, len(rows))

    def guess(self, examples: Sequence[SrlExample]) -> list[Frames]:
        names = self.labels["tags"]
        steps = steps_of(names, "IOB2")
        frames: list[list[tuple[Span, ...]]] = [[] for _ in examples]
        for scores, rows, tokens in self._parts(examples, _MAX_TOKENS):
            logs = torch.log_softmax(scores, dim=2).cpu().numpy()
            for row, own in zip(rows.tolist(), logs, strict=True):
                path = best_path(own[: int(tokens.lengths[row])], steps)
                frames[row].append(spans_from_tags([names[k] for k in path]))
        return [tuple(frame) for frame in frames]

    def _parts(
        self, examples: Sequence[SrlExample], max_tokens: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tokens]]:
        """Score the tags for each predicate, part by part: (predicates, time, tags).

        Each sentence's features are made once, however many predicates it has. A part has at most
        `max_tokens`, but at least one predicate; None for one part.
        """
        network: Any = self.network
        tokens = self.index.batch([example.tokens for example in examples])
        time, device = tokens.words.shape[1], tokens.lengths.device
        x, elmo = network.features(tokens)
        rows = [row for row, example in enumerate(examples) for _ in example.predicates]
        verbs = [p.verb for example in examples for p in example.predicates]
        size = max(1, len(rows) if max_tokens is None else max_tokens // time)
        for start in range(0, max(1, len(rows)), size):
            index = torch.tensor(rows[start : start + size], dtype=torch.long, device=device)
            marks = torch.zeros(len(index), time, dtype=torch.long)
            for mark, verb in zip(marks, verbs[start : start + size], strict=True):
                mark[verb.first : verb.last + 1] = 1
            yield network(x, elmo, tokens.lengths, index, marks.to(device)), index, tokens

    def measure(self, examples: Sequence[SrlExample], found: Sequence[Frames]) -> Report:
        gold = [p.arguments for example in examples for p in example.predicates]
        guessed = [frame for frames in found for frame in frames]
        lengths = [len(example.tokens) for example in examples for _ in example.predicates]
        metrics, rows = role_scores(gold, guessed, lengths)
        return Report(name=self.name, metrics=metrics, tables={"roles": rows})

    def parse(self, item: Any) -> SrlExample:
        if len(item) == 2 and not all(isinstance(part, str) for part in item):
            tokens, places = item
            if isinstance(tokens, str):
                raise TypeError(item)
            for place in places:
                if place not in range(len(tokens)):
                    raise ConfigError(
                        f"srl has no token at place {place!r} of a sentence of {len(tokens)} "
                        "tokens; count from 0"
                    )
        else:
            tokens, known = self.split(item), self.labels["predicates"]
            places = [k for k, token in enumerate(tokens) if str(token).lower() in known]
        return SrlExample(tuple(tokens), tuple(Predicate(int(place), ()) for place in places))

    def show(self, example: SrlExample, found: Frames, *, colour: bool) -> str:
        if not found:
            return mark_spans(example.tokens, (), colour=False)
        return "\n".join(mark_spans(example.tokens, frame, colour=colour) for frame in found)

    def to_json(self, example: SrlExample, found: Frames) -> dict[str, Any]:
        return {
            "tokens": list(example.tokens),
            "frames": [
                {"predicate": predicate.index, "arguments": [span._asdict() for span in frame]}
                for predicate, frame in zip(example.predicates, found, strict=True)
            ],
        }


def role_scores(
    gold: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]], lengths: Sequence[int]
) -> tuple[dict[str, float], list[Row]]:
    """Score the arguments of predicates, with V among them or not.

    Returns:
        precision, recall and f1 of simple spans in percent, and `joined f1`, where a C-X counts
        as a part of the X before it, as in the official scorer; one row per role.
    """
    right, guessed = (
        [[span for span in spans if span.label not in _PREDICATE] for spans in side]
        for side in (gold, found)
    )
    metrics, rows = span_scores(right, guessed, lengths)
    hits = n_right = n_guessed = 0
    for a, b in zip(right, guessed, strict=True):
        one, two = join_continuations(a), join_continuations(b)
        hits += len(set(one) & set(two))
        n_right += len(one)
        n_guessed += len(two)
    joined = 200 * hits / (n_right + n_guessed) if n_right + n_guessed else 0.0
    return {**metrics, "joined f1": joined}, rows


def join_continuations(spans: Sequence[Span]) -> list[Argument]:
    """Join each C-X to the nearest X before it; one without stays an X of its own."""
    joined: list[tuple[str, list[tuple[int, int]]]] = []
    for label, first, last in sorted(spans, key=lambda span: span.first):
        base = label.removeprefix("C-")
        if label != base:
            earlier = next((parts for name, parts in reversed(joined) if name == base), None)
            if earlier is not None:
                earlier.append((first, last))
                continue
        joined.append((base, [(first, last)]))
    return [(label, tuple(parts)) for label, parts in joined]


class _SrlNetwork(Network):
    """Features and the predicate's mark, alternating LSTM, a score for each tag."""

    def __init__(self, features: TokenFeatures, sizes: SrlSizes, n_tags: int) -> None:
        super().__init__(features)
        self.mark = nn.Embedding(2, sizes.predicate_dim)
        self.encoder = AlternatingLstm(
            features.dim + sizes.predicate_dim, sizes.dim, sizes.n_layers, sizes.dropout
        )
        self.output = nn.Linear(sizes.dim + features.output_dim, n_tags)
        nn.init.orthogonal_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(
        self, x: Tensor, elmo: Tensor, lengths: Tensor, rows: Tensor, marks: Tensor
    ) -> Tensor:
        """Score the tags of predicates, (predicates, time, tags), by the features of sentences.

        `rows` are the sentences of the predicates; `marks` are 1 at the predicate.
        """
        x = torch.cat([x[rows], self.mark(marks)], dim=2)
        hidden = self.encoder(x, lengths[rows])
        scores: Tensor = self.output(torch.cat([hidden, elmo[rows]], dim=2))
        return scores
