"""simple_elmo's `ElmoModel`."""

from __future__ import annotations

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


@pytest.mark.parametrize("warmup", [True, False])
@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_vectors_and_averages(model: ElmoModel, folder: Path, warmup: bool, layers: str) -> None:
    assert (model.vector_size, model.n_layers, model.max_chars, model.batch_size) == (32, 3, 50, 2)
    vectors = model.get_elmo_vectors(TEXTS, warmup=warmup, layers=layers)
    averages = model.get_elmo_vector_average(TEXTS, warmup=warmup, layers=layers)
    assert vectors.shape == ((5, 3, 6, 32) if layers == "all" else (5, 6, 32))
    wanted = carried(folder, warmup)
    for row, average, values in zip(vectors, averages, wanted, strict=True):
        expected = {"average": values.mean(axis=0), "top": values[-1], "all": values}[layers]
        n = values.shape[1]
        np.testing.assert_allclose(row[..., :n, :], expected, atol=1e-5)
        assert np.abs(row[..., n:, :]).max(initial=0) == 0
        # Padding never enters an average, whose length is 1.
        mean = expected.mean(axis=-2) if n else np.zeros_like(average)
        np.testing.assert_allclose(average, mean / (np.linalg.norm(mean) or 1), atol=1e-5)
    # Every call starts afresh.
    again = model.get_elmo_vectors(TEXTS, warmup=warmup, layers=layers)
    np.testing.assert_array_equal(again, vectors)


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
