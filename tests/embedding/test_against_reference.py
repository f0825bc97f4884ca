"""Models of many shapes, whose files the tests write, against the slow reference.

They need nothing but this repository, so that a clone of it alone still proves the numerics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import ReferenceElmo, random_weights
from small_models import SENTENCES, TEXT, make_options, needs_torch, write_pair

from elmore import Elmo
from elmore.embedding import engine
from elmore.embedding.torch_network import BiLmTensors
from elmore.errors import ConfigError
from elmore.text.vocabulary import Vocabulary

close = {"atol": 2e-6, "rtol": 1e-5}
WORDS = ["<S>", "the", ",", "</S>", "schools", "<UNK>", "game"]
MODELS: dict[str, dict[str, Any]] = {
    "skip": make_options(),
    "no skip": make_options(skip=False, n_highway=2),
    "small clips": make_options(16, 8, cell_clip=0.5, proj_clip=0.25, n_highway=2),
    "no projection": make_options(16, 16, filters=[[1, 4], [2, 4], [3, 8]], n_highway=0),
    "tanh": make_options(24, 8, activation="tanh", max_characters_per_token=12),
    "one layer": make_options(n_layers=1),
    "three layers": make_options(n_layers=3, n_highway=0),
    "words": make_options(n_words=len(WORDS)),
    "one direction": make_options(bidirectional=False),
    "one direction, one layer": make_options(n_layers=1, bidirectional=False),
    "no clips": make_options(cell_clip=None, proj_clip=None),
    "cell clip alone": make_options(proj_clip=None),
    "projection clip alone": make_options(cell_clip=None),
    "wide filters": make_options(filters=[[w, 4] for w in range(1, 8)], n_highway=2),
}
# Three batches, the second of which has fewer rows and the third of which has more.
BATCHES = [SENTENCES[:3], [TEXT[20:29]], [TEXT[5:9], *SENTENCES[3:]]]


def load(
    tmp_path: Path, options: dict[str, Any], seed: int = 1
) -> tuple[Elmo, dict[str, np.ndarray], list[str] | None]:
    weights = random_weights(options, seed)
    files: tuple[Path, ...] = write_pair(tmp_path, options, weights)
    if "char_cnn" in options:
        return Elmo.load(files), weights, None
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_bytes(Vocabulary(WORDS).to_bytes())
    return Elmo.load((*files, vocabulary)), weights, WORDS


@pytest.mark.parametrize("name", MODELS)
def test_every_sentence_alone(name: str, tmp_path: Path) -> None:
    elmo, weights, words = load(tmp_path, MODELS[name])
    reference = ReferenceElmo(MODELS[name], weights, words)
    for sentence, result in zip(SENTENCES, elmo.layers(SENTENCES, tokenized=True), strict=True):
        [expected], _ = reference.embed_batch([sentence])
        assert result.tokens == tuple(sentence)
        np.testing.assert_allclose(result.values, expected, **close)
    n_rows, lstm_options = sum(len(s) + 2 for s in SENTENCES), MODELS[name]["lstm"]
    places = n_rows * reference.n_directions * reference.n_layers
    for kind, key, size in (
        ("cell", "cell_clip", "dim"),
        ("projection", "proj_clip", "projection_dim"),
    ):
        clipped = reference.clipped[kind] / (places * lstm_options[size])
        if lstm_options[key] is None or (kind == "projection" and name == "no projection"):
            assert clipped == 0
        else:
            assert clipped > 0.01, "the model does not try the clips"


@pytest.mark.parametrize("name", MODELS)
def test_carried_state(name: str, tmp_path: Path) -> None:
    elmo, weights, words = load(tmp_path, MODELS[name])
    reference, state = ReferenceElmo(MODELS[name], weights, words), None
    stream = elmo.stateful()
    for batch in BATCHES:
        expected, state = reference.embed_batch(batch, state)
        for ours, theirs in zip(stream.layers(batch, tokenized=True), expected, strict=True):
            np.testing.assert_allclose(ours.values, theirs, **close)
    assert stream.state is not None
    assert state is not None
    np.testing.assert_allclose(stream.state.hidden, state.hidden, **close)
    np.testing.assert_allclose(stream.state.cell, state.cell, **close)


@needs_torch
@pytest.mark.parametrize("name", MODELS)
def test_the_torch_modules_compute_the_same(name: str, tmp_path: Path) -> None:
    """What learns and runs on GPUs agrees with what computes on the CPU."""
    elmo, _, _ = load(tmp_path, MODELS[name])
    engine, torch_network = elmo.engine, BiLmTensors(elmo.checkpoint, "cpu")
    batch = engine.indexer.batch(SENTENCES)
    vectors = torch_network.tokens(batch.words, batch.word_ids)
    np.testing.assert_allclose(vectors, engine.vectors(batch), **close)
    layers, state = engine.run(batch)
    before = engine.zero_state(len(SENTENCES))
    found, after = torch_network.contextualize(vectors, batch.index, batch.lengths, before)
    np.testing.assert_allclose(found, layers, atol=1e-5)
    for mine, other in zip(after, state, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)


@needs_torch
@pytest.mark.parametrize("name", MODELS)
def test_states_at_places_need_no_text_beyond_them(name: str, tmp_path: Path) -> None:
    elmo, _, _ = load(tmp_path, MODELS[name])
    if elmo.config.lstm.mixed:
        pytest.skip("a joint encoder keeps no state")
    engine, directions = elmo.engine, 1 + elmo.config.lstm.bidirectional
    batch = engine.indexer.batch(SENTENCES)
    vectors, before = engine.vectors(batch), engine.zero_state(len(SENTENCES))
    row = int(batch.lengths.argmax())
    at = np.array([[row, 2, 1], [row, 1, 1]])[:, : 1 + directions]
    layers, state = engine.run(batch, at=at)
    whole, expected = BiLmTensors(elmo.checkpoint, "cpu").contextualize(
        vectors, batch.index, batch.lengths, before, at=at
    )
    for mine, other in zip(state, expected, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    half = whole.shape[-1] // directions
    np.testing.assert_allclose(layers[:, row, :3, :half], whole[:, row, :3, :half], atol=1e-5)
    assert not layers[:, row, 3:, :half].any()
    np.testing.assert_allclose(layers[:, row, 1:, half:], whole[:, row, 1:, half:], atol=1e-5)
    assert not np.delete(layers, row, axis=1).any()


# A GPU of which only the name is there: the same modules, on the CPU ------------------------------


@pytest.fixture
def named_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_cpu(checkpoint: Any, device: str, *rest: Any) -> BiLmTensors:
        assert device == "cuda:0"
        return BiLmTensors(checkpoint, "cpu", *rest)

    monkeypatch.setattr(engine, "find_device", lambda name: f"{name}:0" if name != "cpu" else name)
    monkeypatch.setattr(engine, "BiLmTensors", on_cpu)


@needs_torch
@pytest.mark.parametrize(("precision", "bound"), [("float16", 5e-3), ("bfloat16", 5e-2)])
def test_sixteen_bits_on_a_gpu(
    precision: Any, bound: float, named_gpu: None, tiny_folder: Path
) -> None:
    exact = Elmo.load(tiny_folder, device="cuda")
    assert exact.precision == "float32"  # unless asked for
    rough = Elmo.load(tiny_folder, device="cuda", precision=precision)
    assert rough.precision == precision
    spoken = [tokens for tokens in SENTENCES if tokens]
    for one, two in zip(
        exact.embed(spoken, tokenized=True), rough.embed(spoken, tokenized=True), strict=True
    ):
        assert two.dtype == np.float32
        assert 0 < np.abs(one - two).max() < bound


@needs_torch
def test_precisions_that_a_device_does_not_have(named_gpu: None, tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="precision='int8' needs device='cpu'; use float16 on"):
        Elmo.load(tiny_folder, device="cuda", precision="int8")
    with pytest.raises(ConfigError, match="precision='bfloat16' needs a GPU; use float16 on"):
        Elmo.load(tiny_folder, precision="bfloat16")
