"""Values which the original programs computed, reproduced through the public API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_models import FIXTURES, GOLDEN, needs_originals

from elmore import Elmo, ScalarMix
from elmore.formats.containers.sources import folder_source
from elmore.formats.containers.torch_files import read_array

# The criterion of the original tests; their own re-runs differ by slightly more than 1e-6.
close = {"atol": 1e-6, "rtol": 1e-5}


def load_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def allennlp() -> Elmo:
    path = FIXTURES / "allennlp/elmo"
    return Elmo.load((path / "options.json", path / "lm_weights.hdf5"))


def ours(name: str, program: str) -> Iterator[tuple[int, list[list[str]], Callable[[str], Any]]]:
    """Per batch of `golden/ours`: its number, its sentences and the values of a program."""
    batches = load_json(GOLDEN / "ours/batches.json")
    with h5py.File(GOLDEN / "ours" / name / f"{program}.hdf5", "r") as file:
        for i, batch in enumerate(batches):
            yield i, batch, lambda key: np.asarray(file[key][...])


def load_ours(name: str) -> Elmo:
    folder = GOLDEN / "ours" / name
    return Elmo.load((folder / "options.json", folder / "weights.hdf5"))


def test_fresh_layers_of_allennlp() -> None:
    """A new module for each batch: elmore's default, where each sentence starts from zeros."""
    elmo, worst = load_ours("skip"), 0.0
    for i, batch, values in ours("skip", "allennlp"):
        golden, mask = values(f"fresh/{i}/layers"), values(f"fresh/{i}/mask")
        for row, result in enumerate(elmo.layers(batch, tokenized=True)):
            n = int(mask[row].sum())
            assert result.values.shape[1] == n - 2 == len(batch[row])
            worst = max(worst, np.abs(result.values - golden[:, row, 1 : n - 1]).max())
    assert worst < 1e-6


