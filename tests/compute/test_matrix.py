"""Packed products: every instruction set against the reference, and row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.compute.matrix import (
    Matrix,
    Stored,
    dequantize,
    quantize,
    quantize_finely,
    quantize_rows,
)
from elmore.errors import NativeError

KINDS = ("float32", "float16", "int8", "int8 fine")
drawn = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def stored(weight: np.ndarray, kind: str) -> Stored:
    return quantize(weight) if kind.startswith("int8") else Stored(weight.astype(kind))


def make(weight: np.ndarray, kind: str) -> Matrix:
    return Matrix(stored(weight, kind), fine=kind.endswith("fine"))


def reference(weight: np.ndarray, kind: str, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    with monkeypatch.context() as patch:
        patch.setenv("ELMORE_NATIVE", "0")
        return make(weight, kind)


def random(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return values.astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@drawn
@given(
    rows=st.integers(1, 20), n=st.integers(1, 140), k=st.integers(1, 600), seed=st.integers(0, 99)
)
def test_products_equal_the_reference(
    instruction_set: str, monkeypatch: pytest.MonkeyPatch, kind: str,
    rows: int, n: int, k: int, seed: int,
) -> None:  # fmt: skip
    weight = random(seed, n, k, scale=0.1)
    inputs, bias = random(seed + 1, rows, k), random(seed, n)
    found = make(weight, kind).affine(inputs, bias, clip=1.5)
    expected = reference(weight, kind, monkeypatch).affine(inputs, bias, clip=1.5)
    if kind.startswith("int8"):
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_know_its_neighbours(instruction_set: str, kind: str) -> None:
    """Bit for bit, for every size of tile and across blocks of rows."""
    matrix = make(random(0, 70, 1100), kind)
    inputs = random(1, 150, 1100)
    alone = np.concatenate([matrix.affine(inputs[r : r + 1]) for r in range(len(inputs))])
    for rows in (2, 3, 4, 5, 6, 7, 13, 150):
        assert np.array_equal(matrix.affine(inputs[:rows]), alone[:rows])


def whole_product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Products through the public door with all scales equal to one."""
    matrix = Matrix(Stored(w.astype(np.int8), np.ones(len(w), np.float32)))
    return matrix.affine(x.astype(np.float32))


@pytest.mark.parametrize("k", [1, 4, 127, 1000])
def test_integer_sums_are_exact(instruction_set: str, k: int) -> None:
    generator = np.random.default_rng(k)
    x, w = generator.integers(-127, 128, (9, k)), generator.integers(-127, 128, (65, k))
    x[:, 0] = 127  # so that every row's scale is one
    assert np.array_equal(whole_product(x, w), (x @ w.T).astype(np.float32))


@pytest.mark.parametrize("signs", ["++", "+-", "-+", "--", "mixed"])
def test_integer_sums_do_not_saturate(instruction_set: str, signs: str) -> None:
    """All numbers at the ends of their range, 4,096 of them."""
    x, w = np.full((7, 4096), 127), np.full((64, 4096), 127)
    if signs == "mixed":
        x[:, ::3] *= -1
        w[:, ::2] *= -1
    else:
        x *= 1 if signs[0] == "+" else -1
        w *= 1 if signs[1] == "+" else -1
    assert np.array_equal(whole_product(x, w), (x @ w.T).astype(np.float32))


def test_rounding_goes_to_even_and_never_to_minus_128(instruction_set: str) -> None:
    rows = np.array([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -127.0, 126.5]], np.float32)
    whole, scales = quantize_rows(rows)
    assert scales.tolist() == [1.0]
    assert whole.tolist() == [[127, 0, 2, 2, 0, -2, -127, 126]]
    identity = Matrix(Stored(np.eye(8, dtype=np.int8), np.ones(8, np.float32)))
    assert np.array_equal(identity.affine(rows), whole)


def test_a_second_byte_has_what_the_first_leaves_over(instruction_set: str) -> None:
    """One large input no longer drowns the small ones."""
    weight, inputs = random(0, 9, 700), random(1, 5, 700, scale=0.02)
    inputs[:, 3] = 1
    exact = inputs.astype(np.float64) @ dequantize(quantize(weight)).T
    coarse = np.abs(make(weight, "int8").affine(inputs) - exact).max()
    fine = np.abs(make(weight, "int8 fine").affine(inputs) - exact).max()
    assert fine < coarse / 100
    rows = np.array([[127.0, 0.5, -0.5, 1.0, 1.25, -0.75]], np.float32)
    whole, rest, _ = quantize_finely(rows)
    assert whole.tolist() == [[127, 0, 0, 1, 1, -1]]
    assert rest.tolist() == [[0, 127, -127, 0, 64, 64]]


@pytest.mark.parametrize("fine", [False, True])
def test_rows_of_zeros_and_of_tiny_numbers(instruction_set: str, fine: bool) -> None:
    matrix = Matrix(quantize(random(0, 5, 6)), fine=fine)
    tiny = np.array([[0.0] * 6, [1e-38] * 6, [-1e-45] * 6], np.float32)
    assert np.array_equal(matrix.affine(tiny), np.zeros((3, 5)))


def test_what_is_not_finite_is_not_lost(instruction_set: str) -> None:
    matrix = Matrix(quantize(random(0, 5, 40)))
    for value in (np.nan, np.inf, -np.inf):
        rows = random(1, 2, 40)
        rows[0, 7] = value
        found = matrix.affine(rows)
        assert not np.isfinite(found[0]).any()
        assert np.isfinite(found[1]).all()


def test_a_wrong_shape_never_reaches_c(instruction_set: str) -> None:
    matrix = Matrix(Stored(random(0, 5, 6)))
    for bad in (np.zeros((2, 7), np.float32), np.zeros((2, 6))):
        with pytest.raises(NativeError, match="a kernel got"):
            matrix.affine(bad)


def test_weights_are_rounded_by_row() -> None:
    weight = np.array([[1.0, -2.0, 0.0], [0.0, 0.0, 0.0], [3e-5, 1e-5, -3e-5]], np.float32)
    numbers = quantize(weight)
    assert numbers.values.tolist() == [[64, -127, 0], [0, 0, 0], [127, 42, -127]]
    error = np.abs(dequantize(numbers) - weight)
    assert (error <= np.abs(weight).max(axis=1, keepdims=True) / 127 / 2 * 1.001).all()
