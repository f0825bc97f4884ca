"""What callers pass as sentences, checked: texts, token lists, or what is neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeGuard

import numpy as np

from elmore.base.messages import shown
from elmore.errors import ConfigError
from elmore.text.sentence import Sentence

__all__ = [
    "check_listed",
    "check_text",
    "is_one_sentence",
    "sentence_from_tokens",
    "sentences_from_texts",
    "sentences_from_tokens",
]

_FOR_TEXT = "leave out tokenized=True"


def check_text(text: object) -> None:
    """Refuse what is not a string."""
    if not isinstance(text, str):
        raise ConfigError(f"got {_kind(text)} where a text belongs; pass a string")


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def check_listed(items: Any, what: str) -> None:
    """Refuse what has no items in an order, or is a table, of which Python lists the columns."""
    if hasattr(items, "columns") or hasattr(items, "column_names"):
        raise ConfigError(f"got a table where {what} belong; pass one column, such as df['text']")
    unordered = isinstance(items, bytes | Mapping | Set)
    if unordered or not (isinstance(items, Iterable) or hasattr(items, "__getitem__")):
        raise ConfigError(f"got {_kind(items)} where {what} belong; pass a list")


def is_one_sentence(sentences: Any) -> TypeGuard[Sequence[str]]:
    """Whether it is the tokens of one sentence, not a list of such lists.

    Raises:
        ConfigError: texts rather than tokens.
    """
    if isinstance(sentences, str) or not isinstance(sentences, Sequence | np.ndarray):
        return False
    if not len(sentences) or not all(isinstance(token, str) for token in sentences):
        return False
    for token in sentences:
        if any(c.isspace() for c in token):
            raise ConfigError(
                f"got the token {shown(repr(token), 60)} with a space; {_FOR_TEXT} for text, or "
                "pass a list of token lists"
            )
    return True


def sentences_from_texts(
    texts: Iterable[str | Sentence], tokenize: Callable[[str], Sentence]
) -> Iterator[Sentence]:
    """Tokenize texts; sentences are passed on.

    Args:
        texts: what a caller passed.
        tokenize: splits one.

    Raises:
        ConfigError: one string for all, or an item that is not a string.
    """
    if isinstance(texts, str):
        raise ConfigError("got one string where a list of sentences belongs; pass [text]")
    check_listed(texts, "sentences")
    for k, text in enumerate(texts):
        if isinstance(text, Sentence):
            yield text
        elif isinstance(text, str):
            yield tokenize(text)
        else:
            raise ConfigError(
                f"item {k} is a {type(text).__name__}, not a string; for lists of tokens pass "
                "tokenized=True"
            )


def sentences_from_tokens(sentences: Iterable[Iterable[str] | Sentence]) -> Iterator[Sentence]:
    """Take lists of tokens as they are; sentences are passed on.

    Raises:
        ConfigError: a string where a list belongs, or a token that is not a string.
    """
    if isinstance(sentences, str):
        raise ConfigError(
            f"got a string where lists of tokens belong; {_FOR_TEXT} for text, or pass [tokens]"
        )
    check_listed(sentences, "lists of tokens")
    for k, tokens in enumerate(sentences):
        yield sentence_from_tokens(tokens, f"sentence {k}")


def sentence_from_tokens(
    tokens: Iterable[str] | Sentence, what: str, for_text: str = _FOR_TEXT
) -> Sentence:
    """Take one list of tokens as it is; messages call it `what` and say what to do with text."""
    if isinstance(tokens, Sentence):
        return tokens
    if isinstance(tokens, str):
        raise ConfigError(f"{what} is a string, not a list of tokens; {for_text} for text")
    check_listed(tokens, f"the tokens of {what}")
    listed = tuple(tokens)
    for token in listed:
        if not isinstance(token, str):
            raise ConfigError(
                f"{what} has a token of type {type(token).__name__}; tokens are strings"
            )
    return Sentence(listed)
