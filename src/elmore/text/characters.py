"""Tokens as rows of character ids, exactly as the published models were trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError

# The raw ids of bilm-tf are the bytes 0..255 and five markers; for inference every id is one
# higher, so that 0 is free to mark a padded position of the sentence.
_BEGIN_SENTENCE, _END_SENTENCE, _BEGIN_WORD, _END_WORD, _PAD = 257, 258, 259, 260, 261

# The entry of a dictionary that fills a row.
PADDING = "<pad>"


class ByteAlphabet:
    """The UTF-8 bytes of a token between word markers (bilm-tf and AllenNLP).

    A token longer than `max_chars` - 2 bytes is cut there, even inside a character; lone
    surrogates vanish. The tokens `<S>` and `</S>` have one special character each.
    """

    kind = "bytes"
    n_characters = 261
    markers = ("<S>", "</S>")

    def __init__(self, max_chars: int = 50) -> None:
        if max_chars < 3:
            raise ConfigError(
                f"max_chars={max_chars} leaves no room for a character; use 3 or more"
            )
        self.max_chars = max_chars

    def encode(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """The character ids of tokens, (n_tokens, max_chars)."""
        room = self.max_chars - 2
        rows = [token.encode("utf-8", "ignore")[:room] for token in tokens]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.full((len(rows), self.max_chars), _PAD, np.int32)
        ids[:, 0] = _BEGIN_WORD
        ids[np.arange(len(rows)), lengths + 1] = _END_WORD
        # One scatter for all bytes: the row of each byte, and its place within the row.
        row = np.repeat(np.arange(len(rows)), lengths)
        column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        ids[row, column] = np.frombuffer(b"".join(rows), np.uint8).astype(np.int32) + 1
        for special, marker in zip((_BEGIN_SENTENCE, _END_SENTENCE), self.markers, strict=True):
            for k, token in enumerate(tokens):
                if token == marker:
                    # The marker was spelled out like a word above; it is one character of its own.
                    ids[k, 3:] = _PAD
                    ids[k, 1:3] = special, _END_WORD
        return ids

    def count_cut(self, tokens: Sequence[str]) -> int:
        """Count the tokens of more than `max_chars` - 2 bytes."""
        room = self.max_chars - 2
        # A character has at most four bytes, so short strings need no encoding.
        return sum(
            len(token) * 4 > room and len(token.encode("utf-8", "ignore")) > room
            for token in tokens
            if token not in self.markers
        )


class DictionaryAlphabet:
    """The characters of a token as rows of a dictionary, between word markers (ELMoForManyLangs).

    A token of more than `max_chars` - 2 characters is cut there. The original puts `<eow>` before
    a word and `<bow>` after it, in training and in use; so it is done here. Ids are those
    of the dictionary plus one.

    Args:
        symbols: all entries, in the order of their rows.
        max_chars: columns of a row.
    """

    kind = "dictionary"
    markers = ("<bos>", "<eos>")
    # What every dictionary has beside its characters.
    specials = (*markers, "<oov>", PADDING, "<bow>", "<eow>")

    def __init__(self, symbols: Sequence[str], max_chars: int) -> None:
        self.symbols = tuple(symbols)
        self.max_chars = max_chars
        self._ids = {symbol: k + 1 for k, symbol in enumerate(self.symbols)}
        if len(self._ids) != len(self.symbols):
            twice = next(s for k, s in enumerate(self.symbols) if self._ids[s] != k + 1)
            raise ConfigError(f"the alphabet has {twice!r} twice; keep each character once")
        for special in self.specials:
            if special not in self._ids:
                raise ConfigError(f"the alphabet has no {special}; pass the one of the model")
        longest = max(map(len, self.markers))
        if max_chars < longest + 2:
            raise ConfigError(
                f"max_chars={max_chars} leaves no room for {self.markers[0]}; "
                f"use {longest + 2} or more"
            )

    @property
    def n_characters(self) -> int:
        """Number of entries."""
        return len(self.symbols)

    @property
    def padding(self) -> int:
        """The id that fills a row."""
        return self._ids[PADDING]

    def encode(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """The character ids of tokens, (n_tokens, max_chars)."""
        ids, room = self._ids, self.max_chars - 2
        before, after, unknown = ids["<eow>"], ids["<bow>"], ids["<oov>"]
        rows = np.full((len(tokens), self.max_chars), self.padding, np.int32)
        for k, token in enumerate(tokens):
            if token in self.markers:
                row = [before, ids[token], after]
            else:
                row = [before, *(ids.get(c, unknown) for c in token[:room]), after]
            rows[k, : len(row)] = row
        return rows

    def count_cut(self, tokens: Sequence[str]) -> int:
        """Count the tokens of more than `max_chars` - 2 characters."""
        return sum(len(token) > self.max_chars - 2 for token in tokens)


# What turns tokens into rows of character ids from 1; 0 is not a character of any alphabet.
Alphabet: TypeAlias = ByteAlphabet | DictionaryAlphabet
