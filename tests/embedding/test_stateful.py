"""State that is carried on request."""

from __future__ import annotations

import numpy as np
import pytest

from elmore import Elmo
from elmore.embedding import engine
from elmore.embedding.stateful import Stream
from elmore.errors import ConfigError, InputError

A, B, C = ["One", "row"], ["another", "of", "three"], ["last"]


def state(stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    assert stream.state is not None
    return stream.state.hidden.copy(), stream.state.cell.copy()


def test_rows_go_on_where_the_same_row_ended(tiny_elmo: Elmo) -> None:
    """Whatever stands in the other rows, and in the caller's order, not sorted by length."""
    alone = [tiny_elmo.stateful() for _ in range(3)]
    together = tiny_elmo.stateful()
    for batch in ([A, B, C], [C, A, B], [B, [], A]):
        results = together.embed(batch, tokenized=True)
        for row, tokens in enumerate(batch):
            expected = alone[row].embed([tokens], tokenized=True)[0]
            np.testing.assert_allclose(results[row], expected, atol=1e-5)


def test_smaller_and_larger_batches(tiny_elmo: Elmo) -> None:
    stream = tiny_elmo.stateful()
    stream.layers([A, B], tokenized=True)
    hidden, cell = state(stream)
    stream.layers([C], tokenized=True)  # the second row stays where it was
    after_hidden, after_cell = state(stream)
    np.testing.assert_array_equal(after_hidden[:, :, 1], hidden[:, :, 1])
    np.testing.assert_array_equal(after_cell[:, :, 1], cell[:, :, 1])
    assert np.abs(after_cell[:, :, 0] - cell[:, :, 0]).max() > 1e-3
    results = stream.embed([A, B, C], tokenized=True)  # the third row is new
    assert state(stream)[0].shape == (2, 2, 3, 16)
    np.testing.assert_allclose(results[2], tiny_elmo.embed([C], tokenized=True)[0], atol=1e-5)


def test_reset(tiny_elmo: Elmo) -> None:
    stream = tiny_elmo.stateful()
    stream.embed([A, B], tokenized=True)
    stream.reset(rows=[1])
    hidden, cell = state(stream)
    assert (hidden[:, :, 1] == 0).all()
    assert (cell[:, :, 1] == 0).all()
    assert (cell[:, :, 0] != 0).any()
    fresh = tiny_elmo.embed([C], tokenized=True)[0]
    results = stream.embed([C, C], tokenized=True)
    np.testing.assert_allclose(results[1], fresh, atol=1e-5)
    assert np.abs(results[0] - fresh).max() > 1e-3
    with pytest.raises(ConfigError, match=r"row 2 has no state; rows are 0\.\.1"):
        stream.reset(rows=[2])
    stream.reset()
    assert stream.state is None
    stream.reset(rows=[5])  # nothing to forget
    np.testing.assert_allclose(stream.embed([C], tokenized=True)[0], fresh, atol=1e-5)


def test_long_input(tiny_elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence of 10,000 tokens is computed as it is; above a limit the error says what to do."""
    words = "It fell on the old bank and rose again .".split()
    tokens = [words[(7 * k + k * k) % len(words)] for k in range(10_000)]
    expected = tiny_elmo.embed(tokens, tokenized=True)
    assert expected.shape == (10_000, 32)
    stream = tiny_elmo.stateful()
    [found] = stream.embed([tokens], tokenized=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    monkeypatch.setattr(engine, "MAX_TOKENS", 9_000)
    for call in (tiny_elmo.embed, tiny_elmo.stateful().embed):
        with pytest.raises(InputError, match=r"10,000 tokens; split .* at most 9,000"):
            call([tokens], tokenized=True)
