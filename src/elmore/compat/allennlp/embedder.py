"""AllenNLP's character ids, its files as paths or addresses, and its `ElmoEmbedder` (up to 0.9).

A token has 50 character ids, shifted by one; rows of zeros are padding. None of this needs torch,
except what returns tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.elmo import Elmo
from elmore.embedding.load import read_checkpoint
from elmore.embedding.results import SentenceLayers
from elmore.embedding.vector_files import Record, Settings, write_vectors
from elmore.errors import ConfigError
from elmore.formats.checkpoint import Checkpoint
from elmore.published.catalog import find_published
from elmore.published.downloads import is_address
from elmore.published.hub import fetch_address
from elmore.text.characters import Alphabet, ByteAlphabet

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float32]
ConfigurationError = ConfigError  # AllenNLP's name
FileName = str | Path
OutputFormat = Literal["all", "top", "average"]
_NAME = "elmo_tokens"
# AllenNLP's own constant, whatever the size of the model.
_EMPTY = (3, 0, 1024)


class ELMoCharacterMapper:
    """Maps a token to its character ids; `tokens_to_add` have one of their own, {"<first>": 1}."""

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

    Only `tokens_to_add` has an effect; characters need no vocabulary.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
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
    """The character ids of tokenized sentences, (batch, time, 50); zeros where one has ended."""
    alphabet = ByteAlphabet(ELMoCharacterMapper.max_word_length)
    rows = [alphabet.encode([_text(token) for token in sentence]) for sentence in batch]
    return _padded(rows, max((len(row) for row in rows), default=0))


def _padded(rows: Sequence[Any], length: int) -> Tensor:
    torch = require("torch", "torch", "a batch of character ids, which is a tensor,")
    ids: Tensor = torch.zeros(
        len(rows), length, ELMoCharacterMapper.max_word_length, dtype=torch.long
    )
    for row, given in zip(ids, rows, strict=True):
        if kept := list(given[:length]):
            row[: len(kept)] = torch.as_tensor(np.array(kept))
    return ids


def _text(token: Any) -> str:
    text = token if isinstance(token, str) else getattr(token, "text", None)
    if not isinstance(text, str):
        raise ConfigError(
            f"a token of type {type(token).__name__} has no text; pass strings, or objects with "
            "a string `text`"
        )
    return text


# AllenNLP's default: the original model, which is downloaded when it is first used.
DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE = (
    addresses[0] for addresses in find_published("original").files.values()
)


def read_files(options_file: FileName, weight_file: FileName) -> tuple[Checkpoint, Alphabet]:
    """Read a model, and its characters, from two files; addresses are downloaded once."""
    checkpoint = read_checkpoint((cached_path(options_file), cached_path(weight_file)))
    # AllenNLP's classes take character ids, which a word model cannot read.
    if checkpoint.alphabet is None:
        raise ConfigError(
            f"'{weight_file}' reads words and not characters, which AllenNLP's ELMo needs; use "
            "elmore.Elmo.load((options, weights, vocabulary))"
        )
    return checkpoint, checkpoint.alphabet


def cached_path(name: FileName) -> Path:
    """The path of a file, which is downloaded if its name is an address."""
    return fetch_address(str(name)) if is_address(name) else Path(name)


class ElmoEmbedder:
    """Embeds sentences with a biLM whose state is carried from batch to batch.

    So a second call with the same sentence gives slightly other vectors, as in AllenNLP. For
    vectors that depend on a sentence alone use `elmore.Elmo.layers(tokenized=True)`.
    """

    def __init__(
        self,
        options_file: FileName = DEFAULT_OPTIONS_FILE,
        weight_file: FileName = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
    ) -> None:
        self.cuda_device = cuda_device
        # AllenNLP counts GPUs from 0 and means the CPU by any negative number.
        device = "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
        self.elmo = Elmo(read_files(options_file, weight_file)[0], device=device)
        self._stream = self.elmo.stateful()

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Embed one batch: (batch, layers, time, dim), and which tokens are real, (batch, time)."""
        torch = require("torch", "torch", "batch_to_embeddings, which returns tensors,")
        layers = self._stream.layers(batch, tokenized=True)
        time = max((len(sentence) for sentence in layers), default=0)
        values = np.zeros((len(layers), self.elmo.n_layers, time, self.elmo.dim), np.float32)
        mask = np.zeros((len(layers), time), np.bool_)
        for row, sentence in enumerate(layers):
            values[row, :, : len(sentence)] = sentence.values
            mask[row, : len(sentence)] = True
        return torch.from_numpy(values), torch.from_numpy(mask)

    def embed_sentence(self, sentence: Sequence[str]) -> Array:
        """Embed the tokens of one sentence, (layers, time, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Array]:
        """Embed one batch, each (layers, time, dim); an empty sentence gives (3, 0, 1024)."""
        if len(batch) == 1 and not batch[0]:
            return [np.zeros(_EMPTY, np.float32)]  # the state stays as it is
        return [
            layers.values if len(layers) else np.zeros(_EMPTY, np.float32)
            for layers in self._stream.layers(batch, tokenized=True)
        ]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = 64
    ) -> Iterator[Array]:
        """Embed a stream, batch by batch in order, each (layers, time, dim)."""
        stream = iter(sentences)
        while batch := list(islice(stream, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: FileName,
        output_format: OutputFormat = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed the lines of a file into HDF5, as `allennlp elmo` did.

        Tokens are separated by white space. A dataset is (layers, time, dim), or (time, dim) of the
        "top" layer or the "average"; its name is the number of its line, or with
        `use_sentence_keys` the sentence. `forget_sentences` leaves `sentence_to_index` out.

        Raises:
            ConfigError: a blank line, or with `use_sentence_keys` a sentence that occurs twice.
        """
        if output_format not in get_args(OutputFormat):
            raise ConfigError(
                f"output_format={output_format!r}; use one of {', '.join(get_args(OutputFormat))}"
            )
        lines = [line.strip() for line in input_file]
        # AllenNLP refused them too: a sentence of no tokens has no vectors to store.
        blank = [k for k, line in enumerate(lines) if not line]
        if blank:
            raise ConfigError(f"lines {blank[:20]} (from 0) are blank; remove them")
        dim = self.elmo.dim
        settings = Settings(
            shape=(self.elmo.n_layers, None, dim) if output_format == "all" else (None, dim),
            sentence_index=not forget_sentences,
            sentence_keys=use_sentence_keys,
            overwrite=True,
        )
        rows = [tuple(line.split()) for line in lines]

        def records() -> Iterator[Record]:
            vectors = self.embed_sentences(rows, batch_size)
            for line, tokens, values in zip(lines, rows, vectors, strict=True):
                if output_format != "all":
                    layers = SentenceLayers(tokens, None, values)
                    values = layers.mix("top" if output_format == "top" else "mean")
                yield Record(line, tokens, None, values)

        write_vectors("hdf5", Path(output_file_path), records(), settings)
