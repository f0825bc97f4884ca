"""Trained taggers and classifiers without torch: `elmore.tagger` and `elmore.classifier`.

The arithmetic is that of `tasks/layers/window.py`, with the biLM's kernel for the biLSTM; a test
holds the two to each other.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore._messages import shown
from elmore.embedding.elmo import Elmo
from elmore.embedding.layer_cache import model_digest
from elmore.embedding.stream import embed_stream, sentence_from_tokens
from elmore.errors import ConfigError, FormatError, ModelNotFound
from elmore.kernels.matrix import Matrix, Stored
from elmore.kernels.native import aligned
from elmore.kernels.recurrence import Clips, run_steps
from elmore.published.catalog import BUNDLED
from elmore.published.hub import fetch_hugging_face, home, is_hugging_face
from elmore.tasks.folder import TaskFolder, find_task, read_task
from elmore.tasks.tags import Span, spans_from_tags, tags_from_spans
from elmore.text.segmenter import Tokenizer, split_function
from elmore.text.sentence import Sentence
from elmore.text.splitter import split_sentences
from elmore.text.tokenizer import respell

__all__ = [
    "Classified",
    "Given",
    "LightClassifier",
    "LightTagger",
    "Tagged",
    "bilm_of",
    "classified",
    "classifier",
    "cut_text",
    "find_model",
    "load_all",
    "ready_models",
    "steps_of",
    "tagged",
    "tagger",
]

Array = NDArray[np.float32]
# As in `tasks/layers/window.py` and `tasks/layers/crf.py`.
SCALE = np.float32(4.0)
_FORBIDDEN = -1e4
_LSTM = "encoder.layers.0"
_READY = Path(__file__).parents[1] / "models"
# By task; the first is used when none is named.
_NAMES = {"tag": ("pos", "chunk"), "classify": ("sentiment", "sentiment-5")}


@dataclass(frozen=True)
class Tagged:
    """A sentence and its tags.

    Attributes:
        tokens: of the sentence.
        tags: one per token; IOB2 where they mark spans.
        spans: what the tags mark, or nothing.
        probabilities: how likely each tag is, by the model.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    spans: tuple[Span, ...] = ()
    probabilities: tuple[float, ...] = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        spans = [
            {**span._asdict(), "text": " ".join(self.tokens[span.first : span.last + 1])}
            for span in self.spans
        ]
        return {
            "tokens": list(self.tokens),
            "tags": list(self.tags),
            "probabilities": [round(chance, 4) for chance in self.probabilities],
            "spans": spans,
        }


@dataclass(frozen=True)
class Classified:
    """What a text was classified as.

    Attributes:
        label: a label, a tuple of labels, or a number.
        probabilities: of each label, by the model; none for a number.
    """

    label: str | tuple[str, ...] | float
    probabilities: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        chances = {name: round(chance, 4) for name, chance in self.probabilities.items()}
        return {"label": label, "probabilities": chances}


# --------------------------------------------------------------------- from scores to labels


@dataclass(frozen=True, eq=False)
class Steps:
    """The scores of a step from tag to tag, (tags, tags), of the first and of the last, (tags,)."""

    between: Array
    first: Array
    last: Array


def steps_of(transitions: Array, tags: Sequence[str]) -> Steps:
    """Learned scores of steps, and what BIOUL forbids."""

    def may_follow(after: str, before: str) -> bool:
        if before[0] in "BI":
            return before[2:] == after[2:] and after[0] in "IL"
        return after[0] in "OBU"

    def cost(mask: Any) -> Array:
        return np.where(np.array(mask, bool), 0.0, _FORBIDDEN).astype(np.float32)

    allowed = cost([[may_follow(after, before) for after in tags] for before in tags])
    return Steps(
        np.asarray(transitions, np.float32) + allowed,
        cost([tag[0] in "OBU" for tag in tags]),
        cost([tag[0] in "OLU" for tag in tags]),
    )


def tagged(
    tokens: Sequence[str], scores: Array, tags: Sequence[str], steps: Steps | None
) -> Tagged:
    """Choose the tags of a sentence.

    Args:
        tokens: of the sentence.
        scores: of each tag for each token, (time, tags).
        tags: their names.
        steps: of a CRF, or None for a softmax.
    """
    if not len(tokens):
        return Tagged((), ())
    if steps is None:
        chances = _softmax(scores)
        path = chances.argmax(1)
        names = tuple(tags[k] for k in path)
        return Tagged(tuple(tokens), names, (), _picked(chances, path))
    path, chances = _best_path(scores, steps), _marginals(scores, steps)
    spans = spans_from_tags([tags[k] for k in path])
    names = tuple(tags_from_spans(spans, len(tokens), "IOB2"))
    return Tagged(tuple(tokens), names, spans, _picked(chances, path))


