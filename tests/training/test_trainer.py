"""What one step of the trainer does: weighing, negatives, tying, freezing, looking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import (
    given_trainer,
    make_sentences,
    relative,
    small_recipe,
    source_of,
    write_text,
)

from elmore.corpus.prepare import prepare
from elmore.nn.softmax import Negatives
from elmore.text.vocabulary import Vocabulary
from elmore.training.bilm import trainer as module
from elmore.training.bilm.batches import LmBatch, SentenceBatches
from elmore.training.bilm.recipe import Recipe
from elmore.training.bilm.trainer import LmTrainer

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", *(f"w{c}" for c in "abcdefghij")])
STEADY = {
    "loss.dropout": "0.0",
    "loss.kind": "full",
    "optimizer.name": "adagrad",
    "optimizer.lr": 0.1,
    "optimizer.clip_norm": "null",
    "schedule.tokens": 10**6,
    "schedule.warmup_tokens": 0,
    "schedule.decay": "constant",
}


def batches_of(recipe: Recipe, count: int, tokens: int = 40) -> list[LmBatch]:
    source = source_of(
        [make_sentences(60, seed=8)], VOCABULARY, words=recipe.model.tokens == "words"
    )
    made = SentenceBatches(source, batch_tokens=tokens, max_length=8, pool=60)
    return [made.next() for _ in range(count)]


def make(
    settings: dict[str, Any],
    folder: Path,
    batches: list[LmBatch] | None = None,
    heldout: Sequence[LmBatch] = (),
) -> LmTrainer:
    recipe = small_recipe({**STEADY, **settings})
    text = write_text(folder / "text.txt", make_sentences(60, seed=8))
    (folder / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    options = {"vocabulary": folder / "vocab.txt", "heldout": 0, "tokenized": True}
    data = prepare([text], folder / "data", overwrite=True, workers=1, **options)
    return given_trainer(recipe, data, batches or batches_of(recipe, 12), heldout)


def weights(trainer: LmTrainer) -> dict[str, torch.Tensor]:
    found = {name: w.detach().clone() for name, w in trainer.bilm.named_parameters()}
    found["softmax.weight"] = trainer.softmax_weight.clone()
    found["softmax.bias"] = trainer.softmax_bias.clone()
    return found


def moved(trainer: LmTrainer, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, w in weights(trainer).items() if not torch.equal(w, before[name])}


def test_accumulated_batches_are_one_step_over_all_their_tokens(tmp_path: Path) -> None:
    one, other = batches_of(small_recipe(STEADY), 2)
    assert one.total != other.total
    steady = make({"optimizer.lr": 1e-30}, tmp_path, [one, other])
    first, second = (steady.step().losses["forward"] for _ in range(2))
    both = make({"optimizer.accumulate": 2}, tmp_path, [one, other])
    mean = (first * one.total + second * other.total) / (one.total + other.total)
    assert both.step().losses["forward"] == pytest.approx(mean)
    assert (both.step_number, both.seen) == (1, one.total + other.total)
    # Twice the same batch has the mean of one.
    twice, once = make({"optimizer.accumulate": 2}, tmp_path, [one, one]), make({}, tmp_path, [one])
    assert twice.step().norm == pytest.approx(once.step().norm, rel=1e-5)
    for name, weight in weights(once).items():
        assert relative(weights(twice)[name], weight) < 1e-6, name


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
            total=len(rows) * (end - start),
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


def test_the_softmax_bias_starts_from_the_counts(tmp_path: Path) -> None:
    trainer = make({"loss.unigram_bias": "true"}, tmp_path)
    bias = trainer.softmax_bias.double()
    share = torch.softmax(bias, 0).numpy()
    counts = np.maximum(trainer.prepared.counts_of(VOCABULARY), 1)
    expected = counts / counts.sum()
    np.testing.assert_allclose(share, expected, rtol=1e-6)
    assert float(bias.mean()) == pytest.approx(0, abs=1e-6)
    assert not make({"loss.unigram_bias": "false"}, tmp_path).softmax_bias.any()
    weight = make({}, tmp_path).softmax_weight
    assert weight.std().item() == pytest.approx(6**-0.5, rel=0.25)


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


def test_a_hopeless_look_is_a_large_number_not_a_crash(tmp_path: Path) -> None:
    trainer = make({}, tmp_path, heldout=batches_of(small_recipe(STEADY), 1))
    trainer.softmax_bias[0] = 1e5
    found = trainer.evaluate()
    assert found["loss"] > 700
    assert math.isfinite(found["perplexity"])


def test_seeds_are_all_that_differs(tmp_path: Path) -> None:
    one, same = make({"loss.dropout": "0.3"}, tmp_path), make({"loss.dropout": "0.3"}, tmp_path)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    for _ in range(3):
        assert one.step() == same.step()
    assert torch.equal(torch.get_rng_state(), before)  # C4: the global generator is not ours
    assert not moved(one, weights(same))


def test_the_mean_of_the_weights_is_evaluated_and_saved(tmp_path: Path) -> None:
    heldout = batches_of(small_recipe(STEADY), 2)
    trainer = make({"schedule.average": 0.3}, tmp_path, heldout=heldout)
    plain = make({}, tmp_path, heldout=heldout)
    mean: dict[str, torch.Tensor] = {}
    for step in range(1, 8):
        assert trainer.step() == plain.step()  # the mean does not change what is learned
        share = 1 - min(0.3, step / (9 + step))
        mean = {n: mean.get(n, w).lerp(w, share) for n, w in weights(trainer).items()}
    last = weights(plain)
    with torch.no_grad():
        for name, weight in plain.bilm.named_parameters():
            weight.copy_(mean[name])
        plain.softmax_weight.copy_(mean["softmax.weight"])
        plain.softmax_bias.copy_(mean["softmax.bias"])
    assert trainer.evaluate() == plain.evaluate()
    trainer.run.path.mkdir()
    trainer.save_model(best=True)
    for name, array in trainer.run.elmo().checkpoint.checked_weights():
        assert np.array_equal(array, mean[name])
    assert not moved(trainer, last)