@pytest.mark.parametrize(
    ("name", "program"), [("skip", "allennlp"), ("skip", "bilm-tf"), ("plain", "bilm-tf")]
)
def test_carried_layers(name: str, program: str) -> None:
    """One module, or one session, fed the batches in order; batch 3 repeats batch 0."""
    stream, worst, first = load_ours(name).stateful(), 0.0, []
    for i, batch, values in ours(name, program):
        golden = values(f"carried/{i}/layers")
        for row, result in enumerate(stream.layers(batch, tokenized=True)):
            n = len(batch[row])
            theirs = golden[:, row, 1 : n + 1] if program == "allennlp" else golden[row, :, :n]
            worst = max(worst, np.abs(result.values - theirs).max())
            if i in (0, 3):
                first.append(result.values)
    assert worst < 1e-6
    assert np.abs(first[0] - first[len(first) // 2]).max() > 1e-3  # the state was carried


def test_mix_of_allennlp() -> None:
    elmo, mix = load_ours("skip"), ScalarMix(3, initial=[0.1, -0.3, 0.5])
    for i, batch, values in ours("skip", "allennlp"):
        golden = values(f"mix/{i}")
        for row, result in enumerate(elmo.layers(batch, tokenized=True)):
            with torch.no_grad():
                mixed = mix(torch.from_numpy(result.values)[:, None])[0].numpy()
            np.testing.assert_allclose(mixed, golden[row, : len(batch[row])], **close)


@needs_originals
@pytest.mark.parametrize(
    ("folder", "sentences"),
    [("allennlp/elmo", "sentences.json"), ("bilm-tf/model", "lm_embeddings_sentences.json")],
    ids=["with skip connections", "without"],
)
def test_thirty_sentences(folder: str, sentences: str) -> None:
    """Ten batches of three rows; the state of each row is carried from batch to batch."""
    path = FIXTURES / folder
    columns = load_json(path / sentences)  # 3 rows of 10
    elmo = Elmo.load((path / "options.json", path / "lm_weights.hdf5"))
    compared = tokens = 0
    with elmo.stateful() as stream:
        for i, lines in enumerate(zip(*columns, strict=True)):
            vectors = stream.embed([line.split() for line in lines], layers="top", tokenized=True)
            for row, ours in enumerate(vectors):
                with h5py.File(path / f"lm_embeddings_{row}.hdf5", "r") as file:
                    golden = np.concatenate(list(file[str(i)][...]), axis=-1)
                np.testing.assert_allclose(ours, golden, **close)
                compared, tokens = compared + 1, tokens + len(ours)
    assert (compared, tokens) == (30, 744)


@needs_originals
def test_token_vectors_of_a_vocabulary(allennlp: Elmo) -> None:
    path = FIXTURES / "allennlp/elmo"
    words = (path / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    with h5py.File(path / "elmo_token_embeddings.hdf5", "r") as file:
        golden = file["embedding"][...]
    assert len(words) == len(golden) == 458
    np.testing.assert_allclose(allennlp.engine.token_vectors(words), golden, **close)


@pytest.mark.parametrize(
    ("folder", "options"),
    [
        ("checkpoint", "options_inference.json"),
        ("checkpoint", "options.json"),  # says n_characters 261: the array has as many rows
        ("edge/no_projection_3_layers_tanh", "options.json"),
        ("edge/word_input", "options.json"),
        ("edge/one_layer", "options.json"),
    ],
)
def test_unusual_models_of_bilm_tf(folder: str, options: str) -> None:
    """All layers; batches with changing numbers of rows and carried state."""
    path = GOLDEN / "bilm-tf" / folder
    files: tuple[Path, ...] = (path / options, path / "weights.hdf5")
    if folder == "edge/word_input":
        files = (*files, GOLDEN / "bilm-tf/train/vocab.txt")
    stream = Elmo.load(files).stateful()
    batches = load_json(path / "embedding_batches.json")
    with h5py.File(path / "embeddings.hdf5", "r") as file:
        assert len(batches) == len(file) == 3
        for i, batch in enumerate(batches):
            results = stream.layers(batch, tokenized=True)
            assert len(results) == len(file[str(i)])
            for row, result in enumerate(results):
                np.testing.assert_allclose(result.values, file[f"{i}/{row}"][...], **close)


# AllenNLP's behaviour: 3, 1, 4, 3 rows; an empty sentence; the word <S>; a word which is cut.


@pytest.fixture(scope="module")
def batches() -> list[list[list[str]]]:
    return load_json(FIXTURES / "allennlp/behaviour/batches.json")


def expected(name: str) -> np.ndarray:
    with h5py.File(FIXTURES / "allennlp/behaviour/expected.hdf5", "r") as file:
        return np.asarray(file[name][...])


@needs_originals
def test_layers_and_states_while_rows_come_and_go(
    allennlp: Elmo, batches: list[list[list[str]]]
) -> None:
    stream = allennlp.stateful()
    for i, batch in enumerate(batches):
        golden = expected(f"bilm/{i}/layers")
        for row, result in enumerate(stream.layers(batch, tokenized=True)):
            inner = golden[:, row, 1 : len(batch[row]) + 1]
            np.testing.assert_allclose(result.values, inner, **close)
    state = stream.state
    assert state is not None
    hidden = np.concatenate(list(state.hidden), axis=-1)  # (layers, rows, 2P)
    memory = np.concatenate(list(state.cell), axis=-1)
    np.testing.assert_allclose(hidden, expected("bilm/final_state/hidden"), **close)
    np.testing.assert_allclose(memory, expected("bilm/final_state/memory"), **close)


MIXES = {
    "plain": [((0.1, 0.3, 0.5), 1.1, None), ((0.2, 0.4, 0.6), 0.88, None)],
    "layer_norm": [((0.1, 0.3, 0.5), 1.1, "batch"), ((0.2, 0.4, 0.6), 0.88, "batch")],
    "boundaries": [((0, 0, 0), 1.0, None), ((0, 0, 0), 1.0, None)],
    "layer1_only": [((-9e10, 1, -9e10), 1.0, None), ((-9e10, 1, -9e10), 1.0, None)],
}


@needs_originals
@pytest.mark.parametrize("kind", MIXES)
def test_elmo_layer(kind: str, allennlp: Elmo, batches: list[list[list[str]]]) -> None:
    """The first batch starts from zeros, as every batch of an ElmoLayer does."""
    layer = allennlp.layer(
        n_mixes=2,
        dropout=0,
        keep_boundaries=kind == "boundaries",
        layer_norm=MIXES[kind][0][2],
    )
    with torch.no_grad():
        for mix, (scores, gamma, _) in zip(layer.mixes, MIXES[kind], strict=True):
            mix.weights[:] = torch.tensor(scores)
            mix.gamma.fill_(gamma)
        batch = layer.batch(batches[0])
        results = layer(batch)
    mask = expected(f"elmo/{kind}/0/mask").astype(bool)
    if kind != "boundaries":
        np.testing.assert_array_equal(batch.mask.numpy(), mask)
    for k, vectors in enumerate(results):
        golden = expected(f"elmo/{kind}/0/representation_{k}")
        np.testing.assert_allclose(vectors.numpy()[mask], golden[mask], **close)
        assert np.abs(vectors.numpy()[~mask]).max() == 0


@needs_originals
def test_multilingual_models() -> None:
    """A model of all training keys, and one whose filters are zero: so is every layer."""
    path = FIXTURES / "allennlp/elmo_multilingual/fr"
    sentence = [["Le", "chat", "dort", "."]]
    [plain] = Elmo.load((path / "options.json", path / "weights.hdf5")).layers(
        sentence, tokenized=True
    )
    assert np.abs(plain.values).max() > 0
    [zero] = Elmo.load((path / "options.json", path / "weights_zero.hdf5")).layers(
        sentence, tokenized=True
    )
    assert np.abs(zero.values).max() == 0
    with folder_source(path) as source:
        align, none = (read_array(source, name) for name in ("align.pth", "align_zero.pth"))
    assert align.shape == none.shape == (32, 32)
    assert not none.any()
    assert align.any()