def _picked(chances: Array, path: NDArray[np.int64]) -> tuple[float, ...]:
    return tuple(chances[np.arange(len(path)), path].tolist())


def _best_path(scores: Array, steps: Steps) -> NDArray[np.int64]:
    best = scores[0] + steps.first
    before = []
    for row in scores[1:]:
        paths = best[:, None] + steps.between
        before.append(paths.argmax(0))
        best = paths.max(0) + row
    path = [int((best + steps.last).argmax())]
    for places in reversed(before):
        path.append(int(places[path[-1]]))
    return np.array(path[::-1])


def _marginals(scores: Array, steps: Steps) -> Array:
    """The probability of each tag at each place, over all allowed paths, (time, tags)."""
    # Both directions at once, scaled at each place: a third of the time of sums of logarithms.
    # The floor keeps the sums above 0.
    here = np.exp(np.maximum(scores - scores.max(1, keepdims=True), -100), dtype=np.float64)
    moves = np.exp(np.stack([steps.between, steps.between.T]), dtype=np.float64)
    before = np.exp(np.stack([steps.first, steps.last]), dtype=np.float64)[:, None]
    both = np.stack([here, here[::-1]], axis=1)[:, :, None]  # (time, directions, 1, tags)
    chances = np.empty_like(both)
    for k, own in enumerate(both):
        before = before / np.add.reduce(before, axis=2, keepdims=True)
        chances[k] = before
        before = (before * own) @ moves
    found = chances[:, 0, 0] * chances[::-1, 1, 0] * here
    return np.asarray(found / found.sum(1, keepdims=True), np.float32)


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def classified(scores: Array, labels: Mapping[str, Any]) -> Classified:
    """Choose the label of a text from its scores, (outputs,); `labels` as `task.json` has them."""
    if labels["kind"] == "number":
        return Classified(float(scores[0] * labels["scale"] + labels["mean"]))
    names = labels["classes"]
    if labels["kind"] == "labels":
        chances = np.asarray(1 / (1 + np.exp(-scores)), np.float32)
        chosen = tuple(n for n, p in zip(names, chances, strict=True) if p >= 0.5)
        return Classified(chosen, dict(zip(names, chances.tolist(), strict=True)))
    chances = _softmax(scores)
    return Classified(names[int(chances.argmax())], dict(zip(names, chances.tolist(), strict=True)))


def cut_text(
    text: str, split: Callable[[str], Sequence[str]], max_tokens: int
) -> tuple[tuple[str, ...], ...]:
    """The sentences of a text as tokens, up to a number of tokens in all."""
    found: list[tuple[str, ...]] = []
    left = max_tokens
    for sentence in split_sentences(text):
        tokens = tuple(split(sentence))[:left]
        left -= len(tokens)
        if tokens:
            found.append(tokens)
        if left <= 0:
            break
    return tuple(found)


# --------------------------------------------------------------------- the network


class _Network:
    """The arithmetic between the biLM's layers and the scores.

    Args:
        content: of the task's folder.
        what: its name for messages.
    """

    def __init__(self, content: TaskFolder, what: str, n_layers: int, dim: int) -> None:
        weights = {name: np.asarray(w, np.float32) for name, w in content.weights.items()}
        norm = _setting(content, "elmo", "layer_norm", what)
        if norm or any(name.startswith("features.spelling") for name in weights):
            raise ConfigError(
                f"'{shown(what, 100)}' reads characters or normalized layers, which needs torch; "
                "use elmore.tasks to load it, or train without them"
            )
        self._choice = _setting(content, "elmo", "layers", what)
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
        self._output = self._layer("output", hidden * (3 if self.pooled else 1 + lstm))
        self.outputs = len(self._get("output.bias"))

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

    def features(self, layers: Array, tokens: Sequence[str]) -> Array:
        """From all layers, (layers, time, dim), to what the network reads, (time, width)."""
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
        found = [rows.get(token, rows.get(token.lower(), 1)) - 1 for token in tokens]
        return np.concatenate([self._table[found], mixed], axis=1)

    def scores(self, features: Array) -> Array:
        """Score tokens, (time, outputs), or a text, (outputs,)."""
        x = self._read(np.maximum(self._project(features), 0))
        if not self.pooled:
            return self._output(x)
        if not len(x):
            pooled = np.zeros(3 * x.shape[1], np.float32)
        else:
            score = x @ self._get("pooling.score.weight")[0] + self._get("pooling.score.bias")
            pooled = np.concatenate([x.max(0), x.mean(0), _softmax(score) @ x])
        result: Array = self._output(pooled[None])[0]
        return result


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


