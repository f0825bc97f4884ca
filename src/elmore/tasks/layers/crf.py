"""A linear-chain conditional random field, and the search for the best path through tags."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmore.tasks.data.tags import FORBIDDEN, Scheme, tag_rules

__all__ = ["Crf", "Transitions", "tag_transitions", "viterbi"]


class Transitions(nn.Module):
    """Which tag may follow which; buffers, so that they move with the model.

    Args:
        allowed: allowed[i, j]: tag j may follow tag i, (tags, tags).
        first: tags that may come first, (tags,).
        last: tags that may come last, (tags,).
    """

    allowed: Tensor
    first: Tensor
    last: Tensor

    def __init__(self, allowed: Tensor, first: Tensor, last: Tensor) -> None:
        super().__init__()
        for name, mask in (("allowed", allowed), ("first", first), ("last", last)):
            self.register_buffer(name, mask.bool(), persistent=False)

    def costs(self) -> tuple[Tensor, Tensor, Tensor]:
        """0 where a step is allowed and a large negative number elsewhere."""

        def cost(mask: Tensor) -> Tensor:
            return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, FORBIDDEN)

        return cost(self.allowed), cost(self.first), cost(self.last)


def tag_transitions(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """Which tag may follow which in a scheme."""
    return Transitions(*map(torch.tensor, tag_rules(tags, scheme)))


class Crf(nn.Module):
    """A CRF layer (Lafferty et al. 2001) without scores of its own for start and end.

    Constraints apply to decoding only, as in the paper's NER model; the partition function runs
    over all paths.

    Args:
        transitions: which tag may follow which.
    """

    def __init__(self, transitions: Transitions) -> None:
        super().__init__()
        n_tags = len(transitions.first)
        self.constraints = transitions
        self.transitions = nn.Parameter(torch.empty(n_tags, n_tags))
        nn.init.xavier_normal_(self.transitions)

    def forward(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """The log-likelihood of tag sequences.

        Args:
            scores: of each tag at each place, (batch, time, tags).
            tags: the right ones, (batch, time); anything at padding.
            lengths: tokens of each sentence, (batch,).

        Returns:
            (batch,); 0 for an empty sentence.
        """
        time = scores.shape[1]
        if not time:
            return scores.new_zeros(len(scores))
        mask = torch.arange(time, device=scores.device) < lengths[:, None]
        return self._gold(scores, tags, mask) - self._partition(scores, mask)

    def _gold(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        emitted = scores.gather(2, tags[:, :, None]).squeeze(2)
        steps = self.transitions[tags[:, :-1], tags[:, 1:]]
        return (emitted * mask).sum(1) + (steps * mask[:, 1:]).sum(1)

    def _partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        total = scores[:, 0]  # (batch, tags)
        for place in range(1, scores.shape[1]):
            paths = total[:, :, None] + self.transitions  # (batch, from, to)
            longer = torch.logsumexp(paths, dim=1) + scores[:, place]
            total = torch.where(mask[:, place, None], longer, total)
        return torch.logsumexp(total, dim=1) * mask[:, 0]

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """Find the best allowed tags of each sentence; arguments as in `forward`."""
        allowed, first, last = self.constraints.costs()
        return viterbi(scores, lengths, self.transitions + allowed, first, last)


@torch.no_grad()
def viterbi(
    scores: Tensor, lengths: Tensor, transitions: Tensor, first: Tensor, last: Tensor
) -> list[list[int]]:
    """Find the path with the highest sum of scores.

    Args:
        scores: of each tag at each place, (batch, time, tags).
        lengths: tokens of each sentence, (batch,).
        transitions: score of each step, (tags, tags).
        first: score of each tag as the first, (tags,).
        last: score of each tag as the last, (tags,).

    Returns:
        the tags of each sentence, as long as it is.
    """
    batch, time, n_tags = scores.shape
    if not time:
        return [[] for _ in range(batch)]
    best = scores[:, 0] + first
    steps: list[Tensor] = []
    stay = torch.arange(n_tags, device=scores.device).expand(batch, n_tags)
    for place in range(1, time):
        values, before = (best[:, :, None] + transitions).max(dim=1)
        alive = (lengths > place)[:, None]
        best = torch.where(alive, values + scores[:, place], best)
        steps.append(torch.where(alive, before, stay))
    tag = (best + last).argmax(dim=1)
    path = [tag]
    for before in reversed(steps):
        tag = before.gather(1, tag[:, None]).squeeze(1)
        path.append(tag)
    rows = torch.stack(path[::-1], dim=1).tolist()
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
