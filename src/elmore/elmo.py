"""The facade: load a model, embed and compare text, save and share it."""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

import numpy as np

from elmore.base.messages import ProgressOption, progress_of
from elmore.base.optional import require, require_torch
from elmore.compute.initial_weights import initial_weights
from elmore.config import BiLmConfig, ComputePrecision, Precision
from elmore.embedding.certificate import certified
from elmore.embedding.embedder import Embedder
from elmore.embedding.results import Array, LayerChoice, Pooling, cosine
from elmore.embedding.stream import sentences_from_texts
from elmore.errors import ConfigError
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.detect import ModelPath, absolute, read_checkpoint
from elmore.options import ComputeOptions, Fetch, Start, StreamOptions
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.text.characters import ByteAlphabet
from elmore.text.segmenter import Tokenizer, sendable
from elmore.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame

    from elmore.language_model.explore import Exploration
    from elmore.language_model.sense_vectors import SenseSpace, SenseVectors
    from elmore.nn.elmo_layer import ElmoLayer, LayerNorm

__all__ = ["Elmo", "Precision"]


class Elmo(Embedder):
    """A loaded model: text in, vectors out.

    It never changes after loading and may be shared between threads. A sentence's vectors depend
    on that sentence alone. Make one with `Elmo.load`, or from a checkpoint with the same options.
    """

    def __init__(self, checkpoint: Checkpoint, **options: Unpack[ComputeOptions]) -> None:
        super().__init__(checkpoint, **options)
        self._model: str | tuple[str, ...] | None = None  # what `load` was asked for
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
        elmo._model = BUNDLED if model is None else absolute(model)
        # For a pickle, which must hold no secret.
        elmo._fetch = dataclasses.replace(fetch, token=None, progress=None)
        return elmo

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
            (9, 192)
        """
        given = [texts] if isinstance(texts, str) else texts
        sentences = list(sentences_from_texts(given, self.tokenize, "elmore.senses.sense_vectors"))
        places = ((sentence, range(len(sentence))) for sentence in sentences)
        budget = self._engine.batch_tokens if batch_tokens is None else batch_tokens
        result = []
        with closing(progress_of(progress, unit="sentences", total=len(sentences))) as report:
            found = self.sense_space.pipe(places, batch_tokens=budget)
            for sentence, vectors in zip(sentences, found, strict=True):
                result.append(dataclasses.replace(vectors, tokens=sentence.tokens))
                report.update(1)
        return result[0] if isinstance(texts, str) else result

    @cached_property
    def sense_space(self) -> SenseSpace:
        """What computes sense vectors: for chosen places, or for streams of sentences."""
        from elmore.language_model.sense_vectors import SenseSpace

        return SenseSpace(self)

    def explore(self, texts: Sequence[str], *, word: str | None = None) -> Exploration:
        """Compare the uses of a word, with pictures: the page of `elmore serve` in a notebook.

        Args:
            texts: sentences.
            word: the word; by default the rarest one that is repeated.

        Returns:
            an object that a notebook shows, without a service or a network; `save("uses.html")`
            writes it as a file.

        Examples:
            >>> elmo.explore(["She sat on the bank .", "The bank lent money ."])
            Exploration('bank', 2 uses)
        """
        from elmore.language_model.explore import explore

        return explore(self, texts, word=word)

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
        self, word: str, context: str | Sequence[str] | None = None, *, k: int = 10
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
        from elmore.language_model.sense_vectors import similar_words

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
        name = BUNDLED if self._model == BUNDLED else self._checkpoint.origin  # not a long path
        return f"Elmo({name!r}, dim={self.dim}, n_layers={self.n_layers})"

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


def _load_again(model: ModelPath, options: ComputeOptions, fetch: Fetch | None = None) -> Elmo:
    """Undo a pickle, which names the model and does not contain it."""
    # Not by the name alone: a folder called "english" may be where the pickle is read.
    return Elmo._loaded(None if model == BUNDLED else model, fetch or Fetch(), **options)
