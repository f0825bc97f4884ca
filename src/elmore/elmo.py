"""The facade: load a model, embed and compare text, save and share it."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import importlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import numpy as np

from elmore.base.messages import ProgressOption, progress_of, shown, size_of
from elmore.base.optional import require
from elmore.compute.softmax import LogSoftmax
from elmore.config import BiLmConfig, ComputePrecision, Precision
from elmore.embedding.certificate import certified
from elmore.embedding.engine import Engine
from elmore.embedding.inputs import as_list, kind_of, sentences_of
from elmore.embedding.load import ModelPath, absolute, read_checkpoint
from elmore.embedding.results import (
    Array,
    Finish,
    SentenceLayers,
    all_layers,
    cosine,
    unit,
    value_shape,
)
from elmore.embedding.stateful import Stream, burn_in
from elmore.embedding.stream import embed_stream, finish_of
from elmore.errors import ConfigError
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint
from elmore.options import (
    Compute,
    ComputeOptions,
    Fetch,
    LayerChoice,
    Output,
    Pooling,
    StreamOptions,
    TextOptions,
    TokenOptions,
)
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.text.segmenter import sendable, split_function
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from pandas import DataFrame

    from elmore.language_model.explore import Exploration
    from elmore.language_model.sense_vectors import SenseVectors, SubstituteSpace
    from elmore.nn.elmo_layer import ElmoLayer, LayerNorm

Result = TypeVar("Result")


class Elmo:
    """A loaded model: text in, vectors out.

    It never changes after loading and may be shared between threads. A sentence's vectors depend
    on that sentence alone. Make one with `Elmo.load`, or from a checkpoint with the same options.

    Attributes:
        checkpoint: the model as values, with everything that came with it.
        engine: what computes: batches of tokens in, all layers out.
        source: what `load` was asked for; None if it was made from a checkpoint.

    Arguments that several methods take:
        texts: one sentence or a list. With `tokenized=True` a sentence is the list of its tokens,
            which are used as they are; otherwise it is a string.
        layers: "mean", "top", the number of a layer, or one weight per layer.
        pool: one vector per sentence: "mean", "max", "first" or "last" over the tokens; or "sif",
            the best for comparing sentences, which weighs rare words more and uses the token layer.
        batch_tokens: the token budget of a batch, by default that of `load`.
        progress: True or False, or a function that takes (done, total) sentences. By default there
            is a bar in a terminal or notebook if the work takes longer than a second.
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
        self.checkpoint = checkpoint.with_tokenizer(chosen)
        self.engine = Engine(self.checkpoint, compute)
        if compute.start == "warm":
            if checkpoint.config.lstm.mixed:
                raise ConfigError("this model's LSTM carries no state; use start='zeros'")
            self.engine.start_state = checkpoint.start_state or burn_in(self.engine)
        self._warned_of_tokenizer = chosen is not None
        self._warned_of_words = False
        self.source: str | tuple[str, ...] | None = None
        self._fetch: dict[str, Any] = {}

    @classmethod
    def load(
        cls,
        model: ModelPath | None = None,
        *,
        token: str | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        progress: ProgressOption = None,
        **options: Unpack[ComputeOptions],
    ) -> Elmo:
        """Load a model.

        Args:
            model: a name, `owner/name` on the Hugging Face hub, a folder, a zip or tar, a
                TensorFlow checkpoint (its prefix), an AllenNLP `weights.th`, or files: (options,
                weights[, vocabulary[, softmax]]); the English model inside the package if left
                out.
            token: your access token of the hub; by default that of `hf auth login` or HF_TOKEN.
            revision: a branch, tag or commit on the hub.
            cache_dir: where downloads are kept; by default the hub's own cache, or ELMORE_HOME.
            progress: whether a download shows a bar, by default in a terminal or notebook; or a
                function that takes (done, total) bytes of each file. For the Hugging Face hub the
                bar is theirs.
            **options: how it computes; the attributes of `elmore.options.Compute`.

        Examples:
            >>> from elmore import Elmo
            >>> elmo = Elmo.load("my-model")
            >>> elmo.dim
            32
        """
        fetch = Fetch(token=token, revision=revision, cache_dir=cache_dir, progress=progress)
        elmo = cls(read_checkpoint(bundled_model() if model is None else model, fetch), **options)
        elmo.source = BUNDLED if model is None else absolute(model)
        elmo._fetch = {"revision": revision, "cache_dir": cache_dir}  # a pickle holds no secret
        return elmo

    @property
    def config(self) -> BiLmConfig:
        """The shape of the biLM."""
        return self.engine.config

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
        return self.engine.precision

    @cached_property
    def log_softmax(self) -> LogSoftmax:
        """The softmax, packed when it is first used.

        Raises:
            ConfigError: the model has none.
        """
        if self.checkpoint.softmax is None:
            raise ConfigError("this model has no softmax; use a checkpoint that has one")
        softmax, int8 = self.checkpoint.softmax, self.precision == "int8"
        return LogSoftmax(softmax.stored, softmax.bias, int8=int8)

    @cached_property
    def digest(self) -> str:
        """A digest of all that the vectors of a sentence depend on, in hexadecimal."""
        engine = self.engine
        digest = hashlib.sha256()

        def add(*values: object) -> None:
            digest.update(json.dumps(values, sort_keys=True, default=str).encode())

        alphabet, vocabulary = engine.indexer.alphabet, engine.indexer.vocabulary
        add("1", dataclasses.asdict(self.config), self.precision)
        if alphabet is not None:
            state = getattr(alphabet, "__dict__", {})
            add(alphabet.kind, alphabet.max_chars, alphabet.markers, state)
        if vocabulary is not None:
            add(list(vocabulary.words), list(dataclasses.astuple(vocabulary.specials)))
        for name, weight in self.checkpoint.checked_weights():
            add(name, list(weight.shape))
            digest.update(np.ascontiguousarray(weight).data)
        for part in engine.start_state or ():
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def tokenize(self, text: str) -> Sentence:
        """Split a sentence into tokens, as the model's training text was or as `load` was told.

        Examples:
            >>> elmo.tokenize("It fell.").tokens
            ('It', 'fell', '.')
        """
        if not isinstance(text, str):
            raise ConfigError(f"got {kind_of(text)} where a text belongs; pass a string")
        if not self._warned_of_tokenizer:
            self._warned_of_tokenizer = True
            self.checkpoint.warn_of_tokenizer()
        return self._split(text)

    @overload
    def embed(  # type: ignore[overload-overlap]  # a str is a Sequence[str]
        self, texts: str, *, layers: LayerChoice = ..., **how: Unpack[TextOptions]
    ) -> Array: ...
    @overload
    def embed(
        self, texts: Sequence[str], *, layers: LayerChoice = ..., **how: Unpack[TextOptions]
    ) -> list[Array]: ...
    @overload
    def embed(  # type: ignore[overload-overlap]
        self, texts: Sequence[str], *, layers: LayerChoice = ..., **how: Unpack[TokenOptions]
    ) -> Array: ...
    @overload
    def embed(
        self,
        texts: Sequence[Sequence[str]],
        *,
        layers: LayerChoice = ...,
        **how: Unpack[TokenOptions],
    ) -> list[Array]: ...
    def embed(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        *,
        tokenized: bool = False,
        layers: LayerChoice = "mean",
        **how: Unpack[StreamOptions],
    ) -> Array | list[Array]:
        """One vector per token of each sentence.

        Returns:
            (time, dim) for one sentence, a list of such for a list.

        Examples:
            >>> vectors = elmo.embed(["Stocks fell .", "She fell ."])
            >>> vectors[0].shape
            (3, 32)
            >>> elmo.embed(["Stocks", "fell", "."], tokenized=True).shape
            (3, 32)
        """
        return self._results(texts, tokenized, self._finish(Output(layers=layers)), **how)

    def encode(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        *,
        tokenized: bool = False,
        pool: Pooling = "mean",
        layers: LayerChoice = "mean",
        normalize: bool = False,
        **how: Unpack[StreamOptions],
    ) -> Array:
        """One vector per sentence.

        Args:
            normalize: scale each vector to length 1, so that inner products are cosines.

        Returns:
            (dim,) for one sentence, (n, dim) for a list; zeros for an empty sentence. With "sif"
            dim is that of one direction.

        Examples:
            >>> elmo.encode(["Stocks fell .", "She fell ."]).shape
            (2, 32)
        """
        if pool is None:
            raise ConfigError("pool=None gives one vector per token; use `embed` for these")
        output = Output(layers=layers, pool=pool)
        vectors = self._results(texts, tokenized, self._finish(output), **how)
        if isinstance(vectors, list):
            shape = value_shape(self.config, output)
            vectors = np.array(vectors, np.float32).reshape(len(vectors), *shape)
        return unit(vectors) if normalize else vectors

    @overload
    def layers(self, texts: str, **how: Unpack[TextOptions]) -> SentenceLayers: ...  # type: ignore[overload-overlap]
    @overload
    def layers(self, texts: Sequence[str], **how: Unpack[TextOptions]) -> list[SentenceLayers]: ...
    @overload
    def layers(self, texts: Sequence[str], **how: Unpack[TokenOptions]) -> SentenceLayers: ...  # type: ignore[overload-overlap]
    @overload
    def layers(
        self, texts: Sequence[Sequence[str]], **how: Unpack[TokenOptions]
    ) -> list[SentenceLayers]: ...
    def layers(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        *,
        tokenized: bool = False,
        **how: Unpack[StreamOptions],
    ) -> SentenceLayers | list[SentenceLayers]:
        """All layers of each token, with the tokens and where they are in the text.

        Examples:
            >>> elmo.layers("She fell.").values.shape
            (3, 3, 32)
        """
        return self._results(texts, tokenized, all_layers, **how)

    @overload
    def pipe(
        self,
        texts: Iterable[str | Sentence] | Iterable[Sequence[str] | Sentence],
        *,
        layers: Literal["all"],
        tokenized: bool = ...,
        **how: Unpack[StreamOptions],
    ) -> Iterator[SentenceLayers]: ...
    @overload
    def pipe(
        self,
        texts: Iterable[str | Sentence] | Iterable[Sequence[str] | Sentence],
        *,
        layers: LayerChoice = ...,
        pool: Pooling | None = ...,
        tokenized: bool = ...,
        **how: Unpack[StreamOptions],
    ) -> Iterator[Array]: ...
    def pipe(
        self,
        texts: Iterable[str | Sentence] | Iterable[Sequence[str] | Sentence],
        *,
        layers: LayerChoice | Literal["all"] = "mean",
        pool: Pooling | None = None,
        tokenized: bool = False,
        **how: Unpack[StreamOptions],
    ) -> Iterator[Array] | Iterator[SentenceLayers]:
        """Embed a stream: lazy, in order, in bounded memory.

        Args:
            texts: sentences, also as `tokenize` gives them; read ahead by about 1,000.
            layers: also "all" for what `layers` gives.

        Examples:
            >>> [v.shape for v in elmo.pipe(iter(["It fell .", "Yes ."]))]
            [(3, 32), (2, 32)]
            >>> [s.tokens for s in elmo.pipe(["It fell.", "Yes."], layers="all")]
            [('It', 'fell', '.'), ('Yes', '.')]
        """
        sentences = sentences_of(texts, tokenized, self.tokenize)
        output = Output(layers=layers, pool=pool)
        if not output.all_layers:
            return self._stream(sentences, self._finish(output), size_of(texts), **how)
        if pool is not None:
            raise ConfigError(f"pool={pool!r} needs one vector per token; choose other layers")
        return self._stream(sentences, all_layers, size_of(texts), **how)

    def stateful(self) -> Stream:
        """Make an object that carries state from batch to batch, as the published programs do.

        Examples:
            >>> with elmo.stateful() as stream:
            ...     first = stream.embed(["It fell ."])
            ...     second = stream.embed(["It fell ."])
            >>> bool((first[0] == second[0]).all())
            False
        """
        return Stream(self.engine, self.tokenize)

    @overload
    def senses(self, texts: str, **how: Unpack[TextOptions]) -> SenseVectors: ...  # type: ignore[overload-overlap]
    @overload
    def senses(self, texts: Sequence[str], **how: Unpack[TextOptions]) -> list[SenseVectors]: ...
    @overload
    def senses(self, texts: Sequence[str], **how: Unpack[TokenOptions]) -> SenseVectors: ...  # type: ignore[overload-overlap]
    @overload
    def senses(
        self, texts: Sequence[Sequence[str]], **how: Unpack[TokenOptions]
    ) -> list[SenseVectors]: ...
    def senses(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        *,
        tokenized: bool = False,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> SenseVectors | list[SenseVectors]:
        """Sense vectors of each token: the words that could replace it there, with weights.

        The model must have a softmax. For an index of a corpus see `elmore.senses`.

        Examples:
            >>> found = Elmo.load().senses("They sat on the bank of the river .")
            >>> found.tokens[4], "shore" in [word for word, _ in found.words(4)]
            ('bank', True)
            >>> found.dense().shape
            (9, 192)
        """
        given, single = as_list(texts, tokenized)
        sentences = list(sentences_of(given, tokenized, self.tokenize))
        positions = ((sentence, range(len(sentence))) for sentence in sentences)
        budget = self.engine.batch_tokens if batch_tokens is None else batch_tokens
        result = []
        with closing(progress_of(progress, unit="sentences", total=len(sentences))) as report:
            found = self.sense_space.pipe(positions, batch_tokens=budget)
            for sentence, vectors in zip(sentences, found, strict=True):
                result.append(dataclasses.replace(vectors, tokens=sentence.tokens))
                report.update(1)
        return result[0] if single else result

    @cached_property
    def sense_space(self) -> SubstituteSpace:
        """What computes sense vectors: for chosen positions, or for streams of sentences."""
        from elmore.language_model.sense_vectors import SubstituteSpace

        return SubstituteSpace(self)

    def explore(self, texts: Sequence[str], *, word: str | None = None) -> Exploration:
        """Compare the uses of a word, with pictures: the page of `elmore serve` in a notebook.

        A notebook shows the result, without a service or a network; `save("uses.html")` writes it
        as a file. The word is by default the rarest one that is repeated.

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
            pool: by default "sif" if the model has a vocabulary, whose order says how frequent
                words are, and else "mean", which separates sentences less well.

        Returns:
            a number for two sentences, (n, m) for two lists, (n,) or (m,) if one is a sentence.

        Examples:
            >>> english = Elmo.load()
            >>> near = english.similarity("A man plays the guitar.", "Someone plays music.")
            >>> near > english.similarity("A man plays the guitar.", "The law was passed.")
            True
        """
        if pool is None:
            vocabulary = self.checkpoint.vocabulary
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
        require("torch", "torch", "elmo.layer()")
        from elmore.nn.elmo_layer import ElmoLayer

        return ElmoLayer(
            copy.deepcopy(self.engine.bilm),
            self.engine.indexer,
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
        precision: Precision | None = None,
    ) -> None:
        """Write the model as an elmore folder; a warm start state is kept with it.

        The name of the tokenizer is stored. A function of your own is not: pass it to `load`
        again, or raw text is split by the model's convention, with a warning.

        Args:
            path: the folder to create.
            overwrite: replace an elmore folder that exists.
            precision: of the stored weights; by default that of the model's files. What "float16"
                and "int8" cost is measured on a short text and written into the folder's notes.

        Examples:
            >>> elmo.save("copy-of-my-model", precision="float16")
            >>> Elmo.load("copy-of-my-model").dim
            32
        """
        # A warm start took a moment to compute, and a later load would otherwise repeat it.
        # So did the whitening of pool="sif", if somebody asked for it.
        checkpoint = dataclasses.replace(
            self.checkpoint,
            start_state=self.engine.start_state or self.checkpoint.start_state,
            whitening=self.engine.whitening,
        )
        precision = precision or checkpoint.precision
        checkpoint = certified(checkpoint, precision)
        elmore_folder.write(checkpoint, Path(path), overwrite=overwrite, precision=precision)

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload the model to the Hugging Face hub.

        `repository` is `owner/name`; created if missing. Options are those of
        `elmore.integrations.huggingface.push_to_hub`. Returns the address of the commit.

        Examples:
            >>> elmo.push_to_hub("no name")  # it needs owner/name
            Traceback (most recent call last):
            ...
            elmore.errors.ConfigError: 'no name' is not a name on the hub; write owner/name
        """
        # By its name: nothing below an interface such as this one knows it.
        hub = importlib.import_module("elmore.integrations.huggingface")
        return str(hub.push_to_hub(self, repository, **options))

    def _results(
        self,
        texts: object,
        tokenized: bool,
        finish: Finish[Result],
        *,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Result | list[Result]:
        """One result for one sentence, a list of them for a list."""
        given, single = as_list(texts, tokenized)
        if single and progress is None:
            progress = False  # it is over before anybody looks
        sentences = list(sentences_of(given, tokenized, self.tokenize))
        how: StreamOptions = {"batch_tokens": batch_tokens, "progress": progress}
        results = list(self._stream(sentences, finish, len(sentences), **how))
        if single:
            return results[0]
        words = not tokenized and len(results) > 1 and all(len(s) == 1 for s in sentences)
        if words and not self._warned_of_words and all(isinstance(text, str) for text in given):
            self._warned_of_words = True
            warnings.warn(
                f"got {len(results)} sentences of one token each; if they are the tokens of one "
                "sentence, pass tokenized=True",
                stacklevel=3,
            )
        return results

    def _stream(
        self,
        sentences: Iterable[Sentence],
        finish: Finish[Result],
        total: int | None,
        *,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
    ) -> Iterator[Result]:
        with closing(progress_of(progress, unit="sentences", total=total)) as report:
            for _, result in embed_stream(
                self.engine, sentences, finish, batch_tokens=batch_tokens, progress=report
            ):
                yield result

    def _finish(self, output: Output) -> Finish[Array]:
        if output.all_layers:
            raise ConfigError(f"layers='all'; use `layers`, or one of {self.n_layers} layers")
        return finish_of(self.engine, output)

    def __repr__(self) -> str:
        name = BUNDLED if self.source == BUNDLED else self.checkpoint.origin  # not a long path
        return f"Elmo({name!r}, dim={self.dim}, n_layers={self.n_layers})"

    def __deepcopy__(self, memo: object) -> Elmo:
        return self  # it never changes, so one is as good as two

    def __copy__(self) -> Elmo:
        return self

    def __reduce__(self) -> tuple[partial[Elmo], tuple[()]]:
        """A pickle names the model and does not contain it."""
        if self.source is None:
            raise ConfigError(
                "this Elmo was not loaded from files, so it cannot be pickled; save it, and pickle "
                "Elmo.load(path)"
            )
        options = self.engine.compute.options()
        options["tokenizer"] = sendable(options["tokenizer"])
        # Not by the name alone: a folder called "english" may be where the pickle is read.
        model = None if self.source == BUNDLED else self.source
        return partial(Elmo.load, model, **self._fetch, **options), ()
