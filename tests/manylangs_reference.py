"""A slow, plain reference for ELMoForManyLangs, written from its equations, in float64.

It shares no code with the package: dictionaries and tensors are read by other means too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import relu, sigmoid


class ReferenceManyLangs:
    """One folder; `embed` gives the layers of a sentence from zero state."""

    def __init__(self, folder: Path) -> None:
        outer = json.loads((folder / "config.json").read_text())
        self.config: dict[str, Any] = json.loads(
            (folder / Path(outer["config_path"]).name).read_text()
        )
        self.tokens = _load(folder / "token_embedder.pkl")
        self.encoder = _load(folder / "encoder.pkl")
        section = self.config["token_embedder"]
        self.characters = _dictionary(folder / "char.dic") if section["char_dim"] else {}
        self.words = _dictionary(folder / "word.dic") if section["word_dim"] else {}

    def embed(self, sentence: list[str]) -> np.ndarray:
        """-> (layers, tokens, 2P)."""
        section = self.config["token_embedder"]
        whole = ["<bos>", *sentence, "<eos>"]
        if section["name"] == "cnn":
            most = section["max_characters_per_token"] - 2
            whole = [token[:most] for token in whole]
        vectors = [self._token(token) for token in whole]
        if self.config["encoder"]["name"] == "lstm":
            return self._mixed(vectors)[None, 1:-1]
        directions = []
        for name, turn in (("forward", 1), ("backward", -1)):
            layers = [vectors]
            for k in range(self.config["encoder"]["n_layers"]):
                output = self._layer(f"{name}_layer_{k}", layers[-1][::turn])[::turn]
                if k:
                    output = [a + b for a, b in zip(output, layers[-1], strict=True)]
                layers.append(output)
            directions.append(np.array(layers))
        return np.concatenate(directions, axis=2)[:, 1:-1]

    def _token(self, token: str) -> np.ndarray:
        weights, parts = self.tokens, []
        if self.words:
            row = self.words.get(token, self.words["<oov>"])
            parts.append(weights["word_emb_layer.embedding.weight"][row])
        if self.characters:
            parts.append(self._convolve(token))
        return weights["projection.weight"] @ np.concatenate(parts) + weights["projection.bias"]

    def _convolve(self, token: str) -> np.ndarray:
        section, ids = self.config["token_embedder"], self.characters
        inner = (
            [ids[token]]
            if token in ("<bos>", "<eos>")
            else [ids.get(c, ids["<oov>"]) for c in token]
        )
        row = [ids["<eow>"], *inner, ids["<bow>"]]
        row += [ids["<pad>"]] * (section["max_characters_per_token"] - len(row))
        columns = self.tokens["char_emb_layer.embedding.weight"][row]
        act = relu if section["activation"] == "relu" else np.tanh
        values = []
        for i, (width, _) in enumerate(section["filters"]):
            weight = self.tokens[f"convolutions.{i}.weight"]
            places = [
                np.einsum("ndk,kd->n", weight, columns[t : t + width])
                for t in range(len(row) - width + 1)
            ]
            values.append(act(np.max(places, axis=0) + self.tokens[f"convolutions.{i}.bias"]))
        x = np.concatenate(values)
        for k in range(section["n_highway"]):
            both = self.tokens[f"highways._layers.{k}.weight"] @ x
            changed, gate = np.split(both + self.tokens[f"highways._layers.{k}.bias"], 2)
            x = sigmoid(gate) * x + (1 - sigmoid(gate)) * relu(changed)
        return x

    def _layer(self, name: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        w, encoder = self.encoder, self.config["encoder"]
        projection = w[f"{name}.state_projection.weight"]
        cell, hidden = np.zeros(projection.shape[1]), np.zeros(projection.shape[0])
        outputs = []
        for x in inputs:
            z = w[f"{name}.input_linearity.weight"] @ x + w[f"{name}.state_linearity.bias"]
            i, f, j, o = np.split(z + w[f"{name}.state_linearity.weight"] @ hidden, 4)
            cell = sigmoid(i) * np.tanh(j) + sigmoid(f) * cell
            cell = np.clip(cell, -encoder["cell_clip"], encoder["cell_clip"])
            hidden = projection @ (sigmoid(o) * np.tanh(cell))
            hidden = np.clip(hidden, -encoder["proj_clip"], encoder["proj_clip"])
            outputs.append(hidden)
        return outputs

    def _mixed(self, inputs: list[np.ndarray]) -> np.ndarray:
        w = self.encoder
        for k in range(self.config["encoder"]["n_layers"]):
            halves = []
            for suffix, turn in (("", 1), ("_reverse", -1)):
                cells = w[f"encoder.weight_hh_l{k}{suffix}"].shape[1]
                cell, hidden, outputs = np.zeros(cells), np.zeros(cells), []
                for x in inputs[::turn]:
                    z = w[f"encoder.weight_ih_l{k}{suffix}"] @ x
                    z = z + w[f"encoder.bias_ih_l{k}{suffix}"]
                    z = z + w[f"encoder.weight_hh_l{k}{suffix}"] @ hidden
                    i, f, g, o = np.split(z + w[f"encoder.bias_hh_l{k}{suffix}"], 4)
                    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                    hidden = sigmoid(o) * np.tanh(cell)
                    outputs.append(hidden)
                halves.append(outputs[::turn])
            inputs = [np.concatenate(pair) for pair in zip(*halves, strict=True)]
        top = np.array(inputs)
        cells = top.shape[1] // 2
        weight, bias = w["projection.weight"], w["projection.bias"]
        return np.concatenate(
            [top[:, :cells] @ weight.T + bias, top[:, cells:] @ weight.T + bias], axis=1
        )


def _load(path: Path) -> dict[str, np.ndarray]:
    state = torch.load(path, weights_only=True)
    return {name: tensor.double().numpy() for name, tensor in state.items()}


def _dictionary(path: Path) -> dict[str, int]:
    """As the original reads it: a line that is one field after stripping belongs to U+3000."""
    found = {}
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        fields = line.strip().split("\t")
        found[fields[0] if len(fields) == 2 else "\u3000"] = int(fields[-1])
    return found
