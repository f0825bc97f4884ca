"""Trained taggers and classifiers without torch: `elmore.tagger` and `elmore.classifier`.

The arithmetic is that of `LightNetwork` in `tasks/own/labelled_task.py`, with the biLM's kernel for
the biLSTM; a test holds the two to each other.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from elmore.tasks.data.tags import tagger_labels_fit
from elmore.tasks.folder import TrainedTask, bilm_of, find_model, read_task, ready_models, word_rows
from elmore.tasks.predictions import (
    Classified,
    Prediction,
    Predictor,
    Tagged,
    TagPredictor,
    class_labels_fit,
    class_line,
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
_TABLE, _MIX = "features.words", "features.elmo.mixes.0"
_LSTM = [f"encoder.layers.0.{direction}" for direction in ("forward", "backward")]


# --------------------------------------------------------------------- the network


class _Network:
    """The arithmetic between the layers of a biLM, n_layers of size dim, and the scores."""

    def __init__(self, content: TrainedTask, what: str, n_layers: int, dim: int) -> None:
        self._choice = _setting(content, "elmo", "layers", what)
        if self._choice not in ("all", "top", "each"):
            raise FormatError(f"'{what}' has a wrong elmo.layers in its recipe; restore it")
        weights = {name: np.asarray(w, np.float32) for name, w in content.weights.items()}
        words = content.words
        for name, shape in _shapes(weights, self._choice, words, n_layers, dim).items():
            found = weights.get(name)
            if found is None or found.shape != shape or not np.isfinite(found).all():
                raise FormatError(f"'{what}' has no usable weight {name!r}; restore it")
        self._weights, self._bag = weights, weights.get("word_scores")
        self._hidden, self.outputs = len(weights["project.bias"]), len(weights["output.bias"])
        self._pooled, self._lstm = "pooling.score.weight" in weights, f"{_LSTM[0]}_bias" in weights
        self._row = None if words is None else word_rows(words)
        if words is not None:
            parts = [weights[f"{_TABLE}.unknown"][None], weights.get(f"{_TABLE}.trained")]
            rows = [part for part in (*parts, weights[f"{_TABLE}.fixed"]) if part is not None]
            self._table = np.concatenate(rows)
        names = ["project.weight", "output.weight"]
        names += [f"{n}_{p}" for n in _LSTM for p in ("input", "state")] if self._lstm else []
        names += [] if self._lstm else ["window.weight"]
        self._matrices = {
            name: Matrix(
                Stored(np.ascontiguousarray(weights[name]), None), gates=name.endswith("_state")
            )
            for name in names
        }

    def _affine(self, name: str, x: Array) -> Array:
        bias = np.ascontiguousarray(self._weights[f"{name}.bias"])
        return self._matrices[f"{name}.weight"].affine(x, bias)

    def _read_window(self, x: Array) -> Array:
        """The layer on a token and its two neighbours, (time, hidden) to (time, hidden)."""
        hidden = self._hidden
        around = np.zeros((len(x), 3 * hidden), np.float32)
        around[1:, :hidden], around[:, hidden : 2 * hidden] = x[:-1], x
        around[:-1, 2 * hidden :] = x[1:]
        return np.maximum(self._affine("window", around), 0)

    def _read_lstm(self, x: Array) -> Array:
        """The biLSTM, (time, hidden) to (time, 2 * hidden)."""
        found = aligned(2, len(x), self._hidden)
        order = np.arange(len(x))
        sizes, clips = (1,) * len(x), Clips(None, None)
        for output, name, rows in zip(found, _LSTM, (order, order[::-1].copy()), strict=True):
            bias = np.ascontiguousarray(self._weights[f"{name}_bias"])
            gates = self._matrices[f"{name}_input"].affine(x, bias)
            state, start = self._matrices[f"{name}_state"], np.zeros((1, self._hidden), np.float32)
            run_steps(output, start.copy(), gates, rows, start, sizes, state, None, clips)
        return np.concatenate([found[0], found[1, ::-1]], axis=1)

    def features(self, layers: Array, tokens: Sequence[str]) -> Array:
        """From all layers, (layers, time, dim), to what the network reads, (time, width).

        Scores of words, if there are any, are the last columns.
        """
        if self._choice == "each":
            mixed = np.concatenate(list(layers), axis=1)
        else:
            used = layers[-1:] if self._choice == "top" else layers
            weights = self._weights[f"{_MIX}.gamma"] * softmax(self._weights[f"{_MIX}.weights"])
            mixed = np.einsum("l,ltd->td", weights, used)
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
        words = np.zeros(self.outputs, np.float32)
        if self._bag is not None:
            features, own = np.split(features, [features.shape[1] - self.outputs], axis=1)
            features = np.ascontiguousarray(features)
            words = WORD_GAIN * own.sum(0) / np.sqrt(np.float32(max(1, len(own))))
        x = np.maximum(self._affine("project", features), 0)
        x = self._read_lstm(x) if self._lstm else self._read_window(x)
        if not self._pooled:
            return self._affine("output", x)
        pooled = np.zeros(3 * x.shape[1], np.float32)
        if len(x):
            score = x @ self._weights["pooling.score.weight"][0]
            score = score + self._weights["pooling.score.bias"]
            pooled = np.concatenate([x.max(0), x.mean(0), softmax(score) @ x])
        result: Array = self._affine("output", pooled[None])[0] + words
        return result


def _shapes(
    weights: Mapping[str, Array], choice: str, words: Sequence[str] | None, n_layers: int, dim: int
) -> dict[str, tuple[int, ...]]:
    """The shapes that weights must have; sizes that nothing else states are those of the biases."""

    def size(name: str, axis: int) -> int:
        shape = weights[name].shape if name in weights else ()
        return shape[axis] if axis < len(shape) else 0

    hidden, outputs = size("project.bias", 0), size("output.bias", 0)
    width = dim * n_layers if choice == "each" else dim
    shapes: dict[str, tuple[int, ...]] = {}
    if choice != "each":
        used = n_layers if choice == "all" else 1
        shapes |= {f"{_MIX}.weights": (used,), f"{_MIX}.gamma": ()}
    n_trained, columns = size(f"{_TABLE}.trained", 0), size(f"{_TABLE}.unknown", 0)
    if words is not None:
        width += columns
        shapes[f"{_TABLE}.fixed"] = (len(words) - n_trained, columns)
        shapes[f"{_TABLE}.unknown"] = (columns,)
    if n_trained:
        shapes[f"{_TABLE}.trained"] = (n_trained, columns)
    if "word_scores" in weights:
        shapes["word_scores"] = (n_trained + 2, outputs)
    shapes |= {"project.weight": (hidden, width), "project.bias": (hidden,)}
    read = hidden
    if f"{_LSTM[0]}_bias" in weights:
        read = 2 * hidden
        for name in _LSTM:
            shapes |= {f"{name}_{part}": (4 * hidden, hidden) for part in ("input", "state")}
            shapes[f"{name}_bias"] = (4 * hidden,)
    else:
        shapes |= {"window.weight": (hidden, 3 * hidden), "window.bias": (hidden,)}
    if "pooling.score.weight" in weights:
        shapes |= {"pooling.score.weight": (1, read), "pooling.score.bias": (1,)}
        read *= 3
    return shapes | {"output.weight": (outputs, read), "output.bias": (outputs,)}


def needs_torch(content: TrainedTask, what: str) -> bool:
    """Whether a network reads characters or normalized layers, which only torch computes."""
    spells = any(name.startswith("features.spelling") for name in content.weights)
    return spells or bool(_setting(content, "elmo", "layer_norm", what))


def _setting(content: TrainedTask, section: str, key: str, what: str) -> Any:
    values = content.recipe.get(section)
    if not isinstance(values, dict) or key not in values:
        raise FormatError(f"'{what}' has no setting {section}.{key} in its recipe; restore it")
    return values[key]


# --------------------------------------------------------------------- what users call


@dataclass(frozen=True, slots=True, repr=False)
class Given(Sentence):
    """A sentence as the biLM reads it, with the tokens as they were given, quotes included."""

    given: tuple[str, ...] = ()


class Light(Predictor[Text, Prediction]):
    """What `LightTagger` and `LightClassifier` share; `scores` are those of the training."""

    # Whether labels from a file are those of a network whose weights have these shapes.
    labels_fit: Callable[[Mapping[str, Any], Mapping[str, tuple[int, ...]]], bool]

    def __init__(
        self, content: TrainedTask, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        self.elmo, self.scores = elmo, content.scores
        self.labels: Mapping[str, Any] = content.labels
        if not self.labels_fit(content.labels, {n: w.shape for n, w in content.weights.items()}):
            raise FormatError(f"'{what}' has labels that do not fit its outputs; restore it")
        self._network = _Network(content, what, elmo.n_layers, elmo.dim)
        self._split = elmo.tokenize if tokenizer is None else split_function(tokenizer)

    def answers(self, items: Iterable[Text]) -> Iterator[tuple[Text, Prediction]]:
        """Label texts; a list of tokens is one sentence."""
        waiting: deque[tuple[Text, int]] = deque()

        def sentences() -> Iterator[Given]:
            for item in items:
                read = self.read(item)
                waiting.append((item, len(read)))
                yield from read

        values: list[Any] = []
        for _, value in embed_stream(self.elmo.engine, sentences(), self.finish):
            values.append(value)
            if len(values) == waiting[0][1]:
                yield waiting.popleft()[0], self.join(values)
                values = []

    def read(self, item: str | Sequence[str]) -> list[Given]:
        """What the biLM reads of an item, one sentence or more."""
        # The biLM knows quotes only as its training text spelled them.
        convention = self.elmo.checkpoint.tokenizer
        parts = self._cut(item) or ((),)
        return [Given(respell(tokens, convention), None, tokens) for tokens in parts]

    @abstractmethod
    def _cut(self, item: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The sentences of an item as tokens."""

    @abstractmethod
    def finish(self, sentence: Any, values: Array, /) -> Any:
        """What is kept of a sentence that `read` gave, from its layers."""

    @abstractmethod
    def join(self, values: Sequence[Any]) -> Prediction:
        """The result of an item from what `finish` kept of its sentences."""


