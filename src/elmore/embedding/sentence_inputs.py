"""Sentences from what callers pass, or a message that names the call they meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from elmore.errors import ConfigError
from elmore.text.sentence import Sentence

__all__ = [
    "sentence_from_text",
    "sentence_from_tokens",
    "sentences_from_texts",
    "sentences_from_tokens",
]

Tokenize = Callable[[str], Sentence]


def sentences_from_texts(texts: Any, tokenize: Tokenize, for_tokens: str) -> Iterator[Sentence]:
    """Tokenize texts.

    Args:
        texts: strings.
        tokenize: splits one.
        for_tokens: what takes lists of tokens instead, for messages.

    Raises:
        ConfigError: one string for all, or an item that is none.
    """
    if isinstance(texts, str):
        raise ConfigError("got one string where a list of sentences belongs; pass [text]")
    for k, text in enumerate(texts):
        yield sentence_from_text(text, f"item {k}", tokenize, for_tokens)


def sentence_from_text(text: Any, what: str, tokenize: Tokenize, for_tokens: str) -> Sentence:
    """Tokenize one text; `what` names it in messages."""
    if not isinstance(text, str):
        raise ConfigError(
            f"{what} is a {type(text).__name__}, not a string; for lists of tokens use {for_tokens}"
        )
    return tokenize(text)


def sentences_from_tokens(sentences: Any, for_text: str) -> Iterator[Sentence]:
    """Take lists of tokens as they are.

    Args:
        sentences: lists of strings.
        for_text: what to do with text instead, for messages.

    Raises:
        ConfigError: a string where a list belongs, or a token that is no string.
    """
    if isinstance(sentences, str):
        raise ConfigError(
            f"got a string where lists of tokens belong; {for_text} for text, or pass [tokens]"
        )
    for k, tokens in enumerate(sentences):
        yield sentence_from_tokens(tokens, f"sentence {k}", for_text)


def sentence_from_tokens(tokens: Any, what: str, for_text: str) -> Sentence:
    """Take one list of tokens as it is; `what` names it in messages."""
    if isinstance(tokens, str):
        raise ConfigError(f"{what} is a string, not a list of tokens; {for_text} for text")
    for token in tokens:
        if not isinstance(token, str):
            raise ConfigError(
                f"{what} has a token of type {type(token).__name__}; tokens are strings"
            )
    return Sentence(tuple(tokens))
