"""Learning rates, and the optimizers: Adagrad, Adam, Muon and Adadelta.

An optimizer updates complete weights, or the touched rows of a table.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import call
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from elmore.errors import ConfigError
from elmore.nn.softmax import RowGradient
from elmore.training.bilm.recipe import ScheduleRecipe


class Update(NamedTuple):
    """A weight and its gradient.

    Attributes:
        name: under which the optimizer remembers the weight.
        weight: changed in place.
        gradient: of the complete weight, or of its rows `ids`.
        ids: distinct rows, (n,); None for the complete weight.
    """

    name: str
    weight: Tensor
    gradient: Tensor
    ids: Tensor | None = None


class Optimizer(ABC):
    """What a trainer asks of an optimizer; it keeps tensors by name of the weight and kind.

    Muon's state holds that of its Adam too, so each optimizer loads only its own kinds.
    """

    _kinds: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    @abstractmethod
    def step(self, updates: Iterable[Update], lr: float) -> None:
        """Change all weights once."""

    def state(self) -> dict[str, Tensor]:
        """All tensors that a resumed run needs."""
        return dict(self._tensors)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take copies of the tensors of `state`: steps change them in place."""
        own = tuple(f"|{kind}" for kind in self._kinds)
        self._tensors = {key: value.clone() for key, value in state.items() if key.endswith(own)}

    def _kept(self, name: str, kind: str, like: Tensor, start: float = 0.0) -> Tensor:
        """A tensor of a weight; it begins as `start` everywhere."""
        key = f"{name}|{kind}"
        if key not in self._tensors:
            self._tensors[key] = torch.full_like(like, start)
        return self._tensors[key]


def sum_rows(gradients: Sequence[RowGradient]) -> RowGradient:
    """Add up gradients of the softmax, so that each row occurs once.

    A row may come from several directions, targets and negatives; an optimizer that squares
    gradients must see their sum.
    """
    if any(part.ids is None for part in gradients):
        weight = torch.stack([part.weight for part in gradients]).sum(dim=0)
        return RowGradient(None, weight, torch.stack([part.bias for part in gradients]).sum(dim=0))
    ids = torch.cat([part.ids for part in gradients if part.ids is not None])
    distinct, where = torch.unique(ids, return_inverse=True)
    weight = torch.cat([part.weight for part in gradients])
    bias = torch.cat([part.bias for part in gradients])
    return RowGradient(
        distinct,
        weight.new_zeros(len(distinct), weight.shape[1]).index_add_(0, where, weight),
        bias.new_zeros(len(distinct)).index_add_(0, where, bias),
    )


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float | None) -> float:
    """Scale all gradients so that their joint norm is at most `limit`; give the norm before."""
    # In double precision: the squares of many norms are added up.
    norm = float(torch.stack([g.norm() for g in gradients]).double().norm())
    if limit is not None and norm > limit:
        for gradient in gradients:
            gradient.mul_(limit / norm)
    return norm


class Adagrad(Optimizer):
    """acc += g^2; w -= lr * g / sqrt(acc), without an epsilon (TensorFlow's Adagrad).

    On touched rows it is exact: an untouched row has no gradient and does not move.

    The sums of squares start from `accumulator`.
    """

    _kinds = ("sum",)

    def __init__(self, *, accumulator: float = 1.0) -> None:
        super().__init__()
        self._start = accumulator

    @torch.no_grad()
    def step(self, updates: Iterable[Update], lr: float) -> None:
        for name, weight, gradient, ids in updates:
            everything = self._kept(name, "sum", weight, self._start)
            if ids is None:
                sums = everything.addcmul_(gradient, gradient)
                weight.addcdiv_(gradient, sums.sqrt(), value=-lr)
            else:
                # Indexing by numbers copies, so both results are written back.
                sums = everything[ids].addcmul_(gradient, gradient)
                everything[ids] = sums
                weight[ids] = weight[ids].addcdiv_(gradient, sums.sqrt_(), value=-lr)


