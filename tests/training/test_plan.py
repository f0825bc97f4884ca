"""What a run will cost and bring, said before it starts."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from small_training import small_recipe, stop_at

from elmore.corpus.prepared import Counted, Prepared
from elmore.errors import ConfigError, Stopped
from elmore.nn.threads import TorchWorkers
from elmore.training.bilm import plan as module
from elmore.training.bilm.plan import Plan, curves, expected_perplexity, make_plan
from elmore.training.bilm.pretrain import pretrain
from elmore.training.bilm.recipe import Recipe
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.distributed import Group
from elmore.training.run import Run


def test_a_plan_measures_and_leaves_nothing_behind(data: Prepared) -> None:
    before = sorted(data.folder.rglob("*"))
    recipe = small_recipe()
    plan = make_plan(data, recipe=recipe, threads=1, seconds=0.1)
    assert sorted(data.folder.rglob("*")) == before
    assert plan.total_tokens == recipe.total_tokens(data) == 900
    assert plan.tokens_per_second > 0
    assert plan.seconds > 900 / plan.tokens_per_second
    assert plan.line().startswith("plan: 900 tokens at ")
    assert str(plan).splitlines()[0] == "recipe      tiny"
    assert make_plan(data.folder, recipe=recipe, threads=1, seconds=0).tokens == data.n_tokens


def test_a_device_that_cannot_train_is_refused(data: Prepared) -> None:
    for device, message in (("nope", "cannot be used here"), ("mps", "embeds but cannot train")):
        with pytest.raises(ConfigError, match=f"device='{device}' {message}"):
            make_plan(data, recipe=small_recipe(), device=device)


def test_time_memory_and_perplexity_follow_from_what_was_measured(
    data: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe()  # 900 tokens, evaluated every 300
    monkeypatch.setattr(module, "peak_memory", lambda: 10**6)
    plan = Plan.of(trainer(data, recipe), 100, evaluation_seconds=2)
    assert plan.seconds == 900 / 100 + 4 * 2
    softmax = 4 * len(data.vocabulary) * (recipe.model.projection_dim + 1)
    assert plan.memory_bytes == 10**6 + softmax
    # Over 15 words a perplexity means something else than over 50,000.
    assert plan.perplexity is None
    assert "perplexity not predicted" in plan.line()


@pytest.mark.parametrize("name", ["adam", "muon", "adagrad"])
def test_the_disk_is_what_a_run_takes(name: str, data: Prepared, tmp_path: Path) -> None:
    recipe = small_recipe({"optimizer.name": name, "run.save_minutes": 0})
    run = Run(tmp_path / "run")
    with pytest.raises(Stopped):  # a finished one has less
        pretrain(data, run.path, recipe=recipe, threads=1, progress=stop_at(9))
    states = [
        path.stat().st_size for path in run.path.rglob("*.safetensors") if "resume" in str(path)
    ]
    models = [path.stat().st_size for path in run.path.rglob("model.safetensors")]
    assert (len(states), len(models)) == (2, 2)
    real = sum(models) + 3 * states[0]
    headers = 5 * 10_000  # of safetensors: at this size they are not small
    planned = make_plan(data, recipe=recipe, threads=1, seconds=0).disk_bytes
    assert planned <= real < planned + headers


def test_the_curve_goes_through_what_was_recorded() -> None:
    for curve in curves():
        for tokens, perplexity in curve.decayed:
            assert curve.at(tokens) == pytest.approx(perplexity, rel=0.01)
        found = [curve.at(10**k) for k in range(4, 12)]
        assert found == sorted(found, reverse=True)
    assert expected(512, 128, 50_000, 10**8, 10**8) == pytest.approx(82.1, rel=0.01)
    assert expected(512, 128, 20_000, 10**8, 10**8) is None
    assert expected(2048, 256, 50_000, 10**8, 10**8) is None


def expected(dim: int, projection: int, n_words: int, tokens: int, total: int) -> float | None:
    size = {"model.dim": str(dim), "model.projection_dim": str(projection)}
    shape = Recipe.load("laptop", size).model.config(n_words).lstm
    return expected_perplexity(shape, n_words, tokens, total)[1]


def test_a_second_pass_is_worth_less_than_new_text() -> None:
    once, twice, new = (
        expected(512, 128, 50_000, tokens, total)
        for tokens, total in ((10**6, 10**6), (10**6, 2 * 10**6), (2 * 10**6, 2 * 10**6))
    )
    assert once > twice > new
    # The worth of many passes is bounded.
    assert expected(512, 128, 50_000, 10**6, 10**12) == expected(512, 128, 50_000, 10**6, 10**15)
    assert math.isfinite(expected(512, 128, 50_000, 1, 1) or math.nan)


def trainer(prepared: Prepared, recipe: Recipe) -> LmTrainer:
    return LmTrainer(recipe, Run("nowhere"), prepared, 0, Group(), TorchWorkers(1))


def sized(data: Prepared, tokens: int, heldout: int = 10**5) -> Prepared:
    return dataclasses.replace(
        data,
        training=Counted(tokens=tokens, sentences=tokens // 20),
        heldout=Counted(tokens=heldout, oov=heldout // 50),
    )


def advice(prepared: Prepared) -> str:
    made = trainer(dataclasses.replace(prepared, heldout=Counted()), Recipe.load("laptop"))
    made.prepared = prepared
    return "\n".join(Plan.of(made, 1000).advice)


def test_advice(data: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert advice(sized(data, 20_000_000)) == ""
    assert "`elmore fine-tune` will be better" in advice(sized(data, 50_000))
    assert "a smaller one is faster" in advice(sized(data, 50_000))
    assert "--set model.dim=768 --set model.projection_dim=192" in advice(sized(data, 10**9))
    assert "perplexity will be noisy" in advice(sized(data, 20_000_000, heldout=300))
    many = dataclasses.replace(
        sized(data, 20_000_000), heldout=Counted(tokens=10**5, oov=4 * 10**4)
    )
    assert "40% of the held-out words are not in the vocabulary" in advice(many)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert "`--set run.autocast=true` is up to twice as fast" in advice(sized(data, 20_000_000))
