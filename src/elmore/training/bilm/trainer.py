"""The state of a language-model training and what one step does to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmore.compute.workers import Workers
from elmore.config import weight_shapes
from elmore.corpus.prepared import Prepared
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError, InputError
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint, Softmax
from elmore.language_model.perplexity import tally
from elmore.nn.bilm import BiLm, BiLmState, initialise
from elmore.nn.softmax import (
    RowGradient,
    SoftmaxLoss,
    draw_negatives,
    full_softmax,
    sampled_softmax,
)
from elmore.text.batching import TokenIndexer
from elmore.text.characters import Alphabet, ByteAlphabet
from elmore.training.bilm.batches import LmBatch
from elmore.training.bilm.objective import Objective
from elmore.training.bilm.recipe import Recipe
from elmore.training.bilm.streams import heldout_batches, make_batches
from elmore.training.distributed import Group
from elmore.training.loop import StepReport, Trainable
from elmore.training.optimizers import (
    Update,
    clip_by_global_norm,
    learning_rate,
    make_optimizer,
    sum_rows,
)
from elmore.training.run import Run
from elmore.training.seeds import numpy_generator, torch_generator


class LmTrainer(Trainable):
    """A biLM with its softmax, its optimizer and its place in the data.

    `start` is a model whose weights to start from; its shape and words are used where the recipe's
    `model.tokens` is "model".
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        prepared: Prepared,
        seed: int,
        group: Group,
        workers: Workers,
        start: Checkpoint | None = None,
    ) -> None:
        super().__init__(run)
        if prepared.n_tokens == 0:
            raise InputError(f"'{prepared.folder}' holds no text; prepare some first")
        self.recipe, self.prepared = recipe, prepared
        self.seed, self.group = seed, group
        model, config = recipe.model, None
        self.vocabulary, self.alphabet = prepared.vocabulary, self._alphabet(start)
        if model.tokens == "model" and start is not None:
            config = start.config
            # The words that are predicted are those of the word table if the model has one.
            self.vocabulary = start.vocabulary or self.vocabulary
        n_words = len(self.vocabulary)
        indexer = TokenIndexer(
            self.alphabet, None if model.tokens == "characters" else self.vocabulary
        )
        words = (prepared, recipe, indexer, self.vocabulary)
        self.batches = make_batches(*words, seed=seed, rank=group.rank, world=group.world)
        self.heldout = heldout_batches(*words)
        n_characters = 0 if self.alphabet is None else self.alphabet.n_characters
        self.bilm = BiLm(config or model.config(n_words, n_characters))
        initialise(self.bilm, numpy_generator(seed, "weights"))
        self.bilm.to(group.device)
        self.softmax_weight, self.softmax_bias = self._start_softmax(
            prepared.counts_of(self.vocabulary)
        )
        self.objective = Objective(
            self.bilm,
            self.softmax_weight,
            self.softmax_bias,
            dropout=recipe.loss.dropout,
            workers=workers,
            autocast=recipe.run.autocast,
        )
        choice = recipe.optimizer
        self.optimizer = make_optimizer(
            choice.name,
            betas=(choice.beta1, choice.beta2),
            epsilon=choice.epsilon,
            weight_decay=choice.weight_decay,
            accumulator=choice.accumulator,
            # Relative to lr, which the schedule changes, so that both rise and decay together.
            rate=choice.muon_lr / choice.lr,
            momentum=choice.muon_momentum,
            rounded=recipe.run.autocast,
            run=self.objective.run,
        )
        self._carried: BiLmState | None = None
        if start is not None:
            self.start_from(start)

    def _alphabet(self, start: Checkpoint | None) -> Alphabet | None:
        """How words become characters; None if the model reads words only."""
        model = self.recipe.model
        if model.tokens == "words":
            return None
        if start is not None:
            return start.alphabet
        if model.alphabet == "bytes":
            return ByteAlphabet(model.max_chars)
        return self.prepared.characters(model.max_chars)

    def _start_softmax(self, counts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Draw the softmax as bilm-tf does, its bias from the words' frequencies if asked."""
        bias = torch.zeros(len(counts))
        if self.recipe.loss.unigram_bias:
            # Words that never occur count as one: their logarithm must be finite.
            logs = torch.from_numpy(np.log(np.maximum(counts, 1).astype(np.float64)))
            # Centred, to stay near the weights in size: a constant for all words changes nothing.
            bias = (logs - logs.mean()).float()
        if self.recipe.model.tied_softmax:  # the same memory: whoever changes one changes both
            return self.bilm.tokens.words.detach(), bias.to(self.group.device)
        dim = self.recipe.model.projection_dim
        weight = torch.empty(len(counts), dim)
        weight.normal_(0, 1 / math.sqrt(dim), generator=torch_generator(self.seed, "softmax"))
        return weight.to(self.group.device), bias.to(self.group.device)

    def total(self) -> int:
        """The tokens of the complete run."""
        return self.recipe.total_tokens(self.prepared)

    def finished(self) -> bool:
        """Whether all tokens were seen."""
        return self.seen >= self.total()

    def step(self) -> StepReport:
        """Take gradients of one or more batches and update all weights."""
        recipe = self.recipe
        parameters = list(self.bilm.parameters())
        frozen = self.seen < recipe.schedule.frozen_tokens
        for parameter in parameters:
            parameter.grad = None
            # A new softmax would pull a trained biLM apart before it has learned anything.
            parameter.requires_grad_(not frozen)
        # The mean needs the tokens of all batches before the first gradient.
        drawn = [self.batches.next() for _ in range(recipe.optimizer.accumulate)]
        everything = sum(batch.total for batch in drawn)
        names = self.bilm.config.directions
        rows, sums = [], [0.0] * len(names)
        # The mean over tokens and directions, times the steps if asked, as bilm-tf has it.
        scale = 1 / (everything * len(names))
        if recipe.loss.times_unroll and recipe.data.regime == "stream":
            scale *= recipe.data.unroll
        for part, batch in enumerate(drawn):
            generators = [
                torch_generator(self.seed, "dropout", self.step_number, part, d, self.group.rank)
                for d in range(len(names))
            ]
            result = self.objective.step(
                batch, self._start_state(batch), self._losses(part), scale, generators
            )
            # Batches of complete sentences, which come between two windows, leave the state alone.
            if batch.fresh is not None:
                self._carried = result.state
            rows += [gathered for r in result.rows for gathered in self.group.gather_rows(r)]
            sums = [a + b for a, b in zip(sums, result.losses, strict=True)]
        lr = learning_rate(
            recipe.schedule, recipe.optimizer.lr, self.total(), seen=self.seen, tokens=everything
        )
        self.group.sum_dense([p.grad for p in parameters if p.grad is not None])
        norm = self._update(sum_rows(rows), lr)
        self.step_number += 1
        self.seen += everything
        if recipe.schedule.average and not self.means:
            self.means = {name: weight.clone() for name, weight in self.weights().items()}
        self.follow_weights(recipe.schedule.average)
        means = [total / everything for total in self.group.sum_numbers(sums)]
        return StepReport(dict(zip(names, means, strict=True)), lr, norm)

    def _start_state(self, batch: LmBatch) -> BiLmState | None:
        """The carried state for a batch that continues an earlier one, else None for zeros."""
        if batch.fresh is None or self._carried is None:
            return None
        if not batch.fresh.any():  # the usual case, without a copy
            return self._carried
        keep = torch.from_numpy(~batch.fresh).to(self.softmax_bias).unsqueeze(1)
        return BiLmState(self._carried.hidden * keep, self._carried.cell * keep)

    def evaluate(self) -> dict[str, float] | None:
        """Measure on the held-out batches with the full softmax."""
        if not self.heldout:
            return None
        unknown = -1 if self.vocabulary.unknown is None else self.vocabulary.unknown
        parts = []
        with self.averaged():
            predicted = [self.objective.log_likelihoods(batch)[0] for batch in self.heldout]
        for batch, logs in zip(self.heldout, predicted, strict=True):
            arrays = [log.double().cpu().numpy() for log in logs]
            n = batch.sizes[0]
            parts.append(tally(unknown, arrays, list(batch.targets), n_sentences=n, n_markers=n))
        found = sum(parts[1:], start=parts[0])
        sums = (found.forward_loss, found.backward_loss)
        losses = [total / found.n_tokens for total in sums if total is not None]
        mean = sum(losses) / len(losses)
        names = self.bilm.config.directions
        return {
            **{f"{name}_perplexity": _exp(loss) for name, loss in zip(names, losses, strict=True)},
            "loss": mean,
            "perplexity": _exp(mean),
            "without_unknown": _exp(found.known_loss / max(1, found.n_known)),
            "oov_rate": found.oov_rate,
        }

    def weights(self) -> dict[str, Tensor]:
        """All that learns; a tied table once."""
        weights = {f"bilm/{name}": w.detach() for name, w in self.bilm.named_parameters()}
        if not self.recipe.model.tied_softmax:
            weights["softmax/weight"] = self.softmax_weight
        return {**weights, "softmax/bias": self.softmax_bias}

    def save_state(self, *, main: bool = True) -> None:
        super().save_state(main=self.group.main)
        self.group.barrier()

    def own_state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """The carried state of all processes, and the position in the data.

        The weights of a finished run are in its checkpoint already, as means if the recipe asks for
        them. If it is trained longer, its optimizer starts again.
        """
        own: dict[str, dict[str, Tensor]] = {}
        if self.finished():
            # A file of tensors must hold one.
            own = {"weights": {}, "means": {}, "optimizer": {}, "finished": {"": torch.ones(1)}}
        if self._carried is not None:
            named = zip(("hidden", "cell"), self._carried, strict=True)
            own["carried"] = {k: torch.stack(self.group.gather_tensors(t)) for k, t in named}
        return own, {"cursor": self.batches.cursor()}

    def restore(self, tensors: dict[str, dict[str, Tensor]], facts: Mapping[str, Any]) -> None:
        if "finished" in tensors:
            self.start_from(read_checkpoint(self.run.checkpoint_path))
        if carried := tensors.get("carried"):
            rank = self.group.rank
            self._carried = BiLmState(carried["hidden"][rank], carried["cell"][rank])
        self.batches.restore(facts["cursor"])

    def start_from(self, checkpoint: Checkpoint) -> None:
        """Take the weights of a trained model, and its softmax if it has one."""
        softmax = checkpoint.softmax
        if weight_shapes(checkpoint.config) != weight_shapes(self.bilm.config):
            raise ConfigError(
                "the model to start from has another shape than the recipe; set its [model] keys"
            )
        weights = dict(self.bilm.named_parameters())
        with torch.no_grad():
            for name, array in checkpoint.checked_weights():
                weights[name].copy_(torch.from_numpy(np.array(array)))
            if softmax is not None:
                self.softmax_weight.copy_(torch.from_numpy(np.array(softmax.floats())))
                self.softmax_bias.copy_(torch.from_numpy(np.array(softmax.bias)))

    def save_model(self, *, best: bool) -> None:
        """Write the model as an elmore folder."""
        if self.group.main:
            path = self.run.best_path if best else self.run.checkpoint_path
            with self.averaged():
                elmore_folder.write(self.checkpoint(), path, overwrite=True)
        self.group.barrier()

    def checkpoint(self) -> Checkpoint:
        """The model as it is now."""
        data = self.prepared
        notes: dict[str, Any] = {"data": {"tokens": data.n_tokens, "digest": data.digest}}
        if data.segmenter is not None:
            notes["tokenizer"] = f"its training text was split by {data.segmenter}"
        weights = {
            name: weight.detach().cpu().numpy() for name, weight in self.bilm.named_parameters()
        }
        return Checkpoint(
            config=self.bilm.config,
            weights=weights,
            alphabet=self.alphabet,
            vocabulary=self.vocabulary,
            softmax=Softmax(
                self.softmax_weight.cpu().numpy().copy(),
                self.softmax_bias.cpu().numpy().copy(),
            ),
            tokenizer=data.tokenizer,
            notes={
                **notes,
                "training": {
                    "recipe": self.recipe.name,
                    "step": self.step_number,
                    "tokens_seen": self.seen,
                    "longest": self._longest(),
                    "heldout_loss": None if math.isinf(self.best) else -self.best,
                },
            },
            origin=str(self.run.path),
        )

    def _longest(self) -> int | None:
        """Tokens of the longest sequence that the model learned to read; None without end."""
        data = self.recipe.data
        if data.regime == "stream":
            return None
        return max(data.max_length, data.long_tokens if data.long_share else 0)

    def _losses(self, part: int) -> list[SoftmaxLoss]:
        loss, directions = self.recipe.loss, self.bilm.config.directions
        if loss.kind == "full":
            return [full_softmax] * len(directions)
        # All processes draw the same words: the name of the generator holds no rank.
        names = ("negatives", self.step_number, part)
        draws = len(directions) if loss.shared == "none" else 1
        drawn = [
            draw_negatives(
                loss.negatives, len(self.vocabulary), numpy_generator(self.seed, *names, d)
            )
            for d in range(draws)
        ]
        drawn *= len(directions) // draws
        rounded = self.recipe.run.autocast
        return [partial(sampled_softmax, negatives=n, rounded=rounded) for n in drawn]

    def _update(self, rows: RowGradient, lr: float) -> float:
        """Clip all gradients together and change all weights; returns the norm before."""
        table = self.bilm.tokens.words if self.recipe.model.tied_softmax else None
        if table is not None:
            # One table learns as input and as output at once.
            grad = table.grad if table.grad is not None else torch.zeros_like(table)
            ids = torch.arange(len(table)) if rows.ids is None else rows.ids
            table.grad = grad.index_add_(0, ids.to(grad.device), rows.weight)
        updates = [
            Update(name, weight.detach(), weight.grad)
            for name, weight in self.bilm.named_parameters()
            if weight.grad is not None
        ]
        if table is None:
            updates.append(Update("softmax.weight", self.softmax_weight, rows.weight, rows.ids))
        updates.append(Update("softmax.bias", self.softmax_bias, rows.bias, rows.ids))
        gradients = [update.gradient for update in updates]
        norm = clip_by_global_norm(gradients, self.recipe.optimizer.clip_norm)
        self.optimizer.step(updates, lr)
        return norm


def _exp(loss: float) -> float:
    """The perplexity of a loss, kept finite: JSON has no infinity."""
    # A float ends near exp(709).
    return math.exp(min(loss, 700.0))
