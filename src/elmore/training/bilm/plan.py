"""What a training run will cost and bring, from its data and a few measured steps."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmore.base.json import from_json, read_json
from elmore.base.machine import peak_memory
from elmore.base.messages import readable_bytes, readable_time
from elmore.config import LstmConfig
from elmore.corpus.prepared import Prepared
from elmore.nn.threads import TorchWorkers, one_thread
from elmore.training.bilm.recipe import Recipe, fitted_recipe
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.distributed import Group, trainable_device
from elmore.training.run import Run

# At most; a slow model is measured for a few seconds only.
_STEPS = 20
# Tokens that a biLM should see per weight (softmax apart). The English model saw 33.
_FEW_PER_WEIGHT, _MANY_PER_WEIGHT = 2, 60
_FEW_HELDOUT = 5_000
_LITTLE_TEXT = 2_000_000
_MANY_UNKNOWN = 0.1
# A word that occurs less often is hardly learned as a target.
_RARE = 5
# Perplexities of earlier runs: of each size of model, held-out perplexities during a run at a
# constant learning rate, and those at the end of runs whose rate was decayed.
_CURVES = Path(__file__).parents[2] / "data" / "scaling.json"
# Each pass over the same text is worth less than the one before, and falls to 1/e after this many
# (Muennighoff et al. 2023, "Scaling data-constrained language models").
_WORTH = 15.0
# How often larger or smaller a vocabulary and a model may be than those of a curve.
_MAX_WORDS, _MAX_SIZE = 1.25, 2.5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will cost and bring."""

    recipe: str
    tokens: int  # of the data, each counted once
    passes: float
    total_tokens: int  # of the complete run
    tokens_per_second: float
    seconds: float  # of the complete run, with its evaluations
    memory_bytes: int | None  # None where the system does not tell
    disk_bytes: int  # of the run folder, at most
    # Expected on text like that of `perplexity_of`; None where the vocabulary or the size of the
    # model differs too much from those runs.
    perplexity: float | None
    perplexity_of: str
    parameters: int  # without the softmax
    vocabulary: int
    advice: tuple[str, ...]

    @classmethod
    def of(cls, trainer: LmTrainer, speed: float, evaluation_seconds: float = 0.0) -> Plan:
        """Plan a run whose tokens per second are known, after a step or more of its trainer."""
        prepared, recipe, total = trainer.prepared, trainer.recipe, trainer.total()
        n_words = len(trainer.vocabulary)
        parameters = sum(weight.numel() for weight in trainer.bilm.parameters())
        curve, perplexity = expected_perplexity(
            trainer.bilm.config.lstm, n_words, prepared.n_tokens, total
        )
        every = recipe.run.evaluate_tokens
        evaluations = 1 + (total // every if every else 0)
        memory = peak_memory()
        softmax = trainer.softmax_weight.nbytes + trainer.softmax_bias.nbytes
        model = softmax + sum(weight.nbytes for weight in trainer.bilm.parameters())
        tensors = [trainer.weights(), trainer.optimizer.state(), trainer.means]
        state = sum(tensor.nbytes for part in tensors for tensor in part.values())
        return cls(
            recipe=recipe.name,
            tokens=prepared.n_tokens,
            passes=total / max(1, recipe.pass_tokens(prepared)),
            total_tokens=total,
            tokens_per_second=speed,
            seconds=total / speed + evaluations * evaluation_seconds,
            # A model that is saved is copied first.
            memory_bytes=None if memory is None else memory + softmax,
            # Two models, and three states while one is saved.
            disk_bytes=2 * model + 3 * state,
            perplexity=perplexity,
            perplexity_of=f"{curve.text}, {curve.vocabulary:,} words, "
            f"{curve.dim} cells and {curve.projection_dim} dimensions",
            parameters=parameters,
            vocabulary=n_words,
            advice=tuple(_advice(trainer, total, parameters)),
        )

    def line(self) -> str:
        """The plan in one line, as `pretrain` says it when it starts."""
        memory = (
            "" if self.memory_bytes is None else f"{readable_bytes(self.memory_bytes)} memory, "
        )
        return (
            f"plan: {self.total_tokens:,} tokens at {self.tokens_per_second:,.0f} per second, "
            f"{readable_time(self.seconds)}; {memory}{readable_bytes(self.disk_bytes)} disk; "
            f"perplexity {self._expected()}"
        )

    def _expected(self) -> str:
        if self.perplexity is None:
            return f"not predicted (known are runs on {self.perplexity_of})"
        return f"about {self.perplexity:.0f} on such text (from runs on {self.perplexity_of})"

    def __str__(self) -> str:
        memory = "unknown" if self.memory_bytes is None else readable_bytes(self.memory_bytes)
        rows = {
            "recipe": self.recipe,
            "data": f"{self.tokens:,} tokens, {self.vocabulary:,} words in the vocabulary",
            "model": f"{self.parameters:,} parameters without the softmax",
            "run": f"{self.total_tokens:,} tokens in {self.passes:.3g} passes",
            "speed": f"{self.tokens_per_second:,.0f} tokens per second, measured",
            "time": readable_time(self.seconds),
            "memory": memory,
            "disk": f"{readable_bytes(self.disk_bytes)} at most",
            "perplexity": self._expected(),
        }
        lines = [f"{name:<12}{value}" for name, value in rows.items()]
        return "\n".join([*lines, *(f"{'advice':<12}{text}" for text in self.advice)])


def make_plan(
    data: Prepared | str | Path,
    *,
    recipe: Recipe | str | Path | None = None,
    threads: int | None = None,
    device: str = "cpu",
    seconds: float = 5.0,
) -> Plan:
    """Measure a few steps and say what a run would cost and bring; nothing is written.

    Args:
        data: prepared text, or its folder.
        recipe: as `pretrain` takes it.
        threads: processors to use; all by default.
        device: where to compute.
        seconds: how long to measure, roughly.
    """
    prepared = data if isinstance(data, Prepared) else Prepared.open(data)
    if recipe is None:
        recipe = fitted_recipe(prepared)
    elif not isinstance(recipe, Recipe):
        recipe = Recipe.load(recipe)
    with tempfile.TemporaryDirectory() as folder, one_thread():
        group, workers = Group(device=trainable_device(device)), TorchWorkers(threads)
        trainer = LmTrainer(recipe, Run(folder), prepared, 0, group, workers)
        trainer.step()  # the first one also reads the data and makes the optimizer's arrays
        seen, began = trainer.seen, time.perf_counter()
        for _ in range(_STEPS):
            trainer.step()
            if time.perf_counter() - began > seconds:
                break
        speed = (trainer.seen - seen) / (time.perf_counter() - began)
        began = time.perf_counter()
        # Two batches tell the speed. All of them, with the full softmax, may take minutes.
        everything = trainer.heldout
        trainer.heldout = everything[:2]
        trainer.evaluate()
        taken = time.perf_counter() - began
    share = len(everything) / max(1, len(trainer.heldout))
    return Plan.of(trainer, speed, taken * share)


def multiplies_bfloat16(device: torch.device | str) -> bool:
    """Whether a device has instructions for products in bfloat16, which make training faster."""
    if torch.device(device).type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    # An older torch does not tell.
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def _advice(trainer: LmTrainer, total: int, parameters: int) -> Iterator[str]:
    prepared, model = trainer.prepared, trainer.recipe.model
    if not trainer.recipe.run.autocast and multiplies_bfloat16(trainer.group.device):
        yield (
            "this processor multiplies bfloat16 natively, so `--set run.autocast=true` is up to "
            "twice as fast"
        )
    if prepared.n_tokens < _LITTLE_TEXT:
        yield (
            f"{prepared.n_tokens:,} tokens are little text; a trained model that you adapt with "
            "`elmore fine-tune` will be better"
        )
    if total < _FEW_PER_WEIGHT * parameters:
        yield (
            f"the model has {parameters:,} parameters for {total:,} tokens; a smaller one is "
            "faster and learns as much (`--recipe tiny`)"
        )
    if total > _MANY_PER_WEIGHT * parameters:
        dim, projection = model.dim * 3 // 2, model.projection_dim * 3 // 2
        yield (
            "there is enough text for a larger model: "
            f"--set model.dim={dim} --set model.projection_dim={projection}"
        )
    if prepared.heldout.oov_rate > _MANY_UNKNOWN:
        yield (
            f"{prepared.heldout.oov_rate:.0%} of the held-out words are not in the vocabulary, so "
            "perplexity will mislead; use more text, a larger --vocabulary, or split words into "
            "smaller tokens"
        )
    frequent = int((prepared.counts_of(prepared.vocabulary) >= _RARE).sum())
    if prepared.heldout.oov_rate <= _MANY_UNKNOWN and 2 * frequent < len(prepared.vocabulary):
        yield (
            f"only {frequent:,} of the {len(prepared.vocabulary):,} words occur {_RARE} times or "
            f"more; `--vocabulary {max(frequent, 4)}` in `elmore prepare` is faster and predicts "
            "the others as <UNK>"
        )
    if prepared.heldout.tokens < _FEW_HELDOUT:
        yield (
            f"{prepared.heldout.tokens:,} tokens are held out, so perplexity will be noisy; "
            "prepare with a larger --heldout"
        )


# --------------------------------------------------------------------------- perplexity


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """Tokens and held-out perplexities of one size of model, before and after the rate decayed."""

    dim: int
    projection_dim: int
    vocabulary: int
    text: str
    constant: tuple[tuple[float, float], ...]
    decayed: tuple[tuple[float, float], ...]

    def at(self, tokens: float) -> float:
        """The perplexity to expect after a complete run over this many different tokens."""
        lowest, factor, power = _fit(self.constant)

        def constant(tokens: float) -> float:
            return lowest + factor * math.pow(tokens, -power)

        # The gain of a decay changes slowly with the length of a run, and is known for few lengths:
        # it is interpolated between them.
        gains = [math.log(found) - constant(seen) for seen, found in self.decayed]
        places = [math.log(seen) for seen, _ in self.decayed]
        return math.exp(constant(tokens) + float(np.interp(math.log(tokens), places, gains)))


def _fit(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Fit loss = a + b * tokens ** -c by least squares; (a, b, c)."""
    tokens, losses = np.array([p[0] for p in points]), np.log([p[1] for p in points])
    best = (math.inf, 0.0, 0.0, 0.0)
    # For a given power the other two are linear, so least squares are exact; powers are tried.
    for power in np.linspace(0.05, 0.6, 56):
        columns = np.stack([np.ones_like(tokens), tokens**-power], axis=1)
        (a, b), *_ = np.linalg.lstsq(columns, losses, rcond=None)
        error = float(((columns @ (a, b) - losses) ** 2).sum())
        best = min(best, (error, float(a), float(b), float(power)))
    return best[1:]


def curves() -> tuple[_Curve, ...]:
    """All curves that are known."""
    entries = read_json(_CURVES)["curves"]
    return tuple(from_json(_Curve, entry, what=str(_CURVES), fix="restore it") for entry in entries)


def expected_perplexity(
    shape: LstmConfig, n_words: int, tokens: int, total: int
) -> tuple[_Curve, float | None]:
    """The curve of the size nearest by its multiplications per token, and what it says about a run.

    None if the curve does not apply: perplexities over vocabularies of different sizes cannot be
    compared, and a model of a very different size learns at another speed.
    """
    size = shape.dim * shape.projection_dim

    def distance(curve: _Curve) -> float:
        return abs(math.log(size) - math.log(curve.dim * curve.projection_dim))

    curve = min(curves(), key=distance)
    words = abs(math.log(n_words / curve.vocabulary))
    if words > math.log(_MAX_WORDS) or distance(curve) > math.log(_MAX_SIZE):
        return curve, None
    passes, worth = total / max(1, tokens), float(total)
    if passes > 1:  # how many different tokens the run is worth
        worth = tokens * (1 + _WORTH * (1 - math.exp(-(passes - 1) / _WORTH)))
    return curve, curve.at(max(1.0, worth))
