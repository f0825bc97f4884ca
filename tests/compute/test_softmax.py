"""The full softmax in blocks, plain and with clusters, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from elmore.compute import softmax
from elmore.compute.matrix import Stored, dequantize, quantize
from elmore.compute.softmax import LogSoftmax

N, WORDS, DIM = 37, 50, 6


@pytest.fixture(params=["0", "auto"], autouse=True)
def native_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", request.param)


def problem(rows: int = WORDS) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    hidden, weight = rng.normal(size=(N, DIM)), rng.normal(size=(rows, DIM))
    bias = rng.normal(size=rows)
    targets = rng.integers(WORDS, size=N)
    return *(part.astype(np.float32) for part in (hidden, weight, bias)), targets


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("rows", "words"), [(512, 2048), (5, 7), (1, 1), (37, 50)])
@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_blocks_against_the_plain_softmax(
    rows: int, words: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax, "_BLOCK_ROWS", rows)
    monkeypatch.setattr(softmax, "_BLOCK_WORDS", words)
    monkeypatch.setattr(softmax, "_KEPT_BYTES", kept)
    hidden, weight, bias, targets = problem()
    expected = log_softmax(hidden.astype(np.float64) @ weight.T.astype(np.float64) + bias)
    table = LogSoftmax(Stored(weight), bias)
    logs = table.of(hidden, targets)
    assert logs.dtype == np.float64
    np.testing.assert_allclose(logs, expected[np.arange(N), targets], atol=3e-6)
    np.testing.assert_allclose(table.all(hidden[3:5]), expected[3:5], atol=3e-6)


def test_extreme_logits_and_no_rows() -> None:
    hidden = np.zeros((2, 3), np.float32)
    bias = np.array([-1e4, 1e4, 1e4, -1e4], np.float32)
    table = LogSoftmax(Stored(np.zeros((4, 3), np.float32)), bias)
    logs = table.of(hidden, np.array([1, 0]))
    np.testing.assert_allclose(logs, [np.log(0.5), -2e4 + np.log(0.5)], rtol=1e-6)
    assert table.of(hidden[:0], np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.parametrize(("n_words", "k"), [(9000, 64), (4096, 200), (130, 130), (70, 1), (16, 9)])
def test_the_kernel_ranks_as_its_reference(n_words: int, k: int) -> None:
    rng = np.random.default_rng(n_words)
    values = rng.normal(size=(5, n_words)).astype(np.float32) * 9
    values[1] = np.round(values[1])  # many equal values: the smaller id is first
    values[2, : n_words - k] = -np.inf
    values[3] += 1e6
    found, wanted = softmax._rank(values, k), softmax._rank_reference(values, k)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.values, wanted.values)
    np.testing.assert_allclose(found.total, wanted.total, rtol=1e-6, atol=2e-6)


def test_too_few_values_and_nan_are_left_to_the_reference() -> None:
    values = np.full((2, 300), -np.inf, np.float32)
    values[:, 7] = 1
    assert softmax._rank(values, 3).ids[:, 0].tolist() == [7, 7]
    values[1, 9] = np.nan
    assert np.isnan(softmax._rank(values, 1).total).tolist() == [False, True]


def test_rounded_products_are_nearly_the_same() -> None:
    rng = np.random.default_rng(5)
    hidden = [rng.normal(size=(40, 64)).astype(np.float32) for _ in range(2)]
    weight = (rng.normal(size=(3000, 64)) * 0.3).astype(np.float32)
    prior = np.log(np.arange(1, 3001)).astype(np.float32)
    prior[:3] = -np.inf
    table = LogSoftmax(Stored(weight), np.zeros(3000, np.float32))
    exact = table.likeliest(hidden, prior, 50)
    rounded = table.likeliest(hidden, prior, 50, rounded=True)
    shared = [len(set(a) & set(b)) for a, b in zip(exact.ids, rounded.ids, strict=True)]
    assert np.mean(shared) > 45
    assert rounded.ids.min() >= 3
    np.testing.assert_allclose(rounded.total, exact.total, atol=0.2)


def test_a_table_in_int8() -> None:
    """Only the rounding of the weights is lost, and what is stored in int8 is not rounded again."""
    hidden, weight, bias, targets = problem()
    numbers = quantize(weight)
    exact = LogSoftmax(Stored(dequantize(numbers)), bias)
    expected = exact.of(hidden, targets)
    rounded = LogSoftmax(numbers, bias, int8=True).of(hidden, targets)
    np.testing.assert_allclose(rounded, expected, atol=2e-3)
    assert not np.array_equal(rounded, expected)
    for other, int8, same in ((numbers, False, expected), (Stored(weight), True, rounded)):
        table = LogSoftmax(other, bias, int8=int8)
        np.testing.assert_array_equal(table.of(hidden, targets), same)
        chosen = exact.chosen(hidden, targets)
        np.testing.assert_allclose(table.chosen(hidden, targets), chosen, atol=0.1)
