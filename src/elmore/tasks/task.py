"""What all tasks share: fit, evaluate, predict, save and load.

A new task is one file with a subclass of `Task` that fills in a reader, a network, a loss and a
metric, and a line in `tasks/folder.py`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from elmore.base.messages import ProgressOption, shown
from elmore.elmo import Elmo
from elmore.embedding.engine import find_device
from elmore.embedding.layer_cache import LayerCache, cache_folder
from elmore.errors import ConfigError, ElmoreError, FormatError, InputError
from elmore.report import Report, Row
from elmore.tasks.features import (
    BiLmLayers,
    Network,
    TokenFeatures,
    TokenIndex,
    choose_words,
    stored_network,
    stored_vectors,
)
from elmore.tasks.fitting import BASELINE, Split, fit_task, split_held_out, with_test
from elmore.tasks.folder import TrainedTask, bilm_of, read_task, write_task
from elmore.tasks.predictions import Example, Prediction, Predictor
from elmore.tasks.recipe import TaskRecipe
from elmore.text.segmenter import Tokenizer, split_function
from elmore.text.tokenizer import tokenize
from elmore.text.word_vectors import read_word_vectors
from elmore.training.display import TrainingProgress
from elmore.training.seeds import numpy_generator, seeded

# Items of a stream that are predicted together, sorted by length.
_TOGETHER = 4096
# Examples that a small network predicts together, if a training batch has fewer.
_LIGHT_BATCH = 64
# The parts of the data of a learning curve.
_CURVE = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# The score that decides, by the kind of labels, where the data decides on that.
_METRICS = {
    **{"spans": "f1", "tags": "accuracy"},
    **{"label": "accuracy", "labels": "f1", "number": "correlation"},
}


class Task(Predictor[Example, Prediction]):
    """A task model: learns from labelled data, predicts on text.

    Args:
        elmo: the biLM whose layers enter, or None for the baseline without.
        recipe: "laptop", "paper", the path of a TOML file, or a recipe.
        text: the column of the texts or tokens, of tasks that read tables; by default one of the
            usual names.
        label: the column of the labels or tags.
        separator: what separates several labels in one cell.
        vectors: a file of word vectors (GloVe, word2vec), or None to learn them from nothing.
        cache: a folder that keeps frozen layers for next time.
        seed: the one seed.
        device: where to compute.
        progress: as in `Elmo.embed`, for sentences whose layers are computed.
    """

    metric: str  # which of its scores decides what is best; higher is better
    sizes: ClassVar[type]  # dataclass of the section `model` of its recipes
    example: ClassVar[type]  # class of what it learns from
    tables: ClassVar[bool] = False  # whether it reads tables, and lists (X, y)
    # Whether its network is `LightNetwork`: for data of any size, with ELMo at its input only.
    light: ClassVar[bool] = False
    baseline_name: ClassVar[str] = ""  # what its baseline is, if it has one
    left_out: ClassVar[str] = "longer than data.max_length"  # what is not learned from
    takes: ClassVar[str] = "a text or its tokens"  # what one item is that it predicts on
    reads: ClassVar[str]  # the format of its files
    tokenizer: Tokenizer | None = None  # how raw text is split; None as `elmo` does
    index: TokenIndex  # once there is a network

    def __init__(
        self,
        elmo: Elmo | None = None,
        *,
        recipe: TaskRecipe | str | Path = "laptop",
        text: str | None = None,
        label: str | None = None,
        separator: str | None = None,
        vectors: str | Path | None = None,
        cache: str | Path | None = None,
        seed: int = 0,
        device: str = "cpu",
        progress: ProgressOption = None,
    ) -> None:
        if elmo is not None and not isinstance(elmo, Elmo):
            raise ConfigError(f"elmo={elmo!r} is not a model; pass Elmo.load(...) or None")
        if not isinstance(recipe, TaskRecipe):
            recipe = TaskRecipe.load(recipe, self.name, self.sizes)
        if not isinstance(recipe.model, self.sizes):
            raise ConfigError(f"recipe {recipe.name!r} is not a recipe of {self.name}; pass one")
        if elmo is not None and not (recipe.elmo.input or recipe.elmo.output):
            raise ConfigError(
                "ELMo enters nowhere; set elmo.input or elmo.output, or pass elmo=None (--no-elmo)"
            )
        if self.light and recipe.elmo.output:
            raise ConfigError(f"{self.name} reads ELMo at its input only; set elmo.output=false")
        if vectors is not None and not recipe.words.dim:
            raise ConfigError(
                "words.dim=0 leaves word vectors out, but a file of them is given; leave one out"
            )
        self.elmo, self.recipe, self.seed = elmo, recipe, seed
        # What was asked for: `fit` fills the recipe in by the data, and may train the biLM.
        self._asked = (elmo, recipe)
        self.columns: dict[str, Any] = {"text": text, "label": label}
        self.separator = separator
        self.vectors = None if vectors is None else Path(vectors)
        self.cache = cache
        self.device, self.progress = find_device(device), progress
        self.kind = ""  # of the labels, by all of the data; a part may look different
        self.labels: Mapping[str, Any] = {}
        self.scores: Mapping[str, float] = {}
        self._words: tuple[str, ...] | None = None
        self._network: Network | None = None

    def __repr__(self) -> str:
        state = "not trained" if self._network is None else "trained"
        scores = [f"{name} {value:.2f}" for name, value in self.scores.items()][:2]
        facts = ", ".join([f"recipe {self.recipe.name!r}", state, *scores])
        return f"<{type(self).__name__}: elmo={self.elmo!r}, {facts}>"

    # ------------------------------------------------------------------- what a task supplies

    @abstractmethod
    def read(self, data: Any) -> Iterable[Example]:
        """Read labelled examples from a file, and of `tables` from any kind of table."""

    @abstractmethod
    def build(self, features: TokenFeatures) -> Network:
        """Make the network for `self.labels`."""

    @abstractmethod
    def loss(self, examples: Sequence[Example]) -> Tensor:
        """The mean loss of examples, ()."""

    @abstractmethod
    def guess(self, examples: Sequence[Example]) -> list[Prediction]:
        """Predict a batch."""

    @abstractmethod
    def measure(self, examples: Sequence[Example], found: Sequence[Prediction]) -> Report:
        """Score predictions."""

    def texts(self, example: Example) -> Sequence[Sequence[str]]:
        """The token lists that the biLM reads for an example: by default its one sentence."""
        return (example.tokens,)  # type: ignore[attr-defined]  # of the examples of such tasks

    def length(self, example: Example) -> int:
        """The length by which examples are batched: by default of all texts together."""
        return sum(map(len, self.texts(example)))

    def parse(self, item: Any) -> Example:
        """An unlabelled example from what `predict` takes: by default a text, or its tokens.

        It may raise TypeError or ValueError for something else.
        """
        example: Example = self.example(self.split(item))
        return example

    def find_kind(self, examples: Sequence[Example]) -> str:
        """What kind of labels there are, where the data decides on that."""
        return ""

    def find_labels(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Collect what has to be told apart, as JSON values: by default nothing."""
        return {}

    def labels_fit(self, labels: Mapping[str, Any]) -> bool:
        """Whether labels from a file are what `find_labels` could give: by default, does give."""
        return labels == self.find_labels([])

    def for_training(self, examples: list[Example]) -> list[Example]:
        """Choose or change examples before they are learned from."""
        longest = self.recipe.data.max_length
        return [e for e in examples if not longest or self.length(e) <= longest]

    def check_labels(self, examples: Sequence[Example]) -> None:
        """Refuse examples to score whose labels `self.labels` cannot give: by default none."""

    def hold_out(self, examples: Sequence[Example]) -> tuple[list[Example], list[Example], str]:
        """What to learn from, what to evaluate on, and in words how that was chosen."""
        parts = split_held_out(examples, lambda e: self.length(e).bit_length(), seed=self.seed)
        return *parts, "stratified by length"

    def fitted(self, examples: Sequence[Example]) -> TaskRecipe:
        """The recipe with what depends on the training examples filled in."""
        return self._asked[1].fitted(len(examples))

    def from_lists(self, x: Sequence[Any], y: Sequence[Any]) -> list[Example]:
        """Examples from lists of items and labels, of tasks that read `tables`."""
        raise ConfigError(f"{self.name} takes no list of labels; pass files or examples")

    def label_counts(self, examples: Iterable[Example]) -> Counter[str]:
        """How often each label occurs, where labels can be counted."""
        return Counter()

    def pairs(
        self, examples: Sequence[Example], found: Sequence[Prediction]
    ) -> list[tuple[str, str]]:
        """The right and the predicted label of each item, of tasks that have one per item."""
        raise ConfigError(f"{self.name} does not give one label per item; leave --plot out")

    def baseline(self, train: Sequence[Example], held_out: Sequence[Example]) -> float:
        """The score of a simple method without ELMo, which `baseline_name` describes."""
        raise NotImplementedError

    # ------------------------------------------------------------------- what users call

    def fit(
        self,
        train: Any,
        y: Sequence[Any] | None = None,  # second, as in scikit-learn
        *,
        dev: Any = None,
        test: Any = None,
        out: str | Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        progress: TrainingProgress = None,
        evaluate_epochs: int | None = None,
    ) -> Report:
        """Learn, and keep the weights that did best on the development data.

        Args:
            train: a file, several files, or examples. `Tagger` and `Classifier` also take a data
                frame, a dataset, a dictionary of columns, or texts or token lists with `y`.
            y: the labels, if `train` is a list of items.
            dev: the same, or (X, y), to evaluate on; without it, a tenth of the examples is held
                out, and nothing of fewer than ten.
            test: the same, to be scored at the end; what is wrong with it is found before.
            out: folder of the run; the trained model is in its `checkpoint`.
            resume: continue the run in `out`; without a run there, start one.
            overwrite: replace the run in `out`.
            progress: whether to show the live report of the command line: a bar in a terminal or
                notebook, elsewhere one line per evaluation. Or a function that gets every line of
                the log instead. By default it is shown.
            evaluate_epochs: epochs between evaluations, by which patience counts. By default 1;
                taggers and classifiers with few examples are evaluated at the end only.
        """
        tests = [] if test is None else self.examples(test)
        report = fit_task(
            self,
            self.divide(self.examples(train, y), dev),
            checked=tests,
            out=out,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            evaluate_epochs=evaluate_epochs,
        )
        return report if test is None else with_test(report, self._scored(tests, test))

    def divide(self, examples: list[Example], given: Any) -> Split[Example]:
        """What to learn from and what to evaluate on: the data that is given for it, or a part."""
        self.kind = self.find_kind(examples)
        kept, how = examples, ""
        if given is None:
            kept, dev, how = self.hold_out(examples)
        elif not (dev := self.examples(given)):
            raise InputError("there is no development example; check the files")
        train = self.for_training(kept)
        left_out = max(0, len(kept) - len(train))
        if not train:
            reason = f": {left_out} are left out, {self.left_out}" if kept else ""
            raise InputError(f"there is no example to learn from{reason}; check the files")
        notes = []
        if left_out:
            notes.append(f"{left_out} training examples are left out: {self.left_out}")
        if dev and how:
            notes.append(
                f"no development data: {len(dev)} of {len(train) + len(dev)} examples were held "
                f"out to evaluate on ({how}, seed {self.seed})"
            )
        if not dev:
            notes.append("no development data: the last weights are kept, nothing is scored")
        return Split(train, dev, notes)

    def evaluate(self, data: Any, y: Sequence[Any] | None = None) -> Report:
        """Score predictions on labelled data, as `fit` takes it."""
        examples = self.examples(data, y)
        if not examples:
            raise InputError("there is no example to score; check the files")
        _ = self.network  # says so if there is none yet
        self.check_labels(examples)
        return self._scored(examples, data if y is None else None)

    def _scored(self, examples: Sequence[Example], data: Any) -> Report:
        with self.layers(examples):
            measured = self.measured(examples)
        about = {"scored on": _names(data), "examples": len(examples), **self.about()}
        return dataclasses.replace(measured, measured_on=about)

    def curve(
        self,
        train: Any,
        y: Sequence[Any] | None = None,
        *,
        dev: Any = None,
        progress: TrainingProgress = None,
    ) -> list[Row]:
        """Train on growing parts of the data: one row per part, with the score of the baseline.

        Arguments are those of `fit`.
        """
        split = self.divide(self.examples(train, y), dev)
        if not split.dev:
            raise InputError("a learning curve needs 10 examples or more; label some more")
        order = numpy_generator(self.seed, "curve").permutation(len(split.train)).tolist()
        rows: list[Row] = []
        with cache_folder(self.cache) as folder:
            for share in _CURVE:
                part = [split.train[k] for k in order[: max(2, round(share * len(order)))]]
                task = copy.copy(self)
                task.cache = folder
                try:
                    report = fit_task(task, Split(part, split.dev), progress=progress)
                except InputError:
                    continue  # too few, such as one class only
                row: dict[str, Any] = {"examples": len(part)}
                row[task.metric] = report.metrics[task.metric]
                for compared in report.tables.get(BASELINE, ())[1:]:
                    row["baseline"] = compared[task.metric]
                rows.append(row)
        return rows

    def answers(self, items: Iterable[Any]) -> Iterator[tuple[Example, Prediction]]:
        _ = self.network  # says so if there is none yet
        items = iter(items)
        while part := list(itertools.islice(items, _TOGETHER)):
            examples = [self._parse(item) for item in part]
            yield from zip(examples, self.predict_examples(examples), strict=True)

    def predict_examples(self, examples: Sequence[Example]) -> list[Prediction]:
        """Predict on examples, whose labels are ignored."""
        with self.layers(examples):
            return self._guess_all(examples)

    def save(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        with_elmo: bool = True,
        precision: Literal["float32", "float16"] = "float32",
    ) -> None:
        """Write the trained model as a folder.

        Args:
            path: the folder to make.
            overwrite: replace the folder of a task.
            with_elmo: put the biLM inside; without, `load` needs it, but for the included one.
            precision: how the task's own weights are stored.
        """
        weights = {
            name: t.detach().cpu().numpy().astype(precision)
            for name, t in self.network.state_dict().items()
        }
        elmo = self.elmo
        content = TrainedTask(
            task=self.name,
            recipe=self.recipe.to_json(),
            labels=dict(self.labels),
            elmo=None if elmo is None else elmo.digest,
            precision=None if elmo is None else elmo.precision,
            start="zeros" if elmo is None else elmo.engine.compute.start,
            scores=dict(self.scores),
            words=self._words,
            weights=weights,
        )
        write_task(Path(path), content, elmo if with_elmo else None, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        elmo: Elmo | None = None,
        device: str = "cpu",
        threads: int | None = None,
        **options: Any,
    ) -> Self:
        """Load a trained model.

        Args:
            path: its folder, or that of the run that made it.
            elmo: the biLM, if the folder has none inside.
            device: where to compute.
            threads: processors for the biLM; all by default.
            options: as when a task is made: text, label, separator, cache, progress.
        """
        content = read_task(path)
        if content.task != cls.name:
            raise ConfigError(f"'{path}' is a model for {content.task}; use that task")
        own = None
        if content.elmo is not None:
            own = bilm_of(content, elmo, str(path), device=device, threads=threads)
        recipe = TaskRecipe.from_json(content.recipe, cls.sizes, what=str(path))
        task = cls(own, recipe=recipe, device=device, **options)
        if not task.labels_fit(content.labels):
            raise FormatError(f"'{path}' has labels that are none of {cls.name}'s; restore it")
        task._take_labels(content.labels)
        task.scores, task._words = content.scores, content.words
        if task.separator is None:
            task.separator = content.labels.get("separator")
        make = functools.partial(TokenFeatures, recipe, own, stored_vectors(content, str(path)))
        task._take(stored_network(lambda: task.build(make()), content.weights, str(path)))
        return task

    def restore(self, path: Path) -> None:
        """Become the trained model of a folder, which was trained with the same arguments."""
        elmo = None if self.recipe.elmo.trainable else self.elmo
        loaded = type(self).load(path, device=str(self.device), elmo=elmo)
        self._take_labels(loaded.labels)
        self.elmo, self.scores, self._words = loaded.elmo, loaded.scores, loaded._words
        self._network, self.index = loaded._network, loaded.index

    @property
    def network(self) -> Network:
        """The network, once trained or loaded."""
        if self._network is None:
            raise ConfigError(f"this {self.name} model is not trained yet; call fit or load")
        return self._network

    def examples(self, data: Any, y: Sequence[Any] | None = None) -> list[Example]:
        """Read labelled data, as `fit` takes it; examples are taken as they are."""
        if y is not None:
            x, y = list(data), list(y)
            if len(x) != len(y):
                raise InputError(f"{len(x)} items but {len(y)} labels; give one label per item")
            return self.from_lists(x, y)
        if isinstance(data, str | Path):
            found = list(self.read(Path(data)))
            if not found:
                raise InputError(f"there is no example; is this {self.reads}?", file=str(data))
            return found
        if self.tables:
            named = hasattr(data, "columns") or hasattr(data, "column_names")
            if named or isinstance(data, Mapping):
                return list(self.read(data))
            pair = isinstance(data, tuple) and len(data) == 2
            if pair and not isinstance(data[0], (str, Path, self.example)):
                return self.examples(*data)
        if all(isinstance(item, str | Path) for item in data):
            return [example for path in data for example in self.examples(path)]
        for item in data:
            if not isinstance(item, self.example):
                raise ConfigError(
                    f"{self.name} takes files or objects of {self.example.__name__}, not "
                    f"{shown(repr(item), 60)}; make such objects"
                )
        return list(data)

    def mix_table(self) -> list[Row]:
        """The learned mix of each place where ELMo enters (paper §5.5, Figure 2).

        Where layers enter side by side, how much of the first layer's weights reads each (percent).
        """
        elmo, features = self.elmo, self.network.features
        if elmo is None or features.elmo is None:
            return []
        if not features.elmo.mixes:
            project: Any = getattr(self.network, "project", None)
            if project is None:
                return []
            squares = (project.weight.detach()[:, features.own_dim :] ** 2).sum(0)
            parts = squares.reshape(elmo.n_layers, elmo.dim).sum(1)
            return [{f"layer {k}": s for k, s in enumerate((100 * parts / parts.sum()).tolist())}]
        places = ["input"] * features.elmo_input + ["output"] * features.elmo_output
        rows: list[Row] = []
        for place, mix in zip(places, features.elmo.mixes, strict=True):
            scores, gamma = (weight.detach() for weight in mix.parameters())
            shares = enumerate(torch.softmax(scores, 0).tolist(), features.elmo.first)
            named = {f"layer {k}": share for k, share in shares}
            rows.append({"place": place, **named, "gamma": float(gamma)})
        return rows

    def about(self) -> dict[str, Any]:
        """What reports say about the recipe and the biLM."""
        changed: list[str] = []
        # Of a recipe of the user's own there is nothing to compare with.
        with contextlib.suppress(ConfigError):
            shipped = TaskRecipe.load(self.recipe.name, self.name, self.sizes).to_json()
            own = {k: v for k, v in self.recipe.to_json().items() if isinstance(v, dict)}
            for section, values in own.items():
                odd = (key for key in values if values[key] != shipped[section][key])
                changed += [f"{section}.{key}={json.dumps(values[key])}" for key in odd]
        return {
            "recipe": self.recipe.name,
            "settings": changed or None,
            "elmo": None if self.elmo is None else str(self.elmo.checkpoint.origin),
        }

    # ------------------------------------------------------------------- inside

    def split(self, text: Any) -> tuple[str, ...]:
        """Split text by `tokenizer`, else as the biLM does; tokens stay as they are."""
        if not isinstance(text, str):
            return tuple(text)
        if self.tokenizer is not None:
            return split_function(self.tokenizer)(text).tokens
        sentence = self.elmo.tokenize(text) if self.elmo is not None else tokenize(text)
        return sentence.tokens

    def _parse(self, item: Any) -> Example:
        """Make an example of an item; refuse what is neither text nor tokens."""
        problem = None
        try:
            if not isinstance(item, bytes | Mapping):
                example = self.parse(item)
                if all(isinstance(token, str) for text in self.texts(example) for token in text):
                    return example
        except ElmoreError:
            raise
        except (TypeError, ValueError) as error:
            problem = error
        raise ConfigError(
            f"{self.name} cannot read {shown(repr(item), 80)}; pass {self.takes}"
        ) from problem

    def prepare(self, examples: Sequence[Example]) -> None:
        """Find the recipe, labels and words of a training, and make a network of random weights."""
        self.elmo, _ = self._asked
        self.recipe = self.fitted(examples)
        self._take_labels(self.find_labels(examples))
        counts = Counter(
            token for example in examples for text in self.texts(example) for token in text
        )
        self._words = vectors = None
        if self.vectors is not None or self.recipe.words.dim:
            file = None if self.vectors is None else read_word_vectors(self.vectors)
            self._words, vectors = choose_words(counts, file, self.recipe.words, self.seed)
        with seeded(self.seed, "weights"):
            self._take(self.build(TokenFeatures(self.recipe, self.elmo, vectors)))

    def _take_labels(self, labels: Mapping[str, Any]) -> None:
        self.labels = labels
        self.metric = _METRICS.get(str(labels.get("kind")), type(self).metric)

    def _take(self, network: Network) -> None:
        self._network = network.to(self.device)
        chars = self.recipe.characters.max_chars
        self.index = TokenIndex(self._words or (), chars, self.device)

    @contextlib.contextmanager
    def layers(self, examples: Iterable[Example], *, silent: bool = False) -> Iterator[None]:
        """Have the frozen layers of examples at hand."""
        if self.network.features.elmo is None or self.elmo is None:
            yield
            return
        index, progress = self.index, False if silent else self.progress
        with cache_folder(self.cache) as folder:
            frozen = BiLmLayers(LayerCache(self.elmo, folder))
            frozen.announce((text for e in examples for text in self.texts(e)), progress)
            index.layers = frozen
            try:
                yield
            finally:
                index.layers = None

    def take_trained_bilm(self) -> None:
        """Take a biLM that was trained for the model's own: its layers are frozen from now on."""
        live, mixes = self.index.layers, self.network.features.elmo
        if mixes is None or live is None or live.bilm is None:
            return
        weights = {n: w.detach().cpu().numpy() for n, w in live.bilm.named_parameters()}
        engine = live.cache.elmo.engine
        self.elmo = Elmo(
            live.cache.elmo.checkpoint.with_weights(weights),
            device=self.device,
            threads=engine.workers.threads,
            tokenizer=engine.compute.tokenizer,
        )
        mixes.bilm = None
        cache = LayerCache(self.elmo, live.cache.folder)
        self.index.layers = BiLmLayers(cache)

    def measured(self, examples: Sequence[Example]) -> Report:
        """Predict and score, with the layers of the examples at hand."""
        return self.measure(examples, self._guess_all(examples))

    def _guess_all(self, examples: Sequence[Example]) -> list[Prediction]:
        network = self.network
        network.eval()
        order = sorted(range(len(examples)), key=lambda k: self.length(examples[k]))
        found: dict[int, Prediction] = {}
        size = max(self.recipe.data.batch_size, _LIGHT_BATCH if self.light else 1)
        with torch.no_grad():
            for start in range(0, len(order), size):
                chosen = order[start : start + size]
                batch = self.guess([examples[k] for k in chosen])
                found.update(zip(chosen, batch, strict=True))
        return [found[k] for k in range(len(examples))]


def _names(data: Any) -> str | None:
    """Name the files that examples come from, if they do."""
    files = [data] if isinstance(data, str | Path) else data
    if isinstance(files, list | tuple) and all(isinstance(file, str | Path) for file in files):
        return ", ".join(map(str, files))
    return None
