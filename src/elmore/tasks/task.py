"""What all tasks share: fit, evaluate, predict, save and load.

A new task is one file with a subclass of `Task` that fills in a reader, a network, a loss and a
metric, and a line in `tasks/folder.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from elmore.base.optional import require
from elmore.elmo import Elmo
from elmore.embedding.engine import find_device
from elmore.embedding.layer_cache import MAX_BYTES, LayerCache, cache_folder
from elmore.errors import ConfigError, ElmoreError, FormatError, InputError
from elmore.report import Report, Row
from elmore.tasks.features import (
    FrozenLayers,
    LiveLayers,
    Network,
    TokenFeatures,
    TokenIndex,
    choose_words,
    stored_network,
    stored_vectors,
)
from elmore.tasks.fitting import Split, fit_task, split_held_out
from elmore.tasks.folder import TrainedTask, bilm_of, read_task, write_task
from elmore.tasks.predictions import Example, Prediction, Predictor
from elmore.tasks.recipe import TaskRecipe
from elmore.text.segmenter import Tokenizer, split_function
from elmore.text.tokenizer import tokenize
from elmore.text.word_vectors import read_word_vectors
from elmore.training.display import TrainingProgress
from elmore.training.seeds import seeded

# Files to read, or examples.
Data = str | Path | Sequence[Any]
# Items of a stream that are predicted together, sorted by length.
_TOGETHER = 4096


class Task(Predictor[Example, Prediction]):
    """A task model: learns from labelled data, predicts on text.

    Args:
        elmo: the biLM whose layers enter, or None for the baseline without.
        recipe: "laptop", "paper", the path of a TOML file, or a recipe.
        vectors: a file of word vectors (GloVe, word2vec), or None to learn them from nothing.
        cache: a folder that keeps frozen layers for next time.
        max_bytes: what that folder may hold.
        seed: the one seed.
        device: where to compute.
        progress: as in `Elmo.embed`, for sentences whose layers are computed.
    """

    metric: str  # which of its scores decides what is best; higher is better
    sizes: ClassVar[type]  # dataclass of the section `model` of its recipes
    example: ClassVar[type]  # class of what it learns from
    needs: ClassVar[tuple[str, ...]] = ()  # optional packages that its scores need
    left_out: ClassVar[str] = "longer than data.max_length"  # what is not learned from
    takes: ClassVar[str] = "a text or its tokens"  # what one item is that it predicts on
    guess_size: int = 1  # examples that are predicted together, if a training batch is smaller
    tokenizer: Tokenizer | None = None  # how raw text is split; None as `elmo` does
    index: TokenIndex  # once there is a network

    def __init__(
        self,
        elmo: Elmo | None = None,
        *,
        recipe: TaskRecipe | str | Path = "laptop",
        vectors: str | Path | None = None,
        cache: str | Path | None = None,
        max_bytes: int = MAX_BYTES,
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
        if vectors is not None and not recipe.words.dim:
            raise ConfigError(
                "words.dim=0 leaves word vectors out, but a file of them is given; leave one out"
            )
        self.elmo, self.recipe, self.seed = elmo, recipe, seed
        # What was asked for: `fit` fills the recipe in by the data, and may train the biLM.
        self._asked = (elmo, recipe)
        self.vectors = None if vectors is None else Path(vectors)
        self.cache, self.max_bytes = cache, max_bytes
        self.device, self.progress = find_device(device), progress
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
    def read(self, path: Path) -> list[Example]:
        """Read labelled examples from a file."""

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
        """The length by which examples are batched: by default of the longest text."""
        return max((len(tokens) for tokens in self.texts(example)), default=0)

    def parse(self, item: Any) -> Example:
        """An unlabelled example from what `predict` takes: by default a text, or its tokens.

        It may raise TypeError or ValueError for something else.
        """
        example: Example = self.example(self.split(item))
        return example

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

    def evaluate_epochs(self, n_examples: int) -> int:
        """Epochs between evaluations, unless `fit` is told otherwise."""
        return 1

    def explain(self, report: Report, measured: Report, split: Split[Example]) -> Report:
        """The report of a training with what a task adds: by default nothing."""
        return report

    # ------------------------------------------------------------------- what users call

    def fit(
        self,
        train: Data,
        *,
        dev: Data | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        progress: TrainingProgress = None,
        evaluate_epochs: int | None = None,
    ) -> Report:
        """Learn, and keep the weights that did best on the development data.

        Args:
            train: a file, several files, or examples.
            dev: the same, to evaluate on; without it, a tenth of the examples is held out, and
                nothing of fewer than ten.
            out: folder of the run; the trained model is in its `checkpoint`.
            resume: continue the run in `out`; without a run there, start one.
            progress: whether to show the live report of the command line: a bar in a terminal or
                notebook, elsewhere one line per evaluation. Or a function that gets every line of
                the log instead. By default it is shown.
            evaluate_epochs: epochs between evaluations, by which patience counts.
        """
        return fit_task(
            self,
            self.divide(self.examples(train), None if dev is None else self.examples(dev)),
            out=out,
            resume=resume,
            progress=progress,
            evaluate_epochs=evaluate_epochs,
        )

    def divide(self, examples: list[Example], dev: list[Example] | None) -> Split[Example]:
        """What to learn from and what to evaluate on."""
        how = ""
        if dev is None:
            kept, dev, how = self.hold_out(examples)
        elif not dev:
            raise InputError("there is no development example; check the files")
        else:
            kept = examples
        train = self.for_training(kept)
        left_out = max(0, len(kept) - len(train))
        if not train:
            reason = f": {left_out} are left out, {self.left_out}" if kept else ""
            raise InputError(f"there is no example to learn from{reason}; check the files")
        return Split(train, dev, left_out, how if dev else "")

    def evaluate(self, data: Data) -> Report:
        """Score predictions on labelled data: a file, several files, or examples."""
        for module in self.needs:
            require(module, "tasks", f"scoring {self.name}")
        examples = self.examples(data)
        if not examples:
            raise InputError("there is no example to score; check the files")
        _ = self.network  # says so if there is none yet
        self.check_labels(examples)
        with self.layers(examples):
            measured = self.measured(examples)
        about = {"scored on": _names(data), "examples": len(examples), **self.about()}
        return dataclasses.replace(measured, measured_on=about)

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
            options: cache, max_bytes and progress, as when a task is made.
        """
        content = read_task(path)
        if content.task != cls.name:
            raise ConfigError(f"'{path}' is a model for {content.task}; use that task")
        own = None
        if content.elmo is not None:
            own = bilm_of(content, elmo, str(path), device=device, threads=threads)
        recipe = TaskRecipe.from_json(content.recipe, cls.sizes, what=str(path))
        task = cls(own, recipe=recipe, device=device, **options)
        task.labels, task.scores, task._words = content.labels, content.scores, content.words
        if not task.labels_fit(content.labels):
            raise FormatError(f"'{path}' has labels that are none of {cls.name}'s; restore it")
        vectors = stored_vectors(content, str(path))

        def build() -> Network:
            return task.build(TokenFeatures(recipe, own, vectors))

        task._take(stored_network(build, content.weights, str(path)))
        return task

    def restore(self, path: Path) -> None:
        """Become the trained model of a folder, which was trained with the same arguments."""
        elmo = None if self.recipe.elmo.trainable else self.elmo
        loaded = type(self).load(path, device=str(self.device), elmo=elmo)
        self.elmo, self.labels, self.scores = loaded.elmo, loaded.labels, loaded.scores
        self.metric = loaded.metric
        self._words, self._network, self.index = loaded._words, loaded._network, loaded.index

    @property
    def network(self) -> Network:
        """The network, once trained or loaded."""
        if self._network is None:
            raise ConfigError(f"this {self.name} model is not trained yet; call fit or load")
        return self._network

    def examples(self, data: Data) -> list[Example]:
        """Read files; examples are taken as they are."""
        if isinstance(data, str | Path):
            return self.read(Path(data))
        if all(isinstance(item, str | Path) for item in data):
            return [example for path in data for example in self.read(Path(path))]
        for item in data:
            if not isinstance(item, self.example):
                raise ConfigError(
                    f"{self.name} takes files or objects of {self.example.__name__}, not "
                    f"{shown(repr(item), 60)}; make such objects"
                )
        return list(data)

    def mix_table(self) -> list[Row]:
        """The learned mix of each place where ELMo enters (paper §5.5, Figure 2)."""
        features = self.network.features
        if features.elmo is None or not features.elmo.mixes:
            return []
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
        self.labels = self.find_labels(examples)
        counts = Counter(
            token for example in examples for text in self.texts(example) for token in text
        )
        self._words = vectors = None
        if self.vectors is not None or self.recipe.words.dim:
            file = None if self.vectors is None else read_word_vectors(self.vectors)
            self._words, vectors = choose_words(counts, file, self.recipe.words, self.seed)
        with seeded(self.seed, "weights"):
            self._take(self.build(TokenFeatures(self.recipe, self.elmo, vectors)))

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
            frozen = FrozenLayers(LayerCache(self.elmo, folder, max_bytes=self.max_bytes))
            frozen.announce((text for e in examples for text in self.texts(e)), progress)
            index.layers = frozen
            try:
                yield
            finally:
                index.layers = None

    def take_trained_bilm(self) -> None:
        """Take a biLM that was trained for the model's own: its layers are frozen from now on."""
        live, mixes = self.index.layers, self.network.features.elmo
        if mixes is None or not isinstance(live, LiveLayers):
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
        cache = LayerCache(self.elmo, live.cache.folder, max_bytes=self.max_bytes)
        self.index.layers = FrozenLayers(cache)

    def measured(self, examples: Sequence[Example]) -> Report:
        """Predict and score, with the layers of the examples at hand."""
        return self.measure(examples, self._guess_all(examples))

    def _guess_all(self, examples: Sequence[Example]) -> list[Prediction]:
        network = self.network
        network.eval()
        order = sorted(range(len(examples)), key=lambda k: self.length(examples[k]))
        found: dict[int, Prediction] = {}
        size = max(self.recipe.data.batch_size, self.guess_size)
        with torch.no_grad():
            for start in range(0, len(order), size):
                chosen = order[start : start + size]
                batch = self.guess([examples[k] for k in chosen])
                found.update(zip(chosen, batch, strict=True))
        return [found[k] for k in range(len(examples))]


def _names(data: Data) -> str | None:
    """Name the files that examples come from, if they do."""
    files = [data] if isinstance(data, str | Path) else data
    if hasattr(files, "columns") or not all(isinstance(file, str | Path) for file in files):
        return None
    return ", ".join(map(str, files))
