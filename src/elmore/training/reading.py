"""How text becomes tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from elmore.errors import ConfigError
from elmore.text.sentences import split_sentences
from elmore.text.tokenizer import CONVENTIONS, Convention, tokenize

__all__ = ["Errors", "Reading"]

Errors: TypeAlias = Literal["strict", "replace", "skip"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How text becomes tokens.

    Attributes:
        tokenized: lines are tokens separated by single spaces.
        split_sentences: documents are running text.
        tokenizer: the convention for text that is not tokenized.
        errors: what to do with lines that are not UTF-8.
    """

    tokenized: bool = False
    split_sentences: bool = False
    tokenizer: Convention = "ptb"
    errors: Errors = "strict"

    def __post_init__(self) -> None:
        if self.tokenized and self.split_sentences:
            raise ConfigError("tokenized and split_sentences exclude each other; pass one of them")
        if self.tokenizer not in CONVENTIONS:
            raise ConfigError(
                f"tokenizer={self.tokenizer!r} is unknown; use {', '.join(CONVENTIONS)}"
            )
        if self.errors not in ("strict", "replace", "skip"):
            raise ConfigError(f"errors={self.errors!r} is unknown; use strict, replace or skip")

    @property
    def convention(self) -> Convention:
        """The convention of the tokens that come out."""
        return "spaces" if self.tokenized else self.tokenizer

    def sentences(self, text: str) -> Iterator[Sequence[str]]:
        """Give the tokens of the sentences of a document."""
        texts = split_sentences(text) if self.split_sentences else text.split("\n")
        if self.tokenized:
            for line in texts:
                # str.split() would also split at U+00A0 and its like, which may stand in tokens.
                yield [token for token in line.split(" ") if token]
        else:
            for line in texts:
                yield tokenize(line, self.tokenizer).tokens
