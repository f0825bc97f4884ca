"""Vectors of words that were computed before: in memory and in files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from small_models import make_checkpoint, make_options

from elmore import Elmo
from elmore.embedding.word_cache import (
    WordCache,
    read_token_vectors,
    word_keys,
    write_token_vectors,
)
from elmore.errors import FormatError
from elmore.formats.checkpoint import Checkpoint
from elmore.text.batching import Batch, TokenIndexer
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary

DIM = 3
indexer = TokenIndexer(ByteAlphabet(6))


class Computer:
    """Counts what is asked of it; the vector of a word is made of its ids."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.asked: list[int] = []

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        self.asked += positions.tolist()
        return vectors_of(self.batch)[positions]


def vectors_of(batch: Batch) -> np.ndarray:
    assert batch.words is not None
    return np.stack([batch.words[:, k] for k in (1, 2, 3)], axis=1).astype(np.float32)


def fetch(cache: WordCache, *tokens: str) -> int:
    """Fetch a sentence, check every vector, and give the number of words that were computed."""
    batch = indexer.batch([list(tokens)])
    computer = Computer(batch)
    np.testing.assert_array_equal(cache.fetch(batch, computer), vectors_of(batch))
    return len(computer.asked)


def test_a_word_is_computed_once() -> None:
    cache = WordCache(DIM)
    assert fetch(cache, "a", "b", "a") == 4  # with the two markers
    assert fetch(cache, "b", "a") == 0
    assert fetch(cache, "c") == 1
    assert (cache.hits, cache.misses) == (6, 5)


def test_words_that_are_cut_alike_share_a_vector() -> None:
    cache = WordCache(DIM)
    fetch(cache, "abcdX")
    assert fetch(cache, "abcdY", "abcdZ") == 0  # 4 bytes of each are seen


def test_it_is_bounded_and_forgets_what_is_not_met() -> None:
    cache = WordCache(DIM, generation_bytes=4 * (DIM * 4 + 500))  # two generations of 4 words
    for k in range(100):
        fetch(cache, "often", f"w{k}")
        assert len(cache._young) <= 4
        assert len(cache._old) <= 4
    assert fetch(cache, "often") == 0
    assert fetch(cache, "w0") == 1


def test_cleared_it_keeps_the_pinned_words_alone() -> None:
    batch = indexer.batch([["pin"]])
    pinned = dict(zip(word_keys(batch), vectors_of(batch), strict=True))  # with the two markers
    cache = WordCache(DIM, pinned=pinned)
    assert fetch(cache, "a", "pin") == 1
    cache.clear()
    assert fetch(cache, "a", "pin") == 1
    assert fetch(cache, "a", "pin") == 0


def test_no_room_at_all() -> None:
    cache = WordCache(DIM, generation_bytes=0)
    assert fetch(cache, "a") == fetch(cache, "a") == 3


def test_kept_vectors_are_copies() -> None:
    """The block that a batch computed is not held in memory by one word of it."""
    cache = WordCache(DIM)
    batch = indexer.batch([["a"]])
    result = cache.fetch(batch, Computer(batch))
    result.fill(9)
    assert fetch(cache, "a") == 0
    assert all(vector.base is None for vector in cache._young.values())


def test_pinned_words_are_never_computed() -> None:
    batch = indexer.batch([["pin"]])
    vectors = {row.tobytes(): v for row, v in zip(batch.words, vectors_of(batch), strict=True)}
    cache = WordCache(DIM, pinned=vectors, generation_bytes=0)
    assert fetch(cache, "pin") == 0
    assert fetch(cache, "pin", "other") == 1


# Files -------------------------------------------------------------------------------------------

WORDS = ["<S>", "</S>", "the", "schools", ",", "x" * 60, "naïve"]


def write(elmo: Elmo, folder: Path, words: list[str] = WORDS) -> tuple[Path, Path]:
    vocabulary, vectors = folder / "words.txt", folder / "tokens.hdf5"
    vocabulary.write_bytes(Vocabulary(words).to_bytes())
    write_token_vectors(
        vectors, lambda row: elmo.engine.token_vectors(words[row : row + 3]), len(words)
    )
    return vocabulary, vectors


def test_write_and_read(tiny_elmo: Elmo, tmp_path: Path) -> None:
    vocabulary, vectors = write(tiny_elmo, tmp_path)
    table = read_token_vectors(vectors, 16, Vocabulary.read(vocabulary))
    np.testing.assert_allclose(table, tiny_elmo.engine.token_vectors(WORDS), atol=2e-6)
    with h5py.File(vectors, "r") as file:  # the layout of bilm-tf's dump_token_embeddings
        assert list(file) == ["embedding"]
        assert file["embedding"].dtype == np.float32


def test_a_file_is_used_and_unknown_words_fall_back(
    tiny_elmo: Elmo, tiny_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    files = write(tiny_elmo, tmp_path)
    elmo = Elmo(tiny_checkpoint, token_vectors=files)
    row = ["the", "naïve", "unheard-of", "schools"]
    np.testing.assert_allclose(
        elmo.embed([row], tokenized=True)[0], tiny_elmo.embed([row], tokenized=True)[0], atol=1e-5
    )
    assert elmo.engine.cache.misses == 1  # the one word that is not in the file
    with h5py.File(files[1], "r+") as file:  # a small change shows that the file is used
        file["embedding"][2] += 5e-4
    changed = Elmo(tiny_checkpoint, token_vectors=files).embed([["the"]], layers=0, tokenized=True)[
        0
    ]
    expected = tiny_elmo.embed([["the"]], layers=0, tokenized=True)[0]
    assert 1e-4 < np.abs(changed - expected).max() < 1e-3


def test_a_file_of_another_model_is_refused(tiny_elmo: Elmo, tmp_path: Path) -> None:
    files = write(tiny_elmo, tmp_path)
    other = make_checkpoint(tmp_path / "other", make_options(), seed=5)
    with pytest.raises(FormatError, match="does not belong to this model"):
        Elmo(other, token_vectors=files)
    smaller = make_checkpoint(tmp_path / "small", make_options(16, 8))
    with pytest.raises(FormatError, match=r"shape \(7, 16\), expected \(7, 8\)"):
        Elmo(smaller, token_vectors=files)


def test_other_files_in_its_place(
    tiny_elmo: Elmo, tiny_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    vocabulary, vectors = write(tiny_elmo, tmp_path)
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["something"] = np.zeros(3)
    with pytest.raises(FormatError, match="`embedding` has shape None"):
        Elmo(tiny_checkpoint, token_vectors=(vocabulary, tmp_path / "other.hdf5"))
    (tmp_path / "few.txt").write_text("a\nb\n")
    with pytest.raises(FormatError, match=r"expected \(2, 16\)"):
        Elmo(tiny_checkpoint, token_vectors=(tmp_path / "few.txt", vectors))


def test_an_existing_file_is_kept(tiny_elmo: Elmo, tmp_path: Path) -> None:
    _, vectors = write(tiny_elmo, tmp_path)
    before = vectors.read_bytes()
    with pytest.raises(Exception, match=r"tokens\.hdf5") as caught:
        write(tiny_elmo, tmp_path)
    assert type(caught.value).__module__ == "elmore.errors"
    assert vectors.read_bytes() == before
