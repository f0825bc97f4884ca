"""Indexing and mixing as AllenNLP's own tests ask."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from elmore.compat.allennlp import (
    ConfigurationError,
    ELMoCharacterMapper,
    ELMoTokenCharactersIndexer,
    ScalarMix,
    batch_to_ids,
)


def row(*ids: int) -> list[int]:
    return [*ids, *[261] * (50 - len(ids))]


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("<S>", (259, 257, 260)),
        ("</S>", (259, 258, 260)),
        ("Āt", (259, 197, 129, 117, 260)),
        ("Second", (259, 84, 102, 100, 112, 111, 101, 260)),
        (".", (259, 47, 260)),
    ],
)
def test_words(word: str, ids: tuple[int, ...]) -> None:
    assert ELMoCharacterMapper().convert_word_to_char_ids(word) == row(*ids)


def test_indexer() -> None:
    indexer = ELMoTokenCharactersIndexer()
    tokens = [SimpleNamespace(text="Second"), "."]
    indexed = indexer.tokens_to_indices(tokens, None)
    assert indexed == {
        "elmo_tokens": [row(259, 84, 102, 100, 112, 111, 101, 260), row(259, 47, 260)]
    }
    assert indexer.get_padding_lengths(indexed) == {"elmo_tokens": 2}
    padded = indexer.as_padded_tensor_dict(indexed, {"elmo_tokens": 3})["elmo_tokens"]
    assert padded.tolist() == [*indexed["elmo_tokens"], [0] * 50]
    assert indexer.tokens_to_indices([], None) == {"elmo_tokens": []}
    assert indexer.get_empty_token_list() == {"elmo_tokens": []}
    empty = indexer.as_padded_tensor_dict({"elmo_tokens": []}, {"elmo_tokens": 1})
    assert empty["elmo_tokens"].tolist() == [[0] * 50]
    with pytest.raises(ConfigurationError, match="has no text"):
        indexer.tokens_to_indices([SimpleNamespace(text=None)], None)


def test_tokens_to_add() -> None:
    indexer = ELMoTokenCharactersIndexer(tokens_to_add={"<first>": 1})
    indexed = indexer.tokens_to_indices(["<first>", "."], None)["elmo_tokens"]
    assert indexed == [row(259, 2, 260), row(259, 47, 260)]


def test_batch_to_ids() -> None:
    ids = batch_to_ids([["The", "first", "sentence", "."], ["Second", "."], []])
    assert ids.shape == (3, 4, 50)
    assert ids.dtype == torch.long
    assert ids[1, 1].tolist() == row(259, 47, 260)
    assert ids[1, 2:].abs().max() == ids[2].abs().max() == 0


def test_mix_with_layer_norm() -> None:
    mix = ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=[0.1, 0.2, 0.3])
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(3, 4, 5, generator=generator) for _ in range(3)]
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]])
    with torch.no_grad():
        mix.gamma.fill_(0.5)
    weights = np.exp([0.1, 0.2, 0.3])
    weights /= weights.sum()
    expected = np.zeros((3, 4, 5))
    for weight, tensor in zip(weights, tensors, strict=True):
        values = tensor.numpy().astype(float)
        real = values[mask.numpy() > 0]
        expected += weight * (values - real.mean()) / np.sqrt(real.var() + 1e-13)
    expected *= 0.5
    for given in (mask, mask.bool()):
        np.testing.assert_allclose(mix(tensors, given).detach(), expected, atol=1e-6)
    with pytest.raises(ConfigurationError, match="needs the mask"):
        mix(tensors)


def test_mix_refusals() -> None:
    with pytest.raises(ConfigurationError, match="2 tensors for a mix of 3"):
        ScalarMix(3)([torch.zeros(1), torch.zeros(1)])
    with pytest.raises(ConfigurationError, match="1 initial_scalar_parameters for a mix of 3"):
        ScalarMix(3, initial_scalar_parameters=[0.1])
    assert not any(p.requires_grad for p in ScalarMix(3, trainable=False).parameters())
