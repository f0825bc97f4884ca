"""Vectors of spans of tokens, and scores of single spans and of pairs (Lee et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmore.tasks.layers.attention import masked_softmax

__all__ = ["SpanScorer", "SpanVectors", "candidate_spans", "distance_buckets", "prune"]

_N_BUCKETS = 10


class SpanVectors(nn.Module):
    """g = [x_first; x_last; head; width], with the head a softmax-weighted mean over the span.

    Args:
        dim: size of a token's context vector.
        max_width: longest span.
        width_dim: size of the vector of a width.
        dropout: on that vector.
    """

    def __init__(self, dim: int, max_width: int, width_dim: int, dropout: float) -> None:
        super().__init__()
        self.max_width = max_width
        self.head = nn.Linear(dim, 1)
        self.width = nn.Embedding(max_width, width_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, context: Tensor, inputs: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """Make the vectors of spans.

        Args:
            context: (n_tokens, dim).
            inputs: what heads are made of, (n_tokens, input_dim).
            first: first token of each span, (n_spans,).
            last: last token, (n_spans,).

        Returns:
            (n_spans, 2 * dim + input_dim + width_dim).
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
        """Score pairs by [g_i; g_j; g_i * g_j; features], part by part.

        Spans go through the first layer once each, not once for every pair.

        Args:
            vectors: of the spans, (n, dim).
            others: whom each is paired with, (n, m).
            features: of the pairs, (n, m, n_features).

        Returns:
            (n, m).
        """
        dim, weight = vectors.shape[1], self.first.weight
        own, other, both = (weight[:, k * dim : (k + 1) * dim].t() for k in range(3))
        hidden = (vectors @ own)[:, None] + (vectors @ other)[others]
        hidden = hidden + (vectors[:, None] * vectors[others]) @ both
        hidden = hidden + features @ weight[:, 3 * dim :].t() + self.first.bias
        scores: Tensor = self.rest(hidden).squeeze(-1)
        return scores


def candidate_spans(lengths: Tensor, max_width: int) -> tuple[Tensor, Tensor]:
    """All spans inside a sentence: first and last token of each, counted over all sentences.

    Args:
        lengths: tokens of each sentence, (batch,).
        max_width: longest span.

    Returns:
        (n_spans,) each.
    """
    ends = torch.cumsum(lengths, 0)
    places = torch.arange(int(ends[-1]), device=lengths.device)
    end = torch.repeat_interleave(ends, lengths)  # of each token's sentence
    last = places[:, None] + torch.arange(max_width, device=lengths.device)
    inside = last < end[:, None]
    return places[:, None].expand_as(last)[inside], last[inside]


def distance_buckets(distance: Tensor) -> Tensor:
    """Sort distances from 1 on into 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+ (numbers 1 to 9)."""
    logs = torch.floor(torch.log2(distance.clamp(min=1).float())).long() + 3
    return torch.where(distance <= 4, distance, logs).clamp(0, _N_BUCKETS - 1)


def prune(scores: list[float], first: list[int], last: list[int], n_kept: int) -> list[int]:
    """Keep the best spans that do not cross a better one; nested ones may stay.

    Args:
        scores: of the spans.
        first: their first tokens.
        last: their last tokens.
        n_kept: how many to keep.

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
