"""The biLM, its mixes and its dumps as bilm-tf's own tests ask."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from small_models import FIXTURES, GOLDEN, TEXT, make_options, needs_originals, write_pair

from elmore import Elmo
from elmore.compat.bilm import (
    Batcher,
    BidirectionalLanguageModel,
    TokenBatcher,
    dump_bilm_embeddings,
    dump_token_embeddings,
    weight_layers,
)
from elmore.errors import ConfigError, FormatError

Pair = tuple[Path, Path]
CLOSE = {"atol": 1e-6, "rtol": 1e-5}
HERE = FIXTURES / "bilm-tf" / "model"
SENTENCES = [TEXT[:5], TEXT[5:7], TEXT[7:8]]
BATCHES = [[TEXT[3 * k : 3 * k + 3], TEXT[k : k + 2], TEXT[k : k + 1]] for k in range(4)]


@pytest.fixture(scope="module")
def plain_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model without skip connections, as that of bilm-tf's tests."""
    return write_pair(tmp_path_factory.mktemp("bilm"), make_options(skip=False), seed=8)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "vocab.txt"
    words = ["<S>", "</S>", "<UNK>", *dict.fromkeys(TEXT)]
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


@pytest.fixture(params=["characters", "tokens"])
def make(request: pytest.FixtureRequest, plain_pair: Pair, vocabulary: Path, tmp_path: Path):
    """A model of either kind with its batcher."""
    if request.param == "characters":
        return lambda **options: (
            BidirectionalLanguageModel(*plain_pair, **options),
            Batcher(vocabulary, 50),
        )
    table = tmp_path / "embedding.hdf5"
    dump_token_embeddings(vocabulary, *plain_pair, table)
    return lambda **options: (
        BidirectionalLanguageModel(
            *plain_pair, use_character_inputs=False, embedding_weight_file=table, **options
        ),
        TokenBatcher(vocabulary),
    )


def test_layers_with_carried_state(make, plain_pair: Pair) -> None:
    model, batcher = make()
    stream = Elmo.load(plain_pair).stateful()
    for batch in BATCHES:
        ops = model(batcher.batch_sentences(batch))
        expected = stream.layers(batch, tokenized=True)
        assert ops["lengths"].tolist() == [3, 2, 1]
        assert ops["mask"].sum(dim=1).tolist() == [3, 2, 1]
        assert tuple(ops["lm_embeddings"].shape) == (3, 3, 3, 32)
        assert tuple(ops["token_embeddings"].shape) == (3, 5, 16)
        for row, sentence in enumerate(expected):
            found = ops["lm_embeddings"][row, :, : len(sentence)].numpy()
            np.testing.assert_allclose(found, sentence.values, atol=1e-5)
            tokens = ops["token_embeddings"][row, 1 : len(sentence) + 1].numpy()
            np.testing.assert_allclose(tokens, sentence.values[0, :, :16], atol=1e-5)
        assert ops["lm_embeddings"][2, :, 1:].abs().max() == 0


def test_refusals(plain_pair: Pair, vocabulary: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="embedding_weight_file="):
        BidirectionalLanguageModel(*plain_pair, use_character_inputs=False)
    with h5py.File(tmp_path / "wrong.hdf5", "w") as file:
        file["embedding"] = np.zeros((3, 7), np.float32)
    with pytest.raises(FormatError, match=r"shape \(3, 7\), expected \(words, 16\)"):
        BidirectionalLanguageModel(
            *plain_pair, use_character_inputs=False, embedding_weight_file=tmp_path / "wrong.hdf5"
        )
    with h5py.File(tmp_path / "few.hdf5", "w") as file:
        file["embedding"] = np.zeros((3, 16), np.float32)
    model = BidirectionalLanguageModel(
        *plain_pair, use_character_inputs=False, embedding_weight_file=tmp_path / "few.hdf5"
    )
    with pytest.raises(ConfigError, match="do not fit a table of 3 words"):
        model(TokenBatcher(vocabulary).batch_sentences(SENTENCES))


# Mixes -------------------------------------------------------------------------------------------

