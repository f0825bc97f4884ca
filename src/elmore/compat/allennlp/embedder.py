"""AllenNLP's `ElmoEmbedder` (up to 0.9): tokens in, all layers out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.compat.allennlp.character_ids import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    FileName,
    read_files,
)
from elmore.elmo import Elmo
from elmore.embedding.results import SentenceLayers
from elmore.embedding.vector_files import Record, Settings, write_vectors
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DEFAULT_BATCH_SIZE", "ElmoEmbedder", "OutputFormat"]

Array = NDArray[np.float32]
OutputFormat = Literal["all", "top", "average"]
DEFAULT_BATCH_SIZE = 64
# AllenNLP's own constant, whatever the size of the model.
_EMPTY = (3, 0, 1024)


class ElmoEmbedder:
    """Embeds sentences with a biLM whose state is carried from batch to batch.

    So a second call with the same sentence gives slightly other vectors, as in AllenNLP. For
    vectors that depend on a sentence alone use `elmore.Elmo.layers(tokenized=True)`.

    Args:
        options_file: options.json; AllenNLP's default, the original model, if not given.
        weight_file: the HDF5 weights.
        cuda_device: number of a CUDA device, -1 for the CPU.

    Examples:
        >>> embedder = ElmoEmbedder("options.json", "weights.hdf5")
        >>> embedder.embed_sentence(["I", "ate", "an", "apple"]).shape
        (3, 4, 32)
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
        self.elmo = Elmo(read_files(options_file, weight_file), device=device)
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
        for k, sentence in enumerate(batch):
            if isinstance(sentence, str):
                raise ConfigError(f"sentence {k} is a string; pass its tokens as a list")
        if all(len(sentence) == 0 for sentence in batch) and len(batch) == 1:
            return [np.zeros(_EMPTY, np.float32)]  # the state stays as it is
        return [
            layers.values if len(layers) else np.zeros(_EMPTY, np.float32)
            for layers in self._stream.layers(batch, tokenized=True)
        ]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
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
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed the lines of a file into HDF5, as `allennlp elmo` did.

        Args:
            input_file: an open text file, one sentence per line, tokens separated by white space.
            output_file_path: the file to make; an existing one is replaced.
            output_format: "all" layers (layers, time, dim), the "top" one, or their "average"
                (time, dim).
            batch_size: sentences in a batch.
            forget_sentences: leave `sentence_to_index` out.
            use_sentence_keys: name each dataset after its sentence instead of its line number.

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
        if use_sentence_keys and len(set(lines)) < len(lines):
            twice = next(line for k, line in enumerate(lines) if line in lines[:k])
            raise ConfigError(
                f"the sentence {twice[:60]!r} occurs twice, and use_sentence_keys needs each once"
            )
        dim = self.elmo.dim
        shape = (self.elmo.n_layers, None, dim) if output_format == "all" else (None, dim)
        settings = Settings(
            shape=shape,
            sentence_index=not forget_sentences,
            sentence_keys=use_sentence_keys,
            overwrite=True,
        )
        rows = (line.split() for line in lines)

        def records() -> Iterator[Record]:
            for line, values in zip(lines, self.embed_sentences(rows, batch_size), strict=True):
                tokens = tuple(line.split())
                if output_format != "all":
                    layers = SentenceLayers(tokens, None, values)
                    values = layers.mix("top" if output_format == "top" else "mean")
                yield Record(line, tokens, None, values)

        write_vectors("hdf5", Path(output_file_path), records(), settings)
