"""simple_elmo's `ElmoModel`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import TEXT, make_options, write_pair

from elmore import Elmo
from elmore.compat.simple_elmo import ElmoModel
from elmore.errors import ConfigError, ElmoreError
from elmore.formats.checkpoint import Softmax
from elmore.language_model.likely_words import next_words, previous_words
from elmore.text.vocabulary import Vocabulary

TEXTS = [TEXT[:6], TEXT[6:8], [], TEXT[8:9], TEXT[9:14]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As NLPL lays its models out."""
    path = tmp_path_factory.mktemp("nlpl") / "model"
    write_pair(path, make_options(), seed=4)
    (path / "weights.hdf5").rename(path / "model.hdf5")
    (path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    return path


@pytest.fixture
def model(folder: Path) -> ElmoModel:
    model = ElmoModel()
    assert model.load(folder, max_batch_size=2) == "The model is now loaded."
    return model


def carried(folder: Path, warmup: bool) -> list[np.ndarray]:
    """What bilm-tf's state gives, batches of two."""
    stream = Elmo.load(folder).stateful()
    if warmup:
        stream.layers(TEXTS[:2], tokenized=True)
    return [
        row.values
        for k in range(0, 5, 2)
        for row in stream.layers(TEXTS[k : k + 2], tokenized=True)
    ]


def test_what_is_known_after_loading(model: ElmoModel) -> None:
    assert (model.vector_size, model.n_layers, model.max_chars, model.batch_size) == (32, 3, 50, 2)


@pytest.mark.parametrize("warmup", [True, False])
@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_vectors(model: ElmoModel, folder: Path, warmup: bool, layers: str) -> None:
    vectors = model.get_elmo_vectors(TEXTS, warmup=warmup, layers=layers)
    assert vectors.shape == ((5, 3, 6, 32) if layers == "all" else (5, 6, 32))
    for row, values in zip(vectors, carried(folder, warmup), strict=True):
        expected = {"average": values.mean(axis=0), "top": values[-1], "all": values}[layers]
        n = values.shape[1]
        np.testing.assert_allclose(row[..., :n, :], expected, atol=1e-5)
        assert np.abs(row[..., n:, :]).max(initial=0) == 0


def test_every_call_starts_afresh(model: ElmoModel) -> None:
    first = model.get_elmo_vectors(TEXTS)
    np.testing.assert_array_equal(model.get_elmo_vectors(TEXTS), first)
    cold = model.get_elmo_vectors(TEXTS, warmup=False)
    assert np.abs(cold - first).max() > 1e-3


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_averages_know_no_padding(model: ElmoModel, folder: Path, layers: str) -> None:
    vectors = model.get_elmo_vector_average(TEXTS, layers=layers)
    assert vectors.shape == ((5, 3, 32) if layers == "all" else (5, 32))
    for row, values in zip(vectors, carried(folder, True), strict=True):
        chosen = {"average": values.mean(axis=0), "top": values[-1], "all": values}[layers]
        if values.shape[1] == 0:
            assert np.abs(row).max() == 0
            continue
        mean = chosen.mean(axis=-2)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-5)
        assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)


def test_an_average_does_not_depend_on_its_neighbours(folder: Path) -> None:
    model = ElmoModel()
    model.load(folder)
    long, short = TEXT[:12], TEXT[12:13]
    together = model.get_elmo_vector_average([short, long], warmup=False)[0]
    np.testing.assert_allclose(
        together, model.get_elmo_vector_average([short], warmup=False)[0], atol=1e-5
    )


def test_a_zip(folder: Path, model: ElmoModel, tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "212"), "zip", folder)
    packed = ElmoModel()
    packed.load(tmp_path / "212.zip", max_batch_size=2)
    np.testing.assert_allclose(
        packed.get_elmo_vectors(TEXTS), model.get_elmo_vectors(TEXTS), atol=1e-6
    )


def test_no_texts(model: ElmoModel) -> None:
    assert model.get_elmo_vectors([]).shape == (0, 0, 32)
    assert model.get_elmo_vector_average([]).shape == (0, 32)
    assert model.get_elmo_vector_average([], layers="all").shape == (0, 3, 32)


def test_refusals(model: ElmoModel, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"call load\(path\) first"):
        ElmoModel().get_elmo_vectors([["a"]])
    with pytest.raises(ConfigError, match="layers='first'"):
        model.get_elmo_vectors(TEXTS, layers="first")
    with pytest.raises(ConfigError, match="is a string"):
        model.get_elmo_vectors(["It fell"])
    with pytest.raises(ElmoreError, match="does not exist"):
        ElmoModel().load(tmp_path / "none")
    with pytest.raises(ConfigError, match="has no softmax"):
        ElmoModel().load(folder, full=True)
    with pytest.raises(ConfigError, match="full=True"):
        model.get_elmo_substitutes(["It fell"])
    with pytest.raises(ConfigError, match="max_batch_size=0"):
        ElmoModel().load(folder, max_batch_size=0)


@pytest.fixture
def full(folder: Path, tmp_path: Path) -> Path:
    """The same model with a softmax, as an elmore folder."""
    import dataclasses

    words = ["<S>", "</S>", "<UNK>", "the", "plant", "grew", "."]
    generator = np.random.default_rng(0)
    checkpoint = dataclasses.replace(
        Elmo.load(folder).checkpoint,
        vocabulary=Vocabulary(words),
        softmax=Softmax(
            generator.normal(size=(7, 16)).astype(np.float32),
            generator.normal(size=7).astype(np.float32),
        ),
    )
    Elmo(checkpoint).save(tmp_path / "full")
    return tmp_path / "full"


def test_substitutes(full: Path) -> None:
    model = ElmoModel()
    model.load(full, full=True)
    [first, second] = model.get_elmo_substitutes(["the plant grew", ["the", "."]], topn=2)
    assert [place["word"] for place in first] == ["the", "plant", "grew"]
    assert [place["word"] for place in second] == ["the", "."]
    elmo = Elmo.load(full)
    for direction, words in (
        ("forward", next_words(elmo, ["the"], 2)),
        ("backward", previous_words(elmo, ["grew"], 2)),
    ):
        found = first[1][direction]
        assert found["candidate_words"] == [word for word, _ in words[::-1]]
        assert found["logp"] == [round(float(np.exp(log)), 4) for _, log in words[::-1]]
        vocabulary = elmo.checkpoint.vocabulary
        assert [vocabulary.words[k] for k in found["candidates"]] == found["candidate_words"]
        assert not {"<S>", "</S>"} & set(found["candidate_words"])
