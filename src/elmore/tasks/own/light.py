"""Trained taggers and classifiers without torch, and `elmore.tagger` and `elmore.classifier`.

The arithmetic is that of `LightNetwork` in `tasks/own/tag.py`, with the biLM's kernel for the
biLSTM; a test holds the two to each other.
"""

from __future__ import annotations

import functools
import os
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.compute.matrix import Matrix, Stored
from elmore.compute.native import aligned
from elmore.compute.recurrence import Clips, run_steps
from elmore.elmo import Elmo
from elmore.embedding.inputs import sentence_from_tokens
from elmore.embedding.stream import embed_stream
from elmore.errors import ConfigError, FormatError
from elmore.tasks.folder import (
    TrainedTask,
    bilm_of,
    find_model,
    load,
    read_task,
    ready_models,
    word_rows,
)
from elmore.tasks.predictions import (
    Classified,
    ClassPredictor,
    Prediction,
    Predictor,
    Steps,
    Tagged,
    TagPredictor,
    classified,
    cut_text,
    softmax,
    steps_of,
    tagged,
)
from elmore.text.records import Text, as_text
from elmore.text.segmenter import Tokenizer, split_function
from elmore.text.tokenizer import Sentence, respell

Array = NDArray[np.float32]
# The biLM's numbers are small (their deviation is 0.2 to 0.35); this brings them to about 1.
SCALE = np.float32(4.0)
# Scores of words start at 0 and learn at the rate of the other weights, which is slow for them.
WORD_GAIN = np.float32(16.0)


# --------------------------------------------------------------------- the network


