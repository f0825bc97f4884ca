"""Start a larger model from a smaller one, and train it on.

    python grow.py english -o grown --dim 768 --projection-dim 192
    python grow.py english -o grown --dim 768 --projection-dim 192 --data PREPARED --run RUN \
        --set optimizer.lr=0.004 --set optimizer.muon_lr=0.01 ...

The larger model begins with exactly the smaller one's predictions: what the new cells and
dimensions say reaches nobody at first, because the weights that would listen to them are zero. They
say something of their own, so these weights learn from the first step on. The vocabulary and the
token layer's filters stay as they are.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.detect import read_checkpoint
from elmore.training.pretrain import pretrain
from elmore.training.recipe import Recipe

Array = NDArray[np.float32]


def grow(small: Checkpoint, dim: int, projection_dim: int, seed: int) -> Checkpoint:
    """A model of another size that predicts the same.

    Args:
        small: a model with a softmax.
        dim: cells per direction, not fewer than it has.
        projection_dim: dimensions per direction, not fewer than it has.
        seed: of what the new parts say.
    """
    assert small.softmax is not None
    growing = _Growing(small, dim, projection_dim, np.random.default_rng(seed))
    lstm = dataclasses.replace(small.config.lstm, dim=dim, projection_dim=projection_dim)
    softmax = small.softmax._replace(
        weight=growing.deaf(np.asarray(small.softmax.weight, np.float32)),
        bias=np.asarray(small.softmax.bias, np.float32),
    )
    return dataclasses.replace(
        small,
        config=dataclasses.replace(small.config, lstm=lstm),
        weights=growing.weights(),
        softmax=softmax,
        precision="float32",
        stored={},
        whitening=None,
        notes={},
    )


class _Growing:
    """Makes weights larger, (rows, columns) of the small model to those of the large one."""

    def __init__(
        self, small: Checkpoint, dim: int, projection_dim: int, generator: np.random.Generator
    ) -> None:
        old = small.config.lstm
        self.small, self.generator, self.dim = small, generator, old.dim
        self.cells, self.dims = dim - old.dim, projection_dim - old.projection_dim
        self.pairs: NDArray[np.int64] = np.empty((self.cells, 2), np.int64)

    def weights(self) -> dict[str, Array]:
        """All weights of the biLM, by name."""
        found = {}
        for name, stored in self.small.weights.items():
            weight = np.asarray(stored, np.float32)
            layer, _, kind = name.rpartition(".")
            if layer == "tokens.projection":
                weight = self.more_rows(weight) if kind == "weight" else self._padded(weight)
            elif kind in ("input_weight", "state_weight", "bias") and "_layers." in layer:
                weight = self._gates(weight, new_cells=kind == "input_weight")
            elif kind == "projection":
                # No old dimension listens to a new cell; new dimensions listen to all cells.
                cells = np.zeros((len(weight), self.cells), np.float32)
                weight = self.more_rows(np.concatenate([weight, cells], axis=1), weight.std())
            found[name] = np.ascontiguousarray(weight)
        return found

    def deaf(self, weight: Array) -> Array:
        """Columns of zeros for the new dimensions of what a weight reads."""
        return np.pad(weight, ((0, 0), (0, self.dims)))

    def more_rows(self, weight: Array, spread: Any = None) -> Array:
        """Random rows for the new dimensions, as widely spread as the others."""
        spread = weight.std() if spread is None else spread
        new = self.generator.normal(0, spread, (self.dims, weight.shape[1]))
        return np.concatenate([weight, new.astype(np.float32)])

    def _padded(self, bias: Array) -> Array:
        return np.concatenate([bias, np.zeros(self.dims, np.float32)])

    def _gates(self, weight: Array, *, new_cells: bool) -> Array:
        """New cells that react to the sum of what two old cells react to.

        Rows drawn at random would saturate or ignore what the trained layers below say.
        """
        if new_cells:  # the first weight of a layer
            rows = [self.generator.choice(self.dim, 2, replace=False) for _ in range(self.cells)]
            self.pairs = np.array(rows).reshape(self.cells, 2)
        matrix = weight.ndim == 2
        gates = []
        for gate in weight.reshape(4, self.dim, *weight.shape[1:]):
            both = gate[self.pairs]
            # Sums keep the spread of what cells receive; a bias is no sum of many parts.
            new = both.sum(1) / np.sqrt(2) if matrix else both.mean(1)
            gates.append(np.concatenate([gate, new]))
        grown = np.concatenate(gates)
        return self.deaf(grown) if matrix else grown


def main() -> None:
    """Write the larger model; with --data, train it on."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a model with a softmax")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--projection-dim", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder of `elmore prepare`, same vocabulary")
    parser.add_argument(
        "--run", type=Path, help="folder of the run; goes on with one that is there"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if not args.output.exists():
        grown = grow(read_checkpoint(args.model), args.dim, args.projection_dim, args.seed)
        elmore_folder.write(grown, args.output)
    if args.data is None:
        return
    shape = {"model.dim": str(args.dim), "model.projection_dim": str(args.projection_dim)}
    settings = shape | dict(pair.split("=", 1) for pair in args.set)
    pretrain(
        args.data,
        args.run,
        recipe=Recipe.load("laptop", settings),
        seed=args.seed,
        resume=True,
        threads=args.threads,
        start=read_checkpoint(args.output),
    )


if __name__ == "__main__":
    main()
