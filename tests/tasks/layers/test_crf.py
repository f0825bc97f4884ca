"""The CRF against sums and searches over all paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.tasks.data.tags import FORBIDDEN
from elmore.tasks.layers.encoders import Crf
from elmore.tasks.predictions import Steps, best_path, steps_of


def path_score(scores: Tensor, transitions: Tensor, path: tuple[int, ...]) -> Tensor:
    total = sum(scores[place, tag] for place, tag in enumerate(path))
    return total + sum(transitions[a, b] for a, b in itertools.pairwise(path))


@pytest.mark.parametrize("length", [1, 2, 4])
def test_likelihood_is_that_of_all_paths(length: int) -> None:
    torch.manual_seed(length)
    crf = Crf(3).double()
    scores = torch.randn(2, 5, 3, dtype=torch.float64)
    tags = torch.randint(3, (2, 5))
    found = crf(scores, tags, torch.tensor([length, 5]))
    everything = torch.stack(
        [
            path_score(scores[0], crf.transitions, path)
            for path in itertools.product(range(3), repeat=length)
        ]
    )
    gold = path_score(scores[0], crf.transitions, tuple(tags[0, :length].tolist()))
    torch.testing.assert_close(found[0], gold - torch.logsumexp(everything, 0))


def test_padding_does_not_count() -> None:
    torch.manual_seed(0)
    crf = Crf(3)
    scores, tags = torch.randn(1, 4, 3), torch.randint(3, (1, 4))
    padded = torch.cat([scores, torch.full((1, 3, 3), 1e3)], dim=1)
    more = torch.cat([tags, torch.ones(1, 3, dtype=torch.long)], dim=1)
    lengths = torch.tensor([4])
    torch.testing.assert_close(crf(padded, more, lengths), crf(scores, tags, lengths))


def test_an_empty_sentence_is_certain() -> None:
    crf = Crf(3)
    lengths = torch.tensor([0, 2])
    tags = torch.zeros(2, 2, dtype=torch.long)
    likelihood = crf(torch.randn(2, 2, 3), tags, lengths)
    assert likelihood[0] == 0
    assert crf(torch.randn(2, 0, 3), tags[:, :0], lengths * 0).tolist() == [0, 0]
    assert best_path(np.zeros((0, 3), np.float32), steps_of(["O", "B-A", "I-A"], "IOB2")).size == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_best_allowed_path_is_found(seed: int) -> None:
    torch.manual_seed(seed)
    scores, transitions = torch.randn(4, 3), torch.randn(3, 3)
    allowed = torch.rand(3, 3) > 0.3
    allowed.fill_diagonal_(True)
    first, last = torch.tensor([True, True, False]), torch.tensor([True, False, True])
    between, start, end = (
        np.where(mask.numpy(), 0, FORBIDDEN).astype(np.float32) for mask in (allowed, first, last)
    )
    found = best_path(scores.numpy(), Steps(transitions.numpy() + between, start, end))
    legal = [
        path
        for path in itertools.product(range(3), repeat=4)
        if first[path[0]]
        and last[path[-1]]
        and all(allowed[a, b] for a, b in itertools.pairwise(path))
    ]
    assert len(legal) < 3**4
    best = max(legal, key=lambda path: float(path_score(scores, transitions, path)))
    assert tuple(found) == best
