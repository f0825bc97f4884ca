"""Recurrent encoders, attention and pooling: no state between batches, padding never counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmore.compute.recurrence import Clips
from elmore.nn.lstm import Packing
from elmore.nn.lstm_steps import LstmSteps


def start_linear(network: nn.Module) -> None:
    """Start all linear layers of a network from Glorot's uniform distribution, biases from 0."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class VariationalDropout(nn.Module):
    """Dropout with one mask for all tokens of a sequence (Gal & Ghahramani 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop features, (batch, time, dim)."""
        if not self.training or not self.rate:
            return x
        kept = torch.empty(x.shape[0], 1, x.shape[2], device=x.device).bernoulli_(1 - self.rate)
        return x * (kept / (1 - self.rate))


class BiLstm(nn.Module):
    """One bidirectional LSTM layer, `dim` units per direction, on our own kernel.

    On one processor it takes half the time of `torch.nn.LSTM` with packed sequences.
    """

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        for name in ("forward", "backward"):
            inputs, states = torch.empty(4 * dim, input_dim), torch.empty(4 * dim, dim)
            nn.init.xavier_uniform_(inputs)
            for gate in states.chunk(4):
                nn.init.orthogonal_(gate)
            bias = torch.zeros(4 * dim)
            bias[dim : 2 * dim] = 1.0  # the forget gate starts open
            self.register_parameter(f"{name}_input", nn.Parameter(inputs))
            self.register_parameter(f"{name}_state", nn.Parameter(states))
            self.register_parameter(f"{name}_bias", nn.Parameter(bias))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch, (batch, time, input_dim) to (batch, time, 2 * dim); zeros at padding."""
        batch, time, width = x.shape
        packing = Packing.plan(lengths, time)
        flat = x.reshape(batch * time, width)
        start = x.new_zeros(batch, self.dim)
        outputs = []
        for name, rows in (("forward", packing.forward), ("backward", packing.backward)):
            inputs = self.get_parameter(f"{name}_input")
            bias = self.get_parameter(f"{name}_bias")
            gates = torch.nn.functional.linear(flat.index_select(0, rows), inputs, bias)
            steps, _ = LstmSteps.apply(  # type: ignore[no-untyped-call]  # torch leaves it so
                gates,
                packing.sizes,
                self.get_parameter(f"{name}_state"),
                None,
                start,
                start,
                Clips(None, None),
            )
            outputs.append(x.new_zeros(batch * time, self.dim).index_copy(0, rows, steps))
        return torch.cat(outputs, dim=1).view(batch, time, 2 * self.dim)


class BiLstmStack(nn.Module):
    """Stacked layers of `dims` units per direction, with variational dropout at each input."""

    def __init__(self, input_dim: int, dims: Sequence[int], dropout: float) -> None:
        super().__init__()
        sizes = [input_dim, *(2 * dim for dim in dims)]
        self.layers = nn.ModuleList(
            BiLstm(size, dim) for size, dim in zip(sizes, dims, strict=False)
        )
        self.dropout = VariationalDropout(dropout)
        self.dim = sizes[-1]

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch, (batch, time, input_dim) to (batch, time, dim)."""
        for layer in self.layers:
            x = layer(self.dropout(x), lengths)
        return x


