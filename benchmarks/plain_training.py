"""The opponent in training: a step by autograd, without tricks.

Convolutions over all 50 columns of every token, a cell written step by step (or torch's own LSTM
with `proj_size`, which cannot clip), a sampled softmax with a comparison matrix for accidental hits
and gradients of the complete table, dense Adagrad.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmore.config import BiLmConfig
from elmore.nn.softmax import Negatives
from elmore.training.bilm.batches import LmBatch


class PlainStep(nn.Module):
    """A training step of both directions."""

    def __init__(self, config: BiLmConfig, n_words: int, lr: float, *, library: bool) -> None:
        super().__init__()
        tokens, lstm = config.tokens, config.lstm
        self.config, self.library = config, library
        self.characters = nn.Parameter(torch.rand(tokens.n_characters + 1, tokens.char_dim))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(tokens.char_dim, count, width) for width, count in tokens.filters
        )
        self.highways = nn.ModuleList(
            nn.Linear(tokens.n_filters, 2 * tokens.n_filters) for _ in range(tokens.n_highway)
        )
        self.projection = nn.Linear(tokens.n_filters, lstm.projection_dim)
        self.layers = nn.ModuleList(
            self._layer(lstm.projection_dim, lstm.dim) for _ in range(2 * lstm.n_layers)
        )
        self.weight = nn.Parameter(torch.randn(n_words, lstm.projection_dim) * 0.1)
        self.bias = nn.Parameter(torch.zeros(n_words))
        self.optimizer = torch.optim.Adagrad(self.parameters(), lr=lr)

    def _layer(self, dim: int, cells: int) -> nn.Module:
        if self.library:
            return nn.LSTM(dim, cells, proj_size=dim)
        return nn.ModuleDict(
            {
                "input": nn.Linear(dim, 4 * cells),
                "state": nn.Linear(dim, 4 * cells, bias=False),
                "project": nn.Linear(cells, dim, bias=False),
            }
        )

    def step(self, batch: LmBatch, negatives: list[Negatives]) -> float:
        """Do one step on a batch whose sequences all have the same length."""
        self.optimizer.zero_grad(set_to_none=False)
        steps, rows = len(batch.sizes), batch.sizes[0]
        losses = []
        for d, (read, aims) in enumerate(zip(batch.rows, batch.targets, strict=True)):
            ids = torch.from_numpy(batch.words[read]).long()
            x = self._tokens(ids).view(steps, rows, -1)
            for k in range(self.config.lstm.n_layers):
                y = self._run(self.layers[2 * k + d], x)
                x = y + x if k else y
            losses.append(
                self._loss(x.reshape(steps * rows, -1), torch.from_numpy(aims), negatives[d])
            )
        loss = 0.5 * (losses[0] + losses[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters(), 10.0)
        self.optimizer.step()
        return float(loss.detach())

    def _tokens(self, ids: Tensor) -> Tensor:
        embedded = F.embedding(ids, self.characters).transpose(1, 2)
        x = torch.cat(
            [torch.relu(conv(embedded).max(dim=2).values) for conv in self.convolutions], dim=1
        )
        for highway in self.highways:
            transformed, gate = highway(x).chunk(2, dim=1)
            gate = torch.sigmoid(gate)
            x = gate * torch.relu(transformed) + (1 - gate) * x
        return self.projection(x)

    def _run(self, layer: nn.Module, x: Tensor) -> Tensor:
        if self.library:
            return layer(x)[0]
        cells = self.config.lstm.dim
        hidden, memory = x.new_zeros(x.shape[1:]), x.new_zeros(x.shape[1], cells)
        outputs = []
        for now in x:
            i, f, g, o = (layer["input"](now) + layer["state"](hidden)).chunk(4, dim=1)
            memory = torch.sigmoid(f + 1) * memory + torch.sigmoid(i) * torch.tanh(g)
            memory = memory.clamp(-3, 3)
            hidden = layer["project"](torch.sigmoid(o) * torch.tanh(memory)).clamp(-3, 3)
            outputs.append(hidden)
        return torch.stack(outputs)

    def _loss(self, hidden: Tensor, targets: Tensor, negatives: Negatives) -> Tensor:
        ids = negatives.ids
        true = (hidden * self.weight[targets]).sum(dim=1) + self.bias[targets]
        true = true - negatives.log_expected(targets)
        logits = hidden @ self.weight[ids].t() + self.bias[ids] - negatives.log_expected(ids)
        logits = logits.masked_fill(ids[None, :] == targets[:, None], -torch.inf)
        everything = torch.cat([true[:, None], logits], dim=1)
        return F.cross_entropy(everything, torch.zeros_like(targets))
