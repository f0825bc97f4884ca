"""The layers of task models against plain ones, by hand, and what padding must not do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmore.tasks.encoders import (
    AlternatingLstm,
    BiGru,
    BiLstm,
    BiLstmStack,
    Crf,
    HighwayLstm,
    SelfAttentivePooling,
    Trilinear,
    VariationalDropout,
    masked_max,
    masked_mean,
    masked_softmax,
)
from elmore.tasks.features import SpellingCnn, WordTable
from elmore.tasks.paper.coref import SpanScorer, SpanVectors, distance_buckets, prune
from elmore.tasks.predictions import FORBIDDEN, Steps, best_path, steps_of
from elmore.tasks.recipe import CharactersRecipe

LENGTHS = torch.tensor([3, 0, 5, 1])


def batch(dim: int = 6) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 5, dim)


def test_bilstm_is_torchs() -> None:
    torch.manual_seed(1)
    own, other = BiLstm(6, 4), nn.LSTM(6, 4, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for name, end in (("forward", ""), ("backward", "_reverse")):
            getattr(other, f"weight_ih_l0{end}").copy_(own.get_parameter(f"{name}_input"))
            getattr(other, f"weight_hh_l0{end}").copy_(own.get_parameter(f"{name}_state"))
            getattr(other, f"bias_ih_l0{end}").copy_(own.get_parameter(f"{name}_bias"))
            getattr(other, f"bias_hh_l0{end}").zero_()
    x = batch()
    found = own(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        if length:
            expected = other(x[row : row + 1, :length])[0][0]
            torch.testing.assert_close(found[row, :length], expected, atol=1e-6, rtol=1e-5)
        assert bool((found[row, length:] == 0).all())


def step_by_step(layer: HighwayLstm, x: Tensor) -> Tensor:
    """The equations of the layer, one token at a time."""
    dim = layer.dim
    w, u, b = layer.input_weight.chunk(6), layer.state_weight.chunk(5), layer.bias.chunk(5)
    hidden = memory = torch.zeros(dim)
    outputs = []
    for token in x:
        i, f, o, r = (torch.sigmoid(w[k] @ token + u[k] @ hidden + b[k]) for k in range(4))
        memory = f * memory + i * torch.tanh(w[4] @ token + u[4] @ hidden + b[4])
        hidden = r * (o * torch.tanh(memory)) + (1 - r) * (w[5] @ token)
        outputs.append(hidden)
    return torch.stack(outputs)


def test_layers_alternate_and_start_at_each_sentences_own_end() -> None:
    torch.manual_seed(2)
    stack = AlternatingLstm(6, 4, 3, dropout=0.5).eval()
    x = batch()
    found = stack(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        if length:
            first, second, third = stack.layers
            expected = step_by_step(first, x[row, :length])
            expected = step_by_step(second, expected.flip(0)).flip(0)
            expected = step_by_step(third, expected)
            torch.testing.assert_close(found[row, :length], expected, atol=1e-6, rtol=1e-5)
        assert bool((found[row, length:] == 0).all())


@pytest.mark.parametrize(
    "encoder",
    [BiLstm(6, 4), BiGru(6, 4), BiLstmStack(6, (4, 3), 0.5).eval(), AlternatingLstm(6, 4, 2, 0.0)],
    ids=["lstm", "gru", "stack", "alternating"],
)
def test_padding_and_neighbours_are_never_seen(encoder: Any) -> None:
    x = batch()
    found = encoder(x, LENGTHS)
    alone = encoder(x[:1, :3], LENGTHS[:1])
    torch.testing.assert_close(found[:1, :3], alone, atol=1e-6, rtol=1e-5)
    noisy = x.clone()
    noisy[0, 3:] = 1e6
    torch.testing.assert_close(encoder(noisy, LENGTHS)[0], found[0])
    assert not encoder(x[:, :1], LENGTHS * 0).any()
    leaf = x.clone().requires_grad_()
    encoder(leaf, LENGTHS).sum().backward()
    assert bool((leaf.grad[1] == 0).all())
    assert bool((leaf.grad[0, :3] != 0).any())


def test_variational_dropout_drops_a_feature_everywhere() -> None:
    torch.manual_seed(0)
    dropout = VariationalDropout(0.5)
    x = torch.ones(8, 6, 50)
    dropped = dropout(x)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert bool((dropped == dropped[:, :1]).all())
    assert not bool((dropped == dropped[:1]).all())
    assert torch.equal(dropout.eval()(x), x)


def test_softmax_over_what_is_real() -> None:
    scores = torch.tensor([[0.0, 1.0, 99.0], [5.0, 5.0, 5.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, mask)
    torch.testing.assert_close(weights[0, :2], torch.softmax(torch.tensor([0.0, 1.0]), 0))
    assert weights[0, 2] == 0
    assert weights[1].tolist() == [0, 0, 0]
    weights.square().sum().backward()
    assert bool(scores.grad.isfinite().all())


def test_softmax_with_nothing_as_a_choice() -> None:
    """a_j = exp(s_j) / (exp(b) + sum_k exp(s_k)), large scores included."""
    nothing = torch.tensor(-1.0, requires_grad=True)
    scores = torch.tensor([[0.5, 2.0]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    expected = scores.exp() / (nothing.exp() + scores.exp().sum())
    torch.testing.assert_close(masked_softmax(scores, mask, nothing=nothing), expected)
    large = masked_softmax(scores + 500, mask, nothing=nothing + 500)
    torch.testing.assert_close(large, expected)
    empty = masked_softmax(scores, ~mask, nothing=nothing)
    assert empty.tolist() == [[0, 0]]
    (expected.sum() + empty.sum()).backward()
    assert bool(nothing.grad.isfinite())


def test_trilinear_is_the_long_form() -> None:
    torch.manual_seed(0)
    score = Trilinear(4)
    x, q = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    found = score(x, q)
    for i in range(3):
        for j in range(5):
            a, b = x[:, i], q[:, j]
            expected = score.first(a) + score.second(b) + (a * b * score.both).sum(1, keepdim=True)
            torch.testing.assert_close(found[:, i, j], expected.squeeze(1))


def test_pooling_sees_real_tokens_only() -> None:
    values = torch.tensor([[[1.0], [-3.0], [99.0]], [[-1.0], [-2.0], [-99.0]], [[7.0]] * 3])
    mask = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    assert masked_mean(values, mask).flatten().tolist() == [-1, -1.5, 0]
    assert masked_max(values, mask).flatten().tolist() == [1, -1, 0]
    assert (-masked_max(-values, mask)).flatten().tolist() == [-3, -2, 0]
    pooling = SelfAttentivePooling(1)
    pooled = pooling(values, mask).detach()
    assert -3 < float(pooled[0]) < 1
    assert float(pooled[2]) == 0


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


def test_an_empty_sentence_is_certain() -> None:
    crf = Crf(3)
    lengths = torch.tensor([0, 2])
    tags = torch.zeros(2, 2, dtype=torch.long)
    likelihood = crf(torch.randn(2, 2, 3), tags, lengths)
    assert likelihood[0] == 0
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


def test_rows_of_the_table() -> None:
    trained, fixed = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    table = WordTable(trained, fixed)
    with torch.no_grad():
        table.unknown.fill_(9)
    ids = torch.tensor([[0, 1, 2, 3, 4]])
    found = table(ids)
    assert found.tolist() == [[[0, 0], [9, 9], [1, 2], [3, 4], [5, 6]]]
    found.sum().backward()
    assert table.unknown.grad.tolist() == [1, 1]
    assert table.trained.grad.tolist() == [[1, 1]]
    assert [name for name, _ in table.named_parameters()] == ["unknown", "trained"]
    assert WordTable(trained[:0], fixed)(torch.tensor([[2, 1]])).tolist() == [[[3, 4], [0, 0]]]
    assert WordTable(trained, fixed[:0])(torch.tensor([[2]])).tolist() == [[[1, 2]]]


def test_a_words_spelling_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    cnn = SpellingCnn(CharactersRecipe(filters=((3, 5), (5, 4)), dim=6))
    with torch.no_grad():
        for convolution in cnn.convolutions:
            convolution.bias.fill_(1.0)  # a window of padding alone would win
    short = torch.tensor([[5, 6]])
    long = torch.tensor([[5, 6, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7]])
    torch.testing.assert_close(cnn(short)[0], cnn(long)[0])
    assert cnn(short).shape == (1, 9)
    assert cnn(torch.zeros(1, 1, dtype=torch.long)).tolist() == [[0] * 9]


def test_distances_are_bucketed() -> None:
    distances = torch.tensor([1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 1000])
    assert distance_buckets(distances).tolist() == [1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]


def test_pruning_skips_what_crosses_and_lets_nest() -> None:
    first, last = [0, 2, 1, 4, 0], [2, 4, 1, 4, 4]
    #            a-c  c-e  b   e   a-e
    assert prune([5, 4, 3, 2, 1], first, last, 10) == [0, 4, 2, 3]  # 1 crosses 0
    assert prune([4, 5, 3, 2, 1], first, last, 10) == [4, 2, 1, 3]  # 0 crosses 1
    assert prune([5, 4, 3, 2, 1], first, last, 2) == [0, 2]
    assert prune([], [], [], 3) == []


def test_heads_stay_inside_their_span() -> None:
    torch.manual_seed(0)
    spans = SpanVectors(4, 3, 2, 0.0)
    context, inputs = torch.randn(5, 4), torch.randn(5, 3)
    first, last = torch.tensor([0, 3, 4]), torch.tensor([1, 4, 4])
    found = spans(context, inputs, first, last)
    assert found.shape == (3, 4 + 4 + 3 + 2)
    weights = torch.softmax(spans.head(context[:2]).squeeze(1), 0)
    torch.testing.assert_close(found[0, 8:11], weights @ inputs[:2])
    torch.testing.assert_close(found[2, 8:11], inputs[4])
    torch.testing.assert_close(found[1, :4], context[3])
    torch.testing.assert_close(found[1, 4:8], context[4])


def test_pairs_part_by_part_are_the_whole() -> None:
    torch.manual_seed(0)
    scorer = SpanScorer(3 * 4 + 2, 5, 0.0)
    vectors, features = torch.randn(3, 4), torch.randn(3, 2, 2)
    others = torch.tensor([[0, 0], [0, 1], [1, 0]])
    found = scorer.pairs(vectors, others, features)
    for i in range(3):
        for j in range(2):
            g, h = vectors[i], vectors[others[i, j]]
            torch.testing.assert_close(
                found[i, j], scorer(torch.cat([g, h, g * h, features[i, j]]))
            )
