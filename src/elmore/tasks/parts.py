"""What a task supplies: a reader, a network, a loss, a metric; the rest is the same for all.

A new task is one file with a subclass that fills these in, and a line in `tasks/loading.py`.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from elmore.report import Row
from elmore.tasks.layers.features import TokenFeatures
from elmore.tasks.predictions import Example, Prediction, Predictor
from elmore.tasks.recipe import TaskRecipe

__all__ = ["Example", "Measured", "Network", "Prediction", "TaskParts"]


class Network(nn.Module):
    """A task's network: token features, then what the task makes of them."""

    def __init__(self, features: TokenFeatures) -> None:
        super().__init__()
        self.features = features


@dataclass(frozen=True)
class Measured:
    """Scores of predictions and the tables behind them."""

    metrics: Mapping[str, float]
    tables: Mapping[str, Sequence[Row]] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()


class TaskParts(Predictor[Example, Prediction]):
    """What differs from task to task.

    Attributes:
        metric: which of its scores decides what is best; higher is better.
        sizes: dataclass of the section `model` of its recipes.
        example: class of what it learns from.
        left_out: which examples are not learned from.
    """

    metric: str
    sizes: ClassVar[type]
    example: ClassVar[type]
    left_out: ClassVar[str] = "longer than data.max_length"

    recipe: TaskRecipe

    @abstractmethod
    def read(self, path: Path) -> list[Example]:
        """Read labelled examples from a file."""

    def texts(self, example: Example) -> Sequence[Sequence[str]]:
        """The token lists that the biLM reads for an example: by default its one sentence."""
        return (example.tokens,)  # type: ignore[attr-defined]  # of the examples of such tasks

    def find_labels(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Collect what has to be told apart, as JSON values: by default nothing."""
        return {}

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
    def measure(self, examples: Sequence[Example], found: Sequence[Prediction]) -> Measured:
        """Score predictions."""

    @abstractmethod
    def tokenize(self, text: str) -> tuple[str, ...]:
        """Split text into tokens."""

    def parse(self, item: Any) -> Example:
        """An unlabelled example from what `predict` takes: by default a text, or its tokens."""
        example: Example = self.example(
            self.tokenize(item) if isinstance(item, str) else tuple(item)
        )
        return example

    def labels_fit(self, labels: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether labels from a file are what `find_labels` could give: by default, does give.

        A file may come from anyone, so labels are checked against the shapes of the weights too.
        """
        return labels == self.find_labels([])

    def for_training(self, examples: list[Example]) -> list[Example]:
        """Choose or change examples before they are learned from."""
        longest = self.recipe.data.max_length
        return [e for e in examples if not longest or self.length(e) <= longest]

    def check_labels(self, examples: Sequence[Example]) -> None:
        """Refuse examples to score whose labels `self.labels` cannot give: by default none."""

    def doubts(self, examples: Sequence[Example]) -> list[str]:
        """Reasons why nothing can be learned from examples; by default there are none."""
        return []

    def length(self, example: Example) -> int:
        """The length by which examples are batched: by default of the longest text."""
        return max((len(tokens) for tokens in self.texts(example)), default=0)
