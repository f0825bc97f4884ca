"""Text in, vectors out: the methods of `Elmo` that compute."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar, Unpack, cast, overload

import numpy as np

from elmore.base.messages import SILENT, Progress, ProgressOption, progress_of, shown, size_of
from elmore.config import BiLmConfig, ComputePrecision
from elmore.embedding.engine import Engine
from elmore.embedding.results import (
    Array,
    Finish,
    LayerChoice,
    Pooling,
    SentenceLayers,
    all_layers,
    mixed,
    unit,
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
from elmore.formats.checkpoint import Checkpoint
from elmore.options import Compute, ComputeOptions, Output, StreamOptions
from elmore.text.segmenter import split_function
from elmore.text.sentence import Sentence

__all__ = ["Embedder"]

Result = TypeVar("Result")


class Embedder:
    """A model that computes; see `Elmo`, which adds files, comparisons and tables.

    It never changes after loading and may be shared between threads. A sentence's vectors depend
    on that sentence alone.
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
    def embed(  # type: ignore[overload-overlap]  # a str is a Sequence[str]
        self, texts: str, *, layers: LayerChoice = ..., **how: Unpack[StreamOptions]
    ) -> Array: ...
    @overload
    def embed(
        self, texts: Sequence[str], *, layers: LayerChoice = ..., **how: Unpack[StreamOptions]
    ) -> list[Array]: ...
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        layers: LayerChoice = "mean",
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Array | list[Array]:
        """One vector per token of each sentence.

        Args:
            texts: a sentence, or a list of sentences.
            layers: "mean", "top", the number of a layer, or one weight per layer.
            batch_tokens: token budget of a batch; 4,096 by default.
            progress: True or False; by default a bar in a terminal or notebook, if it takes longer
                than a second. Or a function that takes (done, total) sentences.

        Returns:
            (time, dim) for one sentence, a list of such for a list.

        Examples:
            >>> vectors = elmo.embed(["Stocks fell .", "She fell ."])
            >>> vectors[0].shape
            (3, 32)
        """
        finish = self._mixed(layers)
        return self._each(texts, finish, "embed_tokens", batch_tokens, progress)

    @overload
    def embed_tokens(  # type: ignore[overload-overlap]  # a str is a Sequence[str]
        self, sentences: Sequence[str], *, layers: LayerChoice = ..., **how: Unpack[StreamOptions]
    ) -> Array: ...
    @overload
    def embed_tokens(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        layers: LayerChoice = ...,
        **how: Unpack[StreamOptions],
    ) -> list[Array]: ...
    def embed_tokens(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        layers: LayerChoice = "mean",
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Array | list[Array]:
        """One vector per token; tokens are taken as they are.

        Args:
            sentences: the tokens of a sentence, or a list of such lists.
            layers: as in `embed`.
            batch_tokens: as in `embed`.
            progress: as in `embed`.

        Examples:
            >>> elmo.embed_tokens(["Stocks", "fell", "."]).shape
            (3, 32)
            >>> elmo.embed_tokens([["Stocks", "fell", "."]])[0].shape
            (3, 32)
        """
        return self._each_list(sentences, self._mixed(layers), batch_tokens, progress)

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        pool: Pooling = "mean",
        layers: LayerChoice = "mean",
        normalize: bool = False,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Array:
        """One vector per sentence.

        Args:
            texts: a sentence, or a list of sentences.
            pool: "mean", "max", "first" or "last" over the tokens; or "sif", the best for
                comparing sentences, which weighs rare words more and uses the token layer.
            layers: as in `embed`.
            normalize: scale each vector to length 1, so that inner products are cosines.
            batch_tokens: as in `embed`.
            progress: as in `embed`.

        Returns:
            (dim,) for one sentence, (n, dim) for a list; zeros for an empty sentence. With "sif"
            dim is that of one direction.

        Examples:
            >>> elmo.encode(["Stocks fell .", "She fell ."]).shape
            (2, 32)
        """
        finish = self._mixed(layers, pool)
        vectors = self._each(texts, finish, "encode_tokens", batch_tokens, progress)
        return self._stacked(vectors, pool, normalize)

    def encode_tokens(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        pool: Pooling = "mean",
        layers: LayerChoice = "mean",
        normalize: bool = False,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Array:
        """One vector per token list, (n, dim), or (dim,) for the tokens of one sentence.

        Arguments are those of `encode`.

        Examples:
            >>> elmo.encode_tokens([["Stocks", "fell", "."]], pool="max").shape
            (1, 32)
        """
        vectors = self._each_list(sentences, self._mixed(layers, pool), batch_tokens, progress)
        return self._stacked(vectors, pool, normalize)

    @overload
    def layers(self, texts: str, **how: Unpack[StreamOptions]) -> SentenceLayers: ...  # type: ignore[overload-overlap]  # a str is a Sequence[str]
    @overload
    def layers(
        self, texts: Sequence[str], **how: Unpack[StreamOptions]
    ) -> list[SentenceLayers]: ...
    def layers(
        self,
        texts: str | Sequence[str],
        *,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> SentenceLayers | list[SentenceLayers]:
        """All layers of each token, with the tokens and where they are in the text.

        Arguments are those of `embed`.

        Examples:
            >>> elmo.layers("She fell.").values.shape
            (3, 3, 32)
        """
        return self._each(texts, all_layers, "layers_tokens", batch_tokens, progress)

    @overload
    def layers_tokens(  # type: ignore[overload-overlap]  # a str is a Sequence[str]
        self, sentences: Sequence[str], **how: Unpack[StreamOptions]
    ) -> SentenceLayers: ...
    @overload
    def layers_tokens(
        self, sentences: Sequence[Sequence[str]], **how: Unpack[StreamOptions]
    ) -> list[SentenceLayers]: ...
    def layers_tokens(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> SentenceLayers | list[SentenceLayers]:
        """All layers of each token of the tokens of a sentence, or of a list of token lists.

        Examples:
            >>> elmo.layers_tokens([["Stocks", "fell", "."]])[0].values.shape
            (3, 3, 32)
        """
        return self._each_list(sentences, all_layers, batch_tokens, progress)

    def pipe(
        self,
        items: Iterable[str] | Iterable[Sequence[str]],
        *,
        layers: LayerChoice = "mean",
        pool: Pooling | None = None,
        tokenized: bool = False,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Iterator[Array]:
        """Embed a stream: lazy, in order, in bounded memory.

        Args:
            items: sentences, or token lists if `tokenized`; read ahead by about 1,000.
            layers: as in `embed`.
            pool: one vector per sentence, as in `encode`.
            tokenized: whether the items are token lists.
            batch_tokens: as in `embed`.
            progress: as in `embed`; the total of a generator is None.

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
        return self._results(sentences, finish, batch_tokens, _progress(progress, items))

    def pipe_layers(
        self,
        sentences: Iterable[Sentence],
        *,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Iterator[SentenceLayers]:
        """All layers of a stream of sentences: lazy, in order, in bounded memory.

        Examples:
            >>> lines = ["It fell.", "Yes."]
            >>> [s.tokens for s in elmo.pipe_layers(elmo.tokenize(line) for line in lines)]
            [('It', 'fell', '.'), ('Yes', '.')]
        """
        return self._results(sentences, all_layers, batch_tokens, _progress(progress, sentences))

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

    def _each(
        self,
        texts: str | Sequence[str],
        finish: Finish[Result],
        for_tokens: str,
        batch_tokens: int | None,
        progress: ProgressOption,
    ) -> Result | list[Result]:
        """One result for a lone string, a list of them for a list."""
        report = _progress(progress, texts)
        if isinstance(texts, str):
            return next(self._results([self.tokenize(texts)], finish, batch_tokens, report))
        words = others = 0

        def tokenize(text: str) -> Sentence:
            nonlocal words, others
            sentence = self.tokenize(text)
            if len(sentence) == 1:
                words += 1
            else:
                others += 1
            return sentence

        sentences = sentences_from_texts(texts, tokenize, for_tokens)
        results = list(self._results(sentences, finish, batch_tokens, report))
        if words > 1 and not others and not self._warned_of_words:
            self._warned_of_words = True
            warnings.warn(
                f"got {words} sentences of one token each; if they are the tokens of one sentence, "
                f"use {for_tokens}",
                stacklevel=3,
            )
        return results

    def _each_list(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        finish: Finish[Result],
        batch_tokens: int | None,
        progress: ProgressOption,
    ) -> Result | list[Result]:
        """One result for a lone token list, a list of them for a list of lists."""
        if is_flat(sentences):
            one, report = [Sentence(tuple(sentences))], _progress(progress, "")
            return next(self._results(one, finish, batch_tokens, report))
        report = _progress(progress, sentences)
        return list(self._results(_token_sentences(sentences), finish, batch_tokens, report))

    def _results(
        self,
        sentences: Iterable[Sentence],
        finish: Finish[Result],
        batch_tokens: int | None,
        progress: Progress,
    ) -> Iterator[Result]:
        stream = embed_stream(
            self._engine, sentences, finish, batch_tokens=batch_tokens, progress=progress
        )
        with closing(progress):
            for _, result in stream:
                yield result

    def _mixed(self, layers: LayerChoice, pool: Pooling | None = None) -> Finish[Array]:
        if pool == "sif":
            return finish_of(self._engine, layers, pool)
        return mixed(layers, pool, self.n_layers)  # which refuses "all", as `layers` is for that

    def _stacked(self, vectors: Array | list[Array], pool: Pooling, normalize: bool) -> Array:
        if isinstance(vectors, list):
            shape = value_shape(self.config, Output(pool=pool))
            vectors = np.stack(vectors) if vectors else np.zeros((0, shape[0] or 0), np.float32)
        return unit(vectors) if normalize else vectors


def _progress(option: ProgressOption, items: object) -> Progress:
    """What the embedding of sentences reports to; one string is over before anybody looks."""
    if isinstance(items, str):
        return SILENT if option is None else progress_of(option, unit="sentences", total=1)
    return progress_of(option, unit="sentences", total=size_of(items))


def _token_sentences(sentences: Iterable[Iterable[str]]) -> Iterator[Sentence]:
    return sentences_from_tokens(sentences, "use embed or encode")
