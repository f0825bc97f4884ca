"""The biLM as arrays in, arrays out: what runs on the CPU.

Weights are packed once, in the precision in which they are stored. Packing reads every weight, at
some gigabytes per second, so it is done when a model is loaded: a bad weight is noticed then, and
the first sentence is as fast as any. The torch modules in `nn/` compute the same with gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmore.compute.charcnn import FilterTables
from elmore.compute.matrix import Array, Matrix, Stored
from elmore.compute.native import aligned
from elmore.compute.recurrence import (
    FORGET_BIAS,
    TABLE_BYTES,
    Clips,
    Packing,
    run_steps,
    step_chunks,
)
from elmore.config import BiLmConfig

Ints = NDArray[np.int64]
Result = TypeVar("Result")
# Gives the numbers of a weight by its name in `config.weight_shapes`.
Reader = Callable[[str], Stored]


class LstmState(NamedTuple):
    """Where the LSTMs are between two batches.

    Attributes:
        hidden: output of each layer, (directions, layers, batch, projection_dim).
        cell: cell state of each layer, (directions, layers, batch, cells).
    """

    hidden: Array
    cell: Array


# Runs independent jobs and gives their results in order.
Runner = Callable[[Sequence[Callable[[], Any]]], list[Any]]


def in_turn(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run jobs one after the other in the calling thread."""
    return [job() for job in jobs]


class BiLmArrays:
    """A biLM of numpy arrays and our own kernels.

    Args:
        config: its shape.
        read: gives each weight.
        run: how to run the jobs of packing.
    """

    def __init__(self, config: BiLmConfig, read: Reader, run: Runner = in_turn) -> None:
        self._config = config
        self._layers: list[list[_Lstm]]
        self._tokens: _Tokens

        def stack(direction: str) -> list[_Lstm]:
            names = [f"{direction}_layers.{k}" for k in range(config.lstm.n_layers)]
            return [_Lstm(config, read, name) for name in names]

        jobs: list[Callable[[], Any]] = [partial(stack, name) for name in config.directions]
        jobs.append(partial(_Tokens, config, read))
        *self._layers, self._tokens = run(jobs)
        self._projection = _affine(read, "projection") if config.lstm.mixed else None

    def tokens(self, words: NDArray[np.int32] | None, word_ids: Ints | None) -> Array:
        """The token layer of words.

        Args:
            words: character ids from 1, (n_words, chars), or None without characters.
            word_ids: rows of the word table, (n_words,), or None without one.

        Returns:
            (n_words, projection_dim).
        """
        return _without_warnings(self._tokens, words, word_ids)

    def contextualize(
        self,
        vectors: Array,
        index: Ints,
        lengths: Ints,
        state: LstmState,
        run: Runner = in_turn,
        at: Ints | None = None,
    ) -> tuple[Array, LstmState]:
        """Run the LSTMs over ready token vectors.

        Args:
            vectors: vectors of the distinct words, (n_words, projection_dim).
            index: word of each place, (batch, time).
            lengths: tokens of each sentence, (batch,).
            state: where to start.
            run: how to run the directions, which do not depend on each other.
            at: places whose state to return: the sentence, and the token that each direction has
                just read, (n, 1 + directions). A direction reads no sentence beyond its last place.

        Returns:
            all layers, (layers, batch, time, dim), zero where nothing was read; and the state
            after each sentence's last token, or at the chosen places.
        """
        time = index.shape[1]
        packings = [Packing.plan(lengths, time)] * len(self._layers)
        if self._projection is not None:  # it keeps no state, so what comes in goes out
            return self._joint(vectors, index, packings[0], run)[None], state
        if at is not None:
            packings = [
                Packing.plan(lengths, time, _steps(lengths, at, d)) for d in range(len(packings))
            ]
        flat = index.reshape(-1)
        places = [p.backward if d else p.forward for d, p in enumerate(packings)]
        jobs = [
            partial(
                _without_warnings,
                self._read,
                layers,
                vectors,
                flat[place],
                packing,
                state.hidden[d],
                state.cell[d],
                None if at is None else _rows_at(place, at[:, 0] * time + at[:, 1 + d]),
            )
            for d, (layers, packing, place) in enumerate(
                zip(self._layers, packings, places, strict=True)
            )
        ]
        done = run(jobs)
        values = _unpacked(vectors, flat, places, [outputs for outputs, _ in done], index.shape)
        after = [np.array([[one[part] for one in finals] for _, finals in done]) for part in (0, 1)]
        return values, LstmState(*after)

    def _read(
        self,
        layers: Sequence[_Lstm],
        vectors: Array,
        rows: Ints | None,
        packing: Packing,
        hidden: Array,
        cell: Array,
        kept: Ints | None,
    ) -> tuple[list[Array], list[tuple[Array, Array]]]:
        """Run one direction; `hidden` and `cell` are (layers, batch, ...)."""
        inputs = vectors
        outputs: list[Array] = []
        finals: list[tuple[Array, Array]] = []
        for k, layer in enumerate(layers):
            read = rows if k == 0 else None
            output, *final = layer(inputs, read, packing, hidden[k], cell[k], kept)
            finals.append((final[0], final[1]))
            # The sum is neither clipped nor carried: it leaves the recurrence alone.
            if k > 0 and self._config.lstm.skip_connections:
                output = output + inputs
            outputs.append(output)
            inputs = output
        return outputs, finals

    def _joint(self, vectors: Array, index: Ints, packing: Packing, run: Runner) -> Array:
        """The `lstm` encoder of ELMoForManyLangs: each layer reads both directions below it.

        The original runs over the padded batch, so that its backward direction begins in the
        padding. Who wants that passes the padding as tokens (compat/manylangs.py).

        Returns:
            the one layer of output, (batch, time, dim); zero where a sentence has ended.
        """
        if self._projection is None:
            raise RuntimeError("only an encoder that mixes its directions has a shared projection")
        (batch, time), cells = index.shape, self._config.lstm.dim
        places = (packing.forward, packing.backward)
        zeros = np.zeros((batch, cells), np.float32)
        inputs = vectors[index.reshape(-1)]  # (batch * time, dim)

        def half(layer: _Lstm, place: Ints) -> Array:
            output, _, _ = layer(inputs[place], None, packing, zeros, zeros)
            padded = np.zeros((batch * time, cells), np.float32)
            padded[place] = output
            return padded

        for pair in zip(*self._layers, strict=True):
            jobs = [partial(half, layer, place) for layer, place in zip(pair, places, strict=True)]
            inputs = np.concatenate(run(jobs), axis=1)
        matrix, bias = self._projection
        result = np.zeros((batch * time, 2 * len(bias)), np.float32)
        real = inputs[packing.forward]
        result[packing.forward, : len(bias)] = matrix.affine(real[:, :cells], bias)
        result[packing.forward, len(bias) :] = matrix.affine(real[:, cells:], bias)
        return result.reshape(batch, time, -1)


