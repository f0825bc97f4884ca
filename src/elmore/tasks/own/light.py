"""Trained taggers and classifiers without torch: `elmore.tagger` and `elmore.classifier`.

The arithmetic is that of `tasks/layers/window.py`, with the biLM's kernel for the biLSTM; a test
holds the two to each other.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from elmore.tasks.data.tags import split_tags, tagger_labels_fit
from elmore.tasks.decoding import class_labels_fit, classified, cut_text, steps_of, tagged
from elmore.tasks.decoding import softmax as _softmax
from elmore.tasks.folder import TaskFolder, bilm_of, find_model, read_task, ready_models
from elmore.tasks.predictions import (
    Classified,
    Prediction,
    Predictor,
    Tagged,
    class_line,
    conll_lines,
    show_tagged,
)
from elmore.text.records import Text, as_text
from elmore.text.segmenter import Tokenizer, split_function
from elmore.text.sentence import Sentence
from elmore.text.tokenizer import respell

__all__ = [
    "Given",
    "Light",
    "LightClassifier",
    "LightTagger",
    "classifier",
    "load_all",
    "load_light",
    "tagger",
]

Array = NDArray[np.float32]
# As in `tasks/layers/window.py`.
SCALE = np.float32(4.0)
WORD_GAIN = np.float32(16.0)
_LSTM = "encoder.layers.0"


# --------------------------------------------------------------------- the network


class _Network:
    """The arithmetic between the biLM's layers and the scores.

    Args:
        content: of the task's folder.
        what: its name for messages.
    """

    def __init__(self, content: TaskFolder, what: str, n_layers: int, dim: int) -> None:
        weights = {name: np.asarray(w, np.float32) for name, w in content.weights.items()}
        self._choice = _setting(content, "elmo", "layers", what)
        if self._choice not in ("all", "top", "each"):
            raise FormatError(f"'{what}' has a wrong elmo.layers in its recipe; restore it")
        self._weights, self._what = weights, what
        self._rows = None if content.words is None else content.words.rows()
        self._table = None
        if content.words is not None:
            self._table = self._word_table(len(content.words.words))
        mixed = dim * n_layers if self._choice == "each" else dim
        width = mixed + (0 if self._table is None else self._table.shape[1])
        hidden = len(self._get("project.bias"))
        self._project = self._layer("project", width)
        lstm = f"{_LSTM}.forward_input" in weights
        self._read = self._lstm(hidden) if lstm else self._around(hidden)
        self.pooled = "pooling.score.weight" in weights
        self._output = self._layer("output", hidden * (1 + lstm) * (3 if self.pooled else 1))
        self.outputs = len(self._get("output.bias"))
        self._bag = self._word_scores() if "word_scores" in weights else None

    def _get(self, name: str) -> Array:
        found = self._weights.get(name)
        if found is None or not np.isfinite(found).all():
            raise FormatError(f"'{self._what}' has no usable weight {name!r}; restore it")
        return found

    def _layer(self, name: str, width: int) -> Callable[[Array], Array]:
        weight, bias = self._get(f"{name}.weight"), self._get(f"{name}.bias")
        if weight.ndim != 2 or weight.shape[1] != width or bias.shape != weight.shape[:1]:
            raise FormatError(f"'{self._what}' has a wrong shape at {name!r}; restore it")
        matrix = Matrix(Stored(np.ascontiguousarray(weight), None))
        return partial(matrix.affine, bias=np.ascontiguousarray(bias))

    def _around(self, hidden: int) -> Callable[[Array], Array]:
        """The layer on a token and its two neighbours, (time, hidden) to (time, hidden)."""
        layer = self._layer("window", 3 * hidden)

        def read(x: Array) -> Array:
            around = np.zeros((len(x), 3 * hidden), np.float32)
            around[1:, :hidden], around[:, hidden : 2 * hidden] = x[:-1], x
            around[:-1, 2 * hidden :] = x[1:]
            return np.maximum(layer(around), 0)

        return read

    def _lstm(self, hidden: int) -> Callable[[Array], Array]:
        """The biLSTM, (time, hidden) to (time, 2 * hidden)."""
        layers = []
        for direction in ("forward", "backward"):
            inputs, state, bias = (
                self._get(f"{_LSTM}.{direction}_{part}") for part in ("input", "state", "bias")
            )
            if not inputs.shape == state.shape == (4 * hidden, hidden) == (*bias.shape, hidden):
                raise FormatError(f"'{self._what}' has a wrong shape at {_LSTM!r}; restore it")
            pair = (Matrix(Stored(inputs)), Matrix(Stored(state), gates=True))
            layers.append((*pair, np.ascontiguousarray(bias)))

        def read(x: Array) -> Array:
            found = aligned(2, len(x), hidden)
            order = np.arange(len(x))
            for output, (inputs, state, bias), rows in zip(
                found, layers, (order, order[::-1].copy()), strict=True
            ):
                gates, start = inputs.affine(x, bias), np.zeros((1, hidden), np.float32)
                sizes, clips = (1,) * len(x), Clips(None, None)
                run_steps(output, start.copy(), gates, rows, start, sizes, state, None, clips)
            return np.concatenate([found[0], found[1, ::-1]], axis=1)

        return read

    def _word_table(self, n_words: int) -> Array:
        parts = [self._get("features.words.unknown")[None]]
        trained = self._weights.get("features.words.trained")
        parts += [] if trained is None else [trained]
        parts.append(self._get("features.words.fixed"))
        table = np.concatenate(parts)
        if len(table) != n_words + 1:
            raise FormatError(f"'{self._what}' lacks the vectors of its words; restore it")
        return table

    def _word_scores(self) -> Array:
        """The scores of words, (words + 2, outputs)."""
        table = self._get("word_scores")
        trained = self._weights.get("features.words.trained")
        n_trained = 0 if trained is None else len(trained)
        if table.shape != (n_trained + 2, self.outputs):
            raise FormatError(f"'{self._what}' has a wrong shape at 'word_scores'; restore it")
        return table

    def features(self, layers: Array, tokens: Sequence[str]) -> Array:
        """From all layers, (layers, time, dim), to what the network reads, (time, width).

        Scores of words, if there are any, are the last columns.
        """
        if self._choice == "each":
            mixed = np.concatenate(list(layers), axis=1)
        else:
            used = layers[-1:] if self._choice == "top" else layers
            weights = _softmax(self._get("features.elmo.mixes.0.weights"))
            gamma = self._get("features.elmo.mixes.0.gamma")
            mixed = np.einsum("l,ltd->td", gamma * weights, used)
        mixed = SCALE * mixed
        if self._table is None or self._rows is None:
            return mixed
        rows = self._rows
        # Row 1 of the task's own numbers is the unknown word, which is row 0 here.
        numbers = [rows.get(token, rows.get(token.lower(), 1)) for token in tokens]
        parts = [self._table[[number - 1 for number in numbers]], mixed]
        if self._bag is not None:
            own = (number if number < len(self._bag) else 0 for number in numbers)
            parts.append(self._bag[list(own)])
        return np.concatenate(parts, axis=1)

    def scores(self, features: Array) -> Array:
        """Score tokens, (time, outputs), or a text, (outputs,)."""
        words = np.zeros(self.outputs, np.float32)
        if self._bag is not None:
            features, own = np.split(features, [features.shape[1] - self.outputs], axis=1)
            features = np.ascontiguousarray(features)
            words = WORD_GAIN * own.sum(0) / np.sqrt(np.float32(max(1, len(own))))
        x = self._read(np.maximum(self._project(features), 0))
        if not self.pooled:
            return self._output(x)
        if not len(x):
            pooled = np.zeros(3 * x.shape[1], np.float32)
        else:
            score = x @ self._get("pooling.score.weight")[0] + self._get("pooling.score.bias")
            pooled = np.concatenate([x.max(0), x.mean(0), _softmax(score) @ x])
        result: Array = self._output(pooled[None])[0] + words
        return result


def needs_torch(content: TaskFolder, what: str) -> bool:
    """Whether a network reads characters or normalized layers, which only torch computes."""
    spells = any(name.startswith("features.spelling") for name in content.weights)
    return spells or bool(_setting(content, "elmo", "layer_norm", what))


def _setting(content: TaskFolder, section: str, key: str, what: str) -> Any:
    values = content.recipe.get(section)
    if not isinstance(values, dict) or key not in values:
        raise FormatError(f"'{what}' has no setting {section}.{key} in its recipe; restore it")
    return values[key]


# --------------------------------------------------------------------- what users call


@dataclass(frozen=True, slots=True, repr=False)
class Given(Sentence):
    """A sentence as the biLM reads it, with the tokens as they were given.

    Attributes:
        given: the tokens before quotes were respelled.
        last: whether it is the last sentence of its text.
    """

    given: tuple[str, ...] = ()
    last: bool = True


class Light(Predictor[Text, Prediction]):
    """What `LightTagger` and `LightClassifier` share.

    Attributes:
        elmo: the biLM.
        labels: what is told apart.
        scores: of the best evaluation in training.
    """

    def __init__(
        self, content: TaskFolder, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        self.elmo, self.labels, self.scores = elmo, content.labels, content.scores
        self._network = _Network(content, what, elmo.n_layers, elmo.dim)
        self._convention = elmo.checkpoint.tokenizer
        self._split = elmo.tokenize if tokenizer is None else split_function(tokenizer)

    def answers(self, items: Iterable[Text]) -> Iterator[tuple[Text, Prediction]]:
        """Label texts; a list of tokens is one sentence."""
        read: deque[Text] = deque()

        def sentences() -> Iterator[Given]:
            for item in items:
                read.append(item)
                yield from self.read(item)

        waiting: list[Any] = []
        for sentence, value in embed_stream(self.elmo.engine, sentences(), self.finish):
            waiting.append(value)
            if isinstance(sentence, Given) and sentence.last:
                yield read.popleft(), self.join(waiting)
                waiting = []

    def read(self, item: str | Sequence[str]) -> list[Given]:
        """What the biLM reads of an item, one sentence or more."""
        parts = self._cut(item) or ((),)
        # The biLM knows quotes only as its training text spelled them.
        return [
            Given(respell(tokens, self._convention), None, tokens, k == len(parts) - 1)
            for k, tokens in enumerate(parts)
        ]

    @abstractmethod
    def _cut(self, item: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The sentences of an item as tokens."""

    @abstractmethod
    def finish(self, sentence: Sentence, values: Array, /) -> Any:
        """What is kept of a sentence that `read` gave, from its layers."""

    @abstractmethod
    def join(self, values: Sequence[Any]) -> Prediction:
        """The result of an item from what `finish` kept of its sentences."""

    def _features(self, sentence: Sentence, values: Array) -> Array:
        """What the network reads of a sentence, (time, width)."""
        return self._network.features(values, _given(sentence))


