"""A slow, plain reference for ELMo inference, written from the published equations only.

It follows the model of Peters et al. 2018 ("Deep contextualized word representations") with the
exact arithmetic of bilm-tf, the original TensorFlow program, and shares no code with the package:
the package's fast paths are tested against it. Everything runs in float64, one token, one row and
one time step at a time.

Sizes: M characters per token, d character dimension, F filters in all, P projection dimension,
C LSTM cell dimension, L LSTM layers, R rows of the state, D directions (2, or 1 without backward).
Matrices are in the layout of the HDF5 files (TensorFlow): they act on row vectors, ``x @ W``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

# Characters of a token (bilm-tf): the 256 byte values, then five specials.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
N_CHARACTERS = 261
HIGHWAY_PARTS = ("W_carry", "b_carry", "W_transform", "b_transform")
SENTENCE_START, SENTENCE_END, UNKNOWN = "<S>", "</S>", "<UNK>"


class State(NamedTuple):
    """The LSTM state between two batches: an explicit value which is never changed in place."""

    cell: np.ndarray  # c: (D, L, R, C)
    hidden: np.ndarray  # h: (D, L, R, P)


class Cell(NamedTuple):
    """The weights of one LSTM layer in one direction."""

    kernel: np.ndarray  # (2P, 4C): acts on concat(x, h); gate blocks i, j, f, o
    bias: np.ndarray  # (4C,), without the forget bias
    projection: np.ndarray | None  # (C, P); None if C == P


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # the logistic function, in a form without overflow


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def character_ids(token: str, max_chars: int = 50) -> np.ndarray:
    """The characters of one token -> (max_chars,) integers.

    begin-word, the UTF-8 bytes (cut to max_chars - 2, lone surrogates vanish), end-word, padding.
    For inference bilm-tf adds 1 to every id, because 0 marks a padded position of the sentence.
    """
    if token == SENTENCE_START:
        inner = [BEGIN_SENTENCE]
    elif token == SENTENCE_END:
        inner = [END_SENTENCE]
    else:
        inner = list(token.encode("utf-8", "ignore")[: max_chars - 2])
    ids = [BEGIN_WORD, *inner, END_WORD]
    ids += [PADDING] * (max_chars - len(ids))
    return np.array(ids) + 1


def cell_prefixes(direction: int, layer: int, n_layers: int, one_direction: bool) -> list[str]:
    """Where the weights of an LSTM cell may stand in bilm-tf's files; its own dump comes first."""
    scope = "rnn" if one_direction else f"RNN_{direction}/RNN"
    stacked = f"{scope}/MultiRNNCell/Cell{layer}/LSTMCell"
    return [f"{scope}/LSTMCell", stacked] if n_layers == 1 else [stacked]


def cell_part_names(one_direction: bool) -> tuple[str, str, str]:
    """Kernel, bias, projection: bilm-tf's dump renames them in two-direction models only."""
    return ("kernel", "bias", "projection/kernel") if one_direction else ("W_0", "B", "W_P_0")


def lstm_sizes(options: Mapping[str, Any]) -> tuple[int, int, int]:
    """-> C, P, L. bilm-tf makes one layer if the options do not say."""
    lstm = options["lstm"]
    return lstm["dim"], lstm["projection_dim"], lstm.get("n_layers", 1)