class _Light:
    """What taggers and classifiers share.

    Attributes:
        elmo: the biLM.
        labels: what is told apart.
        scores: of the best evaluation in training.
    """

    def __init__(
        self, content: TaskFolder, elmo: Elmo, what: str, tokenizer: Tokenizer | None
    ) -> None:
        self.elmo, self.labels, self.scores = elmo, content.labels, content.scores
        self._network = _Network(content, what, elmo.n_layers, elmo.dim)
        self._convention = elmo.checkpoint.tokenizer
        self._split = elmo.tokenize if tokenizer is None else split_function(tokenizer)

    def features(self, sentence: Sentence, chunks: Iterator[Array], /) -> Array:
        """What the network reads of a sentence that `read` gave, (time, width)."""
        given = sentence.given if isinstance(sentence, Given) else sentence.tokens
        parts, start = [], 0
        for chunk in chunks:  # one, but for very long sentences
            parts.append(self._network.features(chunk, given[start : start + chunk.shape[1]]))
            start += chunk.shape[1]
        return np.concatenate(parts)

    def _given(self, tokens: Sequence[str], *, last: bool = True) -> Given:
        # The biLM knows quotes only as its training text spelled them.
        return Given(respell(tokens, self._convention), None, tuple(tokens), last)

    def _tokens(self, item: Sequence[str]) -> tuple[str, ...]:
        return sentence_from_tokens(item, "an item", "pass strings").tokens


