"""The biLM: names, shapes, state as a value, and no hidden side effects."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest
import torch
from small_models import SENTENCES

from elmore import Elmo
from elmore.config import (
    BiLmConfig,
    LstmConfig,
    TokenEncoderConfig,
    count_parameters,
    weight_shapes,
)
from elmore.nn.bilm import BiLm, BiLmState, initialise
from elmore.nn.lstm import Packing, last_rows

CHARACTERS = TokenEncoderConfig(
    n_characters=261, char_dim=4, filters=((1, 4), (3, 6)), n_highway=1, projected=True
)
TOKENS = {
    "characters": CHARACTERS,
    "no highway": dataclasses.replace(CHARACTERS, n_highway=0, activation="tanh"),
    "not projected": dataclasses.replace(CHARACTERS, filters=((1, 3), (2, 5)), projected=False),
    "words": TokenEncoderConfig(n_words=9, word_dim=8, projected=False),
    "projected words": TokenEncoderConfig(n_words=9, word_dim=3),
    "both": dataclasses.replace(CHARACTERS, n_words=9, word_dim=3),
}
LSTMS = [
    LstmConfig(dim=dim, projection_dim=8, n_layers=n_layers, bidirectional=both)
    for dim, n_layers, both in itertools.product((8, 12), (1, 2, 3), (True, False))
]


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
@pytest.mark.parametrize("lstm", LSTMS, ids=lambda c: f"{c.dim}-{c.n_layers}-{c.bidirectional}")
def test_parameters_are_those_of_weight_shapes(
    tokens: TokenEncoderConfig, lstm: LstmConfig
) -> None:
    """The keystone: formats check files against `weight_shapes` without torch."""
    config = BiLmConfig(tokens=tokens, lstm=lstm)
    found = {name: tuple(t.shape) for name, t in BiLm(config).state_dict().items()}
    assert found == weight_shapes(config)
    assert count_parameters(config) == sum(p.numel() for p in BiLm(config).parameters())


def test_building_a_model_draws_no_random_numbers(tiny_elmo: Elmo) -> None:
    """C4: neither building nor filling it touches the generators that belong to the user."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    bilm = BiLm(tiny_elmo.config)
    initialise(bilm, np.random.default_rng(1))
    tiny_elmo.layer()
    tiny_elmo.embed("Nothing is drawn .")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert random.getstate() == before[2]


def run(
    elmo: Elmo, sentences: list[list[str]], state: BiLmState | None = None
) -> tuple[torch.Tensor, BiLmState]:
    layer = elmo.layer()
    batch = layer.batch(sentences)
    with torch.no_grad():
        layers, after = layer.bilm(batch.words, batch.index, batch.lengths, state)
    return layers, after


def test_beyond_the_end_of_a_sentence_all_layers_are_zero(tiny_elmo: Elmo) -> None:
    values, _ = run(tiny_elmo, [["a"], ["two", "words"], []])
    for row, length in enumerate((3, 4, 2)):
        assert (values[:, row, length:] == 0).all()
        assert (values[:, row, :length] != 0).any(dim=-1).all()


def test_state_goes_in_and_comes_out(tiny_elmo: Elmo) -> None:
    """Two halves of a text with the state between them equal the whole, forwards."""
    layer = tiny_elmo.layer()
    tokens = SENTENCES[0]
    batch = layer.batch([tokens])
    half = len(tokens) // 2
    dim = tiny_elmo.config.lstm.projection_dim
    with torch.no_grad():
        vectors = layer.bilm.tokens(batch.words)
        whole, after = layer.bilm.contextualize(vectors, batch.index, batch.lengths)
        lengths = torch.tensor([half])
        first, middle = layer.bilm.contextualize(vectors, batch.index[:, :half], lengths)
        kept = [part.clone() for part in middle]
        lengths = batch.lengths - half
        second, end = layer.bilm.contextualize(vectors, batch.index[:, half:], lengths, middle)
    assert all(torch.equal(a, b) for a, b in zip(kept, middle, strict=True))
    joined = torch.cat([first, second], dim=2)
    torch.testing.assert_close(joined[..., :dim], whole[..., :dim], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(end.hidden[0], after.hidden[0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(end.cell[0], after.cell[0], atol=1e-6, rtol=1e-5)
    # Backwards, layer 2 of the first half reads it without knowing what followed.
    assert not torch.allclose(joined[2, ..., dim:], whole[2, ..., dim:], atol=1e-3)


def test_gradients_and_no_gradients_compute_the_same(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(trainable_bilm=True)
    batch = layer.batch(SENTENCES)
    taught, state = layer.bilm(batch.words, batch.index, batch.lengths)
    plain, same = run(tiny_elmo, SENTENCES)
    torch.testing.assert_close(taught.detach(), plain, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(state.cell.detach(), same.cell, atol=2e-6, rtol=1e-5)


def test_packing() -> None:
    packing = Packing.plan(torch.tensor([2, 0, 3, 1]), 3)
    assert packing.sizes == (3, 2, 1)
    assert packing.order.tolist() == [2, 0, 3, 1]
    # Places are sentence * 3 + position; the steps are (c0 a0 d0) (c1 a1) (c2).
    assert packing.forward.tolist() == [6, 0, 9, 7, 1, 8]
    assert packing.backward.tolist() == [8, 1, 9, 7, 0, 6]
    assert last_rows(packing.sizes).tolist() == [5, 4, 2]


def test_a_row_without_any_token_keeps_its_state(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer()
    batch = layer.batch([["some", "words"], []])
    state = BiLmState(*(torch.randn_like(part) for part in layer.bilm.zero_state(2)))
    lengths = torch.tensor([4, 0])
    with torch.no_grad():
        layers, after = layer.bilm(batch.words, batch.index, lengths, state)
    assert torch.equal(after.hidden[:, :, 1], state.hidden[:, :, 1])
    assert torch.equal(after.cell[:, :, 1], state.cell[:, :, 1])
    assert not torch.equal(after.cell[:, :, 0], state.cell[:, :, 0])
    assert (layers[:, 1] == 0).all()
