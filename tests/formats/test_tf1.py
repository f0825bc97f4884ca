"""TensorFlow checkpoints: what TensorFlow and bilm-tf computed, reproduced without them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from perplexity_stream import perplexity_stream
from small_models import DATA, GOLDEN
from tf_bundle import read_bundle, toy_corpus

from elmore import Elmo, score
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError, FormatError, ModelNotFound
from elmore.formats.containers.sources import folder_source
from elmore.formats.containers.tf_bundles import find_prefixes, open_bundle

close = {"atol": 1e-6, "rtol": 1e-5}
SENTENCES = json.loads((DATA / "tf1_sentences.json").read_text(encoding="utf-8"))
MODELS = ["tf1_characters", "tf1_words_one_layer", "tf1_forward_three_layers", "tf1_hub"]
EDGE = GOLDEN / "bilm-tf/edge"
TRAIN = GOLDEN / "bilm-tf/train"


@pytest.mark.parametrize("name", MODELS)
def test_the_vectors_of_tensorflow(name: str) -> None:
    elmo = Elmo.load(DATA / name)
    with h5py.File(DATA / f"{name}.hdf5") as file:
        for k, result in enumerate(elmo.layers(SENTENCES, tokenized=True)):
            np.testing.assert_allclose(result.values, file[f"layers/{k}"][...], **close)


@pytest.mark.parametrize("name", MODELS[:3])
def test_the_probabilities_of_tensorflow(name: str) -> None:
    elmo = Elmo.load(DATA / name)
    with h5py.File(DATA / f"{name}.hdf5") as file:
        for k, result in enumerate(score(elmo, SENTENCES, tokenized=True)):
            forward = [*result.forward, result.end]
            np.testing.assert_allclose(forward, file[f"forward/{k}"][...], atol=1e-5)
            if result.backward is not None:
                backward = [result.begin, *result.backward]
                np.testing.assert_allclose(backward, file[f"backward/{k}"][...], atol=1e-5)
        assert ("backward" in file) == (result.backward is not None)


def test_shards_and_names() -> None:
    source = folder_source(DATA / "tf1_words_one_layer")
    assert find_prefixes(source) == ["model.ckpt-7"]
    bundle = open_bundle(source, "model.ckpt-7")
    ours = {name: bundle.read(name) for name in bundle.shapes}
    theirs = read_bundle(DATA / "tf1_characters" / "model.ckpt-7")
    bundle = open_bundle(folder_source(DATA / "tf1_characters"), "model.ckpt-7")
    assert theirs.keys() == bundle.shapes.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(bundle.read(name), array)
    assert ours["global_step"] == 7


def test_the_mix_of_tf_hub() -> None:
    [mix] = read_checkpoint(DATA / "tf1_hub").mixes
    assert mix.weights == pytest.approx((0.3, -0.2, 0.5))
    assert mix.gamma == 1.25


@pytest.mark.parametrize("suffix", ["", ".index", ".data-00000-of-00001"])
def test_a_checkpoint_by_its_prefix_or_one_of_its_files(suffix: str) -> None:
    path = DATA / "tf1_characters" / f"model.ckpt-7{suffix}"
    checkpoint = read_checkpoint(path)
    assert checkpoint.softmax is not None
    assert checkpoint.vocabulary is not None
    assert len(checkpoint.vocabulary) == 9


def test_options_checkpoint_and_vocabulary_by_name(tmp_path: Path) -> None:
    folder = DATA / "tf1_words_one_layer"
    shutil.copy(folder / "options.json", tmp_path / "o.json")
    shutil.copy(folder / "vocab.txt", tmp_path / "v.txt")
    model = (tmp_path / "o.json", folder / "model.ckpt-7", tmp_path / "v.txt")
    assert read_checkpoint(model).config == read_checkpoint(folder).config
    with pytest.raises(ConfigError, match="a model of 1 files"):
        read_checkpoint((tmp_path / "o.json",))


def test_without_a_vocabulary_the_softmax_is_left_out(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "tf1_characters", tmp_path / "model")
    (folder / "vocab.txt").unlink()
    checkpoint = read_checkpoint(folder)
    assert checkpoint.softmax is None
    assert "vocabulary" in checkpoint.notes["softmax"]
    words = shutil.copytree(DATA / "tf1_words_one_layer", tmp_path / "words")
    (words / "vocab.txt").unlink()
    with pytest.raises(FormatError, match="no vocabulary"):
        read_checkpoint(words)


def test_a_vocabulary_that_does_not_fit(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "tf1_characters", tmp_path / "model")
    with (folder / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("more\n")
    with pytest.raises(FormatError, match=r"softmax/W has shape \(9, 6\), expected \(10, 6\)"):
        read_checkpoint(folder)


def test_which_of_several_checkpoints(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "tf1_characters", tmp_path / "model")
    for name in ("index", "data-00000-of-00001"):
        shutil.copy(folder / f"model.ckpt-7.{name}", folder / f"model.ckpt-12.{name}")
    assert read_checkpoint(folder).notes["checkpoint"] == "model.ckpt-7"  # `checkpoint` says so
    (folder / "checkpoint").unlink()
    assert read_checkpoint(folder).notes["checkpoint"] == "model.ckpt-12"
    (folder / "checkpoint").write_text('model_checkpoint_path: "/x/model.ckpt-99"\n')
    with pytest.raises(FormatError, match=r"names 'model\.ckpt-99', which is not there"):
        read_checkpoint(folder)


def test_a_checkpoint_without_options(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "tf1_characters", tmp_path / "model")
    (folder / "options.json").unlink()
    with pytest.raises(FormatError, match=r"no options\.json"):
        read_checkpoint(folder)
    with pytest.raises(ModelNotFound):
        read_checkpoint(folder / "model.ckpt-8")


# --------------------------------------------------------------------------- bilm-tf's own values


def check_batches(elmo: Elmo, folder: Path) -> None:
    """Batches of several rows with carried state."""
    batches = json.loads((folder / "embedding_batches.json").read_text())
    compared = 0
    with h5py.File(folder / "embeddings.hdf5") as file, elmo.stateful() as stream:
        for i, batch in enumerate(batches):
            tokens = [row.split() if isinstance(row, str) else row for row in batch]
            for k, result in enumerate(stream.layers(tokens, tokenized=True)):
                np.testing.assert_allclose(result.values, file[f"{i}/{k}"][...], **close)
                compared += 1
    assert compared >= 5


def test_bilm_checkpoint() -> None:
    folder = GOLDEN / "bilm-tf/checkpoint"
    check_batches(Elmo.load(folder / "model.ckpt-6"), folder)


@pytest.mark.parametrize("name", ["no_projection_3_layers_tanh", "one_layer", "word_input"])
def test_bilm_edge_models(name: str) -> None:
    folder = EDGE / name
    model = (folder / "options.json", folder / "model.ckpt-0", TRAIN / "vocab.txt")
    elmo = Elmo.load(model)
    assert elmo.checkpoint.softmax is not None
    check_batches(elmo, folder)


@pytest.mark.parametrize(("rows", "golden"), [(1, 25.809488), (2, 26.08756)])
def test_bilm_test_perplexity(rows: int, golden: float) -> None:
    folder = GOLDEN / "bilm-tf/checkpoint"
    elmo = Elmo.load((folder / "options.json", folder / "model.ckpt-6", TRAIN / "vocab.txt"))
    assert perplexity_stream(
        elmo, toy_corpus(), batch_size=rows, tokenized=True
    ).mean == pytest.approx(golden, rel=1e-6)


def test_bilm_one_direction() -> None:
    folder = EDGE / "one_direction"
    elmo = Elmo.load((folder / "options.json", folder / "model.ckpt-300", TRAIN / "vocab.txt"))
    assert perplexity_stream(
        elmo, toy_corpus(), batch_size=1, tokenized=True
    ).mean == pytest.approx(16.38926, rel=1e-6)