class BiGru(nn.Module):
    """One bidirectional GRU layer, `dim` units per direction."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.gru = nn.GRU(input_dim, dim, batch_first=True, bidirectional=True)
        for name, weight in self.gru.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(weight)
            else:  # Clark & Gardner's start
                nn.init.trunc_normal_(weight, std=0.05, a=-0.1, b=0.1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch, (batch, time, input_dim) to (batch, time, 2 * dim); zeros at padding."""
        counts = lengths.cpu().clamp(min=1)  # torch refuses empty sequences
        packed = pack_padded_sequence(x, counts, batch_first=True, enforce_sorted=False)
        output, _ = pad_packed_sequence(
            self.gru(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        return output * mask[:, :, None]


class HighwayLstm(nn.Module):
    """One layer in one direction (Zhang et al. 2016; He et al. 2017).

    r = sigmoid(W_r x + U_r h' + b_r); output = r * o tanh(c) + (1 - r) * W_p x, and the gated
    output is what the next step sees as h'. The input has six matrices, the state five. Dropout
    is on h', with one mask for all steps of a sequence.
    """

    def __init__(self, input_dim: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.dim, self.dropout = dim, dropout
        self.input_weight = nn.Parameter(torch.empty(6 * dim, input_dim))
        self.state_weight = nn.Parameter(torch.empty(5 * dim, dim))
        self.bias = nn.Parameter(torch.zeros(5 * dim))
        with torch.no_grad():
            for block in (*self.input_weight.chunk(6), *self.state_weight.chunk(5)):
                nn.init.orthogonal_(block)
            self.bias[dim : 2 * dim] = 1.0  # the forget gate starts open

    def forward(self, rows: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Read packed rows, (n_rows, input_dim) to (n_rows, dim), `sizes` of them at each step."""
        dim = self.dim
        if not sizes:
            return rows.new_zeros(0, dim)
        projected = torch.nn.functional.linear(rows, self.input_weight)
        gates = torch.split(projected[:, : 5 * dim] + self.bias, list(sizes))
        carried = torch.split(projected[:, 5 * dim :], list(sizes))
        hidden = cell = rows.new_zeros(sizes[0], dim)
        kept = None
        if self.training and self.dropout:  # one mask for all steps
            kept = torch.empty_like(hidden).bernoulli_(1 - self.dropout) / (1 - self.dropout)
        outputs = []
        state_matrix = self.state_weight.t()
        for size, gate, through in zip(sizes, gates, carried, strict=True):
            hidden, cell = hidden[:size], cell[:size]
            if kept is not None:
                hidden = hidden * kept[:size]
            both = torch.addmm(gate, hidden, state_matrix)
            i, f, o, r = torch.sigmoid(both[:, : 4 * dim]).chunk(4, dim=1)
            cell = f * cell + i * torch.tanh(both[:, 4 * dim :])
            hidden = torch.lerp(through, o * torch.tanh(cell), r)
            outputs.append(hidden)
        return torch.cat(outputs)


class AlternatingLstm(nn.Module):
    """Stacked layers; the first reads forwards, the second backwards, and so on."""

    def __init__(self, input_dim: int, dim: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(
            HighwayLstm(dim if k else input_dim, dim, dropout) for k in range(n_layers)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch, (batch, time, input_dim) to (batch, time, dim); zeros at padding."""
        batch, time, _ = x.shape
        packing = Packing.plan(lengths, time)
        flat = x.flatten(0, 1)
        for k, layer in enumerate(self.layers):
            places = packing.backward if k % 2 else packing.forward
            rows = layer(flat.index_select(0, places), packing.sizes)
            flat = rows.new_zeros(batch * time, self.dim).index_copy(0, places, rows)
        return flat.view(batch, time, self.dim)


class Crf(nn.Module):
    """A CRF layer (Lafferty et al. 2001) without scores of its own for start and end.

    The partition function runs over all paths: the rules of a scheme apply to decoding only, as in
    the paper's NER model. `best_path` finds the best.
    """

    def __init__(self, n_tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(n_tags, n_tags))
        nn.init.xavier_normal_(self.transitions)

    def forward(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """The log-likelihood of the right tags, (batch,), from scores of all, (batch, time, tags).

        It is 0 for an empty sentence.
        """
        mask = torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
        return self._gold(scores, tags, mask) - self._partition(scores, mask)

    def _gold(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        emitted = scores.gather(2, tags[:, :, None]).squeeze(2)
        steps = self.transitions[tags[:, :-1], tags[:, 1:]]
        return (emitted * mask).sum(1) + (steps * mask[:, 1:]).sum(1)

    def _partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        total = scores[:, 0]  # (batch, tags)
        for place in range(1, scores.shape[1]):
            paths = total[:, :, None] + self.transitions  # (batch, from, to)
            longer = torch.logsumexp(paths, dim=1) + scores[:, place]
            total = torch.where(mask[:, place, None], longer, total)
        return torch.logsumexp(total, dim=1) * mask[:, 0]


# --------------------------------------------------------------------- attention and pooling


def masked_softmax(
    scores: Tensor, mask: Tensor, *, dim: int = -1, nothing: Tensor | None = None
) -> Tensor:
    """A softmax over what is real by a mask; all zeros where nothing is.

    `nothing` is the score of attending to nothing, (), which takes its share of the weight.
    """
    scores = scores.masked_fill(~mask, -torch.inf)
    # Where all is masked, the maximum is -inf and must become finite.
    top = scores.amax(dim, keepdim=True).clamp(min=torch.finfo(scores.dtype).min).detach()
    if nothing is not None:
        top = torch.maximum(top, nothing.detach())
    powers = torch.exp(scores - top)
    total = powers.sum(dim=dim, keepdim=True)
    if nothing is not None:
        total = total + torch.exp(nothing - top)
    return powers / total.clamp(min=torch.finfo(scores.dtype).tiny)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average over real tokens, (batch, time, dim) to (batch, dim); zeros for an empty text."""
    real = mask[:, :, None].to(values.dtype)
    return (values * real).sum(1) / real.sum(1).clamp(min=1)


def masked_max(values: Tensor, mask: Tensor) -> Tensor:
    """Take the maximum over real tokens, (batch, time, dim) to (batch, dim); zeros if empty."""
    top = values.masked_fill(~mask[:, :, None], -torch.inf).amax(1)
    return torch.where(mask.any(1)[:, None], top, torch.zeros_like(top))


class Trilinear(nn.Module):
    """s_ij = w_x x_i + w_q q_j + (w_d * x_i) q_j + b, for vectors of size `dim` (Seo et al. 2017).

    The pairs [x_i; q_j; x_i * q_j] are never written out: (batch, n, m, 3 * dim) is large.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1)
        self.second = nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.empty(dim))
        bound = (6 / (dim + 1)) ** 0.5
        nn.init.uniform_(self.both, -bound, bound)

    def forward(self, x: Tensor, q: Tensor) -> Tensor:
        """Score pairs: (batch, n, dim) and (batch, m, dim) to (batch, n, m)."""
        product = (x * self.both) @ q.transpose(1, 2)
        scores: Tensor = product + self.first(x) + self.second(q).transpose(1, 2)
        return scores


class SelfAttentivePooling(nn.Module):
    """A mean over tokens of size `dim`, weighted by the softmax of a learned linear score."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Pool (batch, time, dim) into (batch, dim)."""
        weights = masked_softmax(self.score(values).squeeze(2), mask)
        return (weights[:, None, :] @ values).squeeze(1)