class _Network:
    """The arithmetic between the layers of a biLM, n_layers of size dim, and `outputs` scores."""

    def __init__(
        self, content: TrainedTask, what: str, n_layers: int, dim: int, outputs: int
    ) -> None:
        weights, choice = content.weights, _section(content, "elmo", what).get("layers")
        if choice not in ("all", "top", "each"):
            raise FormatError(f"'{what}' has a wrong elmo.layers in its recipe; restore it")

        def size(name: str) -> int:
            """How long a weight is, which nothing else says; 0 without it."""
            return len(np.atleast_1d(weights.get(name, ())))

        def take(name: str, *shape: int) -> Array:
            found = weights.get(name)
            if found is None or found.shape != shape or not np.isfinite(found).all():
                raise FormatError(f"'{what}' has no usable weight {name!r}; restore it")
            return np.array(found, np.float32, order="C")

        def layer(name: str, outputs: int, inputs: int) -> tuple[Matrix, Array]:
            matrix = Matrix(Stored(take(f"{name}.weight", outputs, inputs), None))
            return matrix, take(f"{name}.bias", outputs)

        self._outputs = outputs
        self._first = n_layers - 1 if choice == "top" else 0  # the first layer that is mixed
        self._mix, width = None, dim * n_layers
        if choice != "each":
            shares = softmax(take("features.elmo.mixes.0.weights", n_layers - self._first))
            self._mix, width = take("features.elmo.mixes.0.gamma") * shares, dim
        self._row = self._bag = self._pooling = self.transitions = None
        n_trained = size("features.words.trained")
        if content.words is not None:
            self._row, columns = word_rows(content.words), size("features.words.unknown")
            parts = [take("features.words.unknown", columns)[None]]
            if n_trained:
                parts.append(take("features.words.trained", n_trained, columns))
            n_fixed = len(content.words) - n_trained
            self._table = np.concatenate([*parts, take("features.words.fixed", n_fixed, columns)])
            width += columns
            if "word_scores" in weights:
                self._bag = take("word_scores", n_trained + 2, outputs)
        self._hidden = hidden = size("project.bias")
        self._project = layer("project", hidden, width)
        read, self._lstm = hidden, []
        if "window.bias" in weights:
            self._window = layer("window", hidden, 3 * hidden)
        else:
            read = 2 * hidden
            for name in ("encoder.layers.0.forward", "encoder.layers.0.backward"):
                inputs, state = (
                    take(f"{name}_{part}", 4 * hidden, hidden) for part in ("input", "state")
                )
                bias, gates = (
                    take(f"{name}_bias", 4 * hidden),
                    Matrix(Stored(state, None), gates=True),
                )
                self._lstm.append((Matrix(Stored(inputs, None)), bias, gates))
        if content.task == "classify":
            self._pooling = take("pooling.score.weight", 1, read)[0], take("pooling.score.bias", 1)
            read *= 3
        self._output = layer("output", outputs, read)
        if content.labels["kind"] == "spans":
            self.transitions = take("crf.transitions", outputs, outputs)

    def _read_window(self, x: Array) -> Array:
        """The layer on a token and its two neighbours, (time, hidden) to (time, hidden)."""
        hidden = self._hidden
        around = np.zeros((len(x), 3 * hidden), np.float32)
        around[1:, :hidden], around[:, hidden : 2 * hidden] = x[:-1], x
        around[:-1, 2 * hidden :] = x[1:]
        return np.maximum(_affine(self._window, around), 0)

    def _read_lstm(self, x: Array) -> Array:
        """The biLSTM, (time, hidden) to (time, 2 * hidden)."""
        found = aligned(2, len(x), self._hidden)
        order = np.arange(len(x))
        sizes, clips = (1,) * len(x), Clips(None, None)
        both = zip(found, self._lstm, (order, order[::-1].copy()), strict=True)
        for output, (inputs, bias, state), rows in both:
            start = np.zeros((1, self._hidden), np.float32)
            gates = inputs.affine(x, bias)
            run_steps(output, start.copy(), gates, rows, start, sizes, state, None, clips)
        return np.concatenate([found[0], found[1, ::-1]], axis=1)

    def features(self, layers: Array, tokens: Sequence[str]) -> Array:
        """From all layers, (layers, time, dim), to what the network reads, (time, width).

        Scores of words, if there are any, are the last columns.
        """
        if self._mix is None:
            mixed = np.concatenate(list(layers), axis=1)
        else:
            mixed = np.einsum("l,ltd->td", self._mix, layers[self._first :])
        mixed = SCALE * mixed
        if self._row is None:
            return mixed
        rows = [self._row(token) for token in tokens]
        # Row 1 is the unknown word; the table here has no row for padding.
        parts = [self._table[[row - 1 for row in rows]], mixed]
        if self._bag is not None:
            parts.append(self._bag[[row if row < len(self._bag) else 0 for row in rows]])
        return np.concatenate(parts, axis=1)

    def scores(self, features: Array) -> Array:
        """Score tokens, (time, outputs), or a text, (outputs,)."""
        words = np.zeros(self._outputs, np.float32)
        if self._bag is not None:
            features, own = np.split(features, [features.shape[1] - self._outputs], axis=1)
            features = np.ascontiguousarray(features)
            words = WORD_GAIN * own.sum(0) / np.sqrt(np.float32(max(1, len(own))))
        x = np.maximum(_affine(self._project, features), 0)
        x = self._read_lstm(x) if self._lstm else self._read_window(x)
        if self._pooling is None:
            return _affine(self._output, x)
        pooled = np.zeros(3 * x.shape[1], np.float32)
        if len(x):
            weight, bias = self._pooling
            pooled = np.concatenate([x.max(0), x.mean(0), softmax(x @ weight + bias) @ x])
        result: Array = _affine(self._output, pooled[None])[0] + words
        return result


def _affine(layer: tuple[Matrix, Array], x: Array) -> Array:
    matrix, bias = layer
    return matrix.affine(x, bias)


# --------------------------------------------------------------------- what users call


@dataclass(frozen=True, slots=True, repr=False)
class Given(Sentence):
    """A sentence as the biLM reads it, with the tokens as they were given, quotes included."""

    given: tuple[str, ...] = ()