MIXES = [((0.1, 0.3, 0.5), 1.1), ((0.2, 0.4, 0.6), 0.88)]


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("top", [True, False])
def test_weight_layers(plain_pair: Pair, vocabulary: Path, norm: bool, top: bool) -> None:
    model = BidirectionalLanguageModel(*plain_pair)
    sentences = [TEXT[:4], TEXT[4:6], TEXT[6:7]]
    ops = model(Batcher(vocabulary, 50).batch_sentences(sentences))
    layers, mask = ops["lm_embeddings"].numpy().astype(float), ops["mask"].numpy()
    assert mask.sum(axis=1).tolist() == [4, 2, 1]
    results = [
        weight_layers(name, ops, l2_coef=2.0, use_top_only=top, do_layer_norm=norm)
        for name in ("ELMo_input", "ELMo_output")
    ]
    learning = [
        parameter
        for result in results
        for parameter in result["module"].parameters()
        if parameter.requires_grad
    ]
    assert len(learning) == (2 if top else 4)
    for result, (weights, gamma) in zip(results, MIXES, strict=True):
        module = result["module"]
        with torch.no_grad():
            module.mix.gamma.fill_(gamma)
            if not top:
                module.mix.weights[:] = torch.tensor(weights)
        if top:
            expected = gamma * layers[:, -1]
            assert module.regularization().item() == 0
        else:
            shares = np.exp(weights) / np.exp(weights).sum()
            parts = []
            for k in range(3):
                values = layers[:, k]
                if norm:
                    real = values[mask]
                    values = (values - real.mean()) / np.sqrt(real.var() + 1e-12)
                parts.append(shares[k] * values)
            expected = gamma * sum(parts)
            penalty = 2.0 * sum(w * w for w in weights)
            assert module.regularization().item() == pytest.approx(penalty)
        found = module(ops).detach().numpy()
        np.testing.assert_allclose(found[mask], expected[mask], **CLOSE)


# Dumps -------------------------------------------------------------------------------------------


def test_dump_of_a_file(plain_pair: Pair, vocabulary: Path, tmp_path: Path) -> None:
    lines = [" ".join(sentence) for sentence in SENTENCES]
    text, out = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    dump_bilm_embeddings(vocabulary, text, *plain_pair, out)
    stream = Elmo.load(plain_pair).stateful()
    with h5py.File(out, "r") as file:
        assert set(file) == {"0", "1", "2"}
        for k, sentence in enumerate(SENTENCES):
            [expected] = stream.layers([sentence], tokenized=True)
            np.testing.assert_allclose(file[str(k)][...], expected.values, atol=1e-6)


# bilm-tf's own values ----------------------------------------------------------------------------


def _split(line: str | list[str]) -> list[str]:
    return line.split() if isinstance(line, str) else line


@needs_originals
@pytest.mark.parametrize("characters", [True, False])
def test_golden_top_layer(characters: bool, tmp_path: Path) -> None:
    pair = HERE / "options.json", HERE / "lm_weights.hdf5"
    data = json.loads((HERE / "lm_embeddings_sentences.json").read_text(encoding="utf-8"))
    columns = data if isinstance(data, list) else list(data.values())
    tokens = {token for column in columns for line in column for token in _split(line)}
    words = tmp_path / "words.txt"  # the file beside the model lacks some of them
    words.write_text("".join(f"{word}\n" for word in ("<S>", "</S>", *sorted(tokens))))
    batcher: Batcher | TokenBatcher = Batcher(words, 50)
    options: dict[str, object] = {}
    if not characters:
        dump_token_embeddings(words, *pair, tmp_path / "table.hdf5")
        options = {
            "use_character_inputs": False,
            "embedding_weight_file": tmp_path / "table.hdf5",
        }
        batcher = TokenBatcher(words)
    model = BidirectionalLanguageModel(*pair, max_batch_size=4, **options)
    compared = 0
    for i, lines in enumerate(zip(*columns, strict=True)):
        sentences = [_split(line) for line in lines]
        ops = model(batcher.batch_sentences(sentences))
        assert ops["lengths"].tolist() == [len(s) for s in sentences]
        for row, sentence in enumerate(sentences):
            with h5py.File(HERE / f"lm_embeddings_{row}.hdf5", "r") as file:
                golden = np.concatenate(list(file[str(i)][...]), axis=-1)
            top = ops["lm_embeddings"][row, -1, : len(sentence)].numpy()
            np.testing.assert_allclose(top, golden, **CLOSE)
            compared += 1
    assert compared == 30
    assert model.state.hidden[:, :, 3].abs().max() == 0


def test_golden_layers_of_the_toy_checkpoint() -> None:
    path = GOLDEN / "bilm-tf" / "checkpoint"
    model = BidirectionalLanguageModel(path / "options_inference.json", path / "weights.hdf5")
    batcher = Batcher(None, 10)
    batches = json.loads((path / "embedding_batches.json").read_text(encoding="utf-8"))
    with h5py.File(path / "embeddings.hdf5", "r") as file:
        for i, batch in enumerate(batches):
            ops = model(batcher.batch_sentences(batch))
            for row, sentence in enumerate(batch):
                found = ops["lm_embeddings"][row, :, : len(sentence)].numpy()
                np.testing.assert_allclose(found, file[f"{i}/{row}"][...], **CLOSE)