class Adam(Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019).

    Tables that are updated by rows are updated lazily: rows that a batch does not touch keep
    their moments and do not move. Dense Adam, another optimizer, would keep moving them.
    """

    _kinds = ("first", "second", "count")

    def __init__(
        self,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self._betas, self._epsilon, self._decay = betas, epsilon, weight_decay

    @torch.no_grad()
    def step(self, updates: Iterable[Update], lr: float) -> None:
        for update in updates:
            self._update(*update, lr)

    def _update(
        self, name: str, weight: Tensor, gradient: Tensor, ids: Tensor | None, lr: float
    ) -> None:
        first, second = self._kept(name, "first", weight), self._kept(name, "second", weight)
        beta1, beta2 = self._betas
        m, v, w = (first, second, weight) if ids is None else (first[ids], second[ids], weight[ids])
        m.lerp_(gradient, 1 - beta1)
        v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if self._decay and weight.dim() > 1:  # biases never decay
            w.mul_(1 - lr * self._decay)
        # Per weight, because some are frozen at first; of a table all rows count together, also
        # those that a batch left out.
        steps = int(self._kept(name, "count", torch.zeros((), dtype=torch.int64)).add_(1))
        scale = (v / (1 - beta2**steps)).sqrt_().add_(self._epsilon)
        w.addcdiv_(m, scale, value=-lr / (1 - beta1**steps))
        if ids is not None:
            first[ids], second[ids], weight[ids] = m, v, w


# Makes singular values between 0.01 and 1 end up near 1 (Jordan et al. 2024).
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: Tensor, *, iterations: int = 3) -> Tensor:
    """Bring the singular values of matrices near 1: approximately U V^T of U S V^T.

    Newton-Schulz iterations X <- (a + b A + c A^2) X with A = X X^T, as in Muon. All factors are
    polynomials of the first A, so the iterations only multiply the small square matrices, and X
    comes in at the end. The fourth root of |A|^2 bounds the largest singular value more tightly
    than the norm of X does, which saves an iteration or two.

    `matrices` are (n, rows, columns) with no more rows than columns: float32, or bfloat16 for at
    most three iterations, because errors grow with each. Three leave small singular values below 1.
    """
    a, b, c = _NEWTON_SCHULZ
    square = torch.bmm(matrices, matrices.mT)
    # At least a tiny number: a gradient of zeros gives a step of zeros, not NaN.
    bound = square.float().square().sum(dim=(1, 2), keepdim=True).sqrt_().clamp_(min=1e-30)
    square = (square / bound).to(matrices.dtype)
    product = square
    for k in range(iterations):
        factor = torch.baddbmm(square, square, square, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if k == 0 else torch.bmm(factor, product)
        if k + 1 < iterations:
            square = torch.bmm(torch.bmm(factor, square), factor)
    return torch.bmm((product * bound.rsqrt()).to(matrices.dtype), matrices)


class Muon(Optimizer):
    """Orthogonalised momentum for the LSTMs' matrices, Adam for all other weights.

    Every step moves a matrix by the same amount in all directions that the momentum points in,
    instead of mostly in the few strongest ones (Jordan et al. 2024). The four gates of a matrix
    are orthogonalised separately. Matrices of equal shape are computed together.

    Args:
        others: the optimizer of all other weights.
        rate: spectral norm of a matrix's step, as a multiple of the learning rate.
        momentum: decay of the mean of gradients; the step looks ahead (Nesterov).
        weight_decay: decoupled, as in Adam.
        rounded: whether to orthogonalise in bfloat16.
        run: runs jobs that do not depend on each other, in turn or on several threads.
    """

    _kinds = ("mean",)

    def __init__(
        self,
        others: Adam,
        *,
        rate: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        rounded: bool = False,
        run: Callable[[Sequence[Callable[[], None]]], object] = lambda jobs: list(map(call, jobs)),
    ) -> None:
        super().__init__()
        self._others, self._run = others, run
        self._rate, self._momentum, self._decay = rate, momentum, weight_decay
        self._factor = torch.bfloat16 if rounded else torch.float32

    @torch.no_grad()
    def step(self, updates: Iterable[Update], lr: float) -> None:
        others = []
        shapes: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for update in updates:
            if is_lstm_matrix(update.name):
                pair = self._blocks(update)
                shapes.setdefault((pair[1].shape[1], pair[1].shape[2]), []).append(pair)
            else:
                others.append(update)
        # Cut alike whatever the number of threads, so that it cannot change the last bits.
        halves = (half for pairs in shapes.values() for half in (pairs[::2], pairs[1::2]) if half)
        self._run([partial(self._move, half, lr * self._rate) for half in halves])
        self._others.step(others, lr)

    def _blocks(self, update: Update) -> tuple[Tensor, Tensor]:
        """The weight and the direction to orthogonalise, (blocks, rows, columns), rows few."""
        name, weight, gradient, _ = update
        mean = self._kept(name, "mean", weight)
        mean.lerp_(gradient, 1 - self._momentum)
        ahead = torch.lerp(gradient, mean, self._momentum)
        # The four gates are maps of their own, so each is orthogonalised on its own.
        gates = 1 if name.endswith("projection") else 4
        blocks = [t.view(gates, -1, t.shape[1]) for t in (weight, ahead)]
        # The cost of orthogonalising grows with the square of the rows.
        if blocks[0].shape[1] > blocks[0].shape[2]:
            blocks = [block.mT for block in blocks]
        return blocks[0], blocks[1]

    @torch.no_grad()  # which holds for one thread only
    def _move(self, pairs: Sequence[tuple[Tensor, Tensor]], lr: float) -> None:
        matrices = torch.cat([ahead.to(self._factor) for _, ahead in pairs])
        steps = orthogonalize(matrices)
        parts = steps.split([len(weight) for weight, _ in pairs])  # type: ignore[no-untyped-call]  # torch leaves it so
        for (weight, _), step in zip(pairs, parts, strict=True):
            if self._decay:
                weight.mul_(1 - lr * self._decay)
            weight.add_(step, alpha=-lr)

    def state(self) -> dict[str, Tensor]:
        """The means of gradients and the state of the other optimizer."""
        return {**super().state(), **self._others.state()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        super().load(state)
        self._others.load(state)


def make_optimizer(
    name: str,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float = 0.0,
    accumulator: float = 0.1,
    **muon: Any,
) -> Optimizer:
    """Make an optimizer by the name that recipes give it; the first beta is Adadelta's rho."""
    match name:
        case "adagrad":
            return Adagrad(accumulator=accumulator)
        case "adadelta":
            return Adadelta(rho=betas[0], epsilon=epsilon)
        case "adam" | "muon":
            adam = Adam(betas=betas, epsilon=epsilon, weight_decay=weight_decay)
            return Muon(adam, weight_decay=weight_decay, **muon) if name == "muon" else adam
        case _:
            raise ConfigError(f"optimizer.name={name!r} is not implemented; add it here")


