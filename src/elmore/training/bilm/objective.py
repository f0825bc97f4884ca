"""One step of language-model training: a batch in, losses and gradients out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from elmore.compute.workers import Workers
from elmore.nn.bilm import BiLm, BiLmState, ids_of
from elmore.nn.lstm import walk
from elmore.nn.softmax import RowGradient, SoftmaxLoss, log_likelihoods
from elmore.training.bilm.batches import LmBatch

Result = TypeVar("Result")


class StepResult(NamedTuple):
    """What a step gives besides the gradients of the module's parameters.

    Attributes:
        losses: summed loss of each direction.
        rows: gradients of the softmax.
        state: where the LSTMs stand after the batch.
    """

    losses: tuple[float, ...]
    rows: list[RowGradient]
    state: BiLmState


class Objective:
    """Both directions' log likelihood over one token layer and one softmax (§3.1 of the paper).

    The directions run on threads of their own, backward passes included; the token layer waits
    for both. Dropout sits where bilm-tf has it: on the input of every LSTM layer (the residual
    adds the dropped input) and on the top output.

    Args:
        bilm: the module to train; gradients are added to its parameters.
        softmax_weight: (n_words, dim); not touched, its gradient is returned.
        softmax_bias: (n_words,).
        dropout: share of values that are dropped.
        workers: where the directions run.
        autocast: whether matrix products run in bfloat16.
    """

    def __init__(
        self,
        bilm: BiLm,
        softmax_weight: Tensor,
        softmax_bias: Tensor,
        *,
        dropout: float,
        workers: Workers,
        autocast: bool = False,
    ) -> None:
        self.bilm = bilm
        self.softmax_weight = softmax_weight
        self.softmax_bias = softmax_bias
        self.dropout = dropout
        self.workers = workers
        self.autocast = autocast

    def step(
        self,
        batch: LmBatch,
        state: BiLmState | None,
        losses: Sequence[SoftmaxLoss],
        scale: float,
        generators: Sequence[torch.Generator],
    ) -> StepResult:
        """Compute the gradients of scale * (sum of all directions' summed losses).

        The LSTMs start from `state`, or from zeros. No gradient flows into it.
        """
        if not batch.sizes:
            return self._nothing(batch, losses, scale)
        parts = self._token_parts(batch)
        # Detached: the LSTMs' backward passes run on threads and stop here; the token layer's
        # runs once, when all of them are done.
        vectors = torch.cat([part.detach() for part in parts])
        if state is None:
            state = self.bilm.zero_state(batch.sizes[0])
        # Each direction has a leaf of its own: a shared one would be a race.
        learns = parts[0].requires_grad
        leaves = [vectors.detach().requires_grad_(learns) for _ in batch.rows]
        jobs = [
            partial(self._learn, d, batch, leaf, state, losses[d], scale, generators[d])
            for d, leaf in enumerate(leaves)
        ]
        sums, rows, hidden, cell = zip(*self.run(jobs), strict=True)
        if learns:
            grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
            self._token_backward(parts, grads[0] if len(grads) == 1 else grads[0] + grads[1])
        return StepResult(sums, list(rows), BiLmState(torch.stack(hidden), torch.stack(cell)))

    def _nothing(self, batch: LmBatch, losses: Sequence[SoftmaxLoss], scale: float) -> StepResult:
        """The result of a batch without rows: zeros that other processes can add to."""
        softmax = self.softmax_weight, self.softmax_bias
        hidden = self.softmax_weight[:0]
        targets = torch.empty(0, dtype=torch.long, device=hidden.device)
        for parameter in self.bilm.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return StepResult(
            losses=(0.0,) * len(batch.rows),
            rows=[loss(hidden, targets, *softmax, scale).rows for loss in losses],
            state=self.bilm.zero_state(0),
        )

    def run(self, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run jobs on the workers; on another device than the CPU, in turn."""
        # Threads would only wait for the one stream of a GPU.
        if self.softmax_bias.device.type == "cpu":
            return self.workers.run(jobs)
        return [job() for job in jobs]

    def _token_parts(self, batch: LmBatch) -> list[Tensor]:
        """Compute the vectors of the distinct words, a share of them on each worker."""
        device = self.softmax_bias.device
        words, ids = ids_of(batch.words, device), ids_of(batch.word_ids, device)
        gradients = torch.is_grad_enabled()
        cast: dict[str, Any] = {
            "device_type": device.type,
            "dtype": torch.bfloat16,
            "enabled": self.autocast,
        }
        count = len(words) if words is not None else len(ids) if ids is not None else 0
        cuts = [count * k // self.workers.count for k in range(self.workers.count + 1)]

        def share(rows: slice) -> Tensor:
            with torch.set_grad_enabled(gradients), torch.autocast(**cast):
                part: Tensor = self.bilm.tokens(
                    None if words is None else words[rows], None if ids is None else ids[rows]
                )
                return part.float()  # autocast leaves bfloat16; everything above is float32

        rows = [slice(a, b) for a, b in itertools.pairwise(cuts) if a < b]
        return self.run([partial(share, part) for part in rows])

    def _token_backward(self, parts: Sequence[Tensor], gradient: Tensor) -> None:
        """Go back through the token layer, on the workers; sums are made in a fixed order."""
        parameters = [p for p in self.bilm.tokens.parameters() if p.requires_grad]
        pieces = gradient.split([len(part) for part in parts])  # type: ignore[no-untyped-call]  # torch leaves it so

        def back(part: Tensor, piece: Tensor) -> tuple[Tensor, ...]:
            return torch.autograd.grad(part, parameters, piece, allow_unused=True)

        jobs = [partial(back, *pair) for pair in zip(parts, pieces, strict=True)]
        # In the order of the parts, whichever thread was first: the same bits every time (C1).
        for found in self.run(jobs):
            for parameter, grad in zip(parameters, found, strict=True):
                if grad is not None:
                    parameter.grad = grad if parameter.grad is None else parameter.grad + grad

    def log_likelihoods(
        self, batch: LmBatch, state: BiLmState | None = None
    ) -> tuple[list[Tensor], BiLmState]:
        """Each direction's log likelihoods of a batch, without dropout or gradients.

        Returns:
            (n_rows,) for each direction under the full softmax, and the state after the batch.
        """
        with torch.no_grad():
            vectors = torch.cat(self._token_parts(batch))
        start = self.bilm.zero_state(batch.sizes[0]) if state is None else state
        jobs = [partial(self._judge, d, batch, vectors, start) for d in range(len(batch.rows))]
        logs, hidden, cell = zip(*self.run(jobs), strict=True)
        return list(logs), BiLmState(torch.stack(hidden), torch.stack(cell))

    def _judge(
        self, d: int, batch: LmBatch, vectors: Tensor, state: BiLmState
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One direction's log likelihoods, and its state after the batch."""
        targets = torch.from_numpy(batch.targets[d]).to(vectors.device)
        # Without gradients the layers cut their products otherwise, and the last bits of a
        # held-out loss would differ from those of a training step.
        with torch.enable_grad():
            top, hidden, cell = self._read(d, batch, vectors, state, None)
        table = (top.detach(), targets, self.softmax_weight, self.softmax_bias)
        return log_likelihoods(*table), hidden, cell

    def _learn(
        self,
        d: int,
        batch: LmBatch,
        vectors: Tensor,
        state: BiLmState,
        loss: SoftmaxLoss,
        scale: float,
        generator: torch.Generator,
    ) -> tuple[float, RowGradient, Tensor, Tensor]:
        """One direction forward and back: its loss, the softmax's gradient, its state after."""
        targets = torch.from_numpy(batch.targets[d]).to(vectors.device)
        with torch.enable_grad():
            top, hidden, cell = self._read(d, batch, vectors, state, generator)
        with torch.no_grad():  # the losses bring their own gradients
            result = loss(top.detach(), targets, self.softmax_weight, self.softmax_bias, scale)
        if top.requires_grad:
            top.backward(result.d_hidden)  # type: ignore[no-untyped-call]  # torch leaves it so
        return float(result.total), result.rows, hidden, cell

    def _read(
        self,
        d: int,
        batch: LmBatch,
        vectors: Tensor,
        state: BiLmState,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run one direction: its top output, (n_rows, dim), and its state after the batch.

        `vectors` are those of the distinct words, (n_words, dim). Without a generator nothing is
        dropped.
        """
        drop = None
        if self.dropout and generator is not None:
            drop = partial(_dropped, share=self.dropout, generator=generator)
        outputs, hidden, cell = walk(
            self.bilm.layers(d),
            vectors,
            torch.from_numpy(batch.rows[d]).to(vectors.device),
            batch.sizes,
            state.hidden[d],
            state.cell[d],
            skip=self.bilm.config.lstm.skip_connections,
            dropout=drop,
            rounded=self.autocast,
        )
        top = outputs[-1] if drop is None else drop(outputs[-1])
        return top, hidden.detach(), cell.detach()


def _dropped(values: Tensor, *, share: float, generator: torch.Generator) -> Tensor:
    keep = 1 - share
    # Drawn where the generator is: the same numbers on every device.
    mask = torch.empty(values.shape, dtype=values.dtype, device=generator.device)
    return values * mask.bernoulli_(keep, generator=generator).div_(keep).to(values.device)