class Light(Predictor[Text, Prediction]):
    """What `LightTagger` and `LightClassifier` share; `scores` are those of the training."""

    def __init__(
        self, content: TrainedTask, elmo: Elmo, what: str, tokenizer: Tokenizer | None
    ) -> None:
        self.elmo, self.scores = elmo, content.scores
        self.labels = content.labels
        if not self.labels_fit(self.labels):
            raise FormatError(f"'{what}' has labels that are none of {self.name}'s; restore it")
        names = self.labels.get("tags") or self.labels.get("classes") or ["a number"]
        self._network = _Network(content, what, elmo.n_layers, elmo.dim, len(names))
        self._split = elmo.tokenize if tokenizer is None else split_function(tokenizer)
        # Of longer texts, the rest is not read.
        self._max_tokens: int = _section(content, "model", what).get("max_tokens", sys.maxsize)
        if type(self._max_tokens) is not int or self._max_tokens < 1:
            raise FormatError(f"'{what}' has a wrong model.max_tokens in its recipe; restore it")

    def answers(self, items: Iterable[Text]) -> Iterator[tuple[Text, Prediction]]:
        """Label texts; a list of tokens is one sentence."""
        waiting: deque[tuple[Text, list[Given]]] = deque()

        def sentences() -> Iterator[Given]:
            for item in items:
                read = self.read(item)
                waiting.append((item, read))
                yield from read

        found: list[Array] = []
        for _, value in embed_stream(self.elmo.engine, sentences(), self.finish):
            found.append(value)
            if len(found) == len(waiting[0][1]):
                item, read = waiting.popleft()
                yield item, self.join(read, found)
                found = []

    def read(self, item: Text) -> list[Given]:
        """What the biLM reads of an item, one sentence or more."""
        # The biLM knows quotes only as its training text spelled them.
        convention = self.elmo.checkpoint.tokenizer
        if isinstance(item, str):
            parts = self.split(item) or ((),)
        else:
            tokens = sentence_from_tokens(item, "an item", "pass strings").tokens
            parts = (tokens[: self._max_tokens],)
        return [Given(respell(tokens, convention), None, tokens) for tokens in parts]

    @abstractmethod
    def split(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The sentences of a text as tokens."""

    def finish(self, sentence: Any, values: Array, /) -> Array:
        """What the network reads of a sentence that `read` gave, from its layers."""
        return self._network.features(values, sentence.given)

    def join(self, read: Sequence[Given], features: Sequence[Array]) -> Prediction:
        """The result of an item from its sentences and what `finish` made of them."""
        tokens = [token for sentence in read for token in sentence.given]
        return self.decide(self._network.scores(np.concatenate(features)), tokens)

    @abstractmethod
    def decide(self, scores: Array, tokens: Sequence[str]) -> Prediction:
        """The result of an item from its scores and tokens."""


class LightTagger(TagPredictor[Text], Light[Tagged]):
    """A trained tagger that needs no torch; made by `elmore.tagger`. It predicts `Tagged`."""

    name = "tag"

    @functools.cached_property
    def _steps(self) -> Steps | None:
        moves = self._network.transitions
        return None if moves is None else steps_of(self.tags, "BIOUL", moves)

    def split(self, text: str) -> tuple[tuple[str, ...], ...]:
        return (self._split(text).tokens,)

    def decide(self, scores: Array, tokens: Sequence[str]) -> Tagged:
        return tagged(tokens, scores, self.labels["tags"], self._steps)


class LightClassifier(ClassPredictor[Text], Light[Classified]):
    """A trained classifier that needs no torch, made by `elmore.classifier`: `Classified`."""

    name = "classify"

    def split(self, text: str) -> tuple[tuple[str, ...], ...]:
        return cut_text(text, lambda part: self._split(part).tokens, self._max_tokens)

    def decide(self, scores: Array, tokens: Sequence[str]) -> Classified:
        return classified(scores, self.labels)

    def text_of(self, example: Text) -> str:
        return as_text(example)


# --------------------------------------------------------------------- loading

_KINDS: Mapping[str, type[LightTagger | LightClassifier]] = {
    "tag": LightTagger,
    "classify": LightClassifier,
}


def tagger(model: str | Path = "pos", **options: Any) -> TagPredictor[Any]:
    """Load a trained tagger; most need no torch, as `elmore.tasks.load` says.

    Args:
        model: "pos" or "chunk", which ship with elmore, the folder of a tagger that you trained,
            or `owner/name` on the Hugging Face hub.
        options: elmo, device, threads and tokenizer, as in `elmore.tasks.load`.

    Examples:
        >>> import elmore
        >>> tagger = elmore.tagger("chunk")
        >>> [span.label for span in tagger.predict(["The old dog slept in the sun."])[0].spans]
        ['NP', 'VP', 'PP', 'NP']
    """
    found = load(model, light=True, **options)
    if not isinstance(found, TagPredictor):
        raise _another(model, found)
    return found


def classifier(model: str | Path = "sentiment", **options: Any) -> ClassPredictor[Any]:
    """Load a trained classifier; most need no torch, as `elmore.tasks.load` says.

    Args:
        model: "sentiment" or "sentiment-5", which ship with elmore, the folder of a classifier
            that you trained, or `owner/name` on the Hugging Face hub.
        options: elmo, device, threads and tokenizer, as in `elmore.tasks.load`.

    Examples:
        >>> import elmore
        >>> elmore.classifier("sentiment").classes
        ['negative', 'positive']
    """
    found = load(model, light=True, **options)
    if not isinstance(found, ClassPredictor):
        raise _another(model, found)
    return found


def _another(model: str | Path, found: Predictor[Any, Any]) -> ConfigError:
    return ConfigError(f"'{shown(model, 120)}' is a model for {found.name}; use elmore.tasks.load")


def load_light(
    content: TrainedTask,
    what: str,
    *,
    elmo: Elmo | None = None,
    device: str = "cpu",
    threads: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> LightTagger | LightClassifier | None:
    """The tagger or classifier of a folder, called `what` in messages.

    None if it is of another task, or was trained without ELMo, or reads characters or normalized
    layers, which only torch computes.
    """
    if content.task not in _KINDS or content.elmo is None:
        return None
    characters, use = (_section(content, name, what) for name in ("characters", "elmo"))
    if characters.get("filters") or use.get("layer_norm"):
        return None
    own = bilm_of(content, elmo, what, device=device, threads=threads)
    return _KINDS[content.task](content, own, what, tokenizer)


def _section(content: TrainedTask, name: str, what: str) -> dict[str, Any]:
    """A section of the recipe; `TaskRecipe` would read it too, but takes longer to import."""
    values = content.recipe.get(name)
    if not isinstance(values, dict):
        raise FormatError(f"'{what}' has no section {name} in its recipe; restore it")
    return values


def load_all(models: Iterable[str], elmo: Elmo) -> dict[str, LightTagger | LightClassifier]:
    """Load taggers and classifiers that share a biLM, by their names without paths.

    Those that ship with elmore are left out where they were trained with another biLM.
    """
    found: dict[str, LightTagger | LightClassifier] = {}
    for model in models:
        content = read_task(find_model(model))
        fits = content.elmo == elmo.digest
        light = load_light(content, model, elmo=elmo) if fits else None
        if light is None:
            if model in ready_models():
                continue
            raise ConfigError(
                f"'{shown(model, 120)}' is not a tagger or classifier that was trained with this "
                "biLM; serve the biLM that it was trained with (--model)"
            )
        # Without its path; a `checkpoint` has the name of its run.
        place = Path(os.path.abspath(model))
        name = place.parent.name if place.name == "checkpoint" else place.name
        if name in found:
            raise ConfigError(f"two trained models are called '{shown(name, 60)}'; rename a folder")
        found[name] = light
    return found
