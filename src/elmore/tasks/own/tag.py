"""Tags of your own: one label per token, or labelled spans; a light network that predicts in numpy.

Tags that mark spans (IOB1, IOB2, BIOES) are learned by a CRF as BIOUL and scored as spans; all
others by a softmax.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count
from elmore.errors import InputError
from elmore.report import Report
from elmore.tasks.data.labelled import TagExample, is_span_scheme, read_tokens, refuse_single
from elmore.tasks.data.tags import (
    is_tag,
    spans_from_tags,
    split_tags,
    tag_names,
    tags_from_spans,
    usual_tags,
)
from elmore.tasks.encoders import (
    BiLstmStack,
    Crf,
    SelfAttentivePooling,
    VariationalDropout,
    masked_max,
    masked_mean,
)
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.own.light import SCALE, WORD_GAIN
from elmore.tasks.predictions import Tagged, TagPredictor, steps_of, tagged
from elmore.tasks.recipe import TaskRecipe
from elmore.tasks.scores import class_scores, mistake_tables, span_scores
from elmore.tasks.task import Task

# From so many sentences on, spans are read by a biLSTM: on CoNLL-2003 its F1 is 90.7, that of the
# window 88.2, as names need words further away than a neighbour. Plain tags hardly gain (95.0 and
# 94.9 on EWT). With less data, the network with fewer weights is the safe choice.
_LSTM_FROM = 1000


@dataclass(frozen=True, kw_only=True)
class TagSizes:
    """The section `model`."""

    hidden: Count  # size of both layers, of each direction in a biLSTM
    dropout: BelowOne  # before each layer of the window
    lstm_dropout: BelowOne  # the same for the biLSTM, which learns more by heart
    # what the second layer reads: a "window" of three tokens, or all of the sentence by an "lstm"
    # in both directions; "auto" decides by the tags and the size of the data
    context: Literal["auto", "window", "lstm"]


class Tagger(TagPredictor[TagExample], Task[TagExample, Tagged]):
    """Give each token a label, or find labelled spans.

    Examples:
        >>> tagger = Tagger(elmo, seed=0)
        >>> x, y = [["Ada", "fell"], ["It", "fell"]], [["NAME", "VERB"], ["PRON", "VERB"]]
        >>> report = tagger.fit(x, y)
        >>> tagger.predict([["Ada", "fell"]])[0].tags
        ('NAME', 'VERB')
    """

    name = "tag"
    metric = "accuracy"
    sizes: ClassVar[type] = TagSizes
    example = TagExample
    tables = True
    light = True
    reads = "a file of columns, or a table"
    baseline_name = "the most frequent tag of each word"

    # ------------------------------------------------------------------- data

    def read(self, data: Any) -> list[TagExample]:
        return read_tokens(data, **self.columns)

    def from_lists(self, x: Sequence[Any], y: Sequence[Any]) -> list[TagExample]:
        return read_tokens({"tokens": [self.split(item) for item in x], "tags": y})

    def find_kind(self, examples: Sequence[TagExample]) -> str:
        tags = {tag for example in examples for tag in example.tags}
        return "spans" if is_span_scheme(tags) else "tags"

    def find_labels(self, examples: Sequence[TagExample]) -> dict[str, Any]:
        kind = self.kind or self.find_kind(examples)
        names = sorted({tag for example in examples for tag in example.tags})
        if examples and kind == "tags":
            refuse_single(names, "tag")
        if kind == "spans":
            names = tag_names({name[2:] for name in names if name != "O"}, "BIOUL")
        return {"kind": kind, "tags": names}

    def check_labels(self, examples: Sequence[TagExample]) -> None:
        """Tags that training did not see are mistakes, but a tagger of spans scores only spans."""
        for example in examples:
            if len(example.tags) != len(example.tokens):
                raise InputError(
                    f"{example.where}: {len(example.tokens)} tokens but "
                    f"{len(example.tags)} tags; give one tag per token"
                )
        for example in examples if self.marks_spans else ():
            if odd := next((tag for tag in example.tags if not is_tag(tag)), None):
                raise InputError(
                    f"{example.where}: this tagger finds spans, and '{odd}' does "
                    "not mark one; name the column of tags such as B-PER (label=, --label)"
                )

    def label_counts(self, examples: Iterable[TagExample]) -> Counter[str]:
        if not self.marks_spans:
            return Counter(tag for example in examples for tag in example.tags)
        return Counter(span.label for e in examples for span in spans_from_tags(e.tags))

    # ------------------------------------------------------------------- network

    def fitted(self, examples: Sequence[TagExample]) -> TaskRecipe:
        recipe = super().fitted(examples)
        if getattr(recipe.model, "context", None) != "auto":  # a network of its own has none
            return recipe
        spans = (self.kind or self.find_kind(examples)) == "spans"
        context = "lstm" if spans and len(examples) >= _LSTM_FROM else "window"
        return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, context=context))

    def build(self, features: TokenFeatures) -> Network:
        sizes: TagSizes = self.recipe.model
        lstm = sizes.context == "lstm"
        dropout = sizes.lstm_dropout if lstm else sizes.dropout
        n_tags, crf = len(self.labels["tags"]), self.marks_spans
        return LightNetwork(features, sizes.hidden, dropout, n_tags, lstm=lstm, crf=crf)

    def loss(self, examples: Sequence[TagExample]) -> Tensor:
        """The mean negative log-likelihood of a sentence's tags, or of a token's."""
        tokens = self.index.batch([example.tokens for example in examples])
        ids = {tag: k for k, tag in enumerate(self.labels["tags"])}
        tags = torch.full_like(tokens.words, -1)  # what cross_entropy ignores below
        for row, example in enumerate(examples):
            names = self._names(example)
            tags[row, : len(names)] = torch.tensor([ids[n] for n in names], dtype=torch.long)
        network: Any = self.network
        scores: Tensor = network(tokens)
        if self.marks_spans:
            likelihood: Tensor = network.crf(scores, tags.clamp(min=0), tokens.lengths)
            return -likelihood.mean()
        sums = nn.functional.cross_entropy(
            scores.flatten(0, 1), tags.flatten(), ignore_index=-1, reduction="sum"
        )
        return sums / tokens.mask.sum().clamp(min=1)

    def _names(self, example: TagExample) -> Sequence[str]:
        """The tags that the network learns."""
        if not self.marks_spans:
            return example.tags
        return tags_from_spans(spans_from_tags(example.tags), len(example.tokens), "BIOUL")

    def guess(self, examples: Sequence[TagExample]) -> list[Tagged]:
        network: Any = self.network
        scores = network(self.index.batch([e.tokens for e in examples])).cpu().numpy()
        names, steps = self.labels["tags"], None
        if self.marks_spans:
            steps = steps_of(names, "BIOUL", network.crf.transitions.detach().cpu().numpy())
        return [
            tagged(example.tokens, scores[row, : len(example.tokens)], names, steps)
            for row, example in enumerate(examples)
        ]

    # ------------------------------------------------------------------- scores

    def measure(self, examples: Sequence[TagExample], found: Sequence[Tagged]) -> Report:
        tables: dict[str, Any] = {}
        pairs = self.pairs(examples, found)
        right, guessed = ([pair[side] for pair in pairs] for side in (0, 1))
        if self.marks_spans:
            spans = [spans_from_tags(example.tags) for example in examples]
            lengths = [len(example.tokens) for example in examples]
            metrics, tables["spans"] = span_scores(spans, [f.spans for f in found], lengths)
        else:
            names = sorted({*right, *guessed})
            metrics, tables["tags"] = class_scores(right, guessed, names)
            metrics |= _by_part(right, guessed)
        shown = (
            (one.probabilities[k], {"word": one.tokens[k], "in": _around(one.tokens, k)})
            for one in found
            for k in range(len(one.tokens))
        )
        tables |= mistake_tables(pairs, shown)
        notes = []
        if not self.marks_spans and (new := sorted(set(right) - set(self.labels["tags"]))):
            n, some = sum(tag in new for tag in right), ", ".join(new[:5])
            notes = [f"{n} tokens have tags that never occur in training ({some})"]
        tables = {title: rows for title, rows in tables.items() if rows}
        return Report(name=self.name, metrics=metrics, tables=tables, notes=notes)

    def pairs(
        self, examples: Sequence[TagExample], found: Sequence[Tagged]
    ) -> list[tuple[str, str]]:
        """The right and the predicted tag of each token; IOB2 where they mark spans."""
        pairs: list[tuple[str, str]] = []
        for example, one in zip(examples, found, strict=True):
            tags: Sequence[str] = example.tags
            if self.marks_spans:
                tags = tags_from_spans(spans_from_tags(tags), len(tags), "IOB2")
            pairs += zip(tags, one.tags, strict=True)
        return pairs

    def baseline(self, train: Sequence[TagExample], held_out: Sequence[TagExample]) -> float:
        """The most frequent tag of each word; unseen words get that of words seen once."""
        tagged = (zip(e.tokens, self._names(e), strict=True) for e in train)
        usual = usual_tags(itertools.chain.from_iterable(tagged))
        found = []
        for example in held_out:
            tags = tuple(map(usual, example.tokens))
            spans = spans_from_tags(tags) if self.marks_spans else ()
            chances = (0.0,) * len(tags)
            found.append(Tagged(example.tokens, tags, spans, chances))
        return float(self.measure(held_out, found).metrics[self.metric])


def _around(tokens: Sequence[str], k: int) -> str:
    return " ".join(tokens[max(0, k - 3) : k + 4])


def _by_part(right: Sequence[str], guessed: Sequence[str]) -> dict[str, float]:
    """The accuracy of each part of joined tags such as NOUN+NN."""
    parts = split_tags({*right, *guessed})
    n_parts = max(map(len, parts.values()), default=1)
    pairs = [(parts[a], parts[b]) for a, b in zip(right, guessed, strict=True)]
    return {
        f"accuracy {k + 1}": 100 * float(np.mean([a[k] == b[k] for a, b in pairs]))
        for k in range(n_parts if n_parts > 1 else 0)
    }


# --------------------------------------------------------------------- the network


class LightNetwork(Network):
    """The network of `tag` and `classify`, so small that `tasks/own/light.py` repeats it in numpy.

    A ReLU layer projects each token. Then it sees its two neighbours by another one or, by a
    biLSTM, all of its sentence, and is scored. A text is pooled before: the maximum, the mean and a
    learned average of its tokens.

    Dropout is before each layer; with a biLSTM on the features, one mask per sentence, and before
    the scores. With a `bag`, each training word adds scores of its own to a text, at any position.
    What the biLM says of rare words is vague, so small data gains: with 1,000 reviews two points.
    """

    def __init__(
        self,
        features: TokenFeatures,
        hidden: int,
        dropout: float,
        outputs: int,
        *,
        lstm: bool,
        crf: bool = False,
        pooled: bool = False,
        bag: bool = False,
    ) -> None:
        super().__init__(features)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(features.dim, hidden)
        if lstm:
            # No dropout between the two layers: with it, names were learned more slowly.
            self.encoder = BiLstmStack(hidden, [hidden], 0.0)
            self.input_dropout = VariationalDropout(dropout)
        else:
            self.window = nn.Linear(3 * hidden, hidden)
        width = 2 * hidden if lstm else hidden
        self.output = nn.Linear(3 * width if pooled else width, outputs)
        self.crf = Crf(outputs) if crf else None
        self.pooling = SelfAttentivePooling(width) if pooled else None
        self.word_scores = None
        if bag and features.words is not None and features.words.n_trained:
            # As the rows of the word table; 0 and 1, padding and unknown words, stay at 0.
            self.word_scores = nn.Parameter(torch.zeros(features.words.n_trained + 2, outputs))

    def _hidden(self, tokens: Tokens) -> Tensor:
        """Read tokens, (batch, time, hidden), twice as wide by a biLSTM; zeros at padding."""
        x, _ = self.features(tokens)
        own, real = self.features.own_dim, tokens.mask[:, :, None]
        x = torch.cat([x[:, :, :own], float(SCALE) * x[:, :, own:]], dim=2)
        if hasattr(self, "encoder"):
            x = torch.relu(self.project(self.input_dropout(x))) * real
            read: Tensor = self.encoder(x, tokens.lengths)
            return read
        x = torch.relu(self.project(self.dropout(x))) * real
        x = nn.functional.pad(self.dropout(x), (0, 0, 1, 1))
        wide = torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], dim=2)
        return torch.relu(self.window(wide)) * real

    def forward(self, tokens: Tokens) -> Tensor:
        """Score tokens, (batch, time, outputs), or texts, (batch, outputs)."""
        x, mask = self._hidden(tokens), tokens.mask
        if self.pooling is not None:
            x = torch.cat([masked_max(x, mask), masked_mean(x, mask), self.pooling(x, mask)], 1)
        scores: Tensor = self.output(self.dropout(x))
        if self.word_scores is None:
            return scores
        rows = tokens.words
        known = (rows > 1) & (rows < len(self.word_scores))
        total = nn.functional.embedding(rows * known, self.word_scores, padding_idx=0).sum(1)
        # Divided by the root of the length, as the vector of a text has length 1 in TF-IDF.
        return scores + float(WORD_GAIN) * total / tokens.lengths[:, None].clamp(min=1).sqrt()
