"""The facade: load a model, embed text."""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

import numpy as np

from elmore._imports import require_torch
from elmore._messages import shown
from elmore.config import BiLmConfig, ComputePrecision, Precision
from elmore.embedding.certificate import certified
from elmore.embedding.engine import Engine
from elmore.embedding.results import (
    Array,
    Finish,
    LayerChoice,
    Pooling,
    SentenceLayers,
    all_layers,
    mixed,
    value_shape,
)
from elmore.embedding.stateful import Stream
from elmore.embedding.stream import (
    check_text,
    embed_stream,
    finish_of,
    is_flat,
    sentence_from_tokens,
    sentences_from_texts,
    sentences_from_tokens,
)
from elmore.errors import ConfigError
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.detect import ModelPath, read_checkpoint
from elmore.options import BATCH_TOKENS, Compute, ComputeOptions, Output, Start
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.text.segmenter import Tokenizer, sendable, split_function
from elmore.text.sentence import Sentence

if TYPE_CHECKING:
    from elmore.nn.elmo_layer import ElmoLayer, LayerNorm
    from elmore.senses.vectors import SenseSpace, SenseVectors

__all__ = ["Elmo", "Precision"]

Result = TypeVar("Result")


class Elmo:
    """A loaded model: text in, vectors out.

    It never changes after loading and may be shared between threads. A sentence's vectors depend
    on that sentence alone. Make one with `Elmo.load`, or from a checkpoint with the same options.
    """

    def __init__(self, checkpoint: Checkpoint, **options: Unpack[ComputeOptions]) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise ConfigError(
                f"Elmo({shown(repr(checkpoint), 60)}) is not a model that was read; use "
                "Elmo.load(...) for a name or path"
            )
        compute = Compute(**options)
        chosen = compute.tokenizer
        self._split = split_function(checkpoint.tokenizer if chosen is None else chosen)
        self._checkpoint = checkpoint.with_tokenizer(chosen)
        self._engine = Engine(self._checkpoint, compute)
        self._warned_of_tokenizer = chosen is not None
        self._warned_of_words = False
        self._model: ModelPath | None = None  # what `load` was asked for

    @classmethod
    def load(
        cls,
        model: ModelPath | None = None,
        *,
        device: str = "cpu",
        precision: ComputePrecision | None = None,
        threads: int | None = None,
        start: Start = "zeros",
        token_vectors: tuple[str | Path, str | Path] | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> Elmo:
        """Load a model.

        Args:
            model: a name, a folder, a zip or tar, a TensorFlow checkpoint (its prefix), an AllenNLP
                `weights.th`, or files: (options, weights[, vocabulary[, softmax]]); the English
                model inside the package if left out.
            device: where to compute: "cpu", "cuda", "cuda:1", "mps" (Apple), ...
            precision: how to compute: "float32", "float16" (weights stored in half the bytes) or
                "int8" (a quarter); by default the one the model was saved in. On a GPU "float32"
                by default, "float16" or "bfloat16".
            threads: processors to use; all by default.
            start: the state before each sentence: "zeros", or "warm", the state after a short
                text that ships with elmore.
            token_vectors: (vocabulary, HDF5) written by `elmore cache`, so that the token layer
                of these words need not be computed; other words still are.
            tokenizer: how raw text is split: "ptb", "billion-word", "unicode", "spaces",
                "module:function", or a function that takes a text and returns its tokens or
                (token, start, end); by default as the model's training text was.

        Examples:
            >>> from elmore import Elmo
            >>> elmo = Elmo.load("my-model")
            >>> elmo.dim
            32
        """
        elmo = cls(
            read_checkpoint(bundled_model() if model is None else model),
            device=device,
            precision=precision,
            threads=threads,
            start=start,
            token_vectors=token_vectors,
            tokenizer=tokenizer,
        )
        elmo._model = BUNDLED if model is None else _absolute(model)
        return elmo

    @property
    def config(self) -> BiLmConfig:
        """The shape of the biLM."""
        return self._engine.config

    @property
    def dim(self) -> int:
        """Size of a token's vector."""
        return self.config.dim

    @property
    def n_layers(self) -> int:
        """Number of layers, the token layer included."""
        return self.config.n_layers

    @property
    def precision(self) -> ComputePrecision:
        """The precision that it computes in."""
        return self._engine.precision

    @property
    def checkpoint(self) -> Checkpoint:
        """The model as values, with everything that came with it."""
        return self._checkpoint

    @property
    def engine(self) -> Engine:
        """What computes: batches of tokens in, all layers out."""
        return self._engine

    def tokenize(self, text: str) -> Sentence:
        """Split a sentence into tokens, as the model's training text was or as `load` was told.

        Examples:
            >>> elmo.tokenize("It fell.").tokens
            ('It', 'fell', '.')
        """
        check_text(text)
        if not self._warned_of_tokenizer:
            self._warned_of_tokenizer = True
            self._checkpoint.warn_of_tokenizer()
        return self._split(text)

    @overload
    def embed(self, texts: str, *, layers: LayerChoice = ...) -> Array: ...  # type: ignore[overload-overlap]  # a str is a Sequence[str]
    @overload
    def embed(self, texts: Sequence[str], *, layers: LayerChoice = ...) -> list[Array]: ...
    def embed(
        self, texts: str | Sequence[str], *, layers: LayerChoice = "mean"
    ) -> Array | list[Array]:
        """One vector per token of each sentence.

        Args:
            texts: a sentence, or a list of sentences.
            layers: "mean", "top", the number of a layer, or one weight per layer.

        Returns:
            (time, dim) for one sentence, a list of such for a list.

        Examples:
            >>> vectors = elmo.embed(["Stocks fell .", "She fell ."])
            >>> vectors[0].shape
            (3, 32)
        """
        return self._each(texts, self._mixed(layers), "embed_tokens")

    @overload
    def embed_tokens(  # type: ignore[overload-overlap]  # a str is a Sequence[str]
        self, sentences: Sequence[str], *, layers: LayerChoice = ...
    ) -> Array: ...
    @overload
    def embed_tokens(
        self, sentences: Sequence[Sequence[str]], *, layers: LayerChoice = ...
    ) -> list[Array]: ...
    def embed_tokens(
        self, sentences: Sequence[str] | Sequence[Sequence[str]], *, layers: LayerChoice = "mean"
    ) -> Array | list[Array]:
        """One vector per token; tokens are taken as they are.

        Args:
            sentences: the tokens of a sentence, or a list of such lists.
            layers: as in `embed`.

        Examples:
            >>> elmo.embed_tokens(["Stocks", "fell", "."]).shape
            (3, 32)
            >>> elmo.embed_tokens([["Stocks", "fell", "."]])[0].shape
            (3, 32)
        """
        return self._each_list(sentences, self._mixed(layers))

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        pool: Pooling = "mean",
        layers: LayerChoice = "mean",
    ) -> Array:
        """One vector per sentence.

        Args:
            texts: a sentence, or a list of sentences.
            pool: "mean", "max", "first" or "last" over the tokens; or "sif", the best for
                comparing sentences, which weighs rare words more and uses the token layer.
            layers: as in `embed`.

        Returns:
            (dim,) for one sentence, (n, dim) for a list; zeros for an empty sentence. With "sif"
            dim is that of one direction.

        Examples:
            >>> elmo.encode(["Stocks fell .", "She fell ."]).shape
            (2, 32)
        """
        vectors = self._each(texts, self._mixed(layers, pool), "encode_tokens")
        return self._stacked(vectors, pool) if isinstance(vectors, list) else vectors

    def encode_tokens(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        pool: Pooling = "mean",
        layers: LayerChoice = "mean",
    ) -> Array:
        """One vector per token list, (n, dim), or (dim,) for the tokens of one sentence.

        Examples:
            >>> elmo.encode_tokens([["Stocks", "fell", "."]], pool="max").shape
            (1, 32)
        """
        vectors = self._each_list(sentences, self._mixed(layers, pool))
        return self._stacked(vectors, pool) if isinstance(vectors, list) else vectors

    @overload
    def layers(self, texts: str) -> SentenceLayers: ...  # type: ignore[overload-overlap]  # a str is a Sequence[str]
    @overload
    def layers(self, texts: Sequence[str]) -> list[SentenceLayers]: ...
    def layers(self, texts: str | Sequence[str]) -> SentenceLayers | list[SentenceLayers]:
        """All layers of each token, with the tokens and where they are in the text.

        Examples:
            >>> elmo.layers("She fell.").values.shape
            (3, 3, 32)
        """
        return self._each(texts, all_layers, "layers_tokens")

    @overload
    def layers_tokens(self, sentences: Sequence[str]) -> SentenceLayers: ...  # type: ignore[overload-overlap]  # a str is a Sequence[str]
    @overload
    def layers_tokens(self, sentences: Sequence[Sequence[str]]) -> list[SentenceLayers]: ...
    def layers_tokens(
        self, sentences: Sequence[str] | Sequence[Sequence[str]]
    ) -> SentenceLayers | list[SentenceLayers]:
        """All layers of each token of the tokens of a sentence, or of a list of token lists.

        Examples:
            >>> elmo.layers_tokens([["Stocks", "fell", "."]])[0].values.shape
            (3, 3, 32)
        """
        return self._each_list(sentences, all_layers)

    @overload
    def senses(self, texts: str) -> SenseVectors: ...  # type: ignore[overload-overlap]  # a str is a Sequence[str]
    @overload
    def senses(self, texts: Sequence[str]) -> list[SenseVectors]: ...
    def senses(self, texts: str | Sequence[str]) -> SenseVectors | list[SenseVectors]:
        """Sense vectors of each token: the words that could stand in its place, with weights.

        The model must have a softmax. For an index of a corpus see `elmore.senses`.

        Examples:
            >>> found = Elmo.load().senses("They sat on the bank of the river .")
            >>> found.tokens[4], "shore" in [word for word, _ in found.words(4)]
            ('bank', True)
            >>> found.dense().shape
            (9, 128)
        """
        given = [texts] if isinstance(texts, str) else texts
        sentences = list(sentences_from_texts(given, self.tokenize, "elmore.senses.sense_vectors"))
        found = self.sense_space.pipe((one, range(len(one))) for one in sentences)
        result = [
            dataclasses.replace(vectors, tokens=sentence.tokens)
            for sentence, vectors in zip(sentences, found, strict=True)
        ]
        return result[0] if isinstance(texts, str) else result

    @cached_property
    def sense_space(self) -> SenseSpace:
        """What computes sense vectors: for chosen places, or for streams of sentences."""
        from elmore.senses.vectors import SenseSpace

        return SenseSpace(self)

    def pipe(
        self,
        items: Iterable[str] | Iterable[Sequence[str]],
        *,
        layers: LayerChoice = "mean",
        pool: Pooling | None = None,
        tokenized: bool = False,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Iterator[Array]:
        """Embed a stream: lazy, in order, in bounded memory.

        Args:
            items: sentences, or token lists if `tokenized`; read ahead by about 1,000.
            layers: as in `embed`.
            pool: one vector per sentence, as in `encode`.
            tokenized: whether the items are token lists.
            batch_tokens: token budget of a batch.

        Examples:
            >>> [v.shape for v in elmo.pipe(iter(["It fell .", "Yes ."]))]
            [(3, 32), (2, 32)]
        """
        finish = self._mixed(layers, pool)
        if tokenized:
            sentences = _token_sentences(items)
        else:
            # Type checkers cannot know what `tokenized` says; what is not a text is refused.
            texts = cast("Iterable[str]", items)
            sentences = sentences_from_texts(texts, self.tokenize, "pipe(tokenized=True)")
        return self._results(sentences, finish, batch_tokens)

    def pipe_layers(
        self, sentences: Iterable[Sentence], *, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[SentenceLayers]:
        """All layers of a stream of sentences: lazy, in order, in bounded memory.

        Examples:
            >>> lines = ["It fell.", "Yes."]
            >>> [s.tokens for s in elmo.pipe_layers(elmo.tokenize(line) for line in lines)]
            [('It', 'fell', '.'), ('Yes', '.')]
        """
        return self._results(sentences, all_layers, batch_tokens)

    def stateful(self) -> Stream:
        """Make an object that carries state from batch to batch, as the published programs do.

        Examples:
            >>> with elmo.stateful() as stream:
            ...     first = stream.embed(["It fell ."])
            ...     second = stream.embed(["It fell ."])
            >>> bool((first[0] == second[0]).all())
            False
        """
        return Stream(self._engine, self.tokenize)

    def layer(
        self,
        *,
        n_mixes: int = 1,
        dropout: float = 0.5,
        trainable_bilm: bool = False,
        keep_boundaries: bool = False,
        layer_norm: LayerNorm | None = None,
    ) -> ElmoLayer:
        """Make a torch layer that mixes the layers of a copy of this model's biLM.

        Arguments are those of `ElmoLayer`. It is a copy, so that neither training nor moving it
        to a device touches this object.

        Examples:
            >>> layer = elmo.layer(n_mixes=2, dropout=0.5)
            >>> first, second = layer(layer.batch([["Stocks", "fell", "."]]))
            >>> first.shape
            torch.Size([1, 3, 32])
        """
        # Everything else in this class works where torch is not installed.
        require_torch("elmo.layer()")
        from elmore.nn.elmo_layer import ElmoLayer

        return ElmoLayer(
            copy.deepcopy(self._engine.bilm),
            self._engine.indexer,
            n_mixes=n_mixes,
            dropout=dropout,
            trainable_bilm=trainable_bilm,
            keep_boundaries=keep_boundaries,
            layer_norm=layer_norm,
        )

    def token_vectors(self, words: Sequence[str]) -> Array:
        """The token layer of single words, without context, (n_words, dim of one direction).

        Examples:
            >>> elmo.token_vectors(["stocks", "shares"]).shape
            (2, 16)
        """
        if isinstance(words, str):
            raise ConfigError("got one string where a list of words belongs; pass [word]")
        words = sentence_from_tokens(words, "the list of words", "use embed").tokens
        return self._engine.token_vectors(words)

    def save(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        precision: Precision = "float32",
    ) -> None:
        """Write the model as an elmore folder; a warm start state is kept with it.

        The name of the tokenizer is stored. A function of your own is not: pass it to `load`
        again, or raw text is split by the model's convention, with a warning.

        Args:
            path: the folder to create.
            overwrite: replace an elmore folder that exists.
            precision: how the weights are stored. What "float16" and "int8" cost is measured on
                a short text and written into the folder's notes.

        Examples:
            >>> elmo.save("copy-of-my-model", precision="float16")
            >>> Elmo.load("copy-of-my-model").dim
            32
        """
        # A warm start took a moment to compute, and a later load would otherwise repeat it.
        # So did the whitening of pool="sif", if somebody asked for it.
        engine = self._engine
        checkpoint = dataclasses.replace(
            self._checkpoint, start_state=engine.start_state, whitening=engine.whitening
        )
        checkpoint = certified(checkpoint, precision)
        elmore_folder.write(checkpoint, Path(path), overwrite=overwrite, precision=precision)

    def __repr__(self) -> str:
        return f"Elmo({self._checkpoint.origin!r}, dim={self.dim}, n_layers={self.n_layers})"

    def __deepcopy__(self, memo: object) -> Elmo:
        return self  # it never changes, so one is as good as two

    def __copy__(self) -> Elmo:
        return self

    def __reduce__(self) -> tuple[Callable[..., Elmo], tuple[Any, ...]]:
        if self._model is None:
            raise ConfigError(
                "this Elmo was not loaded from files, so it cannot be pickled; save it, and pickle "
                "Elmo.load(path)"
            )
        compute = self._engine.compute
        return _load_again, (
            self._model,
            {**compute.options(), "tokenizer": sendable(compute.tokenizer)},
        )

    def _each(
        self, texts: str | Sequence[str], finish: Finish[Result], for_tokens: str
    ) -> Result | list[Result]:
        """One result for a lone string, a list of them for a list."""
        if isinstance(texts, str):
            return next(self._results([self.tokenize(texts)], finish))
        words = others = 0

        def tokenize(text: str) -> Sentence:
            nonlocal words, others
            sentence = self.tokenize(text)
            if len(sentence) == 1:
                words += 1
            else:
                others += 1
            return sentence

        results = list(self._results(sentences_from_texts(texts, tokenize, for_tokens), finish))
        if words > 1 and not others and not self._warned_of_words:
            self._warned_of_words = True
            warnings.warn(
                f"got {words} sentences of one token each; if they are the tokens of one sentence, "
                f"use {for_tokens}",
                stacklevel=3,
            )
        return results

    def _each_list(
        self, sentences: Sequence[str] | Sequence[Sequence[str]], finish: Finish[Result]
    ) -> Result | list[Result]:
        """One result for a lone token list, a list of them for a list of lists."""
        if is_flat(sentences):
            return next(self._results([Sentence(tuple(sentences))], finish))
        return list(self._results(_token_sentences(sentences), finish))

    def _results(
        self,
        sentences: Iterable[Sentence],
        finish: Finish[Result],
        batch_tokens: int | None = None,
    ) -> Iterator[Result]:
        stream = embed_stream(self._engine, sentences, finish, batch_tokens=batch_tokens)
        return (result for _, result in stream)

    def _mixed(self, layers: LayerChoice, pool: Pooling | None = None) -> Finish[Array]:
        if pool == "sif":
            return finish_of(self._engine, layers, pool)
        return mixed(layers, pool, self.n_layers)  # which refuses "all", as `layers` is for that

    def _stacked(self, vectors: list[Array], pool: Pooling) -> Array:
        shape = value_shape(self.config, Output(pool=pool))
        return np.stack(vectors) if vectors else np.zeros((0, shape[0] or 0), np.float32)


def _token_sentences(sentences: Iterable[Iterable[str]]) -> Iterator[Sentence]:
    return sentences_from_tokens(sentences, "use embed or encode")


def _absolute(model: ModelPath) -> ModelPath:
    """Make paths that exist absolute, so that other processes find them; leave names alone."""
    if isinstance(model, tuple):
        return tuple(os.path.abspath(path) for path in model)
    return os.path.abspath(model) if os.path.exists(model) else model


def _load_again(model: ModelPath, options: ComputeOptions) -> Elmo:
    """Undo a pickle, which names the model and does not contain it."""
    elmo = Elmo(read_checkpoint(model), **options)
    elmo._model = model
    return elmo
