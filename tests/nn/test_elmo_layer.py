"""ELMo inside somebody's own torch model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import SENTENCES, make_checkpoint, make_options

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.text.characters import ByteAlphabet

PAIR = [["A", "short", "one"], ["This", "one", "has", "got", "seven", "tokens", "."]]


def character_ids(sentences: list[list[str]], time: int) -> torch.Tensor:
    ids = torch.zeros(len(sentences), time, 50, dtype=torch.long)
    for row, tokens in enumerate(sentences):
        if tokens:
            ids[row, : len(tokens)] = torch.from_numpy(ByteAlphabet().encode(tokens))
    return ids


def test_a_fresh_layer_gives_the_vectors_of_embed(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(dropout=0)
    batch = layer.batch(SENTENCES)
    [vectors] = layer(batch)
    expected = tiny_elmo.embed(SENTENCES, tokenized=True)
    for row, plain in enumerate(expected):
        np.testing.assert_allclose(vectors[row, : len(plain)].detach(), plain, atol=2e-6)
        assert (vectors[row, len(plain) :] == 0).all()
    assert batch.mask.sum(dim=1).tolist() == [len(s) for s in SENTENCES]


def test_two_mixes_with_and_without_boundaries(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(n_mixes=2, dropout=0)
    batch = layer.batch(PAIR)
    with torch.no_grad():
        layer.mixes[1].weights[:] = torch.tensor([5.0, 0.0, -5.0])
        first, second = layer(batch)
    assert first.shape == second.shape == (2, 7, 32)
    assert batch.mask.shape == (2, 7)
    assert not torch.allclose(first, second, atol=1e-2)
    outer = tiny_elmo.layer(n_mixes=2, dropout=0, keep_boundaries=True)
    with torch.no_grad():
        whole, same = outer(outer.batch(PAIR))
    assert whole.shape == (2, 9, 32)
    torch.testing.assert_close(whole, same)
    torch.testing.assert_close(whole[1, 1:-1], first[1])
    torch.testing.assert_close(whole[0, 1:4], first[0, :3])
    assert (whole[0, 5:] == 0).all()
    assert (whole[0, [0, 4]] != 0).any(dim=1).all()


def test_dropout_only_in_training(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(dropout=0.5)
    batch = layer.batch([SENTENCES[0]])
    layer.eval()
    [calm] = layer(batch)
    assert torch.equal(calm, layer(batch)[0])
    layer.train()
    torch.manual_seed(0)
    [wild] = layer(batch)
    dropped = (wild == 0).float().mean()
    assert 0.4 < dropped < 0.6
    torch.testing.assert_close(wild[wild != 0], 2 * calm[wild != 0])


def test_a_frozen_bilm_learns_nothing(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(dropout=0)
    layer(layer.batch(PAIR))[0].sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in layer.bilm.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.mixes.parameters())


def test_character_ids_equal_tokens(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(dropout=0)
    sentences = [*PAIR, [], ["one", "one"]]
    ids = layer.from_character_ids(character_ids(sentences, 7))
    batch = layer.batch(sentences)
    assert torch.equal(ids.mask, batch.mask)
    assert len(ids.words) == len(batch.words)  # each distinct word once
    torch.testing.assert_close(layer(ids)[0], layer(batch)[0], atol=2e-6, rtol=1e-5)


def test_four_dimensions_equal_three(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(n_mixes=2, dropout=0)
    ids = character_ids([*PAIR, ["x"], [], SENTENCES[0][:7], ["y", "z"]], 7).view(2, 3, 7, 50)
    batch = layer.from_character_ids(ids)
    results = layer(batch)
    assert [tuple(r.shape) for r in results] == [(2, 3, 7, 32)] * 2
    assert batch.mask.shape == (2, 3, 7)
    for k in range(2):
        for result, flat in zip(results, layer(layer.from_character_ids(ids[k])), strict=True):
            torch.testing.assert_close(result[k], flat, atol=2e-6, rtol=1e-5)


def test_wrong_character_ids_are_refused(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer()
    with pytest.raises(ConfigError, match=r"expected \(..., time, 50\)"):
        layer.from_character_ids(torch.ones(2, 3, 40, dtype=torch.long))
    with pytest.raises(ConfigError, match="put rows of zeros last"):
        layer.from_character_ids(character_ids(PAIR, 7).flip(1))


def test_strings_in_place_of_tokens_are_refused(tiny_elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match="no sentence in the batch"):
        tiny_elmo.layer().batch([])
    with pytest.raises(ConfigError, match="sentence 1 is a string; pass its tokens"):
        tiny_elmo.layer().batch([["a"], "A sentence"])


def test_a_word_model_takes_tokens_not_characters(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>", "one"]
    elmo = Elmo(make_checkpoint(tmp_path, make_options(n_words=4), words))
    layer = elmo.layer(dropout=0)
    [vectors] = layer(layer.batch([["one", "unknown"]]))
    np.testing.assert_allclose(
        vectors[0].detach(), elmo.embed([["one", "unknown"]], tokenized=True)[0], atol=2e-6
    )
    with pytest.raises(ConfigError, match=r"use batch\(tokens\)"):
        layer.from_character_ids(character_ids(PAIR, 7))


def test_penalty_sums_over_the_mixes(tiny_elmo: Elmo) -> None:
    layer = tiny_elmo.layer(n_mixes=2)
    assert layer.penalty(1.0).item() == 0
    with torch.no_grad():
        layer.mixes[0].weights[:] = torch.tensor([1.0, 2.0, 0.0])
        layer.mixes[1].weights[:] = torch.tensor([0.0, 0.0, 3.0])
    assert layer.penalty(0.5).item() == pytest.approx(7.0)


def test_refusals(tiny_elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match="n_mixes=0"):
        tiny_elmo.layer(n_mixes=0)
    with pytest.raises(ConfigError, match=r"dropout=1\.0"):
        tiny_elmo.layer(dropout=1.0)
