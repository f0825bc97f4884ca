"""Tokens as character ids, exactly as published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import character_ids

from elmore.errors import ConfigError
from elmore.text.characters import ByteAlphabet

any_text = st.text(st.characters(exclude_categories=()), max_size=70)  # surrogates too


@pytest.mark.parametrize(
    ("token", "start"),
    [
        ("Second", [259, 84, 102, 100, 112, 111, 101, 260]),
        (".", [259, 47, 260]),
        ("Āt", [259, 197, 129, 117, 260]),
        ("<S>", [259, 257, 260]),
        ("</S>", [259, 258, 260]),
        ("", [259, 260]),
        ("\ud800t", [259, 117, 260]),
        ("\0", [259, 1, 260]),
        ("<UNK>", [259, 61, 86, 79, 76, 63, 260]),
    ],
)
def test_published_examples(token: str, start: list[int]) -> None:
    assert ByteAlphabet().encode([token]).tolist() == [start + [261] * (50 - len(start))]


def test_long_tokens_are_cut_even_inside_a_character() -> None:
    ids = ByteAlphabet(5).encode(["th", "thhhhh", "aaĀ"])
    assert ids.tolist() == [
        [259, 117, 105, 260, 261],
        [259, 117, 105, 105, 260],
        [259, 98, 98, 197, 260],
    ]


@given(
    st.lists(any_text | st.sampled_from(["<S>", "</S>", "é" * 30, "x" * 48, "x" * 49])),
    st.sampled_from([3, 4, 12, 50]),
)
def test_equal_to_the_slow_reference_for_any_string(tokens: list[str], max_chars: int) -> None:
    ids = ByteAlphabet(max_chars).encode(tokens)
    assert ids.shape == (len(tokens), max_chars)
    assert ids.dtype == np.int32
    for row, token in zip(ids, tokens, strict=True):
        assert row.tolist() == character_ids(token, max_chars).tolist()


@given(st.lists(any_text))
def test_cut_tokens_are_counted(tokens: list[str]) -> None:
    alphabet = ByteAlphabet(12)
    expected = sum(len(token.encode("utf-8", "ignore")) > 10 for token in tokens)
    assert alphabet.count_cut(tokens) == expected


def test_a_row_needs_room() -> None:
    with pytest.raises(ConfigError, match="max_chars=2 leaves no room"):
        ByteAlphabet(2)
