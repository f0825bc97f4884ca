"""What a bulk run is asked for; all that its output depends on besides model and inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from elmore.config import BiLmConfig, Precision
from elmore.embedding.layers import LayerChoice, layer_weights
from elmore.embedding.pooling import Pooling, check_pooling
from elmore.embedding.reading import Errors
from elmore.embedding.writers import WRITERS, Settings
from elmore.errors import ConfigError
from elmore.formats.checkpoint import StoredType
from elmore.formats.detect import ModelPath

__all__ = ["SHARD_BYTES", "Job", "value_shape"]

# Of text in a shard, some 100,000 tokens of English: what a killed worker has to do again.
SHARD_BYTES = 1 << 19
# Where the vectors come from is told by digests, not by names.
_PLACES = ("model", "token_vectors")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A bulk run.

    Attributes:
        model: what `Elmo.load` takes.
        format: of the shards, a key of `WRITERS`.
        layers: as in `Elmo.embed`, or "all".
        pool: one vector a sentence.
        dtype: how numbers are stored.
        tokenized: lines are tokens separated by spaces.
        split_sentences: lines are running text.
        errors: what to do with lines that are not UTF-8.
        limit: stop after so many sentences.
        sentence_index: hdf5: whether to write `sentence_to_index`.
        batch_tokens: token budget of a batch.
        shard_bytes: a shard ends with the sentence that reaches so many bytes of text.
        threads: of each process.
        device: where to compute.
        precision: how to compute; None for as the model is stored.
        start: the state before each sentence.
        token_vectors: (vocabulary, HDF5) as `Elmo.load` takes them.
    """

    model: ModelPath
    format: str = "parquet"
    layers: LayerChoice | Literal["all"] = "mean"
    pool: Pooling | None = None
    dtype: StoredType = "float32"
    tokenized: bool = False
    split_sentences: bool = False
    errors: Errors = "strict"
    limit: int | None = None
    sentence_index: bool | None = None
    batch_tokens: int | None = None
    shard_bytes: int = SHARD_BYTES
    threads: int = 1
    device: str = "cpu"
    precision: Precision | None = None
    start: str = "zeros"
    token_vectors: tuple[str | Path, str | Path] | None = None

    def __post_init__(self) -> None:
        if self.format not in WRITERS:
            raise ConfigError(f"format={self.format!r}; use one of {', '.join(WRITERS)}")
        if self.dtype not in get_args(StoredType):
            raise ConfigError(f"dtype={self.dtype!r}; use {' or '.join(get_args(StoredType))}")
        if self.errors not in get_args(Errors):
            raise ConfigError(f"errors={self.errors!r}; use {' or '.join(get_args(Errors))}")
        if self.tokenized and self.split_sentences:
            raise ConfigError("text is tokenized or to be split into sentences; choose one")
        if self.pool is not None:
            check_pooling(self.pool)
        for name, least in (("limit", 1), ("batch_tokens", 1), ("shard_bytes", 1), ("threads", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}={value}; use {least} or more")

    def settings(self) -> dict[str, Any]:
        """Give what the manifest tells of it, as JSON."""
        fields = self.to_json()
        return {name: value for name, value in fields.items() if name not in _PLACES}

    def to_json(self) -> dict[str, Any]:
        """Give all of it as JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["model"] = _names(self.model)
        fields["token_vectors"] = _names(self.token_vectors)
        if not isinstance(self.layers, str | int):
            fields["layers"] = [float(weight) for weight in self.layers]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Job:
        """Undo `to_json`."""
        places = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
            if name in _PLACES
        }
        return cls(**{**fields, **places})

    def writer_settings(self, config: BiLmConfig, first: int) -> Settings:
        """Give what the writer of a shard must know.

        Args:
            config: of the model.
            first: number of the shard's first sentence.
        """
        return Settings(
            shape=value_shape(config, self.layers, self.pool),
            dtype=self.dtype,
            texts=self.split_sentences,
            sentence_index=self.sentence_index,
            overwrite=True,
            first=first,
        )


def value_shape(
    config: BiLmConfig, layers: LayerChoice | Literal["all"], pool: Pooling | None
) -> tuple[int | None, ...]:
    """Give the shape of a record's values, None for the tokens.

    Raises:
        ConfigError: the model has not these layers.
    """
    shape: tuple[int | None, ...] = (config.dim,) if pool else (None, config.dim)
    if isinstance(layers, str) and layers == "all":
        return (config.n_layers, *shape)
    layer_weights(layers, config.n_layers)
    return shape


def _names(paths: ModelPath | tuple[str | Path, ...] | None) -> str | list[str] | None:
    if paths is None or isinstance(paths, str | Path):
        return None if paths is None else str(paths)
    return [str(path) for path in paths]