class ReferenceElmo:
    """ELMo inference from options and the HDF5 arrays under their HDF5 names.

    ``vocabulary`` (one word per row of the array ``embedding``) is needed by word-input models.
    ``clipped`` counts the values which the two clips have changed so far.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        weights: Mapping[str, np.ndarray],
        vocabulary: Sequence[str] | None = None,
    ) -> None:
        self.options = options
        self.weights = {name: np.asarray(w, np.float64) for name, w in weights.items()}
        self.clipped = {"cell": 0, "projection": 0}
        self.cell_dim, self.projection_dim, self.n_layers = lstm_sizes(options)
        if self.cell_dim < self.projection_dim:
            raise ValueError("the LSTM dimension is smaller than its projection")

        self.has_projection = self.cell_dim != self.projection_dim
        self.one_direction = any(name.startswith("rnn/") for name in self.weights)
        self.n_directions = 1 if self.one_direction else 2
        self.output_dim = self.n_directions * self.projection_dim
        self.cells = [
            [self._read_cell(direction, layer) for layer in range(self.n_layers)]
            for direction in range(self.n_directions)
        ]

        # A missing, null or zero value means: no clip. Without projection there is no second clip.
        lstm = options["lstm"]
        self.cell_clip = lstm.get("cell_clip") or None
        self.proj_clip = (lstm.get("proj_clip") or None) if self.has_projection else None
        self.residual = bool(lstm.get("use_skip_connections", False))
        self.forget_bias = 1.0  # added at run time by TensorFlow, not part of the file

        self.word_rows: dict[str, int] | None = None
        if "char_cnn" in options:
            table = self.weights["char_embed"]  # (261, d)
            self.character_table = np.vstack([np.zeros((1, table.shape[1])), table])  # (262, d)
        else:
            if vocabulary is None:
                raise ValueError("a word-input model needs a vocabulary")
            self.word_rows = {word: row for row, word in enumerate(vocabulary)}

    @classmethod
    def from_files(
        cls,
        options_path: str | Path,
        weights_path: str | Path,
        vocabulary: Sequence[str] | None = None,
    ) -> ReferenceElmo:
        """Read options.json and weights.hdf5."""
        options = json.loads(Path(options_path).read_text(encoding="utf-8"))
        return cls(options, read_hdf5(weights_path), vocabulary)

    def _read_cell(self, direction: int, layer: int) -> Cell:
        prefixes = cell_prefixes(direction, layer, self.n_layers, self.one_direction)
        kernel, bias, projection = cell_part_names(self.one_direction)
        for prefix in prefixes:
            if f"{prefix}/{kernel}" in self.weights:
                return Cell(
                    self.weights[f"{prefix}/{kernel}"],
                    self.weights[f"{prefix}/{bias}"],
                    self.weights[f"{prefix}/{projection}"] if self.has_projection else None,
                )
        raise KeyError(f"no LSTM cell at {' or '.join(prefixes)}")

    # The token layer ---------------------------------------------------------------------------

    def token_vectors(self, tokens: Sequence[str]) -> np.ndarray:
        """The context-free vector h0 of each token -> (n, P)."""
        vectors = np.zeros((len(tokens), self.projection_dim))
        for position, token in enumerate(tokens):
            if self.word_rows is None:
                vectors[position] = self._character_vector(token)
            else:
                row = self.word_rows.get(token)
                row = self.word_rows[UNKNOWN] if row is None else row
                vectors[position] = self.weights["embedding"][row]
        return vectors

    def _character_vector(self, token: str) -> np.ndarray:
        """The character CNN of Peters et al. 2018: convolutions, highway, projection -> (P,)."""
        options = self.options["char_cnn"]
        max_chars = options.get("max_characters_per_token", 50)
        activation = {"relu": relu, "tanh": np.tanh}[options["activation"]]
        characters = self.character_table[character_ids(token, max_chars)]  # (M, d)

        # conv[t] = sum_k X[t + k] W[k] + b over all M columns, padding included; then max over t.
        pooled = []
        for i, (width, _) in enumerate(options["filters"]):
            filters = self.weights[f"CNN/W_cnn_{i}"][0]  # (w, d, n)
            n_starts = max_chars - width + 1
            conv = sum(characters[k : k + n_starts] @ filters[k] for k in range(width))  # (t, n)
            pooled.append(activation((conv + self.weights[f"CNN/b_cnn_{i}"]).max(axis=0)))
        x = np.concatenate(pooled)  # (F,)

        # Highway: the gate named "carry" multiplies the transformed part; inner relu always.
        for k in range(options.get("n_highway") or 0):
            w = {part: self.weights[f"CNN_high_{k}/{part}"] for part in HIGHWAY_PARTS}
            gate = sigmoid(x @ w["W_carry"] + w["b_carry"])
            transformed = relu(x @ w["W_transform"] + w["b_transform"])
            x = gate * transformed + (1.0 - gate) * x

        # Linear projection, which exists only if F differs from P.
        if len(x) != self.projection_dim:
            x = x @ self.weights["CNN_proj/W_proj"] + self.weights["CNN_proj/b_proj"]
        return x

    # The LSTM layers ---------------------------------------------------------------------------

    def _clip(self, which: str, x: np.ndarray, limit: float | None) -> np.ndarray:
        if limit is None:
            return x
        self.clipped[which] += int(np.sum(np.abs(x) > limit))
        return np.clip(x, -limit, limit)

    def lstm_step(
        self, cell: Cell, x: np.ndarray, c: np.ndarray, h: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One step of TensorFlow's LSTMCell: x (P,), c (C,), h (P,) -> new c (C,), new h (P,)."""
        z = np.concatenate([x, h]) @ cell.kernel + cell.bias
        i, j, f, o = np.split(z, 4)  # input gate, candidate, forget gate, output gate
        c = sigmoid(f + self.forget_bias) * c + sigmoid(i) * np.tanh(j)
        c = self._clip("cell", c, self.cell_clip)  # the clipped value is used and carried
        h = sigmoid(o) * np.tanh(c)
        if cell.projection is not None:
            h = self._clip("projection", h @ cell.projection, self.proj_clip)
        return c, h

    def _run_layer(
        self, cell: Cell, layer: int, inputs: np.ndarray, c: np.ndarray, h: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """inputs (T, P), initial c and h -> outputs (T, P), final c and h."""
        outputs = np.zeros_like(inputs)
        for t, x in enumerate(inputs):
            c, h = self.lstm_step(cell, x, c, h)
            # The residual (from the second layer on) is neither clipped nor carried.
            outputs[t] = h + x if self.residual and layer > 0 else h
        return outputs, c, h

    def _resized_state(self, state: State | None, n_rows: int) -> State:
        """A copy of the state with at least n_rows rows; new rows are zero."""
        shape = (self.n_directions, self.n_layers)
        if state is None:
            state = State(
                np.zeros((*shape, 0, self.cell_dim)), np.zeros((*shape, 0, self.projection_dim))
            )
        missing = max(0, n_rows - state.cell.shape[2])
        padding = ((0, 0), (0, 0), (0, missing), (0, 0))
        return State(np.pad(state.cell, padding), np.pad(state.hidden, padding))

    def embed_batch(
        self,
        sentences: Sequence[Sequence[str]],
        state: State | None = None,
        keep_boundaries: bool = False,
    ) -> tuple[list[np.ndarray], State]:
        """Tokens of each row -> per row (L + 1, n_tokens, D * P), and the new state.

        Row k starts from row k of ``state`` (None: zeros). Rows of the state beyond this batch are
        kept, a larger batch appends zero rows (AllenNLP; bilm-tf has a fixed number of rows).
        ``<S>`` and ``</S>`` are added, and removed from the result unless ``keep_boundaries``.
        """
        state = self._resized_state(state, len(sentences))
        results = []
        for row, tokens in enumerate(sentences):
            vectors = self.token_vectors([SENTENCE_START, *tokens, SENTENCE_END])  # (T, P)
            layers = np.zeros((self.n_layers + 1, len(vectors), self.output_dim))
            for direction in range(self.n_directions):
                start = direction * self.projection_dim
                columns = slice(start, start + self.projection_dim)
                order = slice(None, None, -1) if direction == 1 else slice(None)
                layers[0, :, columns] = vectors  # layer 0 is the token vector, once per direction
                x = vectors[order]  # the backward stack runs from </S> to <S>
                for layer, cell in enumerate(self.cells[direction]):
                    at = (direction, layer, row)
                    x, state.cell[at], state.hidden[at] = self._run_layer(
                        cell, layer, x, state.cell[at], state.hidden[at]
                    )
                    layers[layer + 1, :, columns] = x[order]
            results.append(layers if keep_boundaries else layers[:, 1:-1])
        return results, state


# Weights ---------------------------------------------------------------------------------------


def random_weights(
    options: Mapping[str, Any], seed: int, scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Random float32 weights under the names and with the shapes of bilm-tf's dump.

    They are made so that both clips of the options bite on ordinary text and yet rounding noise
    dies out: long memory (forget gates near 1) and a wide projection drive c and h into the clips,
    while the recurrent half of the kernel is weak. ``scale`` multiplies the LSTM kernels.
    One-direction weights are made if the options say ``"bidirectional": false``.
    """
    rng = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}

    def normal(name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> None:
        weights[name] = (mean + std * rng.standard_normal(shape)).astype(np.float32)

    cell_dim, projection_dim, n_layers = lstm_sizes(options)
    if "char_cnn" in options:
        cnn = options["char_cnn"]
        char_dim = cnn["embedding"]["dim"]
        n_filters = sum(count for _, count in cnn["filters"])
        # Weak specials and negative biases: the letters, not the common frame, make the vector.
        normal("char_embed", (N_CHARACTERS, char_dim), 1.0)
        weights["char_embed"][BEGIN_WORD:] *= 0.5
        for i, (width, count) in enumerate(cnn["filters"]):
            normal(f"CNN/W_cnn_{i}", (1, width, char_dim, count), (width * char_dim) ** -0.5)
            normal(f"CNN/b_cnn_{i}", (count,), 0.2, mean=-1.0)
        for k in range(cnn.get("n_highway") or 0):
            for part in HIGHWAY_PARTS:
                shape = (n_filters, n_filters) if part.startswith("W") else (n_filters,)
                std = n_filters**-0.5 if part.startswith("W") else 0.2
                normal(f"CNN_high_{k}/{part}", shape, std, -1.0 if part == "b_carry" else 0.0)
        if n_filters != projection_dim:
            normal("CNN_proj/W_proj", (n_filters, projection_dim), 1.5 * n_filters**-0.5)
            normal("CNN_proj/b_proj", (projection_dim,), 0.2)
    else:
        normal("embedding", (options["n_tokens_vocab"], projection_dim), 1.0)

    # A cell with constant gates tends to sigmoid(i) tanh(j) / (1 - sigmoid(f + 1)). This forget
    # bias lets 1 / (1 - sigmoid) be 2.5 times the clip, so that many cells would go beyond it.
    # The projection gives h a spread of the order of its clip; the part of a kernel which reads h
    # (of this layer or of the one below) is weakened accordingly, so that noise does not grow.
    cell_clip = options["lstm"].get("cell_clip") or 1.0
    proj_clip = options["lstm"].get("proj_clip") or 1.0
    forget_mean = max(0.0, np.log(max(2.5 * cell_clip - 1.0, 1.0)) - 1.0)
    projection_std = 1.8 * proj_clip / np.tanh(cell_clip) * cell_dim**-0.5
    kernel_std = 0.5 * projection_dim**-0.5
    one_direction = not options.get("bidirectional", True)
    kernel, bias, projection = cell_part_names(one_direction)
    for direction in range(1 if one_direction else 2):
        for layer in range(n_layers):
            prefix = cell_prefixes(direction, layer, n_layers, one_direction)[0]
            normal(f"{prefix}/{kernel}", (2 * projection_dim, 4 * cell_dim), scale * kernel_std)
            weights[f"{prefix}/{kernel}"][projection_dim:] *= 0.4 / max(proj_clip, 1.0)
            if layer > 0:  # residuals add up, so that the inputs grow from layer to layer
                weights[f"{prefix}/{kernel}"][:projection_dim] /= layer * max(proj_clip, 1.0)
            normal(f"{prefix}/{bias}", (4 * cell_dim,), 1.0)
            weights[f"{prefix}/{bias}"][2 * cell_dim : 3 * cell_dim] += np.float32(forget_mean)
            if cell_dim != projection_dim:
                normal(f"{prefix}/{projection}", (cell_dim, projection_dim), projection_std)
    return weights


def read_hdf5(path: str | Path) -> dict[str, np.ndarray]:
    """All datasets of a file under their full names, as float32 (the dtype of the models)."""
    weights: dict[str, np.ndarray] = {}

    def collect(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = np.asarray(item[...], np.float32)

    with h5py.File(path, "r") as file:
        file.visititems(collect)
    return weights


def write_hdf5(path: str | Path, weights: Mapping[str, np.ndarray]) -> None:
    """Write plain datasets; a name with slashes makes the groups."""
    with h5py.File(path, "w") as file:
        for name, array in weights.items():
            file.create_dataset(name, data=array)
