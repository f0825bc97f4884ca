"""The CRF against sums and searches over all paths."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from elmore.tasks.layers.crf import Crf, Transitions, viterbi


def anything(n_tags: int) -> Transitions:
    every = torch.ones(n_tags, dtype=torch.bool)
    return Transitions(torch.ones(n_tags, n_tags, dtype=torch.bool), every, every)


def path_score(scores: Tensor, transitions: Tensor, path: tuple[int, ...]) -> Tensor:
    total = sum(scores[place, tag] for place, tag in enumerate(path))
    return total + sum(transitions[a, b] for a, b in itertools.pairwise(path))


@pytest.mark.parametrize("length", [1, 2, 4])
def test_likelihood_is_that_of_all_paths(length: int) -> None:
    torch.manual_seed(length)
    crf = Crf(anything(3)).double()
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
    crf = Crf(anything(3))
    scores, tags = torch.randn(1, 4, 3), torch.randint(3, (1, 4))
    padded = torch.cat([scores, torch.full((1, 3, 3), 1e3)], dim=1)
    more = torch.cat([tags, torch.ones(1, 3, dtype=torch.long)], dim=1)
    lengths = torch.tensor([4])
    torch.testing.assert_close(crf(padded, more, lengths), crf(scores, tags, lengths))
    assert crf.decode(padded, lengths) == crf.decode(scores, lengths)


def test_an_empty_sentence_is_certain() -> None:
    crf = Crf(anything(3))
    lengths = torch.tensor([0, 2])
    tags = torch.zeros(2, 2, dtype=torch.long)
    likelihood = crf(torch.randn(2, 2, 3), tags, lengths)
    assert likelihood[0] == 0
    assert crf.decode(torch.randn(2, 2, 3), lengths)[0] == []
    assert crf(torch.randn(2, 0, 3), tags[:, :0], lengths * 0).tolist() == [0, 0]
    assert crf.decode(torch.randn(2, 0, 3), lengths * 0) == [[], []]


@pytest.mark.parametrize("seed", range(5))
def test_the_best_allowed_path_is_found(seed: int) -> None:
    torch.manual_seed(seed)
    scores, transitions = torch.randn(4, 3), torch.randn(3, 3)
    allowed = torch.rand(3, 3) > 0.3
    allowed.fill_diagonal_(True)
    first, last = torch.tensor([True, True, False]), torch.tensor([True, False, True])
    rules = Transitions(allowed, first, last)
    costs, start, end = rules.costs()
    (found,) = viterbi(scores[None], torch.tensor([4]), transitions + costs, start, end)
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


def test_constraints_touch_decoding_only() -> None:
    torch.manual_seed(0)
    free, bound = Crf(anything(2)), Crf(anything(2))
    bound.load_state_dict(free.state_dict())
    bound.constraints.allowed[0, 1] = False
    scores = torch.tensor([[[5.0, 0.0], [0.0, 5.0]]])
    tags, lengths = torch.tensor([[0, 1]]), torch.tensor([2])
    assert torch.equal(free(scores, tags, lengths), bound(scores, tags, lengths))
    assert free.decode(scores, lengths) == [[0, 1]]
    assert bound.decode(scores, lengths) != [[0, 1]]
