"""Recurrent encoders against plain ones, and what padding must not do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elmore.tasks.layers.encoders import (
    AlternatingLstm,
    BiGru,
    BiLstm,
    BiLstmStack,
    HighwayLstm,
    VariationalDropout,
    start_linear,
)

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


def test_blocks_start_orthogonal_with_an_open_forget_gate() -> None:
    layer = HighwayLstm(4, 4, 0.0)
    for block in (*layer.input_weight.chunk(6), *layer.state_weight.chunk(5)):
        torch.testing.assert_close(block @ block.t(), torch.eye(4), atol=1e-5, rtol=0)
    assert layer.bias.reshape(5, 4)[1].tolist() == [1] * 4
    assert float(layer.bias.detach().sum()) == 4


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
    assert encoder(x[:, :0], LENGTHS * 0).shape == (4, 0, found.shape[2])
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


def test_recurrent_dropout_keeps_its_mask_through_time() -> None:
    torch.manual_seed(0)
    layer = HighwayLstm(3, 4, dropout=0.5)
    rows = torch.randn(12, 3)
    assert not torch.equal(layer(rows, (3,) * 4), layer(rows, (3,) * 4))
    layer.eval()
    assert torch.equal(layer(rows, (3,) * 4), layer(rows, (3,) * 4))


def test_linear_layers_start_from_glorot() -> None:
    network = nn.Sequential(nn.Linear(50, 30), nn.ReLU(), nn.Linear(30, 1, bias=False))
    start_linear(network)
    assert float(network[0].bias.detach().abs().sum()) == 0
    assert float(network[0].weight.detach().abs().max()) <= (6 / 80) ** 0.5
