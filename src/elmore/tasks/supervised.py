"""What all tasks share: fit, evaluate, predict, save and load around the one training loop."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from elmore.base.io import sha256_file
from elmore.base.messages import ProgressOption, shown
from elmore.elmo import Elmo
from elmore.embedding.layer_cache import MAX_BYTES, cache_folder
from elmore.embedding.torch_network import find_device
from elmore.errors import ConfigError, FormatError, InputError
from elmore.report import Report, Row
from elmore.tasks.data.inputs import (
    FrozenLayers,
    TokenIndex,
    build_features,
    check_weights,
    choose_words,
    mix_rows,
    put_weights,
    word_vectors_of,
)
from elmore.tasks.fit_report import changed_settings, fit_report
from elmore.tasks.folder import TaskFolder, WordList, bilm_of, read_task, write_task
from elmore.tasks.layers.features import Tokens
from elmore.tasks.parts import Measured, Network, TaskParts
from elmore.tasks.predictions import Example, Prediction
from elmore.tasks.recipe import TaskRecipe
from elmore.text.segmenter import Tokenizer, split_function
from elmore.text.tokenizer import tokenize
from elmore.text.word_vectors import read_word_vectors
from elmore.training.display import LogReader, TrainingProgress, reporting
from elmore.training.loop import Cadence, Stopped
from elmore.training.loop import train as run_loop
from elmore.training.run import Run
from elmore.training.seeds import seeded
from elmore.training.task_trainer import LengthBatches, TaskTrainer

__all__ = ["Data", "Task"]

# Files to read, or examples.
Data = str | Path | Sequence[Any]
# Items of a stream that are predicted together, sorted by length.
_TOGETHER = 4096


class Task(TaskParts[Example, Prediction]):
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

    Attributes:
        tokenizer: how raw text is split, as in `Elmo.load`; None for the tokenizer of `elmo`.
        guess_size: examples that are predicted together, if a training batch is smaller.
    """

    tokenizer: Tokenizer | None = None
    guess_size: int = 1

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
        self._asked = recipe  # `fit` fills in what depends on the size of the data
        self.vectors = None if vectors is None else Path(vectors)
        self.cache, self.max_bytes = cache, max_bytes
        self.device, self.progress = find_device(device), progress
        self.labels: Mapping[str, Any] = {}
        self.scores: Mapping[str, float] = {}
        self._words: WordList | None = None
        self._network: Network | None = None
        self._index: TokenIndex | None = None

    def __repr__(self) -> str:
        state = "not trained" if self._network is None else "trained"
        scores = [f"{name} {value:.2f}" for name, value in self.scores.items()][:2]
        facts = ", ".join([f"recipe {self.recipe.name!r}", state, *scores])
        return f"<{type(self).__name__}: elmo={self.elmo!r}, {facts}>"

    # ------------------------------------------------------------------- what users call

    def fit(
        self,
        train: Data,
        *,
        dev: Data | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        progress: TrainingProgress = None,
        report: LogReader | None = None,
        evaluate_epochs: int = 1,
        look_epochs: int | None = None,
    ) -> Report:
        """Learn, and keep the weights that did best on the development data.

        Args:
            train: a file, several files, or examples.
            dev: the same, to evaluate on; without it, training continues to the end.
            out: folder of the run; the trained model is in its `checkpoint`.
            resume: continue the run in `out`; without a run there, start one.
            progress: whether to show the live report of the command line: a bar in a terminal or
                notebook, elsewhere one line per evaluation. Or a function that gets every line of
                the log instead. By default it is shown, unless there is a `report`.
            report: gets every line of the log as it is written, whatever is shown.
            evaluate_epochs: epochs between evaluations, by which patience counts.
            look_epochs: the earlier name of `evaluate_epochs`; deprecated.
        """
        evaluate_epochs = evaluate_epochs if look_epochs is None else look_epochs
        if evaluate_epochs < 1:
            raise ConfigError(f"evaluate_epochs={evaluate_epochs}; use 1 or more")
        found = self.examples(train)
        examples = self.for_training(found)
        left_out = max(0, len(found) - len(examples))
        if not examples:
            reason = f": {left_out} are left out, {self.left_out}" if found else ""
            raise InputError(f"there is no example to learn from{reason}; check the files")
        held_out = [] if dev is None else self.examples(dev)
        if dev is not None and not held_out:
            raise InputError("there is no development example; check the files")
        with contextlib.ExitStack() as stack:
            if out is None:
                out = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmore-task-"))
            run = Run(out)
            run.check_new(resume=resume)
            self.recipe = self.fitted(examples)
            self._prepare(examples)
            self.check_labels(held_out)
            learns = self.recipe.elmo.trainable
            known = [] if learns else [*examples, *held_out]
            stack.enter_context(self._layers(known, silent=progress is False))
            stack.enter_context(run.locked())
            trainer = self._trainer(examples, held_out, run)
            self._start(run, trainer, examples, held_out)
            patience = self.recipe.schedule.patience
            cadence = Cadence(
                self.recipe.run.log_steps,
                self.recipe.run.save_minutes,
                evaluate_epochs * len(examples),
                patience,
            )
            if not (
                trainer.finished() or (patience and trainer.evaluations_since_best >= patience)
            ):
                try:
                    with reporting(
                        progress, report, run.path, metric=self.metric, resume=resume
                    ) as read:

                        def told(line: dict[str, Any]) -> None:
                            read({**line, "epoch": round(line["examples"] / len(examples))})

                        run_loop(
                            trainer, run, cadence, unit="examples", score=self._score, report=told
                        )
                except Stopped:
                    if trainer.scores or not held_out:
                        self._keep(trainer, run)
                    raise
            trainer.finish()
            self._settle()
            # At the end, so that layers are still at hand where the biLM did not learn.
            measured = self._measured(held_out) if held_out else Measured({})
            self.scores = measured.metrics
            self.save(run.checkpoint_path, overwrite=True)
            result = fit_report(
                self,
                trainer,
                measured,
                examples=examples,
                left_out=left_out,
                n_held_out=len(held_out),
                evaluate_epochs=evaluate_epochs,
            )
            result.save(run.path / "report.json", overwrite=True)
        return result

    def _keep(self, trainer: TaskTrainer[Example], run: Run) -> None:
        """Leave a model for use behind a training that was stopped: the best one so far."""
        trainer.finish()
        self._settle()
        self.scores = {self.metric: trainer.best} if trainer.scores else {}
        self.save(run.checkpoint_path, overwrite=True)

    def evaluate(self, data: Data) -> Report:
        """Score predictions on labelled data: a file, several files, or examples."""
        examples = self.examples(data)
        if not examples:
            raise InputError("there is no example to score; check the files")
        _ = self.network  # says so if there is none yet
        self.check_labels(examples)
        with self._layers(examples):
            measured = self._measured(examples)
        return Report(
            name=self.name,
            metrics=measured.metrics,
            measured_on={"scored on": _names(data), "examples": len(examples), **self.about()},
            tables=measured.tables,
            notes=measured.notes,
        )

    def answers(self, items: Iterable[Any]) -> Iterator[tuple[Example, Prediction]]:
        _ = self.network  # says so if there is none yet
        items = iter(items)
        while part := list(itertools.islice(items, _TOGETHER)):
            examples = [self._parse(item) for item in part]
            yield from zip(examples, self.predict_examples(examples), strict=True)

    def predict_examples(self, examples: Sequence[Example]) -> list[Prediction]:
        """Predict on examples, whose labels are ignored."""
        with self._layers(examples):
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
        network = self.network
        weights = {
            name: t.detach().cpu().numpy().astype(precision)
            for name, t in network.state_dict().items()
        }
        content = TaskFolder(
            task=self.name,
            recipe=self.recipe.to_json(),
            labels=self.labels,
            words=self._words,
            weights=weights,
            elmo=None if self.elmo is None else self.elmo.digest,
            precision=None if self.elmo is None else self.elmo.precision,
            start="zeros" if self.elmo is None else self.elmo.engine.start,
            scores=self.scores,
        )
        write_task(Path(path), content, self.elmo if with_elmo else None, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        elmo: Elmo | None = None,
        cache: str | Path | None = None,
        max_bytes: int = MAX_BYTES,
        device: str = "cpu",
        threads: int | None = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Load a trained model.

        Args:
            path: its folder, or that of the run that made it.
            elmo: the biLM, if the folder has none inside.
            cache: a folder that keeps frozen layers for next time.
            max_bytes: what that folder may hold.
            device: where to compute.
            threads: processors for the biLM; all by default.
            progress: as in `Elmo.embed`, for sentences whose layers are computed.
        """
        content, inside = read_task(path)
        if content.task != cls.name:
            raise ConfigError(f"'{path}' is a model for {content.task}; use that task")
        elmo = (
            None
            if content.elmo is None
            else bilm_of(content, inside, elmo, str(path), device=device, threads=threads)
        )
        recipe = TaskRecipe.from_json(content.recipe, cls.sizes, what=str(path))
        task = cls(
            elmo,
            recipe=recipe,
            cache=cache,
            max_bytes=max_bytes,
            device=device,
            progress=progress,
        )
        task.labels, task.scores, task._words = content.labels, content.scores, content.words
        if not task.labels_fit(content.labels, {n: w.shape for n, w in content.weights.items()}):
            raise FormatError(f"'{path}' has labels that are none of {cls.name}'s; restore it")
        vectors = word_vectors_of(content, str(path))

        def build() -> Network:
            return task.build(build_features(recipe, elmo, *vectors))

        check_weights(build, content.weights, str(path))
        with seeded(0, "weights"):
            task._make(*vectors)
        put_weights(task.network, content.weights)
        return task

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
        return mix_rows(self.network.features)

    # ------------------------------------------------------------------- inside

    def fitted(self, examples: Sequence[Example]) -> TaskRecipe:
        """The recipe with what depends on the training examples filled in."""
        return self._asked.fitted(len(examples))

    def tokenize(self, text: str) -> tuple[str, ...]:
        """Split text by `tokenizer`, else as the biLM does."""
        if self.tokenizer is not None:
            return split_function(self.tokenizer)(text).tokens
        sentence = self.elmo.tokenize(text) if self.elmo is not None else tokenize(text)
        return sentence.tokens

    def tokens(
        self,
        sentences: Sequence[Sequence[str]],
        parts: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> Tokens:
        """Index sentences for the network; `parts` as in `TokenIndex.batch`."""
        if self._index is None:
            raise ConfigError(f"this {self.name} model is not trained yet; call fit or load")
        return self._index.batch(sentences, parts)

    def _parse(self, item: Any) -> Example:
        """Make an example of an item; refuse what is neither text nor tokens."""
        if isinstance(item, Collection) and not isinstance(item, bytes | Mapping):
            example = self.parse(item)
            tokens = [token for text in self.texts(example) for token in text]
            if all(isinstance(token, str) for token in tokens):
                return example
        raise ConfigError(f"{self.name} cannot read {shown(repr(item))}; pass texts or tokens")

    def _prepare(self, examples: Sequence[Example]) -> None:
        """Find labels and words, and make a network with random weights."""
        self.labels = self.find_labels(examples)
        counts = Counter(
            token for example in examples for text in self.texts(example) for token in text
        )
        trained = fixed = None
        self._words = None
        if self.vectors is not None or self.recipe.words.dim:
            file = None if self.vectors is None else read_word_vectors(self.vectors)
            self._words, trained, fixed = choose_words(counts, file, self.recipe.words, self.seed)
        with seeded(self.seed, "weights"):
            self._make(trained, fixed)

    def _make(self, trained: Any, fixed: Any) -> None:
        features = build_features(self.recipe, self.elmo, trained, fixed)
        self._network = self.build(features).to(self.device)
        self._index = TokenIndex(self._words, self.recipe.characters.max_chars, self.device)

    @contextlib.contextmanager
    def _layers(self, examples: Iterable[Example], *, silent: bool = False) -> Iterator[None]:
        """Have the frozen layers of examples at hand."""
        index, network = self._index, self.network
        if index is None or self.elmo is None or network.features.elmo is None:
            yield
            return
        progress = False if silent else self.progress
        with cache_folder(self.cache) as folder:
            index.layers = FrozenLayers(
                self.elmo, folder, max_bytes=self.max_bytes, progress=progress
            )
            index.layers.announce(text for e in examples for text in self.texts(e))
            try:
                yield
            finally:
                index.layers = None

    def _trainer(
        self, examples: list[Example], held_out: list[Example], run: Run
    ) -> TaskTrainer[Example]:
        recipe, network = self.recipe, self.network
        mixes = network.features.elmo
        if self.recipe.elmo.trainable and self.elmo is not None and mixes is not None:
            mixes.bilm = copy.deepcopy(self.elmo.engine.bilm).to(self.device)
            for weight in mixes.bilm.parameters():
                weight.requires_grad_(True)
            if self._index is not None:
                self._index.live = self.elmo

        def loss(batch: list[Example]) -> Tensor:
            return self.loss(batch) + network.features.penalty(recipe.elmo.penalty)

        def measure() -> dict[str, float]:
            return dict(self._measured(held_out).metrics)

        return TaskTrainer(
            network,
            loss,
            LengthBatches(
                examples,
                [self.length(example) for example in examples],
                size=recipe.data.batch_size,
                seed=self.seed,
            ),
            measure=measure if held_out else None,
            score=self._score,
            learning=recipe.optimizer,
            pace=recipe.schedule,
            run=run,
            seed=self.seed,
        )

    def _score(self, found: dict[str, float]) -> float:
        return found[self.metric]

    def _start(
        self,
        run: Run,
        trainer: TaskTrainer[Example],
        examples: list[Example],
        held_out: list[Example],
    ) -> None:
        facts = {
            "task": self.name,
            "seed": self.seed,
            "data": _digest(examples),
            # Scores on other data cannot be compared, and without any the best would stay.
            "dev": _digest(held_out) if held_out else None,
            "elmo": None if self.elmo is None else self.elmo.digest,
            "vectors": None if self.vectors is None else sha256_file(self.vectors),
        }
        if run.exists():
            run.check(self.recipe, facts)
            run.forget_after(trainer.step_number if trainer.load_state() else -1)
        else:
            run.start(self.recipe, facts)

    def _settle(self) -> None:
        """Take a biLM that was trained for the model's own: its layers are frozen from now on."""
        mixes = self.network.features.elmo
        if mixes is None or mixes.bilm is None or self.elmo is None:
            return
        weights = {n: w.detach().cpu().numpy() for n, w in mixes.bilm.named_parameters()}
        checkpoint = self.elmo.checkpoint.with_weights(weights)
        engine = self.elmo.engine
        self.elmo = Elmo(
            checkpoint,
            device=self.device,
            threads=engine.workers.threads,
            tokenizer=engine.compute.tokenizer,
        )
        mixes.bilm = None
        if self._index is not None and self._index.layers is not None:
            self._index.live = None
            self._index.layers = self._index.layers.of(self.elmo)

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

    def _measured(self, examples: Sequence[Example]) -> Measured:
        return self.measure(examples, self._guess_all(examples))

    def about(self) -> dict[str, Any]:
        """What reports say about the recipe and the biLM."""
        return {
            "recipe": self.recipe.name,
            "settings": changed_settings(self),
            "elmo": None if self.elmo is None else str(self.elmo.checkpoint.origin),
        }


def _names(data: Data) -> str | None:
    """Name the files that examples come from, if they do."""
    files = [data] if isinstance(data, str | Path) else data
    if hasattr(files, "columns") or not all(isinstance(file, str | Path) for file in files):
        return None
    return ", ".join(map(str, files))


def _digest(examples: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
