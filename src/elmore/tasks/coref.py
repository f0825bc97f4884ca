"""Coreference: end-to-end span ranking (Lee et al. 2017; supplement A.6).

All spans of a sentence up to a length are candidates; the best by mention score are kept, and
each is linked to its best antecedent, or to none, whose score is fixed at 0. ELMo goes into the
biLSTM; heads are made of the words' own vectors, as in the authors' later code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmore._messages import shown
from elmore.errors import ConfigError, InputError
from elmore.tasks.layers.encoders import BiLstm
from elmore.tasks.layers.features import TokenFeatures, Tokens
from elmore.tasks.layers.spans import SpanScorer, SpanVectors, distance_buckets, prune
from elmore.tasks.metrics.clusters import cluster_scores
from elmore.tasks.parts import Measured, Network
from elmore.tasks.readers.ontonotes import read_documents
from elmore.tasks.supervised import Task
from elmore.tasks.tags import Span
from elmore.tasks.terminal import mark_spans
from elmore.text.splitter import split_sentences

__all__ = ["Clusters", "Coref", "CorefExample", "CorefSizes"]

# Mentions of a document as (first, last) token, counted over all sentences.
Clusters = tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class CorefExample:
    """A document.

    Attributes:
        sentences: token lists.
        speakers: of each sentence.
        clusters: mentions that mean the same.
        name: of the document.
    """

    sentences: tuple[tuple[str, ...], ...]
    speakers: tuple[str, ...] = ()
    clusters: Clusters = ()
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class CorefSizes:
    """The section `model`.

    Attributes:
        dim: units of each direction of the biLSTM.
        hidden: of both feed-forward networks.
        feature_dim: size of the vectors of widths, distances and speakers.
        max_width: longest candidate, in tokens.
        spans_per_token: share of the document's length that is kept.
        max_antecedents: how many preceding spans are looked at.
        max_sentences: a training step reads a random window of so many.
        embedding_dropout: on the input.
        dropout: everywhere else.
        keep_singletons: whether gold clusters of one mention count in scores.
    """

    dim: int
    hidden: int
    feature_dim: int
    max_width: int
    spans_per_token: float
    max_antecedents: int
    max_sentences: int
    embedding_dropout: float
    dropout: float
    keep_singletons: bool


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

    def read(self, path: Path) -> list[CorefExample]:
        """Read CoNLL-2012 columns."""
        found = []
        for document in read_documents(path):
            clusters: dict[int, list[tuple[int, int]]] = {}
            offset = 0
            for sentence in document.sentences:
                for mention in sentence.mentions:
                    place = (offset + mention.first, offset + mention.last)
                    clusters.setdefault(mention.cluster, []).append(place)
                offset += len(sentence.tokens)
            found.append(
                CorefExample(
                    tuple(sentence.tokens for sentence in document.sentences),
                    tuple(sentence.speaker for sentence in document.sentences),
                    tuple(tuple(sorted(set(cluster))) for cluster in clusters.values()),
                    document.name,
                )
            )
        if not found:
            raise InputError("there is no document; is this CoNLL-2012?", file=str(path))
        return found

    def texts(self, example: CorefExample) -> Sequence[Sequence[str]]:
        """Give the sentences."""
        return example.sentences

    def length(self, example: CorefExample) -> int:
        """Count the tokens of the document."""
        return sum(map(len, example.sentences))

    def find_labels(self, examples: Sequence[CorefExample]) -> dict[str, Any]:
        """There are none."""
        return {}

    def doubts(self, examples: Sequence[CorefExample]) -> list[str]:
        """Say so if there is no cluster to learn."""
        if any(len(cluster) > 1 for example in examples for cluster in example.clusters):
            return []
        return ["no two training mentions share a cluster; are the clusters in the last column?"]

    def build(self, features: TokenFeatures) -> Network:
        """Make the network."""
        return _SpanRanker(features, self.recipe.model)

    def loss(self, examples: Sequence[CorefExample]) -> Tensor:
        """Give the mean loss of a document, summed over its kept spans."""
        losses = [self._document_loss(self._window(example)) for example in examples]
        return torch.stack(losses).mean()

    def _window(self, example: CorefExample) -> CorefExample:
        """Cut a random window out of a long document."""
        most = self.recipe.model.max_sentences
        if not self.network.training or len(example.sentences) <= most:
            return example
        start = int(torch.randint(len(example.sentences) - most + 1, ()))
        before = sum(map(len, example.sentences[:start]))
        sentences = example.sentences[start : start + most]
        end = before + sum(map(len, sentences))
        clusters = tuple(
            tuple((a - before, b - before) for a, b in cluster if before <= a and b < end)
            for cluster in example.clusters
        )
        return CorefExample(
            sentences, example.speakers[start : start + most], clusters, example.name
        )

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
        """Link spans and follow the links."""
        return [self._clusters(example) for example in examples]

    def _clusters(self, example: CorefExample) -> Clusters:
        ranked = self._rank(example)
        if ranked is None:
            return ()
        spans, scores, antecedents, _ = ranked
        best = scores.argmax(1).tolist()
        chosen = antecedents.tolist()
        clusters: list[list[tuple[int, int]]] = []
        mine: dict[int, int] = {}
        for k, span in enumerate(spans):
            if not best[k]:
                continue
            antecedent = chosen[k][best[k] - 1]
            if antecedent not in mine:
                mine[antecedent] = len(clusters)
                clusters.append([spans[antecedent]])
            mine[k] = mine[antecedent]
            clusters[mine[k]].append(span)
        return tuple(tuple(cluster) for cluster in clusters)

    def _rank(
        self, example: CorefExample
    ) -> tuple[list[tuple[int, int]], Tensor, Tensor, Tensor] | None:
        """Score antecedents; see `_SpanRanker.forward`. None for a document without tokens."""
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
        tokens = self.tokens(sentences)
        known = any(speaker not in ("-", "_") for speaker in speakers)
        result: tuple[list[tuple[int, int]], Tensor, Tensor, Tensor] = self.network(
            tokens, torch.tensor(of_token, device=tokens.lengths.device), known
        )
        return result

    def measure(self, examples: Sequence[CorefExample], found: Sequence[Clusters]) -> Measured:
        """Score clusters by the three measures and their mean."""
        least = 1 if self.recipe.model.keep_singletons else 2
        gold = [[c for c in example.clusters if len(c) >= least] for example in examples]
        metrics, rows = cluster_scores(gold, found)
        notes = [] if least == 1 else ["gold clusters of one mention are left out"]
        return Measured(metrics, {"measures": rows}, notes)

    def parse(self, item: str | Sequence[Sequence[str]]) -> CorefExample:
        """Take a document: running text, or its sentences as token lists."""
        if isinstance(item, str):
            sentences = tuple(self.tokenize(text) for text in split_sentences(item))
        else:
            for sentence in item:
                # Of a string, tuple() would make letters. It may be a token or a sentence: ask.
                if isinstance(sentence, str) or not isinstance(sentence, Collection):
                    raise ConfigError(
                        f"coref found {shown(repr(sentence), 40)} where a sentence's tokens should "
                        "be; pass a document as one text, or its sentences as token lists"
                    )
            sentences = tuple(tuple(sentence) for sentence in item)
        return CorefExample(sentences, ("-",) * len(sentences))

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        """Take blank lines for the ends of documents."""
        text: list[str] = []
        for _, line in lines:
            if line.strip():
                text.append(line)
            elif text:
                yield "\n".join(text)
                text = []
        if text:
            yield "\n".join(text)

    def show(self, example: CorefExample, found: Clusters, *, colour: bool) -> str:
        """Mark each mention with the number of its cluster; the outermost where they nest."""
        tokens = [token for sentence in example.sentences for token in sentence]
        spans = [Span(str(k), a, b) for k, c in enumerate(found, 1) for a, b in c]
        spans.sort(key=lambda span: (span.first, -span.last))
        outer: list[Span] = []
        for span in spans:
            if not outer or span.first > outer[-1].last:
                outer.append(span)
        return mark_spans(tokens, outer, colour=colour)

    def to_json(self, example: CorefExample, found: Clusters) -> dict[str, Any]:
        """Give sentences and clusters."""
        tokens = [token for sentence in example.sentences for token in sentence]
        return {
            "sentences": [list(sentence) for sentence in example.sentences],
            "clusters": [
                [{"first": a, "last": b, "text": " ".join(tokens[a : b + 1])} for a, b in cluster]
                for cluster in found
            ],
        }


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

    def forward(
        self, tokens: Tokens, speakers: Tensor, known: bool
    ) -> tuple[list[tuple[int, int]], Tensor, Tensor, Tensor]:
        """Score the antecedents of the spans that are kept.

        Args:
            tokens: the sentences of one document.
            speakers: of each token, (n_tokens,).
            known: whether the document tells speakers at all.

        Returns:
            the kept spans; scores of no antecedent and of each, (kept, 1 + antecedents); numbers
            of the antecedents, (kept, antecedents), nearest first; which of them exist.
        """
        x, elmo = self.features(tokens)
        x = self.embedding_dropout(x)
        context = torch.cat([self.dropout(self.encoder(x, tokens.lengths)), elmo], dim=2)
        mask = tokens.mask
        context, inputs = context[mask], x[mask][:, : self.head_dim]
        first, last = self._candidates(tokens.lengths)
        vectors = self.spans(context, inputs, first, last)
        mentions = self.mention(vectors)
        most = max(1, int(self.sizes.spans_per_token * len(context)))
        kept = torch.tensor(
            prune(mentions.tolist(), first.tolist(), last.tolist(), most), device=first.device
        )
        first, last, vectors, mentions = first[kept], last[kept], vectors[kept], mentions[kept]
        pairs, antecedents, real = self._pairs(vectors, speakers[first], known)
        scores = mentions[:, None] + mentions[antecedents] + pairs
        scores = scores.masked_fill(~real, -torch.inf)
        nothing = scores.new_zeros(len(scores), 1)
        spans = list(zip(first.tolist(), last.tolist(), strict=True))
        return spans, torch.cat([nothing, scores], dim=1), antecedents, real

    def _candidates(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """List all spans inside a sentence, (n_spans,) each: first and last token."""
        widths = torch.arange(self.sizes.max_width, device=lengths.device)
        ends = torch.cumsum(lengths, 0)
        total = int(ends[-1])
        places = torch.arange(total, device=lengths.device)
        end = torch.repeat_interleave(ends, lengths)  # of each token's sentence
        last = places[:, None] + widths
        inside = last < end[:, None]
        return places[:, None].expand_as(last)[inside], last[inside]

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
            [
                self.distance(distance_buckets(steps)).expand(n, -1, -1),
                self.speaker(same),
            ],
            dim=2,
        )
        scores = self.pair.pairs(vectors, antecedents, self.dropout(features))
        return scores, antecedents, real
