"""What one step of the trainer does: weighing, negatives, tying, freezing, looking."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import characters, make_sentences, relative, small_recipe, whole_words
from test_batches import given_shard
from test_objective import Given

from elmore.nn.softmax import Negatives
from elmore.nn.threads import torch_workers
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.training.bilm import trainer as module
from elmore.training.bilm.batches import LmBatch, SentenceBatches
from elmore.training.bilm.recipe import Recipe
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.distributed import Group
from elmore.training.run import Run

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", *(f"w{c}" for c in "abcdefghij")])
COUNTS = np.array([9, 9, 3, 30, 20, 10, 8, 6, 5, 4, 3, 2, 0])
STEADY = {
    "loss.dropout": "0.0",
    "loss.kind": "full",
    "optimizer.name": "adagrad",
    "optimizer.lr": 0.1,
    "optimizer.clip_norm": "null",
    "schedule.warmup_tokens": 0,
    "schedule.decay": "constant",
}


def batches_of(recipe: Recipe, count: int, tokens: int = 40) -> list[LmBatch]:
    words = recipe.model.tokens == "words"
    source = SentenceBatches(
        lambda number: given_shard(make_sentences(60, seed=8)),
        1,
        whole_words(VOCABULARY) if words else characters(),
        VOCABULARY,
        batch_tokens=tokens,
        max_length=8,
        pool=60,
        seed=0,
    )
    return [source.next() for _ in range(count)]


def make(
    settings: dict[str, Any], folder: Path, batches: list[LmBatch] | None = None, **options: Any
) -> LmTrainer:
    recipe = small_recipe({**STEADY, **settings})
    given = batches if batches is not None else batches_of(recipe, 12)
    return LmTrainer(
        recipe,
        Run(folder),
        Given(given),
        VOCABULARY,
        tokenizer="spaces",
        total=10**6,
        seed=5,
        group=Group(),
        workers=torch_workers(1),
        heldout=options.pop("heldout", []),
        counts=COUNTS,
        notes={},
        alphabet=ByteAlphabet(8) if recipe.model.tokens == "characters" else None,
        **options,
    )


def weights(trainer: LmTrainer) -> dict[str, torch.Tensor]:
    found = {name: w.detach().clone() for name, w in trainer.bilm.named_parameters()}
    found["softmax.weight"] = trainer.softmax_weight.clone()
    found["softmax.bias"] = trainer.softmax_bias.clone()
    return found


def moved(trainer: LmTrainer, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, w in weights(trainer).items() if not torch.equal(w, before[name])}


def join(batches: list[LmBatch]) -> LmBatch:
    """Two batches of equal shape as one: rows beside rows."""
    first, second = batches
    assert first.sizes == second.sizes
    assert first.word_ids is not None
    assert second.word_ids is not None
    offset = len(first.word_ids)

    def beside(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        at, parts = 0, []
        for size in first.sizes:
            parts += [a[at : at + size], b[at : at + size]]
            at += size
        return np.concatenate(parts)

    return LmBatch(
        words=None,
        word_ids=np.concatenate([first.word_ids, second.word_ids]),
        sizes=tuple(2 * size for size in first.sizes),
        rows=tuple(beside(a, b + offset) for a, b in zip(first.rows, second.rows, strict=True)),
        targets=tuple(beside(a, b) for a, b in zip(first.targets, second.targets, strict=True)),
    )


def test_accumulated_batches_are_one_larger_batch(tmp_path: Path) -> None:
    words = {"model.tokens": "words"}
    recipe = small_recipe({**STEADY, **words})
    lone = batches_of(recipe, 20, tokens=5)  # a sentence or so each
    by_shape: dict[Any, list[LmBatch]] = {}
    for batch in lone:
        by_shape.setdefault(batch.sizes, []).append(batch)
    pair = next(found[:2] for found in by_shape.values() if len(found) > 1)
    parts = make({**words, "optimizer.accumulate": 2}, tmp_path, pair)
    whole = make(words, tmp_path, [join(pair)])
    one, two = parts.step(), whole.step()
    assert one.losses == pytest.approx(two.losses, rel=1e-6)
    assert one.norm == pytest.approx(two.norm, rel=1e-5)
    assert (parts.step_number, parts.seen) == (1, whole.seen)
    for name, weight in weights(whole).items():
        assert relative(weights(parts)[name], weight) < 1e-6, name


def test_state_is_carried_and_reset_for_each_row(tmp_path: Path) -> None:
    """Batches that continue others equal one long batch; fresh rows start from zeros."""
    words = {"model.tokens": "words", "optimizer.lr": 1e-30}  # the weights stay as they are
    rng = np.random.default_rng(0)
    read = rng.integers(3, 10, (2, 2, 6))  # direction, row, step

    def stretch(start: int, end: int, rows: list[int], fresh: list[bool] | None) -> LmBatch:
        ids = [read[d][rows, start:end].T.ravel() for d in range(2)]
        return LmBatch(
            words=None,
            word_ids=np.arange(13),
            sizes=(len(rows),) * (end - start),
            rows=tuple(ids),
            targets=tuple(ids),
            fresh=None if fresh is None else np.array(fresh),
        )

    def losses(batches: list[LmBatch]) -> list[float]:
        trainer = make(words, tmp_path, batches)
        return [trainer.step().losses["forward"] for _ in batches]

    lone = losses([stretch(0, 6, [0], None), stretch(0, 3, [1], None), stretch(3, 6, [1], None)])
    # Row 0 is carried on, row 1 begins again; sentences between leave the state alone.
    found = losses(
        [
            stretch(0, 3, [0, 1], [True, True]),
            stretch(2, 5, [1], None),
            stretch(3, 6, [0, 1], [False, True]),
        ]
    )
    assert 2 * (found[0] + found[2]) == pytest.approx(2 * lone[0] + lone[1] + lone[2], rel=1e-5)
    carried = losses([stretch(0, 3, [0, 1], [True, True]), stretch(3, 6, [0, 1], [False, False])])
    assert abs(carried[1] - found[2]) > 1e-4


def test_reported_losses_are_means(tmp_path: Path) -> None:
    """Before any training the unigram bias is nearly right, the rest is noise."""
    trainer = make({"loss.unigram_bias": "false"}, tmp_path)
    report = trainer.step()
    assert set(report.losses) == {"forward", "backward"}
    for loss in report.losses.values():
        assert loss == pytest.approx(math.log(len(VOCABULARY)), rel=0.3)
    one = make({"model.bidirectional": "false"}, tmp_path)
    # a one-direction model takes the forward rows alone
    one.batches = Given(
        [
            LmBatch(b.words, b.word_ids, b.sizes, b.rows[:1], b.targets[:1])
            for b in batches_of(one.recipe, 2)
        ]
    )
    assert set(one.step().losses) == {"forward"}


def test_the_softmax_bias_starts_from_the_counts(tmp_path: Path) -> None:
    bias = make({"loss.unigram_bias": "true"}, tmp_path).softmax_bias.double()
    share = torch.softmax(bias, 0).numpy()
    expected = np.maximum(COUNTS, 1) / np.maximum(COUNTS, 1).sum()
    np.testing.assert_allclose(share, expected, rtol=1e-6)
    assert float(bias.mean()) == pytest.approx(0, abs=1e-6)
    assert not make({"loss.unigram_bias": "false"}, tmp_path).softmax_bias.any()
    weight = make({}, tmp_path).softmax_weight
    assert weight.std().item() == pytest.approx(6**-0.5, rel=0.25)


def test_clipping_bounds_the_whole_step(tmp_path: Path) -> None:
    free, bound = make({}, tmp_path), make({"optimizer.clip_norm": 1e-3}, tmp_path)
    assert free.step().norm == pytest.approx(bound.step().norm)  # the norm before
    start = weights(make({}, tmp_path))
    steps = [
        sum(float((w - start[n]).square().sum()) for n, w in weights(t).items()) ** 0.5
        for t in (free, bound)
    ]
    assert steps[1] <= 0.1 * 1e-3 * 1.001  # lr * norm / sqrt(1 + small)
    assert steps[0] > 10 * steps[1]


# Negatives ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", ["directions", "none"])
def test_negatives_are_drawn_anew_and_shared_as_told(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Negatives] = []
    plain = module.sampled_softmax

    def spy(*arguments: Any, negatives: Negatives, rounded: bool) -> Any:
        used.append(negatives)
        return plain(*arguments, negatives=negatives, rounded=rounded)

    monkeypatch.setattr(module, "sampled_softmax", spy)
    trainer = make({"loss.kind": "sampled", "loss.shared": shared, "loss.negatives": 5}, tmp_path)
    for _ in range(4):
        trainer.step()
    assert [len(n.ids) for n in used] == [5] * 8
    assert all(n.n_words == len(VOCABULARY) for n in used)
    pairs = [(tuple(a.ids.tolist()), tuple(b.ids.tolist())) for a, b in zip(*[iter(used)] * 2)]  # noqa: B905
    assert all((a == b) == (shared == "directions") for a, b in pairs)
    assert len({a for a, _ in pairs}) > 2


def test_only_rows_that_took_part_move(tmp_path: Path) -> None:
    trainer = make({"loss.kind": "sampled", "loss.negatives": 2}, tmp_path)
    before = weights(trainer)
    [batch] = batches_of(trainer.recipe, 1)
    trainer.step()
    rows = (trainer.softmax_weight != before["softmax.weight"]).any(dim=1).nonzero().flatten()
    targets = set(np.concatenate(batch.targets).tolist())
    assert targets <= set(rows.tolist())
    assert len(set(rows.tolist()) - targets) <= 2


# Tying and freezing ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_a_tied_table_learns_as_input_and_as_output(kind: str, tmp_path: Path) -> None:
    words = {"model.tokens": "words", "loss.kind": kind}
    tied = make({**words, "model.tied_softmax": "true"}, tmp_path)
    loose = make(words, tmp_path)
    with torch.no_grad():  # the same start
        loose.softmax_weight.copy_(tied.bilm.tokens.words)
        for mine, theirs in zip(loose.bilm.parameters(), tied.bilm.parameters(), strict=True):
            mine.copy_(theirs)
    start = tied.bilm.tokens.words.detach().clone()
    assert tied.softmax_weight.data_ptr() == tied.bilm.tokens.words.data_ptr()
    tied.step()
    loose.step()
    assert torch.equal(tied.softmax_weight, tied.bilm.tokens.words.detach())
    assert "softmax.weight|sum" not in tied.optimizer.state()
    # Adagrad of the sum of both gradients; the loose model has each of them in its sums
    sums = loose.optimizer.state()
    parts = []
    for name, weight in (
        ("tokens.words", loose.bilm.tokens.words.detach()),
        ("softmax.weight", loose.softmax_weight),
    ):
        parts.append((start - weight) * sums[f"{name}|sum"].sqrt() / 0.1)  # lr 0.1
    gradient = parts[0] + parts[1]
    expected = start - 0.1 * gradient / (1 + gradient.square()).sqrt()
    assert relative(tied.softmax_weight, expected) < 1e-5


def test_frozen_weights_stay_to_the_bit(tmp_path: Path) -> None:
    trainer = make({"schedule.frozen_tokens": 90, "loss.dropout": "0.2"}, tmp_path)
    before = weights(trainer)
    while trainer.seen < 90:
        trainer.step()
        assert moved(trainer, before) == {"softmax.weight", "softmax.bias"}
    assert 1 < trainer.step_number < 6
    trainer.step()
    assert moved(trainer, before) == set(before)


# Looking --------------------------------------------------------------------------------------


def test_a_look_is_the_full_softmax_without_dropout(tmp_path: Path) -> None:
    recipe = small_recipe(STEADY)
    heldout = batches_of(recipe, 3)
    settings = {"loss.kind": "sampled", "loss.dropout": "0.5"}
    trainer = make(settings, tmp_path, heldout=heldout)
    before = weights(trainer)
    found = trainer.evaluate()
    assert found is not None
    assert not moved(trainer, before)
    totals = np.zeros(2)
    for batch in heldout:
        logs, _ = trainer.objective.log_likelihoods(batch)
        totals += [-float(part.sum()) for part in logs]
    losses = totals / sum(batch.n_tokens for batch in heldout)
    assert found["forward_perplexity"] == pytest.approx(math.exp(losses[0]))
    assert found["backward_perplexity"] == pytest.approx(math.exp(losses[1]))
    assert found["loss"] == pytest.approx(losses.mean())
    assert found["perplexity"] == pytest.approx(math.exp(losses.mean()))
    assert trainer.evaluate() == found
    assert make({}, tmp_path).evaluate() is None


def test_a_look_tells_unknown_words_apart(tmp_path: Path) -> None:
    heldout = batches_of(small_recipe(STEADY), 3)
    trainer = make({}, tmp_path, heldout=heldout)
    found = trainer.evaluate()
    assert found is not None
    unknown = trainer.vocabulary.unknown
    losses, words = [], 0
    for batch in heldout:
        logs, _ = trainer.objective.log_likelihoods(batch)
        for log, targets in zip(logs, batch.targets, strict=True):
            losses += (-log.numpy()[targets != unknown]).tolist()
        words += int((batch.targets[0] != trainer.vocabulary.find("</S>")).sum())
    count = sum(int((batch.targets[0] == unknown).sum()) for batch in heldout)
    assert 0 < count < words
    assert found["oov_rate"] == pytest.approx(count / words)
    assert found["without_unknown"] == pytest.approx(math.exp(np.mean(losses)))


def test_a_hopeless_look_is_a_large_number_not_a_crash(tmp_path: Path) -> None:
    trainer = make({}, tmp_path, heldout=batches_of(small_recipe(STEADY), 1))
    trainer.softmax_bias[0] = 1e5
    found = trainer.evaluate()
    assert found is not None
    assert found["loss"] > 700
    assert math.isfinite(found["perplexity"])


def test_the_rate_follows_the_schedule(tmp_path: Path) -> None:
    settings = {"schedule.warmup_tokens": 100, "optimizer.lr": 0.5}
    trainer = make(settings, tmp_path)
    rates = []
    while trainer.seen < 150:
        seen = trainer.seen
        rates.append((seen, trainer.step().lr, trainer.seen))
    for seen, rate, after in rates:
        assert rate == pytest.approx(0.5 * (min(1, after / 100) if seen < 100 else 1))


def test_seeds_are_all_that_differs(tmp_path: Path) -> None:
    one, same = make({"loss.dropout": "0.3"}, tmp_path), make({"loss.dropout": "0.3"}, tmp_path)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    for _ in range(3):
        assert one.step() == same.step()
    assert torch.equal(torch.get_rng_state(), before)  # C4: the global generator is not ours
    assert not moved(one, weights(same))
