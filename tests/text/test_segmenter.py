"""Tokenizers of the user's own: what they may return, and how they are named."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from elmore.errors import ConfigError
from elmore.text.segmenter import sendable, split_function
from elmore.text.tokenizer import CONVENTIONS, Sentence


def test_tokens_get_the_places_where_they_are_found() -> None:
    # Segmenters return the spaces between words too.
    sentence = split_function(lambda text: ["我", "喜欢", " ", "猫", ""])("我喜欢 猫")
    assert sentence == Sentence(("我", "喜欢", "猫"), ((0, 1), (1, 3), (4, 5)))


@pytest.mark.parametrize("tokens", [["go", "fall"], ["fell"], ["She", "fell", "fell"]])
def test_rewritten_tokens_have_no_places(tokens: list[str]) -> None:
    sentence = split_function(lambda text: tokens)("She fell")
    assert sentence == Sentence(tuple(tokens), None)


def test_places_are_kept() -> None:
    sentence = split_function(lambda text: iter([("i", 0, 1), ("n", 0 + 1, 2)]))("im")
    assert sentence == Sentence(("i", "n"), ((0, 1), (1, 2)))


def test_a_module_and_its_function() -> None:
    assert split_function("shlex:split")("a 'b c'").tokens == ("a", "b c")
    assert split_function("builtins:str.split")("a b").tokens == ("a", "b")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("a b", "returned a str; return a list of tokens"),
        (None, "returned a NoneType; return a list"),
        ([b"a"], "gave b'a' among its tokens"),
        (["a", ("b", 1, 2)], "gave 'a' among its tokens; give strings only"),
        ([("a", 0)], r"gave \('a', 0\) among its tokens"),
        ([("a", 0, 9)], r"gave \('a', 0, 9\) among its tokens; .* whose places increase"),
        ([("a", 1, 2), ("b", 0, 1)], r"gave \('b', 0, 1\)"),
        ([("a", "0", "1")], r"gave \('a', '0', '1'\)"),
    ],
)
def test_what_a_function_may_not_return(returned: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        split_function(lambda text: returned)("a b")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("moses", f"tokenizer='moses' is unknown; use {', '.join(CONVENTIONS)}, module:function"),
        (3, "tokenizer=3 is unknown"),
        ("no_such_module:split", r"cannot import no_such_module .*; install it, or put its folder"),
        ("shlex:cut", "shlex has no function cut"),
        (":split", "cannot import"),
    ],
)
def test_unknown_names(name: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_function(name)


def test_what_can_be_sent_to_other_processes() -> None:
    assert sendable(None) is None
    assert sendable("spaces") == "spaces"
    assert sendable(shlex.split) == sendable("shlex:split") == "shlex:split"
    for local in (lambda text: text.split(), str.split("a b").__contains__, "a b".split):
        with pytest.raises(ConfigError, match="cannot be sent to other processes; put the func"):
            sendable(local)
    with pytest.raises(ConfigError, match="cannot import"):
        sendable("no_such_module:split")
