"""The facade: load a model, embed text."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack, cast, overload

import numpy as np

from elmore._imports import require, require_torch
from elmore._messages import SILENT, Progress, ProgressOption, progress_of, shown, size_of
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
    cosine,
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
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.detect import ModelPath, read_checkpoint
from elmore.initial_weights import initial_weights
from elmore.options import Compute, ComputeOptions, Fetch, Output, Start, StreamOptions
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.text.characters import ByteAlphabet
from elmore.text.segmenter import Tokenizer, sendable, split_function
from elmore.text.sentence import Sentence
from elmore.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame

    from elmore.nn.elmo_layer import ElmoLayer, LayerNorm
    from elmore.senses.vectors import SenseVectors

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
        self._fetch = Fetch()

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
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
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
            batch_tokens: token budget of a batch, where a method is given none; 4,096 by default.
            progress: whether a download shows a bar, by default in a terminal or notebook; or a
                function that takes (done, total) bytes of each file. For the Hugging Face hub the
                bar is theirs.

        Examples:
            >>> from elmore import Elmo
            >>> elmo = Elmo.load("my-model")
            >>> elmo.dim
            32
        """
        return cls._loaded(
            model,
            Fetch(progress=progress),
            device=device,
            precision=precision,
            threads=threads,
            start=start,
            token_vectors=token_vectors,
            tokenizer=tokenizer,
            batch_tokens=batch_tokens,
        )

    @classmethod
    def from_pretrained(
        cls,
        model: ModelPath,
        *,
        token: str | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        progress: ProgressOption = None,
        **options: Unpack[ComputeOptions],
    ) -> Elmo:
        """Load a model as `load` does, under the name that other libraries use for it.

        Args:
            model: as in `load`; often `owner/name` on the Hugging Face hub.
            token: your access token of the hub; by default that of `hf auth login` or HF_TOKEN.
            revision: a branch, tag or commit on the hub.
            cache_dir: where downloads are kept; by default the hub's own cache, or ELMORE_HOME.
            progress: as in `load`.
            **options: as in `load`.

        Examples:
            >>> Elmo.from_pretrained("my-model").dim
            32
        """
        fetch = Fetch(token=token, revision=revision, cache_dir=cache_dir, progress=progress)
        return cls._loaded(model, fetch, **options)

    @classmethod
    def from_config(
        cls,
        config: BiLmConfig,
        seed: int = 0,
        *,
        vocabulary: Vocabulary | Sequence[str] | None = None,
        **options: Unpack[ComputeOptions],
    ) -> Elmo:
        """Make a model with fresh random weights, such as a baseline for one that was trained.

        Args:
            config: its shape. What reads characters reads UTF-8 bytes (n_characters=261).
            seed: the same seed gives the same weights.
            vocabulary: the words of its word table, if it has one.
            **options: as in `load`.

        Examples:
            >>> Elmo.from_config(elmo.config, seed=1).dim
            32
        """
        words = vocabulary if isinstance(vocabulary, Vocabulary | None) else Vocabulary(vocabulary)
        tokens = config.tokens
        checkpoint = Checkpoint(
            config=config,
            weights=initial_weights(config, np.random.default_rng(seed)),
            alphabet=ByteAlphabet(tokens.max_chars) if tokens.n_characters else None,
            vocabulary=words,
            origin=f"random weights, seed {seed}",
        )
        return cls(checkpoint, **options)

    @classmethod
    def _loaded(
        cls, model: ModelPath | None, fetch: Fetch, **options: Unpack[ComputeOptions]
    ) -> Elmo:
        checkpoint = read_checkpoint(bundled_model() if model is None else model, fetch)
        elmo = cls(checkpoint, **options)
        elmo._model = BUNDLED if model is None else _absolute(model)
        # For a pickle, which must hold no secret.
        elmo._fetch = dataclasses.replace(fetch, token=None, progress=None)
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

    @overload
    def senses(self, texts: str, **how: Unpack[StreamOptions]) -> SenseVectors: ...  # type: ignore[overload-overlap]  # a str is a Sequence[str]
    @overload
    def senses(self, texts: Sequence[str], **how: Unpack[StreamOptions]) -> list[SenseVectors]: ...
    def senses(
        self,
        texts: str | Sequence[str],
        *,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> SenseVectors | list[SenseVectors]:
        """Sense vectors of each token: the words that could stand in its place, with weights.

        The model must have a softmax. For an index of a corpus see `elmore.senses`. The other
        arguments are those of `embed`.

        Examples:
            >>> found = Elmo.load().senses("They sat on the bank of the river .")
            >>> found.tokens[4], "shore" in [word for word, _ in found.words(4)]
            ('bank', True)
            >>> found.dense().shape
            (9, 128)
        """
        from elmore.senses.vectors import SenseSpace

        given = [texts] if isinstance(texts, str) else texts
        sentences = list(sentences_from_texts(given, self.tokenize, "elmore.senses.sense_vectors"))
        places = ((sentence, range(len(sentence))) for sentence in sentences)
        budget = self._engine.batch_tokens if batch_tokens is None else batch_tokens
        result = []
        with closing(progress_of(progress, unit="sentences", total=len(sentences))) as report:
            found = SenseSpace(self).pipe(places, batch_tokens=budget)
            for sentence, vectors in zip(sentences, found, strict=True):
                result.append(dataclasses.replace(vectors, tokens=sentence.tokens))
                report.update(1)
        return result[0] if isinstance(texts, str) else result

    @overload
    def similarity(self, a: str, b: str, *, pool: Pooling | None = ...) -> float: ...
    @overload
    def similarity(
        self, a: str | Sequence[str], b: str | Sequence[str], *, pool: Pooling | None = ...
    ) -> float | Array: ...
    def similarity(
        self, a: str | Sequence[str], b: str | Sequence[str], *, pool: Pooling | None = None
    ) -> float | Array:
        """How similar sentences are: the cosine of their vectors.

        Args:
            a: a sentence, or a list of n sentences.
            b: a sentence, or a list of m sentences.
            pool: as in `encode`. By default "sif" if the model has a vocabulary, whose order says
                how frequent words are, and else "mean", which separates sentences less well.

        Returns:
            a number for two sentences, (n, m) for two lists, (n,) or (m,) if one is a sentence.

        Examples:
            >>> english = Elmo.load()
            >>> near = english.similarity("A man plays the guitar.", "Someone plays music.")
            >>> near > english.similarity("A man plays the guitar.", "The law was passed.")
            True
        """
        if pool is None:
            vocabulary = self._checkpoint.vocabulary
            pool = "sif" if vocabulary is not None and len(vocabulary) > 3 else "mean"
        return cosine(self.encode(a, pool=pool), self.encode(b, pool=pool))

    def most_similar(
        self, word: str, *, context: str | Sequence[str] | None = None, k: int = 10
    ) -> list[tuple[str, float]]:
        """The words nearest in meaning to a word, as it is used in a sentence.

        They are the words that could replace it: likely at its place, and similar to it. The model
        must have a softmax. To find uses of a word in a corpus see `elmore.senses`.

        Args:
            word: the word.
            context: a sentence that has it, as text or as tokens; without it, all senses of the
                word are mixed, as in word2vec.
            k: how many words.

        Returns:
            (word, score), the nearest first. The score is the share of all words at that place,
            which sum to 1; without a context, it is the cosine.

        Examples:
            >>> english = Elmo.load()
            >>> found = english.most_similar("bank", context="They sat on the bank of the river .")
            >>> "shore" in [word for word, _ in found]
            True
        """
        from elmore.senses.vectors import similar_words

        return similar_words(self, word, context, k)

    def to_pandas(
        self,
        texts: str | Sequence[str],
        *,
        layers: LayerChoice = "mean",
        pool: Pooling | None = None,
        **how: Unpack[StreamOptions],
    ) -> DataFrame:
        """Vectors as a `pandas.DataFrame` with one row per token, or per sentence with `pool`.

        The index says what a row is: sentence, position and token, or the text.

        Args:
            texts: a sentence, or a list of sentences.
            layers: as in `embed`.
            pool: as in `encode`.
            **how: batch_tokens and progress, as in `embed`.

        Raises:
            MissingExtra: pandas is not installed.

        Examples:
            >>> table = elmo.to_pandas(["It fell .", "She fell ."])
            >>> table.shape, table.xs("fell", level="token").shape
            ((6, 32), (2, 32))
        """
        pandas = require("pandas", "sklearn", "to_pandas")
        texts = [texts] if isinstance(texts, str) else list(texts)
        if pool is not None:
            vectors = self.encode(texts, layers=layers, pool=pool, **how)
            return pandas.DataFrame(vectors, index=pandas.Index(texts, name="text"))
        found = self.layers(texts, **how)
        names = ["sentence", "position", "token"]
        rows = [(k, n, token) for k, one in enumerate(found) for n, token in enumerate(one.tokens)]
        index = pandas.MultiIndex.from_tuples(rows, names=names)
        parts = [one.mix(layers) for one in found]
        return pandas.DataFrame(np.concatenate([np.zeros((0, self.dim)), *parts]), index=index)

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

    def save_pretrained(
        self, path: str | Path, *, overwrite: bool = True, precision: Precision = "float32"
    ) -> None:
        """Write the model as `save` does; as in other libraries it replaces a model that is there.

        Examples:
            >>> elmo.save_pretrained("saved")
            >>> Elmo.from_pretrained("saved").dim
            32
        """
        self.save(path, overwrite=overwrite, precision=precision)

    def push_to_hub(
        self,
        repository: str,
        *,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        card: str | None = None,
        message: str = "Upload a model of elmore",
    ) -> str:
        """Upload the model to the Hugging Face hub; arguments as in `elmore.integrations`.

        Args:
            repository: `owner/name`; created if missing.
            token: your access token; by default that of `hf auth login` or HF_TOKEN.
            revision: the branch, created if missing; the main one by default.
            private: whether a new repository is; the hub decides by default.
            card: its README.md; made from the model by default.
            message: of the commit.

        Returns:
            the address of the commit.

        Examples:
            >>> elmo.push_to_hub("no name")  # it needs owner/name
            Traceback (most recent call last):
            ...
            elmore.errors.ConfigError: 'no name' is not a name on the hub; write owner/name
        """
        # By its name: nothing below an interface such as this one knows it.
        hub = importlib.import_module("elmore.integrations.huggingface")
        return str(
            hub.push_to_hub(
                self,
                repository,
                token=token,
                revision=revision,
                private=private,
                card=card,
                message=message,
            )
        )

    def __repr__(self) -> str:
        return f"Elmo({self._checkpoint.origin!r}, dim={self.dim}, n_layers={self.n_layers})"

    def __deepcopy__(self, memo: object) -> Elmo:
        return self  # it never changes, so one is as good as two

    def __copy__(self) -> Elmo:
        return self

    def __reduce__(
        self,
    ) -> tuple[Callable[..., Elmo], tuple[ModelPath, ComputeOptions, Fetch]]:
        if self._model is None:
            raise ConfigError(
                "this Elmo was not loaded from files, so it cannot be pickled; save it, and pickle "
                "Elmo.load(path)"
            )
        options = self._engine.compute.options()
        options["tokenizer"] = sendable(options["tokenizer"])
        return _load_again, (self._model, options, self._fetch)

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


def _absolute(model: ModelPath) -> ModelPath:
    """Make paths that exist absolute, so that other processes find them; leave names alone."""
    if isinstance(model, tuple):
        return tuple(os.path.abspath(path) for path in model)
    return os.path.abspath(model) if os.path.exists(model) else model


def _load_again(model: ModelPath, options: ComputeOptions, fetch: Fetch | None = None) -> Elmo:
    """Undo a pickle, which names the model and does not contain it."""
    return Elmo._loaded(model, fetch or Fetch(), **options)