def _without_warnings(call: Callable[..., Result], *arguments: Any) -> Result:
    """Call something that may overflow, in the thread that computes.

    numpy would warn from deep inside, where C does not; what overflows is reported once, with the
    sentence, by `results.finite`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return call(*arguments)


def _steps(lengths: Ints, at: Ints, direction: int) -> Ints:
    """How many tokens of each sentence a direction reads up to its last chosen place, (batch,)."""
    steps = np.zeros_like(lengths)
    here = at[:, 2] if direction else at[:, 1]
    np.maximum.at(steps, at[:, 0], lengths[at[:, 0]] - here if direction else here + 1)
    return steps


def _rows_at(place: Ints, flat: Ints) -> Ints:
    """The packed rows of flat positions."""
    order = np.argsort(place)
    return np.asarray(order[np.searchsorted(place, flat, sorter=order)])


def _unpacked(
    vectors: Array,
    flat: Ints,
    places: Sequence[Ints],
    outputs: Sequence[Sequence[Array]],
    shape: tuple[int, ...],
) -> Array:
    """Put packed rows where they belong, (layers, batch, time, dim); zeros elsewhere."""
    dim = vectors.shape[1]
    n_layers, n_rows = 1 + len(outputs[0]), len(flat)
    # A batch without padding is written completely, so it need not be cleared first.
    make = np.empty if all(len(place) == n_rows for place in places) else np.zeros
    values: Array = make((n_layers, n_rows, len(places) * dim), np.float32)
    for d, (place, layers) in enumerate(zip(places, outputs, strict=True)):
        half = slice(d * dim, (d + 1) * dim)
        values[0, place, half] = vectors[flat[place]]
        for k, layer in enumerate(layers, 1):
            values[k, place, half] = layer
    return values.reshape(n_layers, *shape, -1)


class _Tokens:
    """The token layer: words to vectors by characters, by a word table, or by both."""

    def __init__(self, config: BiLmConfig, read: Reader) -> None:
        self._config = config.tokens
        if config.tokens.n_characters:
            names = [f"tokens.convolutions.{i}" for i in range(len(config.tokens.filters))]
            self._filters = FilterTables(
                _array(read, "tokens.characters"),
                [_array(read, f"{name}.weight") for name in names],
                [_array(read, f"{name}.bias") for name in names],
            )
        if config.tokens.n_words:
            self._words = _array(read, "tokens.words")
        self._highways = [
            _affine(read, f"tokens.highways.{k}") for k in range(config.tokens.n_highway)
        ]
        if config.tokens.projected:
            self._projection = _affine(read, "tokens.projection")

    def __call__(self, words: NDArray[np.int32] | None, word_ids: Ints | None) -> Array:
        parts: list[Array] = []
        if self._config.n_words and word_ids is not None:
            parts.append(self._words[word_ids])
        if self._config.n_characters and words is not None:
            parts.append(self._characters(words))
        features = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        if not self._config.projected:
            return features
        matrix, bias = self._projection
        return matrix.affine(features, bias)

    def _characters(self, words: NDArray[np.int32]) -> Array:
        features = self._filters.largest(words)
        if self._config.activation == "relu":
            np.maximum(features, 0, out=features)
        else:
            np.tanh(features, out=features)
        half = np.float32(0.5)
        for matrix, bias in self._highways:
            both = matrix.affine(features, bias)
            transformed, gate = both[:, : features.shape[1]], both[:, features.shape[1] :]
            np.maximum(transformed, 0, out=transformed)
            # The sigmoid of the gate, as in `compute.recurrence`.
            np.multiply(gate, half, out=gate)
            np.tanh(gate, out=gate)
            gate *= half
            gate += half
            transformed -= features
            transformed *= gate
            features += transformed
        return features


class _Lstm:
    """One LSTM layer in one direction, as `nn.lstm.ProjectedLstm` without gradients."""

    def __init__(self, config: BiLmConfig, read: Reader, name: str) -> None:
        lstm = config.lstm
        self._cells = lstm.dim
        self._clips = Clips(lstm.cell_clip, lstm.proj_clip)
        self._bias = _array(read, f"{name}.bias")
        # The files leave it out.
        self._bias[self._cells : 2 * self._cells] += np.float32(FORGET_BIAS)
        self._input = Matrix(read(f"{name}.input_weight"))
        self._state = Matrix(read(f"{name}.state_weight"), gates=True)
        own = lstm.projected and not lstm.mixed
        # Few cells are open at a time, so that next to the largest value most of what they let
        # out is small: nearly all that int8 cost was the rounding of these inputs to one byte.
        self._projection = Matrix(read(f"{name}.projection"), fine=True) if own else None

    def __call__(
        self,
        inputs: Array,
        rows: Ints | None,
        packing: Packing,
        hidden: Array,
        cell: Array,
        kept: Ints | None = None,
    ) -> tuple[Array, Array, Array]:
        """Read a packed batch, whose rows `inputs[rows]` are; None if they are in packed order.

        `hidden` and `cell` are those before the first step, one row per sentence; `kept` are
        packed rows whose states to return, (n,).

        Returns:
            output in packed order (n_rows, dim); final output (batch, dim) and cell (batch,
            cells) of each sentence, or those of `kept`.
        """
        before, cell = cell, aligned(*cell.shape)
        np.take(before, packing.order, axis=0, out=cell, mode="clip")
        start_hidden = hidden = hidden[packing.order]
        sizes, width = packing.sizes, 4 * self._cells
        output = aligned(len(packing.forward), hidden.shape[1])
        gates = None
        if rows is not None:
            if len(inputs) < len(output) and len(inputs) * width * 4 <= TABLE_BYTES:
                gates = self._input.affine(inputs, self._bias)
            else:
                inputs, rows = inputs[rows], None
        start = 0
        # The gates of the distinct words are there already; others are made a few steps at a time.
        chunks = [(0, len(sizes), len(output))] if gates is not None else step_chunks(sizes, width)
        if kept is not None:  # the cell state is overwritten by the next step
            chunks = [(step, step + 1, size) for step, size in enumerate(sizes)]
            cells = np.empty((len(kept), self._cells), np.float32)
            by_row = np.argsort(kept, kind="stable")
            ends = np.searchsorted(kept, np.cumsum(sizes), sorter=by_row)
            done = 0
        for first, last, size in chunks:
            chunk = slice(start, start + size)
            run_steps(
                output[chunk],
                cell,
                self._input.affine(inputs[chunk], self._bias) if gates is None else gates,
                None if rows is None else rows[chunk],
                hidden,
                sizes[first:last],
                self._state,
                self._projection,
                self._clips,
            )
            if kept is not None and done < ends[first]:
                here = by_row[done : ends[first]]
                cells[here], done = cell[kept[here] - start], ends[first]
            start += size
            hidden = output[start - sizes[last - 1] : start]
        if kept is not None:
            return output, output[kept], cells
        living = sizes[0] if sizes else 0  # sentences without tokens come last
        final = output[packing.last[:living]]
        if living < len(start_hidden):
            final = np.concatenate([final, start_hidden[living:]])
        if living > 1:
            back = np.argsort(packing.order)
            final, cell = final[back], cell[back]
        return output, final, cell


def _array(read: Reader, name: str) -> Array:
    """Read a weight that is computed with in float32."""
    return np.array(read(name).values, np.float32)


def _affine(read: Reader, name: str) -> tuple[Matrix, Array]:
    return Matrix(read(f"{name}.weight")), _array(read, f"{name}.bias")
