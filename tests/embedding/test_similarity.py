"""The cosine of vectors and matrices."""

from __future__ import annotations

import numpy as np
import pytest

from elmore import cosine
from elmore.errors import ConfigError

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 5)).astype(np.float32), RNG.standard_normal((3, 5))


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
def test_refusals(a: object, b: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cosine(a, b)  # type: ignore[arg-type]
