"""Random weights in the distributions of bilm-tf."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.nn.bilm import BiLm, initialise

DIM, CELLS, CHAR_DIM, FILTERS = 24, 96, 8, ((1, 16), (3, 64))
F = 80


def made(activation: str = "relu", seed: int = 0, words: int = 0) -> dict[str, Tensor]:
    tokens = (
        TokenEncoderConfig(n_words=words, word_dim=DIM, projected=False)
        if words
        else TokenEncoderConfig(
            n_characters=261,
            char_dim=CHAR_DIM,
            max_chars=10,
            filters=FILTERS,
            activation=activation,  # type: ignore[arg-type]
            n_highway=2,
            projected=True,
        )
    )
    lstm = LstmConfig(dim=CELLS, projection_dim=DIM, n_layers=2)
    bilm = BiLm(BiLmConfig(tokens=tokens, lstm=lstm))
    initialise(bilm, np.random.default_rng(seed))
    return {name: weight.detach() for name, weight in bilm.named_parameters()}


def uniform(weight: Tensor, bound: float) -> None:
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.97 * bound
    assert weight.mean().abs() < 0.1 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.08)


def normal(weight: Tensor, std: float) -> None:
    assert weight.std().item() == pytest.approx(std, rel=0.08)
    assert weight.mean().abs() < 0.15 * std
    assert weight.abs().max() > 2.5 * std


def test_distributions() -> None:
    weights = made()
    uniform(weights.pop("tokens.characters"), 1)
    for k in range(len(FILTERS)):
        uniform(weights.pop(f"tokens.convolutions.{k}.weight"), 0.05)
        assert not weights.pop(f"tokens.convolutions.{k}.bias").any()
    for k in range(2):
        normal(weights.pop(f"tokens.highways.{k}.weight"), math.sqrt(1 / F))
        bias = weights.pop(f"tokens.highways.{k}.bias")
        assert bias.tolist() == [0.0] * F + [-2.0] * F  # transform, then the gate
    normal(weights.pop("tokens.projection.weight"), math.sqrt(1 / F))
    assert not weights.pop("tokens.projection.bias").any()
    for direction in ("forward", "backward"):
        for k in range(2):
            name = f"{direction}_layers.{k}"
            for part in ("input", "state"):  # one matrix (2P, 4C) in bilm-tf
                bound = math.sqrt(6 / (2 * DIM + 4 * CELLS))
                uniform(weights.pop(f"{name}.{part}_weight"), bound)
            uniform(weights.pop(f"{name}.projection"), math.sqrt(6 / (DIM + CELLS)))
            assert not weights.pop(f"{name}.bias").any()
    assert not weights


def test_tanh_filters_are_normal() -> None:
    weights = made("tanh")
    for k, (width, _) in enumerate(FILTERS):
        weight = weights[f"tokens.convolutions.{k}.weight"]
        std = math.sqrt(1 / (width * CHAR_DIM))
        assert weight.std().item() == pytest.approx(std, rel=0.2 if width == 1 else 0.08)
        assert weight.abs().max() > 2 * std


def test_word_tables_are_glorot_uniform() -> None:
    uniform(made(words=500)["tokens.words"], math.sqrt(6 / (500 + DIM)))


def test_the_generator_decides_and_nothing_else() -> None:
    first, same, other = made(), made(), made(seed=1)
    for name, weight in first.items():
        assert torch.equal(weight, same[name])
        assert name.endswith("bias") or not torch.equal(weight, other[name])
    # no two matrices are drawn alike
    one, two = first["forward_layers.0.input_weight"], first["backward_layers.0.input_weight"]
    assert not torch.equal(one, two)