class LightTagger(_Light):
    """A trained tagger that needs no torch; made by `elmore.tagger`.

    Attributes:
        tags: all that it tells apart.
    """

    def __init__(
        self, content: TaskFolder, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        super().__init__(content, elmo, what, tokenizer)
        self.tags: list[str] = _names(content.labels, "tags", what, self._network.outputs)
        moves = content.weights.get("crf.transitions")
        if moves is not None and moves.shape != (len(self.tags), len(self.tags)):
            raise FormatError(f"'{what}' has a wrong shape at 'crf.transitions'; restore it")
        self._steps = None if moves is None else steps_of(moves, self.tags)

    @property
    def marks_spans(self) -> bool:
        """Whether its tags mark spans."""
        return self._steps is not None

    def predict(self, items: Iterable[str | Sequence[str]]) -> list[Tagged]:
        """Tag sentences: texts, or lists of tokens.

        Examples:
            >>> import elmore
            >>> elmore.tagger("pos").predict(["Ada lives in Rome."])[0].tags
            ('PROPN+NNP', 'VERB+VBZ', 'ADP+IN', 'PROPN+NNP', 'PUNCT+.')
        """
        if isinstance(items, str):
            raise ConfigError("predict takes a list; put the text in brackets")
        return list(self.pipe(items))

    def pipe(self, items: Iterable[str | Sequence[str]]) -> Iterator[Tagged]:
        """Tag a stream: lazy, in order, in bounded memory."""
        stream = embed_stream(self.elmo.engine, map(self.read, items), self.finish)
        return (found for _, found in stream)

    def read(self, item: str | Sequence[str]) -> Given:
        """Split a text into tokens; a list of tokens is taken as it is."""
        return self._given(
            self._split(item).tokens if isinstance(item, str) else self._tokens(item)
        )

    def finish(self, sentence: Sentence, chunks: Iterator[Array], /) -> Tagged:
        """The tags of a sentence that `read` gave, from its layers."""
        given = sentence.given if isinstance(sentence, Given) else sentence.tokens
        scores = self._network.scores(self.features(sentence, chunks))
        return tagged(given, scores, self.tags, self._steps)


class LightClassifier(_Light):
    """A trained classifier that needs no torch; made by `elmore.classifier`.

    Attributes:
        classes: all labels that it tells apart; none for a number.
    """

    def __init__(
        self, content: TaskFolder, elmo: Elmo, what: str, tokenizer: Tokenizer | None = None
    ) -> None:
        super().__init__(content, elmo, what, tokenizer)
        number = content.labels.get("kind") == "number"
        n_classes = 0 if number else self._network.outputs
        self.classes: list[str] = _names(content.labels, "classes", what, n_classes)
        self._max_tokens = int(_setting(content, "model", "max_tokens", what))

    def predict(self, items: Iterable[str | Sequence[str]]) -> list[Classified]:
        """Classify texts, or lists of tokens.

        Examples:
            >>> import elmore
            >>> elmore.classifier("sentiment").predict(["A joy from start to end."])[0].label
            'positive'
        """
        if isinstance(items, str):
            raise ConfigError("predict takes a list; put the text in brackets")
        return list(self.pipe(items))

    def pipe(self, items: Iterable[str | Sequence[str]]) -> Iterator[Classified]:
        """Classify a stream: lazy, in order, in bounded memory."""
        sentences = (sentence for item in items for sentence in self.read(item))
        waiting: list[Array] = []
        for sentence, features in embed_stream(self.elmo.engine, sentences, self.features):
            waiting.append(features)
            if isinstance(sentence, Given) and sentence.last:
                yield self.classify(waiting)
                waiting = []

    def read(self, item: str | Sequence[str]) -> list[Given]:
        """The sentences of a text; a list of tokens is one sentence."""
        if isinstance(item, str):
            cut = cut_text(item, lambda text: self._split(text).tokens, self._max_tokens)
        else:
            cut = (self._tokens(item)[: self._max_tokens],)
        parts = cut or ((),)
        return [self._given(part, last=k == len(parts) - 1) for k, part in enumerate(parts)]

    def classify(self, features: Sequence[Array]) -> Classified:
        """The label of a text from the features of its sentences."""
        return classified(self._network.scores(np.concatenate(features)), self.labels)


def _names(labels: Mapping[str, Any], key: str, what: str, n: int) -> list[str]:
    names = labels.get(key, [])
    if not isinstance(names, list) or len(names) != n or not all(isinstance(x, str) for x in names):
        raise FormatError(f"'{what}' has labels that do not fit its outputs; restore it")
    return names


# --------------------------------------------------------------------- finding and loading


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
    content, own, what = _load("tag", model, elmo, threads)
    return LightTagger(content, own, what, tokenizer)


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
    content, own, what = _load("classify", model, elmo, threads)
    return LightClassifier(content, own, what, tokenizer)


def ready_models(task: str) -> tuple[str, ...]:
    """The names of the models of a task that ship with elmore, the one used by default first."""
    return _NAMES[task]


def find_model(model: str | Path, task: str) -> Path:
    """The folder of a trained task: a path, a name of `ready_models`, or one on the hub."""
    place = find_task(model)
    if place is not None:
        return place
    ready = _READY / f"{task}-{model}"
    if str(model) in ready_models(task):
        return ready
    if is_hugging_face(str(model)) and not Path(model).exists():
        return _copied(fetch_hugging_face(str(model)), str(model))
    raise ModelNotFound(
        f"'{shown(model, 120)}' is not a trained model; use {', '.join(ready_models(task))}, the "
        f"folder of one that `elmore task train {task}` made, or owner/name on the hub"
    )


def _copied(folder: Path, name: str) -> Path:
    """A folder of files instead of the hub's folder of links, which is not trusted."""
    place = home() / "tasks" / f"{re.sub('[^A-Za-z0-9.-]+', '--', name)}-{folder.name[:12]}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
            shutil.copytree(folder, Path(temporary, "task"))
            with contextlib.suppress(OSError):  # another process was faster
                Path(temporary, "task").rename(place)
    if find_task(place) is None:
        raise FormatError(f"'{shown(name, 100)}' on the hub is not a trained task; check the name")
    return place


def _load(
    task: str, model: str | Path, elmo: Elmo | None, threads: int | None
) -> tuple[TaskFolder, Elmo, str]:
    content, inside = read_task(find_model(model, task))
    what = str(model)
    if content.task != task:
        raise ConfigError(f"'{shown(what, 120)}' is a model for {content.task}; use that task")
    if content.elmo is None:
        raise ConfigError(f"'{shown(what, 120)}' was trained without ELMo; load it by elmore.tasks")
    return content, bilm_of(content, inside, elmo, what, threads=threads), what


def load_all(models: Iterable[str], elmo: Elmo) -> dict[str, LightTagger | LightClassifier]:
    """Load taggers and classifiers that share a biLM, by their names without paths.

    Those that ship with elmore are left out where they were trained with another biLM.
    """
    found: dict[str, LightTagger | LightClassifier] = {}
    digest = None
    for model in models:
        ready = next((task for task in ("tag", "classify") if model in ready_models(task)), None)
        content, _ = read_task(find_model(model, ready or "tag"))
        digest = digest or model_digest(elmo)
        if content.elmo != digest or content.task not in ("tag", "classify"):
            if ready is not None:
                continue
            raise ConfigError(
                f"'{shown(model, 120)}' is not a tagger or classifier that was trained with this "
                "biLM; serve the biLM that it was trained with (--model)"
            )
        kind = LightTagger if content.task == "tag" else LightClassifier
        found[Path(model).name] = kind(content, elmo, model)
    return found


def bilm_of(
    content: TaskFolder,
    inside: Path | None,
    elmo: Elmo | None,
    what: str,
    *,
    device: str = "cpu",
    threads: int | None = None,
) -> Elmo:
    """The biLM that a task was trained with: the given one, the one inside, or the included one.

    Raises:
        ConfigError: it is another one.
    """
    if elmo is None:
        elmo = Elmo.load(
            BUNDLED if inside is None else inside,
            device=device,
            precision=content.precision,
            threads=threads,
            start=content.start,
        )
        if inside is not None:
            return elmo
    if model_digest(elmo) != content.elmo:
        raise ConfigError(
            f"'{what}' was trained with another biLM or has none inside; pass the right elmo= "
            "(--model)"
        )
    return elmo