def _given(sentence: Sentence) -> tuple[str, ...]:
    return sentence.given if isinstance(sentence, Given) else sentence.tokens


def _tokens(item: Sequence[str]) -> tuple[str, ...]:
    return sentence_from_tokens(item, "an item", "pass strings").tokens


class LightTagger(Light[Tagged]):
    """A trained tagger that needs no torch; made by `elmore.tagger`. It predicts `Tagged`.

    Attributes:
        tags: all that it tells apart.
        tag_parts: the parts of each, such as NOUN and NN of NOUN+NN.
    """

    name = "tag"
    formats = ("text", "jsonl", "conll")

    def __init__(
        self, content: TaskFolder, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        super().__init__(content, elmo, what, tokenizer)
        _check_labels(tagger_labels_fit, content, what)
        self.tags: list[str] = content.labels["tags"]
        moves = content.weights.get("crf.transitions")
        self._steps = None if moves is None else steps_of(self.tags, "BIOUL", moves)
        self.tag_parts = split_tags(self.tags)

    @property
    def marks_spans(self) -> bool:
        """Whether its tags mark spans."""
        return self._steps is not None

    def _cut(self, item: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
        return (self._split(item).tokens if isinstance(item, str) else _tokens(item),)

    def finish(self, sentence: Sentence, values: Array, /) -> Tagged:
        scores = self._network.scores(self._features(sentence, values))
        return tagged(_given(sentence), scores, self.tags, self._steps)

    def join(self, values: Sequence[Tagged]) -> Tagged:
        return values[0]

    def show(self, example: Text, found: Tagged, *, colour: bool) -> str:
        return show_tagged(found, {} if self.marks_spans else self.tag_parts, colour=colour)

    def to_json(self, example: Text, found: Tagged) -> dict[str, Any]:
        return found.to_json()

    def conll(self, found: Tagged) -> str:
        return conll_lines(found, {} if self.marks_spans else self.tag_parts)


class LightClassifier(Light[Classified]):
    """A trained classifier that needs no torch; made by `elmore.classifier`.

    It predicts `Classified`.

    Attributes:
        classes: all labels that it tells apart; none for a number.
    """

    name = "classify"

    def __init__(
        self, content: TaskFolder, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        super().__init__(content, elmo, what, tokenizer)
        _check_labels(class_labels_fit, content, what)
        self.classes: list[str] = content.labels.get("classes", [])
        self._max_tokens = _setting(content, "model", "max_tokens", what)
        if type(self._max_tokens) is not int or self._max_tokens < 1:
            raise FormatError(f"'{what}' has a wrong model.max_tokens in its recipe; restore it")

    def _cut(self, item: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
        if isinstance(item, str):
            return cut_text(item, lambda text: self._split(text).tokens, self._max_tokens)
        return (_tokens(item)[: self._max_tokens],)

    def finish(self, sentence: Sentence, values: Array, /) -> Array:
        return self._features(sentence, values)

    def join(self, values: Sequence[Array]) -> Classified:
        return classified(self._network.scores(np.concatenate(values)), self.labels)

    def show(self, example: Text, found: Classified, *, colour: bool) -> str:
        return class_line(found, as_text(example), colour=colour)

    def to_json(self, example: Text, found: Classified) -> dict[str, Any]:
        return {"text": as_text(example), **found.to_json()}


def _check_labels(fit: Callable[[Any, Any], bool], content: TaskFolder, what: str) -> None:
    if not fit(content.labels, {name: w.shape for name, w in content.weights.items()}):
        raise FormatError(f"'{what}' has labels that do not fit its outputs; restore it")


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
    place: Path,
    what: str,
    *,
    elmo: Elmo | None,
    threads: int | None,
    tokenizer: Tokenizer | None,
) -> LightTagger | LightClassifier | None:
    """The tagger or classifier of a folder, called `what` in messages; None if it needs torch."""
    content, inside = read_task(place)
    if content.task not in _KINDS or content.elmo is None or needs_torch(content, what):
        return None
    own = bilm_of(content, inside, elmo, what, threads=threads)
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
        content, _ = read_task(find_model(model))
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
