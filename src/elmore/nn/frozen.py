"""A biLM that only computes: weights packed once, in the precision in which they are stored.

It gives what `BiLm` gives. Packing reads every weight once, at some gigabytes a second, so it is
done when a model is loaded: a bad weight is noticed then, and the first sentence is as fast as any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmore.config import BiLmConfig
from elmore.kernels.charcnn import FilterTables
from elmore.kernels.lstm import Clips
from elmore.kernels.panels import Matrix
from elmore.kernels.quantize import Stored
from elmore.kernels.recurrence import run_steps
from elmore.nn.bilm import BiLmState, Layers, Runner, contextualize, in_turn, read_stretch
from elmore.nn.lstm import FORGET_BIAS
from elmore.nn.packing import Packing

__all__ = ["FrozenBiLm"]

# Gives the numbers of a weight by its name in `config.weight_shapes`.
Reader = Callable[[str], Stored]

# Bytes of input gates that are held at once, and of those of all distinct words (nn/lstm.py).
_GATE_BYTES = 16 << 20
_TABLE_BYTES = 256 << 20


class FrozenBiLm:
    """The computing half of a model on the CPU.

    Args:
        config: its shape.
        read: gives each weight.
        run: how to run jobs that do not depend on each other.
    """

    def __init__(
        self,
        config: BiLmConfig,
        read: Reader,
        run: Callable[[Sequence[Callable[[], Any]]], list[Any]] = in_turn,
    ) -> None:
        self.config = config
        self._layers: list[list[FrozenLstm]]
        self.tokens: FrozenTokens
        jobs: list[Callable[[], Any]] = [
            partial(_stack, config, read, direction) for direction in config.directions
        ]
        *self._layers, self.tokens = run([*jobs, partial(FrozenTokens, config, read)])

    def contextualize(
        self,
        vectors: Tensor,
        index: Tensor,
        lengths: Tensor,
        state: BiLmState,
        run: Runner = in_turn,
    ) -> tuple[Layers, BiLmState]:
        """Run the LSTMs over ready token vectors, as `BiLm.contextualize`."""
        return contextualize(self.config, self._layers, vectors, index, lengths, state, run)

    def read_on(
        self, direction: int, inputs: Tensor, hidden: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a stretch of one sequence in one direction, as `nn.bilm.read_stretch`."""
        return read_stretch(self.config, self._layers[direction], inputs, hidden, memory)


class FrozenTokens:
    """The token layer: words to vectors, as `TokenEncoder`."""

    def __init__(self, config: BiLmConfig, read: Reader) -> None:
        self._config, self._read = config.tokens, read
        if config.tokens.n_characters:
            self._filters = self._make_filters()
        if config.tokens.n_words:
            self._words = _tensor(read, "tokens.words")
        self._highways = [
            _affine(read, f"tokens.highways.{k}") for k in range(config.tokens.n_highway)
        ]
        if config.tokens.projected:
            self._projection = _affine(read, "tokens.projection")

    def __call__(
        self, words: NDArray[np.int32] | None, word_ids: NDArray[np.int64] | None = None
    ) -> Tensor:
        """Give the vector of each word.

        Args:
            words: character ids from 1, (n_words, chars), or None without characters.
            word_ids: rows of the word table, (n_words,), or None without one.

        Returns:
            (n_words, dim of the LSTMs).
        """
        parts: list[Tensor] = []
        if self._config.n_words and word_ids is not None:
            parts.append(self._words.index_select(0, torch.from_numpy(word_ids)))
        if self._config.n_characters and words is not None:
            parts.append(self._characters(words))
        features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if not self._config.projected:
            return features
        matrix, bias = self._projection
        return matrix.affine(features, bias)

    def _characters(self, words: NDArray[np.int32]) -> Tensor:
        features = self._filters.largest(words)
        features = features.relu_() if self._config.activation == "relu" else features.tanh_()
        for matrix, bias in self._highways:
            transformed, gate = matrix.affine(features, bias).chunk(2, dim=1)
            features = torch.lerp(features, transformed.relu_(), gate.sigmoid_())
        return features

    def _make_filters(self) -> FilterTables:
        names = [f"tokens.convolutions.{i}" for i in range(len(self._config.filters))]
        return FilterTables(
            _tensor(self._read, "tokens.characters"),
            [_tensor(self._read, f"{name}.weight") for name in names],
            [_tensor(self._read, f"{name}.bias") for name in names],
        )


