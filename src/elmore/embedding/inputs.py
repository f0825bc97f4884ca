"""What callers pass as sentences, checked: texts, token lists, or what is neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from elmore.base.messages import shown
from elmore.errors import ConfigError
from elmore.text.tokenizer import Sentence

_FOR_TEXT = "leave out tokenized=True"


def kind_of(value: object) -> str:
    """What a value is, for messages: "an int"."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def check_listed(items: Any, what: str) -> None:
    """Refuse what has no items in an order, or is a table, of which Python lists the columns."""
    if hasattr(items, "columns") or hasattr(items, "column_names"):
        raise ConfigError(f"got a table where {what} belong; pass one column, such as df['text']")
    unordered = isinstance(items, bytes | Mapping | Set)
    if unordered or not (isinstance(items, Iterable) or hasattr(items, "__getitem__")):
        raise ConfigError(f"got {kind_of(items)} where {what} belong; pass a list")


def as_list(texts: Any, tokenized: bool) -> tuple[Any, bool]:
    """What a caller passed as a list of sentences, and whether it was a single one.

    Raises:
        ConfigError: texts rather than tokens.
    """
    if not tokenized:
        single = isinstance(texts, str)
        return [texts] if single else texts, single
    listed = isinstance(texts, Sequence | np.ndarray) and not isinstance(texts, str)
    if not listed or not len(texts) or not all(isinstance(token, str) for token in texts):
        return texts, False
    for token in texts:
        if any(c.isspace() for c in token):
            raise ConfigError(
                f"got the token {shown(repr(token), 60)} with a space; {_FOR_TEXT} for text, or "
                "pass a list of token lists"
            )
    return [texts], True


def sentences_of(
    items: Iterable[Any], tokenized: bool, tokenize: Callable[[str], Sentence]
) -> Iterator[Sentence]:
    """Turn texts, or lists of tokens if `tokenized`, into sentences; sentences are passed on.

    Raises:
        ConfigError: one string for all, or an item of another kind.
    """
    if isinstance(items, str):
        raise ConfigError(
            f"got a string where lists of tokens belong; {_FOR_TEXT} for text, or pass [tokens]"
            if tokenized
            else "got one string where a list of sentences belongs; pass [text]"
        )
    check_listed(items, "lists of tokens" if tokenized else "sentences")
    for k, item in enumerate(items):
        if tokenized or isinstance(item, Sentence):
            yield sentence_from_tokens(item, f"sentence {k}")
        elif isinstance(item, str):
            yield tokenize(item)
        else:
            raise ConfigError(
                f"item {k} is {kind_of(item)}, not a string; for lists of tokens pass "
                "tokenized=True"
            )


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