def is_lstm_matrix(name: str) -> bool:
    """Whether Muon moves a weight; Adam moves all others."""
    return "_layers." in name and name.endswith(("input_weight", "state_weight", "projection"))


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012): steps in the measure of earlier steps; complete weights only."""

    _kinds = ("squares", "steps")

    def __init__(self, *, rho: float = 0.95, epsilon: float = 1e-6) -> None:
        super().__init__()
        self._rho, self._epsilon = rho, epsilon

    @torch.no_grad()
    def step(self, updates: Iterable[Update], lr: float) -> None:
        rho, epsilon = self._rho, self._epsilon
        for name, weight, gradient, ids in updates:
            if ids is not None:
                raise ValueError("Adadelta has no lazy rows; give the complete gradient")
            squares = self._kept(name, "squares", weight)
            steps = self._kept(name, "steps", weight)
            squares.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
            step = (steps + epsilon).sqrt_().div_((squares + epsilon).sqrt_()).mul_(gradient)
            steps.mul_(rho).addcmul_(step, step, value=1 - rho)
            weight.add_(step, alpha=-lr)


# --------------------------------------------------------------------------- learning rates
# Functions of tokens seen or of scores, never of the clock, so that a resumed run repeats them.


def learning_rate(
    schedule: ScheduleRecipe, peak: float, total: int, *, seen: int, tokens: int
) -> float:
    """The learning rate of a step of `tokens`, after `seen` of the `total` tokens of a run."""
    if seen < schedule.warmup_tokens:
        # With the tokens of the step itself: a first step at a rate near 0 would be wasted.
        return peak * min(1.0, (seen + tokens) / schedule.warmup_tokens)
    decay_from = int(total * (1 - schedule.decay_share))
    if schedule.decay == "constant" or seen <= decay_from:
        return peak
    done = min(1.0, (seen - decay_from) / max(1, total - decay_from))
    left = (1 + math.cos(math.pi * done)) / 2 if schedule.decay == "cosine" else 1 - done
    return peak * (schedule.floor + (1 - schedule.floor) * left)


def plateau_factor(scores: Sequence[float], *, patience: int) -> float:
    """The share of the rate that is left: halved after evaluations without a better score.

    Scores that equal the first one from the start do not count: nothing is learned yet, and a
    smaller rate would make sure that nothing ever is.
    """
    best, waited, share = -math.inf, 0, 1.0
    for score in scores:
        if score > best:
            best, waited = score, 0
            continue
        if score == best == scores[0]:
            continue
        waited += 1
        if waited > patience:
            share, waited = share / 2, 0
    return share
