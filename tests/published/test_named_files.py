"""Models named file by file: what is found beside them, and what is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import DATA, make_options, write_pair

from elmore import Elmo, score
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError, FormatError
from elmore.formats import allennlp_hdf5
from elmore.formats.checkpoint import Checkpoint

SENTENCE = [["the", "bank", "of", "the", "river"]]


@pytest.fixture(scope="module")
def original() -> Checkpoint:
    """A model with a softmax, as TensorFlow wrote it."""
    return read_checkpoint(DATA / "tf1_characters")


@pytest.fixture
def pair(original: Checkpoint, tmp_path: Path) -> Path:
    """The same as HDF5 files."""
    allennlp_hdf5.write(original, tmp_path / "pair")
    return tmp_path / "pair"


def same_scores(model: object, original: Checkpoint) -> None:
    ours = score(Elmo.load(model), SENTENCE, tokenized=True)  # type: ignore[arg-type]
    theirs = score(Elmo(original), SENTENCE, tokenized=True)
    np.testing.assert_array_equal(ours[0].forward, theirs[0].forward)


def test_softmax_and_vocabulary_beside_weights(pair: Path, original: Checkpoint) -> None:
    same_scores(pair, original)
    same_scores((pair / "options.json", pair / "weights.hdf5"), original)
    same_scores(pair / "weights.hdf5", original)
    same_scores(pair / "options.json", original)


def test_named_like_published_files(pair: Path, original: Checkpoint) -> None:
    for old, new in {
        "options.json": "elmo_x_options.json",
        "weights.hdf5": "elmo_x_weights.hdf5",
        "softmax.hdf5": "elmo_x_softmax.hdf5",
        "vocab.txt": "vocab-2016-09-10.txt",
    }.items():
        (pair / old).rename(pair / new)
    same_scores((pair / "elmo_x_options.json", pair / "elmo_x_weights.hdf5"), original)
    same_scores(pair / "elmo_x_weights.hdf5", original)
    same_scores(pair, original)
    shutil.copy(pair / "elmo_x_weights.hdf5", pair / "elmo_y_weights.hdf5")
    files = (pair / "elmo_x_options.json", pair / "elmo_y_weights.hdf5")
    assert read_checkpoint(files).softmax is None  # the softmax is that of x


def test_given_as_arguments(pair: Path, original: Checkpoint, tmp_path: Path) -> None:
    for name in ("softmax.hdf5", "vocab.txt"):
        (pair / name).rename(tmp_path / f"my-{name}")
    files = (pair / "options.json", pair / "weights.hdf5")
    assert read_checkpoint(files).softmax is None
    words, softmax = tmp_path / "my-vocab.txt", tmp_path / "my-softmax.hdf5"
    same_scores((*files, words, softmax), original)
    same_scores((*files, softmax, words), original)
    with pytest.raises(FormatError, match="no vocabulary"):
        read_checkpoint((*files, softmax))
    with pytest.raises(ConfigError, match="two vocabularies"):
        read_checkpoint((*files, words, words))
    with pytest.raises(ConfigError, match="a model of 5 files"):
        read_checkpoint((*files, words, softmax, words))


def test_a_softmax_is_of_no_use_without_its_words(pair: Path) -> None:
    (pair / "vocab.txt").unlink()
    assert read_checkpoint((pair / "options.json", pair / "weights.hdf5")).softmax is None


def test_links_beside_weights_are_passed_over(pair: Path, tmp_path: Path) -> None:
    (pair / "vocab.txt").rename(tmp_path / "words")
    (pair / "vocab.txt").symlink_to(tmp_path / "words")
    assert read_checkpoint((pair / "options.json", pair / "weights.hdf5")).vocabulary is None


def test_two_vocabularies_are_none(pair: Path) -> None:
    (pair / "vocab.txt").rename(pair / "vocab-a.txt")
    shutil.copy(pair / "vocab-a.txt", pair / "vocab-b.txt")
    assert read_checkpoint((pair / "options.json", pair / "weights.hdf5")).softmax is None


def test_a_word_model_finds_its_vocabulary(tmp_path: Path) -> None:
    files = write_pair(tmp_path, make_options(n_words=3))
    with pytest.raises(FormatError, match="no vocabulary"):
        read_checkpoint(files)
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    assert read_checkpoint(files).config.tokens.n_words == 3