class FrozenLstm:
    """One LSTM layer in one direction, as `ProjectedLstm` without gradients."""

    def __init__(self, config: BiLmConfig, read: Reader, name: str) -> None:
        lstm = config.lstm
        self._cells = lstm.dim
        self._clips = Clips(lstm.cell_clip, lstm.proj_clip)
        self._bias = _gate_bias(read, f"{name}.bias")
        self._input = Matrix(read(f"{name}.input_weight"))
        self._state = Matrix(read(f"{name}.state_weight"), gates=True)
        self._projection = Matrix(read(f"{name}.projection")) if lstm.projected else None

    def __call__(
        self,
        inputs: Tensor,
        rows: Tensor | None,
        packing: Packing,
        hidden: Tensor,
        memory: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a packed batch; arguments and results are those of `ProjectedLstm`."""
        memory = memory.clone(memory_format=torch.contiguous_format)
        start_hidden = hidden = hidden.contiguous()
        sizes, width = packing.sizes, 4 * self._cells
        output = hidden.new_empty(sum(sizes), hidden.shape[1])
        gates = None
        if rows is not None:
            n_inputs = inputs.shape[0]
            if n_inputs < output.shape[0] and n_inputs * width * 4 <= _TABLE_BYTES:
                gates = self._input.affine(inputs, self._bias)
            else:
                inputs, rows = inputs.index_select(0, rows), None
        start = 0
        for first, last, size in _chunks(sizes, max(1, _GATE_BYTES // (width * 4)), gates is None):
            chunk = slice(start, start + size)
            run_steps(
                output[chunk],
                memory,
                self._input.affine(inputs[chunk], self._bias) if gates is None else gates,
                None if rows is None else rows[chunk],
                hidden,
                sizes[first:last],
                self._state,
                self._projection,
                self._clips,
            )
            start += size
            hidden = output[start - sizes[last - 1] : start]
        living = output.shape[0] and sizes[0]  # sentences without tokens come last
        final = output.index_select(0, packing.last[:living])
        if living < start_hidden.shape[0]:
            final = torch.cat([final, start_hidden[living:]])
        return output, final, memory


def _stack(config: BiLmConfig, read: Reader, direction: str) -> list[FrozenLstm]:
    """Make the layers of a direction."""
    return [
        FrozenLstm(config, read, f"{direction}_layers.{k}") for k in range(config.lstm.n_layers)
    ]


def _chunks(sizes: tuple[int, ...], budget: int, bounded: bool) -> list[tuple[int, int, int]]:
    """Cut steps into runs of about `budget` rows: (first step, step after the last, rows)."""
    if not bounded:
        return [(0, len(sizes), sum(sizes))] if sizes else []
    chunks, step = [], 0
    while step < len(sizes):
        first, size = step, sizes[step]
        step += 1
        while step < len(sizes) and size + sizes[step] <= budget:
            size += sizes[step]
            step += 1
        chunks.append((first, step, size))
    return chunks


def _tensor(read: Reader, name: str) -> Tensor:
    """Read a weight that is computed with in float32."""
    return torch.from_numpy(np.array(read(name).values, np.float32))


def _affine(read: Reader, name: str) -> tuple[Matrix, Tensor]:
    return Matrix(read(f"{name}.weight")), _tensor(read, f"{name}.bias")


def _gate_bias(read: Reader, name: str) -> Tensor:
    """Read the bias of the gates with the forget bias that files leave out."""
    bias = _tensor(read, name)
    cells = len(bias) // 4
    bias[cells : 2 * cells] += FORGET_BIAS
    return bias
