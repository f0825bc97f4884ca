"""Coreference: end-to-end span ranking (Lee et al. 2017; supplement A.6).

All spans of a sentence up to a length are candidates; the best by mention score are kept, and
each is linked to its best antecedent, or to none, whose score is fixed at 0. ELMo goes into the
biLSTM; heads are made of the words' own vectors, as in the authors' later code.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count, Positive
from elmore.base.optional import require
from elmore.report import Report, Row
from elmore.tasks.data.columns import read_documents
from elmore.tasks.data.tags import Span
from elmore.tasks.encoders import BiLstm, masked_softmax
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.predictions import mark_spans
from elmore.tasks.task import Task
from elmore.text.splitter import split_sentences

# Mentions of a document as (first, last) token, counted over all sentences.
Mention = tuple[int, int]
Clusters = tuple[tuple[Mention, ...], ...]
# See `_SpanRanker.forward`.
Ranked = tuple[list[Mention], Tensor, Tensor, Tensor]
Cluster = frozenset[Hashable]


@dataclass(frozen=True)
class CorefExample:
    """A document."""

    sentences: tuple[tuple[str, ...], ...]  # their tokens
    speakers: tuple[str, ...] = ()  # of each sentence
    clusters: Clusters = ()  # mentions that mean the same


@dataclass(frozen=True, kw_only=True)
class CorefSizes:
    """The section `model`."""

    dim: Count  # units of each direction of the biLSTM
    hidden: Count  # of both feed-forward networks
    feature_dim: Count  # size of the vectors of widths, distances and speakers
    max_width: Count  # longest candidate, in tokens
    spans_per_token: Positive  # share of the document's length that is kept
    max_antecedents: Count  # how many preceding spans are considered
    max_sentences: Count  # a training step reads a random window of so many
    embedding_dropout: BelowOne  # on the input
    dropout: BelowOne  # everywhere else
    keep_singletons: bool  # whether gold clusters of one mention count in scores


class Coref(Task[CorefExample, Clusters]):
    """Find which words of a document mean the same person or thing.

    Examples:
        >>> model = Coref(elmo, seed=0)
        >>> report = model.fit("train.gold_conll", dev="dev.gold_conll")
        >>> model.predict(["Ada met Bo. She liked him."])
        [(((0, 0), (4, 4)), ((2, 2), (6, 6)))]
    """

    name = "coref"
    metric = "f1"
    sizes = CorefSizes
    example = CorefExample
    reads = "CoNLL-2012"
    takes = "a document as one text, or its sentences as token lists"

    def read(self, path: Path) -> Iterator[CorefExample]:
        for document in read_documents(path):
            clusters: dict[str, list[Mention]] = {}
            offset = 0
            for sentence in document:
                for cluster, first, last in sentence.mentions:
                    clusters.setdefault(cluster, []).append((offset + first, offset + last))
                offset += len(sentence.tokens)
            yield CorefExample(
                tuple(sentence.tokens for sentence in document),
                tuple(sentence.speaker for sentence in document),
                tuple(tuple(sorted(set(places))) for places in clusters.values()),
            )

    def texts(self, example: CorefExample) -> Sequence[Sequence[str]]:
        return example.sentences

    def build(self, features: TokenFeatures) -> Network:
        return _SpanRanker(features, self.recipe.model)

    def loss(self, examples: Sequence[CorefExample]) -> Tensor:
        """The mean loss of a document, summed over its kept spans."""
        losses = [self._document_loss(self._window(example)) for example in examples]
        return torch.stack(losses).mean()

    def _window(self, example: CorefExample) -> CorefExample:
        """Cut a random window out of a long document, whose spans would not fit into memory."""
        size = self.recipe.model.max_sentences
        if not self.network.training or len(example.sentences) <= size:
            return example
        start = int(torch.randint(len(example.sentences) - size + 1, ()))
        before = sum(map(len, example.sentences[:start]))
        sentences = example.sentences[start : start + size]
        end = before + sum(map(len, sentences))
        clusters = tuple(
            tuple((a - before, b - before) for a, b in cluster if before <= a and b < end)
            for cluster in example.clusters
        )
        return CorefExample(sentences, example.speakers[start : start + size], clusters)

    def _document_loss(self, example: CorefExample) -> Tensor:
        ranked = self._rank(example)
        if ranked is None:  # nothing to rank; keeps a gradient of zero
            return torch.stack([w.sum() for w in self.network.parameters()]).sum() * 0
        spans, scores, antecedents, known = ranked
        names = {m: k for k, c in enumerate(example.clusters) if len(c) > 1 for m in c}
        ids = torch.tensor([names.get(span, -1) for span in spans], device=scores.device)
        same = (ids[antecedents] == ids[:, None]) & (ids[:, None] >= 0) & known
        # Nothing to link to: the right choice is none, the first column.
        right = torch.cat([~same.any(1, keepdim=True), same], dim=1)
        chosen = torch.logsumexp(scores.masked_fill(~right, -torch.inf), dim=1)
        return (torch.logsumexp(scores, dim=1) - chosen).sum()

    def guess(self, examples: Sequence[CorefExample]) -> list[Clusters]:
        return [self._clusters(example) for example in examples]

    def _clusters(self, example: CorefExample) -> Clusters:
        ranked = self._rank(example)
        if ranked is None:
            return ()
        spans, scores, antecedents, _ = ranked
        best = scores.argmax(1).tolist()
        chosen = antecedents.tolist()
        clusters: list[list[Mention]] = []
        mine: dict[int, int] = {}
        for k, span in enumerate(spans):
            if not best[k]:  # column 0: no antecedent
                continue
            antecedent = chosen[k][best[k] - 1]
            if antecedent not in mine:
                mine[antecedent] = len(clusters)
                clusters.append([spans[antecedent]])
            mine[k] = mine[antecedent]
            clusters[mine[k]].append(span)
        return tuple(tuple(cluster) for cluster in clusters)

    def _rank(self, example: CorefExample) -> Ranked | None:
        """Score antecedents; None for a document without tokens."""
        sentences = [sentence for sentence in example.sentences if sentence]
        if not sentences:
            return None
        speakers = example.speakers or ("-",) * len(example.sentences)
        numbers: dict[str, int] = {}
        of_token = [
            numbers.setdefault(speaker, len(numbers))
            for sentence, speaker in zip(example.sentences, speakers, strict=True)
            for _ in sentence
        ]
        tokens = self.index.batch(sentences)
        known = any(speaker not in ("-", "_") for speaker in speakers)
        speaking = torch.tensor(of_token, device=tokens.lengths.device)
        ranked: Ranked = self.network(tokens, speaking, known)
        return ranked

    def measure(self, examples: Sequence[CorefExample], found: Sequence[Clusters]) -> Report:
        smallest = 1 if self.recipe.model.keep_singletons else 2
        gold = [[c for c in example.clusters if len(c) >= smallest] for example in examples]
        metrics, rows = cluster_scores(gold, found)
        notes = [] if smallest == 1 else ["gold clusters of one mention are left out"]
        return Report(name=self.name, metrics=metrics, tables={"measures": rows}, notes=notes)

    def parse(self, item: str | Sequence[Sequence[str]]) -> CorefExample:
        texts: Any = split_sentences(item) if isinstance(item, str) else item
        # A string in a list may be a token or a sentence: ask.
        if not isinstance(item, str) and any(isinstance(sentence, str) for sentence in item):
            raise TypeError(item)
        sentences = tuple(self.split(sentence) for sentence in texts)
        return CorefExample(sentences, ("-",) * len(sentences))

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        """Take blank lines for the ends of documents."""
        texts = (line for _, line in lines)
        for blank, group in itertools.groupby(texts, key=lambda line: not line.strip()):
            if not blank:
                yield "\n".join(group)

    def show(self, example: CorefExample, found: Clusters, *, colour: bool) -> str:
        """Mark each mention with the number of its cluster; where they nest, the outermost."""
        tokens = [token for sentence in example.sentences for token in sentence]
        spans = [Span(str(k), a, b) for k, c in enumerate(found, 1) for a, b in c]
        spans.sort(key=lambda span: (span.first, -span.last))
        outer: list[Span] = []
        for span in spans:
            if not outer or span.first > outer[-1].last:
                outer.append(span)
        return mark_spans(tokens, outer, colour=colour)

    def to_json(self, example: CorefExample, found: Clusters) -> dict[str, Any]:
        tokens = [token for sentence in example.sentences for token in sentence]
        return {
            "sentences": [list(sentence) for sentence in example.sentences],
            "clusters": [
                [{"first": a, "last": b, "text": " ".join(tokens[a : b + 1])} for a, b in cluster]
                for cluster in found
            ],
        }


def cluster_scores(
    gold: Sequence[Iterable[Iterable[Hashable]]], found: Sequence[Iterable[Iterable[Hashable]]]
) -> tuple[dict[str, float], list[Row]]:
    """Score clusters as CoNLL-2012 does, by MUC, B-cubed and CEAF-phi4.

    Clusters are those of each document; mentions may be any values. Predicted clusters of one
    mention are dropped; gold ones are taken as they are given.

    Returns:
        `f1` (the mean of the three) and each measure's f1 in percent; one row per measure.
    """
    measures = {"muc": _links, "b3": _overlap, "ceaf": _best_match}
    sums = {name: np.zeros(4) for name in measures}
    for right, guessed in zip(gold, found, strict=True):
        keys = [frozenset(cluster) for cluster in right]
        answers = [c for cluster in guessed if len(c := frozenset(cluster)) > 1]
        for name, measure in measures.items():
            sums[name] += [*measure(answers, keys), *measure(keys, answers)]
    rows: list[Row] = []
    f1s = {}
    # Sums over all documents are divided, not averages of documents taken.
    for name, (hit_p, of_p, hit_r, of_r) in ((name, s.tolist()) for name, s in sums.items()):
        precision, recall = 100 * hit_p / (of_p or 1), 100 * hit_r / (of_r or 1)
        f1s[name] = 2 * precision * recall / (precision + recall or 1)
        rows.append({"measure": name, "f1": f1s[name], "precision": precision, "recall": recall})
    return {"f1": sum(f1s.values()) / len(f1s), **f1s}, rows


# Each measure counts what of some clusters is in the others, and what could be at most. With the
# answers first that is precision, with the right clusters first recall.


def _links(clusters: list[Cluster], others: list[Cluster]) -> tuple[float, float]:
    """Links between mentions: a cluster of n has n - 1, each split or unknown mention costs one."""
    where = {mention: k for k, other in enumerate(others) for mention in other}
    hits = total = 0
    for cluster in clusters:
        known = {where[mention] for mention in cluster if mention in where}
        missing = sum(mention not in where for mention in cluster)
        hits += len(cluster) - len(known) - missing
        total += len(cluster) - 1
    return hits, total


def _overlap(clusters: list[Cluster], others: list[Cluster]) -> tuple[float, float]:
    """For each mention, the share of its cluster that is also in its other cluster."""
    where = {mention: other for other in others for mention in other}
    hits = sum(
        len(cluster & where[mention]) / len(cluster)
        for cluster in clusters
        for mention in cluster
        if mention in where
    )
    return hits, sum(map(len, clusters))


def _best_match(clusters: list[Cluster], others: list[Cluster]) -> tuple[float, float]:
    """The similarity of clusters that are paired one to one so that it is largest."""
    if not clusters or not others:
        return 0.0, len(clusters)
    shared = np.array([[2 * len(c & o) / (len(c) + len(o)) for o in others] for c in clusters])
    optimize: Any = require("scipy.optimize", "tasks", "scoring clusters")
    pairs = optimize.linear_sum_assignment(shared, maximize=True)
    return float(shared[pairs].sum()), len(clusters)


class _SpanRanker(Network):
    """Encode sentences, score mentions, keep the best, score pairs."""

    def __init__(self, features: TokenFeatures, sizes: CorefSizes) -> None:
        super().__init__(features)
        self.sizes = sizes
        self.embedding_dropout = nn.Dropout(sizes.embedding_dropout)
        self.dropout = nn.Dropout(sizes.dropout)
        self.encoder = BiLstm(features.dim, sizes.dim)
        context = 2 * sizes.dim + features.output_dim
        self.head_dim = features.own_dim or features.dim
        size = sizes.feature_dim
        self.spans = SpanVectors(context, sizes.max_width, size, sizes.dropout)
        span_dim = 2 * context + self.head_dim + size
        self.mention = SpanScorer(span_dim, sizes.hidden, sizes.dropout)
        self.pair = SpanScorer(3 * span_dim + 2 * size, sizes.hidden, sizes.dropout)
        self.distance = nn.Embedding(10, size)
        self.speaker = nn.Embedding(3, size)  # unknown, another, the same

    def forward(self, tokens: Tokens, speakers: Tensor, known: bool) -> Ranked:
        """Score the antecedents of the spans of one document that are kept.

        Each token has a speaker, (n_tokens,), if speakers are `known` at all.

        Returns:
            the kept spans; scores of no antecedent and of each, (kept, 1 + antecedents); numbers
            of the antecedents, (kept, antecedents), nearest first; which of them exist.
        """
        x, elmo = self.features(tokens)
        x = self.embedding_dropout(x)
        context = torch.cat([self.dropout(self.encoder(x, tokens.lengths)), elmo], dim=2)
        mask = tokens.mask
        context, inputs = context[mask], x[mask][:, : self.head_dim]
        first, last = candidate_spans(tokens.lengths, self.sizes.max_width)
        vectors = self.spans(context, inputs, first, last)
        mentions = self.mention(vectors)
        n_kept = max(1, int(self.sizes.spans_per_token * len(context)))
        kept = torch.tensor(
            prune(mentions.tolist(), first.tolist(), last.tolist(), n_kept), device=first.device
        )
        first, last, vectors, mentions = first[kept], last[kept], vectors[kept], mentions[kept]
        pairs, antecedents, real = self._pairs(vectors, speakers[first], known)
        scores = mentions[:, None] + mentions[antecedents] + pairs
        scores = scores.masked_fill(~real, -torch.inf)
        nothing = scores.new_zeros(len(scores), 1)  # the score of no antecedent is fixed
        spans = list(zip(first.tolist(), last.tolist(), strict=True))
        return spans, torch.cat([nothing, scores], dim=1), antecedents, real

    def _pairs(
        self, vectors: Tensor, speakers: Tensor, known: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Score each span with the spans before it, (kept, antecedents)."""
        n = len(vectors)
        steps = torch.arange(1, min(n, self.sizes.max_antecedents + 1), device=vectors.device)
        antecedents = torch.arange(n, device=vectors.device)[:, None] - steps
        real = antecedents >= 0
        antecedents = antecedents.clamp(min=0)
        same = (speakers[antecedents] == speakers[:, None]).long() + 1 if known else antecedents * 0
        features = torch.cat(
            [self.distance(distance_buckets(steps)).expand(n, -1, -1), self.speaker(same)], dim=2
        )
        scores = self.pair.pairs(vectors, antecedents, self.dropout(features))
        return scores, antecedents, real


