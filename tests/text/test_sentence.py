from __future__ import annotations

import dataclasses

import pytest

from elmore.errors import InputError
from elmore.text.tokenizer import Sentence


def test_length_counts_tokens() -> None:
    assert len(Sentence(("a", "b"), ((0, 1), (2, 3)))) == 2
    assert len(Sentence(())) == 0


def test_spans_are_optional() -> None:
    assert Sentence(("a",)).spans is None


@pytest.mark.parametrize("spans", [(), ((0, 1), (1, 2))])
def test_spans_must_fit_the_tokens(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InputError, match=r"1 tokens but \d spans; give one"):
        Sentence(("a",), spans)


def test_frozen_and_hashable() -> None:
    sentence = Sentence(("a",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        sentence.tokens = ()  # type: ignore[misc]  # the point of the test
    assert {sentence: 1}[Sentence(("a",))] == 1
