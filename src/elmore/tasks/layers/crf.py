"""A linear-chain conditional random field."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Crf"]


class Crf(nn.Module):
    """A CRF layer (Lafferty et al. 2001) without scores of its own for start and end.

    The partition function runs over all paths: the rules of a scheme apply to decoding only, as in
    the paper's NER model. `decoding.py` finds the best path.

    Args:
        n_tags: how many tags there are.
    """

    def __init__(self, n_tags: int) -> None:
        super().__init__()
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