class SpanVectors(nn.Module):
    """g = [x_first; x_last; head; width], with the head a softmax-weighted mean over the span.

    Context vectors have size `dim`; dropout is on the vector of the width.
    """

    def __init__(self, dim: int, max_width: int, width_dim: int, dropout: float) -> None:
        super().__init__()
        self.max_width = max_width
        self.head = nn.Linear(dim, 1)
        self.width = nn.Embedding(max_width, width_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, context: Tensor, inputs: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """The vectors of spans from `first` to `last`, (n_spans, 2 * dim + input_dim + width_dim).

        Tokens have a context, (n_tokens, dim); heads are made of `inputs`, (n_tokens, input_dim).
        """
        offsets = torch.arange(self.max_width, device=first.device)
        inside = offsets < (last - first + 1)[:, None]
        places = (first[:, None] + offsets).clamp(max=len(context) - 1)
        weights = masked_softmax(self.head(context).squeeze(1)[places], inside)
        head = torch.einsum("sw,swd->sd", weights, inputs[places])
        width = self.dropout(self.width(last - first))
        return torch.cat([context[first], context[last], head, width], dim=1)


class SpanScorer(nn.Module):
    """A feed-forward network with two hidden layers of size `dim`, and one score at its end."""

    def __init__(self, input_dim: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(input_dim, dim)
        self.rest = nn.Sequential(
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(dim, dim),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(dim, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Score, (..., input_dim) to (...)."""
        scores: Tensor = self.rest(self.first(x)).squeeze(-1)
        return scores

    def pairs(self, vectors: Tensor, others: Tensor, features: Tensor) -> Tensor:
        """Score pairs by [g_i; g_j; g_i * g_j; features], (n, m), part by part.

        Spans, (n, dim), go through the first layer once each, not once for every pair. `others`
        says whom each is paired with, (n, m).
        """
        dim, weight = vectors.shape[1], self.first.weight
        own, other, both = (weight[:, k * dim : (k + 1) * dim].t() for k in range(3))
        hidden = (vectors @ own)[:, None] + (vectors @ other)[others]
        hidden = hidden + (vectors[:, None] * vectors[others]) @ both
        hidden = hidden + features @ weight[:, 3 * dim :].t() + self.first.bias
        scores: Tensor = self.rest(hidden).squeeze(-1)
        return scores


def candidate_spans(lengths: Tensor, max_width: int) -> tuple[Tensor, Tensor]:
    """First and last token of all spans inside a sentence, (n_spans,), counted over sentences."""
    ends = torch.cumsum(lengths, 0)
    places = torch.arange(int(ends[-1]), device=lengths.device)
    end = torch.repeat_interleave(ends, lengths)  # of each token's sentence
    last = places[:, None] + torch.arange(max_width, device=lengths.device)
    inside = last < end[:, None]
    return places[:, None].expand_as(last)[inside], last[inside]


def distance_buckets(distance: Tensor) -> Tensor:
    """Sort distances from 1 on into 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+ (numbers 1 to 9)."""
    starts = torch.tensor([1, 2, 3, 4, 5, 8, 16, 32, 64], device=distance.device)
    return torch.bucketize(distance, starts, right=True)


def prune(scores: list[float], first: list[int], last: list[int], n_kept: int) -> list[int]:
    """Keep the best `n_kept` spans that do not cross a better one; nested ones may stay.

    Returns:
        numbers of the kept spans, by place in the text.
    """
    order = sorted(range(len(scores)), key=lambda k: (-scores[k], first[k], last[k]))
    kept: list[int] = []
    # For each token, the furthest end of a kept span that starts there, and the furthest start
    # of one that ends there: a crossing shows in one of them.
    longest: dict[int, int] = {}
    earliest: dict[int, int] = {}
    for k in order:
        if len(kept) >= n_kept:
            break
        a, b = first[k], last[k]
        crosses = any(
            (t > a and longest.get(t, -1) > b) or (t < b and earliest.get(t, t) < a)
            for t in range(a, b + 1)
        )
        if crosses:
            continue
        kept.append(k)
        longest[a] = max(longest.get(a, -1), b)
        earliest[b] = min(earliest.get(b, b), a)
    return sorted(kept, key=lambda k: (first[k], last[k]))