def _tokens(item: Sequence[str]) -> tuple[str, ...]:
    return sentence_from_tokens(item, "an item", "pass strings").tokens


class LightTagger(TagPredictor[Text], Light[Tagged]):
    """A trained tagger that needs no torch; made by `elmore.tagger`. It predicts `Tagged`.

    `tags` are all that it tells apart.
    """

    name = "tag"
    labels_fit = staticmethod(tagger_labels_fit)

    def __init__(
        self, content: TrainedTask, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        super().__init__(content, elmo, what, tokenizer)
        self.tags: list[str] = content.labels["tags"]
        moves = content.weights.get("crf.transitions")
        self._steps = None if moves is None else steps_of(self.tags, "BIOUL", moves)

    def _cut(self, item: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
        return (self._split(item).tokens if isinstance(item, str) else _tokens(item),)

    def finish(self, sentence: Any, values: Array, /) -> Tagged:
        tokens = sentence.given
        scores = self._network.scores(self._network.features(values, tokens))
        return tagged(tokens, scores, self.tags, self._steps)

    def join(self, values: Sequence[Tagged]) -> Tagged:
        return values[0]


class LightClassifier(Light[Classified]):
    """A trained classifier that needs no torch; made by `elmore.classifier`.

    It predicts `Classified`; `classes` are all labels that it tells apart, none for a number.
    """

    name = "classify"
    labels_fit = staticmethod(class_labels_fit)

    def __init__(
        self, content: TrainedTask, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        super().__init__(content, elmo, what, tokenizer)
        self.classes: list[str] = content.labels.get("classes", [])
        self._max_tokens = _setting(content, "model", "max_tokens", what)
        if type(self._max_tokens) is not int or self._max_tokens < 1:
            raise FormatError(f"'{what}' has a wrong model.max_tokens in its recipe; restore it")

    def _cut(self, item: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
        if isinstance(item, str):
            return cut_text(item, lambda text: self._split(text).tokens, self._max_tokens)
        return (_tokens(item)[: self._max_tokens],)

    def finish(self, sentence: Any, values: Array, /) -> Array:
        return self._network.features(values, sentence.given)

    def join(self, values: Sequence[Array]) -> Classified:
        return classified(self._network.scores(np.concatenate(values)), self.labels)

    def show(self, example: Text, found: Classified, *, colour: bool) -> str:
        return class_line(found, as_text(example), colour=colour)

    def to_json(self, example: Text, found: Classified) -> dict[str, Any]:
        return {"text": as_text(example), **found.to_json()}


# --------------------------------------------------------------------- loading


def tagger(
    model: str | Path = "pos",
    *,
    elmo: Elmo | None = None,
    threads: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> LightTagger:
    """Load a trained tagger; it needs no torch.

    Args:
        model: "pos" or "chunk", which ship with elmore, the folder of a tagger that you trained,
            or `owner/name` on the Hugging Face hub.
        elmo: the biLM, if the folder has none inside and it is not the included English one.
        threads: processors to use; all by default.
        tokenizer: how raw text is split, as in `Elmo.load`.

    Examples:
        >>> import elmore
        >>> tagger = elmore.tagger("chunk")
        >>> [span.label for span in tagger.predict(["The old dog slept in the sun."])[0].spans]
        ['NP', 'VP', 'PP', 'NP']
    """
    found = _load(model, elmo, threads, tokenizer)
    if not isinstance(found, LightTagger):
        raise ConfigError(f"'{shown(model, 120)}' is a classifier; use elmore.classifier")
    return found


def classifier(
    model: str | Path = "sentiment",
    *,
    elmo: Elmo | None = None,
    threads: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> LightClassifier:
    """Load a trained classifier; it needs no torch.

    Args:
        model: "sentiment" or "sentiment-5", which ship with elmore, the folder of a classifier
            that you trained, or `owner/name` on the Hugging Face hub.
        elmo: as in `tagger`, like the other arguments.
        threads: processors to use.
        tokenizer: how raw text is split.

    Examples:
        >>> import elmore
        >>> elmore.classifier("sentiment").classes
        ['negative', 'positive']
    """
    found = _load(model, elmo, threads, tokenizer)
    if not isinstance(found, LightClassifier):
        raise ConfigError(f"'{shown(model, 120)}' is a tagger; use elmore.tagger")
    return found


def _load(
    model: str | Path, elmo: Elmo | None, threads: int | None, tokenizer: Tokenizer | None
) -> LightTagger | LightClassifier:
    place = find_model(model)
    found = load_light(place, str(model), elmo=elmo, threads=threads, tokenizer=tokenizer)
    if found is None:
        raise ConfigError(
            f"'{shown(model, 120)}' was trained without ELMo, reads characters or normalized "
            "layers, or is another task; load it by elmore.tasks.load, which needs torch"
        )
    return found


def load_light(
    place: Path, what: str, *, elmo: Elmo | None, threads: int | None, tokenizer: Tokenizer | None
) -> LightTagger | LightClassifier | None:
    """The tagger or classifier of a folder, called `what` in messages; None if it needs torch."""
    content = read_task(place)
    if content.task not in _KINDS or content.elmo is None or needs_torch(content, what):
        return None
    own = bilm_of(content, elmo, what, threads=threads)
    return _KINDS[content.task](content, own, what, tokenizer)


_KINDS: Mapping[str, type[LightTagger | LightClassifier]] = {
    "tag": LightTagger,
    "classify": LightClassifier,
}


def load_all(models: Iterable[str], elmo: Elmo) -> dict[str, LightTagger | LightClassifier]:
    """Load taggers and classifiers that share a biLM, by their names without paths.

    Those that ship with elmore are left out where they were trained with another biLM.
    """
    found: dict[str, LightTagger | LightClassifier] = {}
    digest = None
    for model in models:
        content = read_task(find_model(model))
        digest = digest or elmo.digest
        if content.elmo != digest or content.task not in _KINDS or needs_torch(content, model):
            if model in ready_models():
                continue
            raise ConfigError(
                f"'{shown(model, 120)}' is not a tagger or classifier that was trained with this "
                "biLM; serve the biLM that it was trained with (--model)"
            )
        name = _name(model)
        if name in found:
            raise ConfigError(f"two trained models are called '{shown(name, 60)}'; rename a folder")
        found[name] = _KINDS[content.task](content, elmo, model)
    return found


def _name(model: str) -> str:
    """The name of a model without its path; a `checkpoint` has that of its run."""
    place = Path(os.path.abspath(model))
    return place.parent.name if place.name == "checkpoint" else place.name
