"""What AllenNLP's classes take: character ids, and files as paths or addresses.

A token has 50 character ids, shifted by one; rows of zeros are padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.base.optional import require
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError
from elmore.errors import ConfigError as ConfigurationError  # AllenNLP's name
from elmore.formats.checkpoint import Checkpoint
from elmore.published.catalog import find_published
from elmore.published.downloads import is_address
from elmore.published.hub import fetch_address
from elmore.text.characters import ByteAlphabet

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DEFAULT_OPTIONS_FILE",
    "DEFAULT_WEIGHT_FILE",
    "ConfigurationError",
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "FileName",
    "batch_to_ids",
    "cached_path",
    "read_files",
]

_NAME = "elmo_tokens"


class ELMoCharacterMapper:
    """Maps a token to its character ids.

    Args:
        tokens_to_add: tokens that get one character of their own, e.g. {"<first>": 1}.
    """

    max_word_length = 50
    bos_token, eos_token = ByteAlphabet.markers

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})
        self._alphabet = ByteAlphabet(self.max_word_length)

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """The 50 ids of a token."""
        if word not in self.tokens_to_add:
            return [int(k) for k in self._alphabet.encode([word])[0]]
        # Laid out as a marker is: one special character between those of a word.
        ids = [int(k) for k in self._alphabet.encode([self.bos_token])[0]]
        ids[1] = self.tokens_to_add[word] + 1
        return ids


class ELMoTokenCharactersIndexer:
    """AllenNLP's `elmo_characters` indexer, for code that indexes its fields itself.

    Args:
        namespace: kept for the signature; characters need no vocabulary.
        tokens_to_add: as in `ELMoCharacterMapper`.
        token_min_padding_length: kept for the signature.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._namespace = namespace
        self._mapper = ELMoCharacterMapper(tokens_to_add)

    def tokens_to_indices(
        self, tokens: Iterable[Any], vocabulary: object = None, index_name: str = _NAME
    ) -> dict[str, list[list[int]]]:
        """The ids of tokens, which are strings or have a `text`."""
        return {index_name: [self._mapper.convert_word_to_char_ids(_text(t)) for t in tokens]}

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        """What `tokens_to_indices` gives for no tokens."""
        return {_NAME: []}

    def get_padding_lengths(self, indexed_tokens: Mapping[str, Sequence[Any]]) -> dict[str, int]:
        """The number of tokens."""
        return {name: len(ids) for name, ids in indexed_tokens.items()}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, Sequence[Sequence[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Cut or fill with rows of zeros to a length, {name: (time, 50)}."""
        return {name: _padded([ids], padding_lengths[name])[0] for name, ids in tokens.items()}


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Turn sentences into character ids.

    Args:
        batch: tokens of each sentence.

    Returns:
        (batch, time, 50); rows of zeros where a sentence has ended.

    Examples:
        >>> batch_to_ids([["First", "sentence", "."], ["Second", "."]]).shape
        torch.Size([2, 3, 50])
    """
    alphabet = ByteAlphabet(ELMoCharacterMapper.max_word_length)
    rows = [alphabet.encode([_text(token) for token in sentence]) for sentence in batch]
    return _padded(rows, max((len(row) for row in rows), default=0))


def _padded(rows: Sequence[Any], length: int) -> Tensor:
    torch = require("torch", "torch", "a batch of character ids, which is a tensor,")
    ids: Tensor = torch.zeros(
        len(rows), length, ELMoCharacterMapper.max_word_length, dtype=torch.long
    )
    for row, given in zip(ids, rows, strict=True):
        kept = given[:length]
        if len(kept):
            row[: len(kept)] = torch.as_tensor(kept)
    return ids


def _text(token: Any) -> str:
    text = token if isinstance(token, str) else getattr(token, "text", None)
    if not isinstance(text, str):
        raise ConfigError(
            f"a token of type {type(token).__name__} has no text; pass strings, or objects with "
            "a string `text`"
        )
    return text


FileName = str | Path

# AllenNLP's default: the original model, which is downloaded when it is first used.
DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE = (
    file.addresses[0] for file in find_published("original").files
)


def read_files(options_file: FileName | None, weight_file: FileName | None) -> Checkpoint:
    """Read a model from two files; addresses are downloaded once."""
    if options_file is None or weight_file is None:
        raise ConfigError("a model has two files; pass options_file and weight_file")
    checkpoint = read_checkpoint((cached_path(options_file), cached_path(weight_file)))
    # AllenNLP's classes take character ids, which a word model cannot read.
    if checkpoint.alphabet is None:
        raise ConfigError(
            f"'{weight_file}' reads words and not characters, which AllenNLP's ELMo needs; use "
            "elmore.Elmo.load((options, weights, vocabulary))"
        )
    return checkpoint


def cached_path(name: FileName) -> Path:
    """The path of a file, which is downloaded if its name is an address."""
    return fetch_address(str(name)) if is_address(name) else Path(name)
