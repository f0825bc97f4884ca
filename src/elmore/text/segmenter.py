"""The tokenizer that a user chooses: a convention by its name, or a function of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeGuard

from elmore.base.messages import shown
from elmore.errors import ConfigError
from elmore.text.tokenizer import CONVENTIONS, Convention, Sentence, tokenize

# A convention, "module:function", or a function that gives tokens or (token, start, end).
Tokenizer: TypeAlias = str | Callable[[str], Any]
Split: TypeAlias = Callable[[str], Sentence]


def is_convention(tokenizer: Tokenizer) -> TypeGuard[Convention]:
    """Whether it is the name of a convention, which a model can store."""
    return isinstance(tokenizer, str) and tokenizer in CONVENTIONS


def split_function(tokenizer: Tokenizer) -> Split:
    """The function that splits a text.

    Args:
        tokenizer: a convention, "module:function", or a function of a text that gives its tokens or
            (token, start, end). Tokens of white space are left out.

    Raises:
        ConfigError: no such convention, module or function.
    """
    if is_convention(tokenizer):
        return partial(tokenize, convention=tokenizer)
    function = tokenizer if callable(tokenizer) else _imported(tokenizer)
    return partial(_split, function, tokenizer_name(tokenizer))


def tokenizer_name(tokenizer: Tokenizer) -> str:
    """What to call it in messages and notes: "module:function" for a function."""
    if isinstance(tokenizer, str):
        return tokenizer
    module = getattr(tokenizer, "__module__", None)
    name = getattr(tokenizer, "__qualname__", None)
    return f"{module}:{name}" if name else f"a {type(tokenizer).__name__}"


def sendable(tokenizer: Tokenizer | None) -> str | None:
    """The name under which other processes find a tokenizer.

    Raises:
        ConfigError: a function that they cannot import.
    """
    if tokenizer is None or isinstance(tokenizer, str):
        if tokenizer is not None:
            split_function(tokenizer)  # refuses here, not in a worker
        return tokenizer
    name = tokenizer_name(tokenizer)
    try:
        # The __main__ of another process is another program.
        if not name.startswith("__main__:") and _imported(name) is tokenizer:
            return name
    except ConfigError:
        pass
    raise ConfigError(
        f"{shown(name)} cannot be sent to other processes; put the function into a module that "
        'they can import, and pass tokenizer="module:function"'
    )


def _imported(name: object) -> Callable[[str], Any]:
    """The function that "module:function" names."""
    if not isinstance(name, str) or ":" not in name:
        raise ConfigError(
            f"tokenizer={shown(repr(name))} is unknown; use {', '.join(CONVENTIONS)}, "
            "module:function or a function"
        )
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"tokenizer={shown(repr(name))}: cannot import {shown(module)} "
            f"({shown(error)}); install it, or put its folder on PYTHONPATH"
        ) from None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(
            f"tokenizer={shown(repr(name))}: {shown(module)} has no function {shown(path)}"
        )
    function: Callable[[str], Any] = found
    return function


# --------------------------------------------------------------------------- what a function gives


def _split(function: Callable[[str], Any], name: str, text: str) -> Sentence:
    found = function(text)
    if isinstance(found, Sentence):
        return found
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise ConfigError(
            f"the tokenizer {shown(name)} returned a {type(found).__name__}; return a list of "
            "tokens, or of (token, start, end)"
        )
    pieces = list(found)
    # Segmenters return the spaces between words too; no model was trained on those.
    if all(isinstance(piece, str) for piece in pieces):
        tokens = tuple(piece for piece in pieces if piece and not piece.isspace())
        return Sentence(tokens, _find_spans(text, tokens))
    last = 0
    for piece in pieces:
        match piece:
            case (str(), int(start), int(end)) if last <= start <= end <= len(text):
                last = end
            case _:
                raise ConfigError(
                    f"the tokenizer {shown(name)} gave {shown(repr(piece), 60)} among its tokens; "
                    "give strings only, or (token, start, end) only, whose places increase from 0 "
                    f"to the length of the text, {len(text)}"
                )
    kept = [piece for piece in pieces if piece[0] and not piece[0].isspace()]
    return Sentence(tuple(p[0] for p in kept), tuple((int(p[1]), int(p[2])) for p in kept))


def _find_spans(text: str, tokens: Sequence[str]) -> tuple[tuple[int, int], ...] | None:
    """Where the tokens are; None if the function has rewritten one."""
    spans = []
    end = 0
    for token in tokens:
        start = text.find(token, end)
        # A token that was rewritten may be found by chance further on: only white space is between.
        if start < 0 or text[end:start].strip():
            return None
        end = start + len(token)
        spans.append((start, end))
    return tuple(spans)
