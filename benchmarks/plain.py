"""The opponent: ELMo the way the reference library computes it, step by step, without tricks.

Token layer over every place of the padded batch with conv1d over all 50 columns, a cell that
multiplies input and state at every step, a batch that shrinks as sentences end; no gradients.
It shares weights with our model and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from elmore.nn.bilm import BiLm
from elmore.text.characters import ByteAlphabet


class PlainElmo:
    """Embeds batches of token lists: (layers, batch, time, dim)."""

    def __init__(self, bilm: BiLm) -> None:
        self.config = bilm.config
        self.weights = {
            name: w.detach().contiguous().clone() for name, w in bilm.named_parameters()
        }
        self.alphabet = ByteAlphabet(bilm.config.tokens.max_chars)
        for name, weight in self.weights.items():
            if "_layers." in name and name.endswith(".bias"):
                cells = len(weight) // 4
                weight[cells : 2 * cells] += 1

    def embed(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Embed one batch; markers are added and kept."""
        begin, end = self.alphabet.markers
        lengths = [len(tokens) + 2 for tokens in sentences]
        order = sorted(range(len(sentences)), key=lambda k: -lengths[k])
        time = max(lengths)
        ids = torch.zeros(len(sentences), time, self.alphabet.max_chars, dtype=torch.long)
        for row, k in enumerate(order):
            tokens = [begin, *sentences[k], end]
            ids[row, : len(tokens)] = torch.from_numpy(self.alphabet.encode(tokens))
        with torch.no_grad():
            vectors = self._tokens(ids.view(-1, ids.shape[2])).view(len(sentences), time, -1)
            lens = [lengths[k] for k in order]
            sides = [self._direction(vectors, lens, d) for d in self.config.directions]
            layers = [torch.cat([vectors] * len(sides), dim=2)]
            layers += [torch.cat(pair, dim=2) for pair in zip(*sides, strict=True)]
            values = torch.stack(layers)
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return values[:, back]

    def _tokens(self, ids: Tensor) -> Tensor:
        weights, tokens = self.weights, self.config.tokens
        table = F.pad(weights["tokens.characters"], (0, 0, 1, 0))
        embedded = F.embedding(ids, table).transpose(1, 2)
        act = torch.relu if tokens.activation == "relu" else torch.tanh
        features = torch.cat(
            [
                act(
                    F.conv1d(
                        embedded,
                        weights[f"tokens.convolutions.{i}.weight"],
                        weights[f"tokens.convolutions.{i}.bias"],
                    )
                    .max(dim=2)
                    .values
                )
                for i in range(len(tokens.filters))
            ],
            dim=1,
        )
        for k in range(tokens.n_highway):
            both = F.linear(
                features,
                weights[f"tokens.highways.{k}.weight"],
                weights[f"tokens.highways.{k}.bias"],
            )
            transformed, gate = both.chunk(2, dim=1)
            gate = torch.sigmoid(gate)
            features = gate * torch.relu(transformed) + (1 - gate) * features
        if tokens.projected:
            features = F.linear(
                features, weights["tokens.projection.weight"], weights["tokens.projection.bias"]
            )
        return features

    def _direction(self, x: Tensor, lengths: list[int], direction: str) -> list[Tensor]:
        outputs = []
        for k in range(self.config.lstm.n_layers):
            y = self._layer(x, lengths, f"{direction}_layers.{k}", direction == "backward")
            if k and self.config.lstm.skip_connections:
                y = y + x
            outputs.append(y)
            x = y
        return outputs

    def _layer(self, x: Tensor, lengths: list[int], name: str, reverse: bool) -> Tensor:
        lstm, weights = self.config.lstm, self.weights
        batch, time, dim = x.shape
        output = torch.zeros(batch, time, dim)
        hidden, memory = torch.zeros(batch, dim), torch.zeros(batch, lstm.dim)
        for step in range(time):
            t = time - 1 - step if reverse else step
            alive = sum(length > t for length in lengths)
            gates = F.linear(x[:alive, t], weights[f"{name}.input_weight"]) + F.linear(
                hidden[:alive], weights[f"{name}.state_weight"], weights[f"{name}.bias"]
            )
            i, f, g, o = gates.chunk(4, dim=1)
            cell = torch.sigmoid(f) * memory[:alive] + torch.sigmoid(i) * torch.tanh(g)
            if lstm.cell_clip:
                cell = cell.clamp(-lstm.cell_clip, lstm.cell_clip)
            now = torch.sigmoid(o) * torch.tanh(cell)
            if lstm.projected:
                now = F.linear(now, weights[f"{name}.projection"])
                if lstm.proj_clip:
                    now = now.clamp(-lstm.proj_clip, lstm.proj_clip)
            hidden[:alive], memory[:alive] = now, cell
            output[:alive, t] = now
        return output


class NnLstmElmo(PlainElmo):
    """The same with torch's own LSTM, packed. It cannot clip: not the same function."""

    def __init__(self, bilm: BiLm) -> None:
        super().__init__(bilm)
        self.layers: dict[str, torch.nn.LSTM] = {}
        lstm = self.config.lstm
        for direction in self.config.directions:
            for k in range(lstm.n_layers):
                name = f"{direction}_layers.{k}"
                layer = torch.nn.LSTM(
                    lstm.projection_dim,
                    lstm.dim,
                    proj_size=lstm.projection_dim if lstm.projected else 0,
                )
                with torch.no_grad():
                    layer.weight_ih_l0.copy_(self.weights[f"{name}.input_weight"])
                    layer.weight_hh_l0.copy_(self.weights[f"{name}.state_weight"])
                    layer.bias_ih_l0.copy_(self.weights[f"{name}.bias"])
                    layer.bias_hh_l0.zero_()
                    if lstm.projected:
                        layer.weight_hr_l0.copy_(self.weights[f"{name}.projection"])
                self.layers[name] = layer

    def _layer(self, x: Tensor, lengths: list[int], name: str, reverse: bool) -> Tensor:
        counts = torch.tensor(lengths)
        places = torch.arange(x.shape[1]).expand(len(lengths), -1)
        if reverse:  # each sentence from its own end; its padding stays behind it
            places = torch.where(places < counts[:, None], counts[:, None] - 1 - places, places)
            x = x.gather(1, places[:, :, None].expand_as(x))
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, counts, batch_first=True)
        output, _ = torch.nn.utils.rnn.pad_packed_sequence(
            self.layers[name](packed)[0], batch_first=True
        )
        return output.gather(1, places[:, :, None].expand_as(output)) if reverse else output
