"""C2: a sentence's vectors depend on that sentence alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import HAS_TORCH

from elmore import Elmo
from elmore.embedding import stream as stream_module
from elmore.embedding.word_cache import WordCache
from elmore.formats.checkpoint import Checkpoint

TOLERANCE = 1e-5
token = st.sampled_from(["the", "schools", ",", "fell", "naïve", "狐", "x" * 60]) | st.text(
    st.characters(exclude_categories=()), max_size=8
)
sentence = st.lists(token, max_size=14)
sentences = st.lists(sentence, min_size=1, max_size=9)
modest = settings(max_examples=25)


def assert_close(ours: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0) <= TOLERANCE


def one_by_one(elmo: Elmo, rows: list[list[str]]) -> list[np.ndarray]:
    return [elmo.embed([row], tokenized=True)[0] for row in rows]


@modest
@given(sentences, st.integers(1, 200))
def test_batch_size_and_padding(tiny_elmo: Elmo, rows: list[list[str]], budget: int) -> None:
    expected = one_by_one(tiny_elmo, rows)
    assert_close(list(tiny_elmo.pipe(rows, tokenized=True, batch_tokens=budget)), expected)
    assert_close(tiny_elmo.embed(rows, tokenized=True), expected)
    if not HAS_TORCH:
        return
    layer = tiny_elmo.layer(dropout=0)  # pads all rows to the longest
    [padded] = layer(layer.batch(rows))
    ours = [padded[k, : len(row)].detach().numpy() for k, row in enumerate(rows)]
    assert_close(ours, expected)


@modest
@given(sentences)
def test_state_of_the_cache(
    tiny_elmo: Elmo, tiny_checkpoint: Checkpoint, rows: list[list[str]]
) -> None:
    """Cold, warm, far too small, or none at all."""
    expected = tiny_elmo.embed(rows, tokenized=True)
    fresh = Elmo(tiny_checkpoint, threads=1)
    assert_close(fresh.embed(rows, tokenized=True), expected)
    assert_close(fresh.embed(rows, tokenized=True), expected)
    words = {token for row in rows for token in row}
    if words:
        assert fresh.engine.cache._young
    for size in (3 * 4 * 16, 0):
        small = Elmo(tiny_checkpoint, threads=1)
        small.engine.cache = WordCache(16, generation_bytes=size)
        for _ in range(2):
            assert_close(list(small.pipe(rows, tokenized=True, batch_tokens=9)), expected)


@pytest.fixture(scope="module")
def by_threads(tiny_checkpoint: Checkpoint) -> list[Elmo]:
    return [Elmo(tiny_checkpoint, threads=n) for n in (1, 2, 3)]


@modest
@given(sentences)
def test_threads(by_threads: list[Elmo], rows: list[list[str]]) -> None:
    one, two, three = (elmo.embed(rows, layers="top", tokenized=True) for elmo in by_threads)
    assert_close(two, one)
    assert_close(three, one)
    for elmo in by_threads:  # many batches, side by side
        found = list(elmo.pipe(rows, tokenized=True, batch_tokens=12, layers="top"))
        assert_close(found, one)


def test_windows_of_a_stream_leave_no_trace(
    tiny_elmo: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [["word"] * (k % 7) for k in range(40)]
    expected = tiny_elmo.embed(rows, tokenized=True)
    monkeypatch.setattr("elmore.embedding.stream._WINDOW_SENTENCES", 3)
    assert_close(tiny_elmo.embed(rows, tokenized=True), expected)


def test_long_sentence(tiny_elmo: Elmo) -> None:
    """Beside short ones, and the beginning does not know of the end forwards."""
    words = ["some", "words", "go", "on", "and", "on", ","] * 300
    [long], [short] = (
        tiny_elmo.embed([words], tokenized=True),
        tiny_elmo.embed([words[:4]], tokenized=True),
    )
    ours = tiny_elmo.embed([words[:4], words, words[:9]], tokenized=True)
    assert_close(ours[:2], [short, long])
    dim = tiny_elmo.config.lstm.projection_dim
    np.testing.assert_allclose(long[:4, :dim], short[:, :dim], atol=TOLERANCE)
    assert np.abs(long[:4, dim:] - short[:, dim:]).max() > 1e-2


def test_a_window_with_one_long_row(tiny_elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["the"] * 70, ["fell"], ["schools", "fell"], []]
    expected = one_by_one(tiny_elmo, rows)
    monkeypatch.setattr(stream_module, "_MAX_POSITIONS", 100)
    assert_close(list(tiny_elmo.pipe(rows, tokenized=True, batch_tokens=30)), expected)
