"""What a task supplies: a reader, a network, a loss, a metric; the rest is the same for all."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from elmore.report import Row
from elmore.tasks.layers.features import TokenFeatures
from elmore.tasks.recipe import TaskRecipe

__all__ = ["Example", "Measured", "Network", "Prediction", "TaskParts"]

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")


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


class TaskParts(Generic[Example, Prediction]):
    """The parts that differ from task to task.

    Attributes:
        name: of the task.
        metric: which of its scores decides what is best.
        sizes: dataclass of the section `model` of its recipes.
        example: class of what it learns from.
        left_out: which examples are not learned from.
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    sizes: ClassVar[type]
    example: ClassVar[type]
    left_out: ClassVar[str] = "longer than data.max_length"

    recipe: TaskRecipe

    @abstractmethod
    def read(self, path: Path) -> list[Example]:
        """Read labelled examples from a file."""

    @abstractmethod
    def texts(self, example: Example) -> Sequence[Sequence[str]]:
        """Give the token lists of an example, in the order in which `loss` batches them."""

    @abstractmethod
    def find_labels(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Collect what has to be told apart, as JSON values."""

    @abstractmethod
    def build(self, features: TokenFeatures) -> Network:
        """Make the network for `self.labels`."""

    @abstractmethod
    def loss(self, examples: Sequence[Example]) -> Tensor:
        """Give the mean loss of examples, ()."""

    @abstractmethod
    def guess(self, examples: Sequence[Example]) -> list[Prediction]:
        """Predict a batch."""

    @abstractmethod
    def measure(self, examples: Sequence[Example], found: Sequence[Prediction]) -> Measured:
        """Score predictions."""

    @abstractmethod
    def parse(self, item: Any) -> Example:
        """Make an unlabelled example of what a user gives to `predict`."""

    @abstractmethod
    def show(self, example: Example, found: Prediction, *, colour: bool) -> str:
        """Render a prediction for a terminal."""

    @abstractmethod
    def to_json(self, example: Example, found: Prediction) -> dict[str, Any]:
        """Give a prediction as JSON values."""

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        """Make of numbered lines of text what `predict` takes: by default a line an item.

        Args:
            lines: of a text file.
            file: its name for messages.
        """
        return (line for _, line in lines)

    def labels_fit(self, labels: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Tell whether labels from a file are such as `find_labels` gives: by default its own.

        Args:
            labels: what the file has.
            shapes: of the weights beside them.
        """
        return labels == self.find_labels([])

    def for_training(self, examples: list[Example]) -> list[Example]:
        """Choose or change examples before they are learned from."""
        longest = self.recipe.data.max_length
        return [e for e in examples if not longest or self.length(e) <= longest]

    def doubts(self, examples: Sequence[Example]) -> list[str]:
        """Say why nothing can be learned from examples, if so; by default there is always some."""
        return []

    def length(self, example: Example) -> int:
        """Give the length by which examples are batched."""
        return max((len(tokens) for tokens in self.texts(example)), default=0)
