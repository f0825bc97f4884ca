"""What AllenNLP's own tests of its modules ask, on its model and on one of ours."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import TEXT

from elmore import Elmo as OurElmo
from elmore.compat.allennlp import (
    ConfigurationError,
    Elmo,
    ElmoLstm,
    ElmoTokenEmbedder,
    ElmoTokenEmbedderMultiLang,
    _ElmoBiLm,
    _ElmoCharacterEncoder,
    batch_to_ids,
)

Pair = tuple[Path, Path]
SENTENCES = [["This", "is", "a", "sentence"], ["Here", "'s", "one"], ["Another", "one"]]
VOCAB = ["@@PADDING@@", *sorted({word for sentence in SENTENCES for word in sentence})]


def word_ids(sentences: list[list[str]]) -> torch.Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([[VOCAB.index(w) for w in s] + [0] * (longest - len(s)) for s in sentences])


def lstm(elmo: Elmo) -> ElmoLstm:
    return elmo._elmo_lstm._elmo_lstm


def test_a_fresh_model_gives_what_elmore_gives(pair: Pair) -> None:
    output = Elmo(*pair, 1, dropout=0)(batch_to_ids(SENTENCES))["elmo_representations"][0]
    for row, vectors in zip(
        output, OurElmo.load(pair).embed(SENTENCES, tokenized=True), strict=True
    ):
        np.testing.assert_allclose(row[: len(vectors)].detach().numpy(), vectors, atol=1e-5)


def test_the_same_sentence_twice_differs_until_the_state_is_forgotten(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, dropout=0)
    ids = batch_to_ids(SENTENCES)

    def run() -> torch.Tensor:
        return elmo(ids)["elmo_representations"][0].detach()

    first = run()
    assert (run() - first).abs().max() > 1e-3
    lstm(elmo).reset_states()
    assert torch.equal(run(), first)
    lstm(elmo)._states = None
    lstm(elmo).stateful = False
    assert torch.equal(run(), first)
    assert torch.equal(run(), first)
    assert lstm(elmo)._states is None


def test_cached_words_give_the_same(pair: Pair) -> None:
    ids = batch_to_ids(SENTENCES)
    plain = _ElmoBiLm(*pair)(ids)
    cached = _ElmoBiLm(*pair, vocab_to_cache=VOCAB)(ids, word_ids(SENTENCES))
    assert torch.equal(plain["mask"], cached["mask"])
    for a, b in zip(plain["activations"], cached["activations"], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_a_word_beyond_the_cache_is_read_by_its_characters(pair: Pair) -> None:
    bilm = _ElmoBiLm(*pair, vocab_to_cache=["here", "is", "a", "vocab"])
    ids = batch_to_ids(SENTENCES)
    words = torch.tensor([[1, 2, 3, 9], [1, 2, 3, 0], [1, 2, 0, 0]])
    expected = _ElmoBiLm(*pair)(ids)["activations"]
    for a, b in zip(bilm(ids, words)["activations"], expected, strict=True):
        assert torch.equal(a, b)


def test_more_axes_in_front(pair: Pair) -> None:
    elmo = Elmo(*pair, 2, dropout=0)
    ids = torch.stack([batch_to_ids([TEXT[k : k + 7], TEXT[k : k + 4]]) for k in range(3)], dim=1)
    assert ids.shape == (2, 3, 7, 50)
    output = elmo(ids)
    assert tuple(output["mask"].shape) == (2, 3, 7)
    for k in range(3):
        lstm(elmo).reset_states()
        single = elmo(ids[:, k])
        assert torch.equal(single["mask"], output["mask"][:, k])
        for a, b in zip(
            single["elmo_representations"], output["elmo_representations"], strict=True
        ):
            np.testing.assert_allclose(a.detach(), b[:, k].detach(), atol=1e-6)


def test_a_module_instead_of_files(pair: Pair) -> None:
    ids = batch_to_ids(SENTENCES)
    expected = Elmo(*pair, 1, dropout=0)(ids)["elmo_representations"][0]
    elmo = Elmo(None, None, 1, dropout=0, module=_ElmoBiLm(*pair))
    assert torch.equal(elmo(ids)["elmo_representations"][0], expected)
    with pytest.raises(ConfigurationError, match="module= replaces the files"):
        Elmo(*pair, 1, module=_ElmoBiLm(*pair))
    with pytest.raises(ConfigurationError, match="or module="):
        Elmo(None, None, 1)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_gradients_of_the_bilm(pair: Pair, requires_grad: bool) -> None:
    elmo = Elmo(*pair, 1, dropout=0, requires_grad=requires_grad)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 262, (3, 4, 50), generator=generator)
    elmo(ids)["elmo_representations"][0].sum().backward()
    for parameter in elmo._elmo_lstm.parameters():
        assert (parameter.grad is not None) == requires_grad
    assert elmo.scalar_mix_0.gamma.grad is not None


def test_a_fixed_mix_does_not_learn(pair: Pair) -> None:
    elmo = Elmo(*pair, 2, scalar_mix_parameters=[1.0, 2.0, 3.0])
    assert not any(parameter.requires_grad for parameter in elmo.parameters())
    assert [p.item() for p in elmo.scalar_mix_1.scalar_parameters] == [1, 2, 3]
    assert all(p.requires_grad for p in Elmo(*pair, 1).scalar_mix_0.parameters())


def test_states_of_rows_that_come_and_go(pair: Pair) -> None:
    bilm = _ElmoBiLm(*pair)
    assert bilm._elmo_lstm._states is None
    bilm(batch_to_ids(SENTENCES[:2]))
    two = bilm._elmo_lstm._states
    assert two is not None
    layers, cells = bilm._elmo_lstm.num_layers, bilm._elmo_lstm.cell_size
    assert [tuple(part.shape) for part in two] == [(layers, 2, 32), (layers, 2, 2 * cells)]
    bilm(batch_to_ids(SENTENCES[:1]))  # fewer: the second row is left alone
    one = bilm._elmo_lstm._states
    assert torch.equal(one[0][:, 1], two[0][:, 1])
    assert not torch.equal(one[0][:, 0], two[0][:, 0])
    bilm(batch_to_ids(SENTENCES))  # more: the third starts from zeros
    three = bilm._elmo_lstm._states
    fresh = _ElmoBiLm(*pair)
    fresh(batch_to_ids([SENTENCES[2]]))
    np.testing.assert_allclose(three[0][:, 2], fresh._elmo_lstm._states[0][:, 0], atol=1e-6)


def test_reset_of_some_rows(pair: Pair) -> None:
    bilm = _ElmoBiLm(*pair)
    bilm._elmo_lstm.reset_states(torch.tensor([True]))  # nothing there yet
    bilm(batch_to_ids(SENTENCES))
    before = bilm._elmo_lstm._states
    bilm._elmo_lstm.reset_states(torch.tensor([True, False, True]))
    for old, new in zip(before, bilm._elmo_lstm._states, strict=True):
        assert new[:, [0, 2]].abs().max() == 0
        assert torch.equal(new[:, 1], old[:, 1])
    with pytest.raises(ValueError, match="a mask of 2 rows for the state of 3"):
        bilm._elmo_lstm.reset_states(torch.tensor([True, False]))
    bilm._elmo_lstm.reset_states()
    assert bilm._elmo_lstm._states is None


def test_gradients_do_not_pass_from_call_to_call(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, dropout=0, requires_grad=True)
    for _ in range(2):  # a second backward through the first graph would raise
        elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].sum().backward()
    assert not any(part.requires_grad for part in lstm(elmo)._states)


def test_lstm_alone() -> None:
    """Lengths 5, 4, 2, 1, clips 2 and 1."""
    module = ElmoLstm(5, 5, 7, 2, memory_cell_clip_value=2, state_projection_clip_value=1)
    inputs = torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(5) < torch.tensor([5, 4, 2, 1])[:, None]
    output = module(inputs, mask)
    assert output.shape == (2, 4, 5, 10)
    assert output[:, ~mask].abs().max() == 0
    assert (output[:, mask].abs().amax(dim=-1) > 0).all()
    assert [tuple(part.shape) for part in module._states] == [(2, 4, 10), (2, 4, 14)]
    assert output[0].abs().max() <= 1
    # A row without any token keeps its state.
    before = module._states
    nothing = mask.clone()
    nothing[1] = False
    module(inputs, nothing)
    assert torch.equal(module._states[0][:, 1], before[0][:, 1])
    assert not torch.equal(module._states[0][:, 0], before[0][:, 0])


def test_token_embedder(pair: Pair) -> None:
    ids = batch_to_ids([TEXT[:7], TEXT[7:10]])
    embedder = ElmoTokenEmbedder(*pair, dropout=0)
    assert embedder.get_output_dim() == 32
    assert tuple(embedder(ids).shape) == (2, 7, 32)
    projected = ElmoTokenEmbedder(*pair, dropout=0, projection_dim=20)
    assert projected.get_output_dim() == 20
    assert tuple(projected(torch.ones(1, 2, 50, dtype=torch.long)).shape) == (1, 2, 20)
    assert tuple(projected(torch.ones(1, 1, 1, 50, dtype=torch.long)).shape) == (1, 1, 1, 20)


def test_several_languages(small_pair: Pair, tmp_path: Path) -> None:
    options, weights = small_pair
    torch.save(torch.zeros(32, 32), tmp_path / "zero.pth")
    torch.save(2 * torch.eye(32), tmp_path / "two.pth")
    embedder = ElmoTokenEmbedderMultiLang(
        {"en": options, "fr": options, "de": options},
        {"en": weights, "fr": weights, "de": weights},
        dropout=0,
        aligning_files={"fr": tmp_path / "two.pth", "de": tmp_path / "zero.pth"},
    )
    ids = batch_to_ids(SENTENCES)
    plain = embedder(ids, "en")
    np.testing.assert_allclose(embedder(ids, "fr").detach(), 2 * plain.detach(), atol=1e-5)
    assert embedder(ids, "de").abs().max() == 0
    assert not embedder.aligning_fr.weight.requires_grad
    with pytest.raises(ConfigurationError, match="use one of en, fr, de"):
        embedder(ids, "it")
    with pytest.raises(ConfigurationError, match="the same languages"):
        ElmoTokenEmbedderMultiLang({"en": options}, {"fr": weights})
    with pytest.raises(ConfigurationError, match="'it', for which there is no model"):
        ElmoTokenEmbedderMultiLang({"en": options}, {"en": weights}, aligning_files={"it": "x"})


def test_state_dicts_are_allennlps(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, requires_grad=True, vocab_to_cache=VOCAB)
    state = elmo.state_dict()
    tokens, cells = "_elmo_lstm._token_embedder", "_elmo_lstm._elmo_lstm"
    assert state[f"{tokens}._char_embedding_weights"].shape == (262, 4)
    assert state[f"{tokens}._char_embedding_weights"][0].abs().max() == 0
    for name in (
        f"{tokens}.char_conv_0.weight",
        f"{tokens}._highways._layers.0.bias",
        f"{tokens}._projection.weight",
        f"{cells}.forward_layer_0.input_linearity.weight",
        f"{cells}.backward_layer_1.state_linearity.bias",
        f"{cells}.backward_layer_1.state_projection.weight",
        "_elmo_lstm._word_embedding.weight",
        "scalar_mix_0.gamma",
        "scalar_mix_0.scalar_parameters.2",
    ):
        assert name in state
    assert not any("encoder" in name or "_layers.0.input" in name for name in state)
    ids = batch_to_ids(SENTENCES)
    expected = elmo.eval()(ids)["elmo_representations"][0]
    stream = io.BytesIO()
    torch.save(state, stream)
    stream.seek(0)
    other = Elmo(*pair, 1, requires_grad=True, vocab_to_cache=VOCAB).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    other.load_state_dict(torch.load(stream, weights_only=True))
    found = other(ids)["elmo_representations"][0]
    np.testing.assert_allclose(found.detach(), expected.detach(), atol=1e-6)
    assert not list(other.load_state_dict(other.state_dict()).missing_keys)


def test_id_0_inside_a_word_is_a_character_of_zeros(pair: Pair) -> None:
    """As in AllenNLP's table of 262 rows; the first one is zero."""
    encoder = _ElmoCharacterEncoder(*pair)
    ids = batch_to_ids([["fell"]])
    ids[0, 0, 2] = 0
    found = encoder(ids)["token_embedding"]
    with torch.no_grad():
        encoder.encoder.characters[250] = 0  # a byte that UTF-8 never has
    ids[0, 0, 2] = 251
    np.testing.assert_allclose(found, encoder(ids)["token_embedding"], atol=1e-6)
