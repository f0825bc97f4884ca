"""The cosine of vectors, and exact search by it."""

from __future__ import annotations

import numpy as np
import pytest

from elmore import cosine, search
from elmore.errors import ConfigError

RNG = np.random.default_rng(0)
CORPUS = RNG.standard_normal((50, 6)).astype(np.float32)
A, B = RNG.standard_normal((4, 5)).astype(np.float32), RNG.standard_normal((3, 5))
QUERIES = RNG.standard_normal((7, 6)).astype(np.float32)


@pytest.mark.parametrize(("block", "k"), [(1, 5), (3, 1), (50, 50), (2048, 99)])
def test_it_finds_what_sorting_finds(block: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmore.embedding.search._BLOCK", block)
    found = search(QUERIES, CORPUS, k)
    cosines = np.asarray(cosine(QUERIES, CORPUS))
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    assert found.indices.tolist() == expected.tolist()
    np.testing.assert_allclose(found.scores, np.take_along_axis(cosines, expected, 1), atol=1e-6)


def test_one_query_gives_one_row() -> None:
    one, many = search(QUERIES[0], CORPUS, 4), search(QUERIES[:1], CORPUS, 4)
    assert one.indices.shape == one.scores.shape == (4,)
    assert many.indices.shape == (1, 4)
    assert (one.indices == many.indices[0]).all()


@pytest.mark.parametrize("block", [2, 2048])
def test_of_equals_the_first_comes_first(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmore.embedding.search._BLOCK", block)
    found = search([1.0, 0.0], [[1, 0], [0, 1], [2, 0], [3, 0], [0, 0]], 3)
    assert found.indices.tolist() == [0, 2, 3]


def test_nothing_in_nothing_out() -> None:
    assert search(QUERIES, np.zeros((0, 6)), 3).indices.shape == (7, 0)
    assert search(np.zeros((0, 6)), CORPUS, 3).indices.shape == (0, 3)


def test_it_reads_a_file_block_by_block(tmp_path) -> None:
    np.save(tmp_path / "corpus.npy", CORPUS)
    mapped = np.load(tmp_path / "corpus.npy", mmap_mode="r")
    assert (search(QUERIES, mapped, 3).indices == search(QUERIES, CORPUS, 3).indices).all()


def test_refusals_of_search() -> None:
    with pytest.raises(ConfigError, match=r"\(7, 6\) in a corpus of shape \(50, 5\)"):
        search(QUERIES, CORPUS[:, :5])
    with pytest.raises(ConfigError, match="k=0"):
        search(QUERIES, CORPUS, 0)
    damaged = CORPUS.copy()
    damaged[3, 1] = np.nan
    with pytest.raises(ConfigError, match=r"rows 0\.\.49 of the corpus, are not finite"):
        search(QUERIES, damaged, 2)


# Cosine ----------------------------------------------------------------------------------------


def plain(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b))


def test_two_vectors_give_a_number() -> None:
    assert type(cosine(A[0], B[0])) is float
    assert cosine(A[0], B[0]) == pytest.approx(plain(A[0], B[0]), abs=1e-6)
    assert cosine([1, 0], [0, 2]) == 0
    assert cosine([3, 4], [3, 4]) == pytest.approx(1)
    assert cosine([3, 4], [-3, -4]) == pytest.approx(-1)


def test_matrices() -> None:
    expected = np.array([[plain(a, b) for b in B] for a in A])
    np.testing.assert_allclose(cosine(A, B), expected, atol=1e-6)
    np.testing.assert_allclose(cosine(A, B[0]), expected[:, 0], atol=1e-6)
    np.testing.assert_allclose(cosine(A[0], B), expected[0], atol=1e-6)
    assert cosine(np.zeros((0, 5)), B).shape == (0, 3)


def test_a_zero_vector_is_like_nothing() -> None:
    assert cosine(np.zeros(5), A[0]) == 0
    assert not np.isnan(cosine(np.zeros((2, 5)), A)).any()


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 2], [1, 2, 3], "vectors of 2 and 3 numbers; use equal sizes"),
        (np.zeros((2, 2, 2)), [1, 2], r"an array of shape \(2, 2, 2\)"),
        (1.0, [1.0], r"an array of shape \(\)"),
    ],
)
def test_refusals_of_cosine(a: object, b: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cosine(a, b)  # type: ignore[arg-type]
