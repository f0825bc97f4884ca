"""The state of a task's training: a network, labelled examples, and what one step does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count, NonNegative, Positive, Whole
from elmore.training.loop import StepReport, Trainable
from elmore.training.optimizers import (
    Update,
    clip_by_global_norm,
    make_optimizer,
    plateau_factor,
)
from elmore.training.run import Run, load_state, save_state, state_part
from elmore.training.seeds import numpy_generator, seeded

__all__ = ["LearningRecipe", "LengthBatches", "PaceRecipe", "TaskTrainer"]

Example = TypeVar("Example")
# How far a batch's lengths may differ: without it the same sentences always meet.
_LENGTH_NOISE = 0.1


@dataclass(frozen=True, kw_only=True)
class LearningRecipe:
    """How gradients become steps."""

    name: Literal["adam", "adadelta", "adagrad"] = "adam"
    lr: Positive = 0.001
    beta1: BelowOne = 0.9  # first moment of Adam; rho of Adadelta
    beta2: BelowOne = 0.999  # second moment of Adam
    epsilon: Positive = 1e-8  # guard of the division
    clip_norm: Positive | None = None  # largest norm of all gradients together
    clip_value: Positive | None = None  # largest single gradient
    l2: NonNegative = 0.0  # strength of the pull of all matrices towards 0
    average: BelowOne = 0.0  # decay of a mean of the weights, which evaluations use; 0 for none


@dataclass(frozen=True, kw_only=True)
class PaceRecipe:
    """How long, and how the rate changes."""

    epochs: Whole = 0  # largest number of passes; 0 to fit it to the size of the data
    steps: Count | None = None  # largest number of steps; None for no bound but the epochs
    patience: Whole = 0  # end after this many evaluations without a better score; 0 for never
    # Halve the rate after this many evaluations without a better score; -1 for never.
    halve_patience: Annotated[int, Meta(ge=-1)] = -1
    decay: Positive = 1.0  # multiply the rate by this every `decay_steps`
    decay_steps: Count = 1


class LengthBatches(Generic[Example]):
    """Batches of examples of similar length; the order is a function of seed and epoch alone."""

    def __init__(
        self, examples: Sequence[Example], lengths: Sequence[int], *, size: int, seed: int
    ) -> None:
        self.examples = examples
        self._lengths = np.array(lengths, np.float64)
        self._size, self._seed = size, seed
        self.epoch = self.place = 0
        self._plan = self._make()

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return math.ceil(len(self.examples) / self._size)

    def _make(self) -> list[list[int]]:
        generator = numpy_generator(self._seed, "batches", self.epoch)
        noise = generator.uniform(1 - _LENGTH_NOISE, 1 + _LENGTH_NOISE, len(self._lengths))
        # The second noise shuffles examples of length 0, which the first leaves in their order.
        order = np.argsort(self._lengths * noise + generator.uniform(0, 1e-3, len(noise)))
        cut = [order[k : k + self._size].tolist() for k in range(0, len(order), self._size)]
        return [cut[k] for k in generator.permutation(len(cut))]

    def next(self) -> list[Example]:
        """The next batch; epochs follow each other without end."""
        if self.place == len(self._plan):
            self.epoch, self.place = self.epoch + 1, 0
            self._plan = self._make()
        chosen = self._plan[self.place]
        self.place += 1
        return [self.examples[k] for k in chosen]

    def restore(self, epoch: int, place: int) -> None:
        """Go to where a saved run was."""
        self.epoch, self.place = epoch, place
        self._plan = self._make()


class TaskTrainer(Trainable, Generic[Example]):
    """What `train` needs of a task: steps over batches, evaluations, states, best weights.

    Args:
        network: what learns; only weights that require a gradient are changed and saved.
        loss: makes of a batch the mean loss of an example, ().
        batches: the examples.
        measure: measures on held-out examples, or None if there are none.
        score: makes one number of a measurement; higher is better.
        learning: the optimizer.
        pace: how long, and how the rate changes.
        run: where states are saved.
        seed: the one seed.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Callable[[list[Example]], Tensor],
        batches: LengthBatches[Example],
        *,
        measure: Callable[[], dict[str, float]] | None,
        score: Callable[[dict[str, float]], float],
        learning: LearningRecipe,
        pace: PaceRecipe,
        run: Run,
        seed: int,
    ) -> None:
        super().__init__()
        self.network, self.loss, self.batches = network, loss, batches
        self.run, self.seed = run, seed
        self._measure, self._score = measure, score
        self._learning, self._pace = learning, pace
        self.scores: list[float] = []
        self._weights = {n: w for n, w in network.named_parameters() if w.requires_grad}
        betas = (learning.beta1, learning.beta2)
        self._optimizer = make_optimizer(learning.name, betas=betas, epsilon=learning.epsilon)
        self._best: dict[str, Tensor] = {}
        self._means = {n: w.detach().clone() for n, w in self._weights.items()}
        if not learning.average:
            self._means = {}

    def total(self) -> int:
        """The examples of the complete run."""
        return self._pace.epochs * len(self.batches.examples)

    def finished(self) -> bool:
        """Whether all epochs or steps are done."""
        steps = self._pace.steps
        return self.seen >= self.total() or (steps is not None and self.step_number >= steps)

    def step(self) -> StepReport:
        """Learn from one batch."""
        examples = self.batches.next()
        for weight in self._weights.values():
            weight.grad = None
        self.network.train()
        # Seeded by the step, so that a resumed run drops what the uninterrupted one dropped.
        with seeded(self.seed, "dropout", self.step_number):
            loss = self.loss(examples)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        lr = self._rate()
        norm = self._update(lr)
        self.step_number += 1
        self.seen += len(examples)
        return StepReport({"loss": float(loss.detach())}, lr, norm)

    def _rate(self) -> float:
        lr, pace = self._learning.lr, self._pace
        if pace.halve_patience >= 0:
            lr *= plateau_factor(self.scores, patience=pace.halve_patience)
        return float(lr * pace.decay ** (self.step_number // max(1, pace.decay_steps)))

    def _update(self, lr: float) -> float:
        learning = self._learning
        updates = []
        for name, weight in self._weights.items():
            if weight.grad is None:
                continue
            # The gradient of l2 * |w|^2, added before clipping, so that it counts towards the norm.
            if learning.l2 and weight.dim() > 1:  # matrices only
                weight.grad.add_(weight.detach(), alpha=2 * learning.l2)
            updates.append(Update(name, weight.detach(), weight.grad))
        gradients = [update.gradient for update in updates]
        norm = clip_by_global_norm(gradients, learning.clip_norm) if gradients else 0.0
        if learning.clip_value is not None:
            for gradient in gradients:
                gradient.clamp_(-learning.clip_value, learning.clip_value)
        self._optimizer.step(updates, lr)
        # A young mean follows faster, or the random start would weigh on it for long.
        decay = min(learning.average, (1 + self.step_number) / (10 + self.step_number))
        for name, mean in self._means.items():
            mean.lerp_(self._weights[name].detach(), 1 - decay)
        return norm

    def evaluate(self) -> dict[str, float] | None:
        """Measure on the held-out examples, with the mean weights if there are any."""
        if self._measure is None:
            return None
        with self.averaged():
            self.network.eval()
            found = self._measure()
        self.scores.append(self._score(found))
        if not any(self.scores):
            # All scores are 0 so far: patience begins with the first that is not.
            self.evaluations_since_best = -1  # the loop counts this evaluation next
        return found

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the running means of the weights instead of the weights."""
        if not self._means:
            yield
            return
        own = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._put(self._means)
        try:
            yield
        finally:
            self._put(own)

    def _put(self, values: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(values[name])

    def save_model(self, *, best: bool) -> None:
        """Remember the weights of the best evaluation; states keep them."""
        if best:
            with self.averaged():
                self._best = {n: w.detach().clone() for n, w in self._weights.items()}

    def finish(self) -> None:
        """Put the best weights in the network: those of the best evaluation, or the last."""
        self._put(self._best or self._means or dict(self._weights))
        self.network.eval()

    def save_state(self) -> None:
        self._check_weights(self._weights.values())
        tensors: dict[str, Tensor] = {}
        parts: tuple[tuple[str, dict[str, Any]], ...] = (
            ("network", dict(self._weights)),
            ("best", self._best),
            ("mean", self._means),
            ("optimizer", self._optimizer.state()),
        )
        for part, values in parts:
            tensors.update({f"{part}/{name}": value for name, value in values.items()})
        facts = {
            **self._counters(),
            "scores": self.scores,
            "epoch": self.batches.epoch,
            "place": self.batches.place,
        }
        save_state(self.run.resume_path, self.step_number, tensors, facts)

    def load_state(self) -> bool:
        """Continue from the newest saved state; False if there is none."""
        loaded = load_state(self.run.resume_path)
        if loaded is None:
            return False
        tensors, facts = loaded
        device = next(iter(self._weights.values())).device if self._weights else "cpu"
        network, self._best, self._means, optimizer = (
            state_part(tensors, name, device) for name in ("network", "best", "mean", "optimizer")
        )
        self._put(network)
        self._optimizer.load(optimizer)
        self._restore_counters(facts)
        self.scores = [float(value) for value in facts["scores"]]
        self.batches.restore(int(facts["epoch"]), int(facts["place"]))
        return True
