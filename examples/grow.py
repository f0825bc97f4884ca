"""Enlarge a trained biLM without changing what it predicts, then continue training it.

    python examples/grow.py english -o grown --dim 768 --projection-dim 192
    python examples/grow.py english -o grown --dim 768 --projection-dim 192 --data PREPARED \
        --run RUN --set optimizer.lr=0.004 --set optimizer.muon_lr=0.01 ...

PREPARED must have the vocabulary of the model (`elmore prepare --vocabulary MODEL/vocab.txt`). The
same command continues a run that was stopped.

At first nothing reads the new cells and dimensions: all weights that would read them are zero, so
the predictions stay the same. The new parts already compute something, so these weights get
gradients from the first step on. The vocabulary and the character filters do not change.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.load import read_checkpoint
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint

Array = NDArray[np.float32]


def grow(small: Checkpoint, dim: int, projection_dim: int, seed: int) -> Checkpoint:
    """A larger model that predicts the same.

    Args:
        small: a model with a softmax.
        dim: LSTM cells per direction, at least as many as `small` has.
        projection_dim: LSTM outputs per direction, at least as many as `small` has.
        seed: for the new weights.
    """
    if small.softmax is None:
        raise SystemExit("this model has no softmax, so it cannot be trained further")
    growth = _Growth(small, dim, projection_dim, np.random.default_rng(seed))
    lstm = dataclasses.replace(small.config.lstm, dim=dim, projection_dim=projection_dim)
    softmax = small.softmax._replace(
        weight=growth.zero_columns(small.softmax.floats()),
        bias=np.asarray(small.softmax.bias, np.float32),
        scales=None,
    )
    return dataclasses.replace(
        small.with_weights(growth.weights()),
        config=dataclasses.replace(small.config, lstm=lstm),
        softmax=softmax,
        notes={},
    )


class _Growth:
    """Pads the (rows, columns) of a small model's weights to those of a large one."""

    def __init__(
        self, small: Checkpoint, dim: int, projection_dim: int, generator: np.random.Generator
    ) -> None:
        old = small.config.lstm
        if dim < old.dim or projection_dim < old.projection_dim:
            raise SystemExit(
                f"the model has --dim {old.dim} --projection-dim {old.projection_dim}; pass no less"
            )
        self.small, self.generator, self.dim = small, generator, old.dim
        self.new_cells = dim - old.dim
        self.new_dims = projection_dim - old.projection_dim
        self.pairs: dict[str, NDArray[np.int64]] = {}

    def weights(self) -> dict[str, Array]:
        """All weights of the biLM, by name."""
        grown = {}
        for name, stored in self.small.weights.items():
            weight = np.asarray(stored, np.float32)
            layer, _, kind = name.rpartition(".")
            if layer == "tokens.projection":
                weight = self._random_rows(weight) if kind == "weight" else self._zeros(weight)
            elif kind in ("input_weight", "state_weight", "bias") and "_layers." in layer:
                weight = self._gates(layer, weight)
            elif kind == "projection":
                # Old dimensions do not read new cells; new dimensions read all cells.
                zeros = np.zeros((len(weight), self.new_cells), np.float32)
                spread = float(weight.std())
                weight = self._random_rows(np.concatenate([weight, zeros], axis=1), spread)
            grown[name] = np.ascontiguousarray(weight)
        return grown

    def zero_columns(self, weight: Array) -> Array:
        """Columns of zeros for the new dimensions of the input."""
        return np.pad(weight, ((0, 0), (0, self.new_dims)))

    def _random_rows(self, weight: Array, spread: float | None = None) -> Array:
        """Random rows for the new dimensions, with the spread of the others."""
        spread = float(weight.std()) if spread is None else spread
        new = self.generator.normal(0, spread, (self.new_dims, weight.shape[1]))
        return np.concatenate([weight, new.astype(np.float32)])

    def _zeros(self, bias: Array) -> Array:
        return np.concatenate([bias, np.zeros(self.new_dims, np.float32)])

    def _gates(self, layer: str, weight: Array) -> Array:
        """New cells, each the sum of two old ones; all weights of a layer choose the same two.

        Random rows would saturate the gates, or ignore what the trained layers below send.
        """
        if layer not in self.pairs:
            drawn = [
                self.generator.choice(self.dim, 2, replace=False) for _ in range(self.new_cells)
            ]
            self.pairs[layer] = np.array(drawn, np.int64).reshape(self.new_cells, 2)
        gates = []
        for gate in weight.reshape(4, self.dim, *weight.shape[1:]):
            both = gate[self.pairs[layer]]
            # The sum of two rows varies sqrt(2) times as much. A bias is a level, not a variation.
            new = both.sum(1) / np.sqrt(2) if weight.ndim == 2 else both.mean(1)
            gates.append(np.concatenate([gate, new.astype(np.float32)]))
        grown = np.concatenate(gates)
        return self.zero_columns(grown) if weight.ndim == 2 else grown


def main() -> None:
    """Write the larger model; with --data, train it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a folder or name of a model with a softmax")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the larger model")
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--projection-dim", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder of `elmore prepare`")
    parser.add_argument("--run", type=Path, help="folder of the run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if (args.data is None) != (args.run is None):
        parser.error("--data and --run belong together")
    if not args.output.exists():
        grown = grow(read_checkpoint(args.model), args.dim, args.projection_dim, args.seed)
        elmore_folder.write(grown, args.output)
    if args.data is None:
        return
    # Imported here, because growing alone does not need torch.
    from elmore.training.bilm.pretrain import pretrain
    from elmore.training.bilm.recipe import ModelRecipe, Recipe

    start = read_checkpoint(args.output)
    recipe = Recipe.load("laptop", dict(pair.split("=", 1) for pair in args.set))
    pretrain(
        args.data,
        args.run,
        recipe=dataclasses.replace(recipe, model=ModelRecipe.from_config(start.config)),
        seed=args.seed,
        resume=True,
        threads=args.threads,
        start=start,
    )


if __name__ == "__main__":
    main()
