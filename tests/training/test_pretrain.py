"""Whole trainings: bilm-tf's own tests, a language of known entropy, and refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perplexity_stream import perplexity_stream
from small_models import GOLDEN
from small_training import small_data, small_recipe, write_text
from tf_bundle import toy_corpus

from elmore import Elmo, perplexity
from elmore.corpus.prepare import prepare
from elmore.corpus.prepared import Part, Prepared
from elmore.errors import ConfigError, FormatError, InputError, ResumeError
from elmore.training.bilm.pretrain import finish_recipe, pretrain
from elmore.training.bilm.recipe import Recipe
from elmore.training.run import Run, load_state

# bilm-tf's own training tests -----------------------------------------------------------------

BILM = {
    "model.tokens": "words",
    "model.dim": 16,
    "model.projection_dim": 8,
    "model.cell_clip": "null",
    "model.proj_clip": "null",
    "model.skip_connections": "false",
    "data.batch_rows": 2,
    "data.unroll": 10,
    "loss.negatives": 16,
    "optimizer.clip_norm": 1.0,
    "schedule.tokens": 300 * 20,  # 50 epochs of int(134 / 20) steps
    "run.evaluate_tokens": 0,
    "run.log_steps": 50,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "one direction": {"model.bidirectional": "false"},
    "characters": {
        "model.tokens": "characters",
        "model.char_dim": 4,
        "model.max_chars": 10,
        "model.filters": "[[1, 8], [2, 8], [3, 16], [4, 32], [5, 64]]",
        "model.activation": "tanh",
        "model.n_highway": 1,
    },
    "shared softmax": {"model.tied_softmax": "true"},
    "skip connections": {"model.skip_connections": "true"},
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """bilm-tf's files as they are."""
    folder = tmp_path_factory.mktemp("toy")
    return prepare(
        [GOLDEN / "bilm-tf/train/data.txt"],
        folder / "data",
        vocabulary=GOLDEN / "bilm-tf/train/vocab.txt",
        tokenized=True,
        heldout=0,
        workers=1,
    )


def original(settings: dict[str, Any]) -> Recipe:
    """The recipe `original` at the size of a toy."""
    return Recipe.load("original", {k: str(v) for k, v in {**BILM, **settings}.items()})


def train_toy(name: str, data: Prepared, folder: Path, seed: int = 0) -> float:
    recipe = original(VARIANTS[name])
    run = pretrain(data, folder / "run", recipe=recipe, threads=1, seed=seed)
    log = run.log()
    assert log[-1]["step"] == 300
    found = perplexity_stream(run.elmo(), toy_corpus(), batch_size=1, tokenized=True)
    assert found.n_tokens == 139  # as many batches as bilm-tf's own test
    assert (found.backward is None) == (name == "one direction")
    return found.mean


@pytest.mark.parametrize("name", VARIANTS)
def test_bilm_tfs_own_tests(name: str, toy: Prepared, tmp_path: Path) -> None:
    """bilm-tf itself: 16.4 and 18.0, 16.4 and 16.1, 16.2 and 16.3, 11.8 and 12.9."""
    assert 5 < train_toy(name, toy, tmp_path) < 20


# A language of known entropy ------------------------------------------------------------------

N_WORDS = 12


class Language:
    """Sentences of a Markov chain that ends in a state of its own."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.words = [f"w{chr(97 + k)}" for k in range(N_WORDS)]
        self.start = rng.dirichlet(np.full(N_WORDS, 0.5))
        # the last column is the end of the sentence: 7 words on average
        moves = rng.dirichlet(np.full(N_WORDS, 0.25), N_WORDS)
        ends = rng.uniform(0.05, 0.25, N_WORDS)
        self.moves = np.hstack([moves * (1 - ends)[:, None], ends[:, None]])

    def sample(self, count: int, seed: int) -> list[list[str]]:
        rng, sentences = np.random.default_rng(seed), []
        while len(sentences) < count:
            state, tokens = int(rng.choice(N_WORDS, p=self.start)), []
            while state < N_WORDS:
                tokens.append(self.words[state])
                state = int(rng.choice(N_WORDS + 1, p=self.moves[state]))
            if len(tokens) <= 60:  # one in 10,000 is longer
                sentences.append(tokens)
        return sentences

    def perplexity(self) -> float:
        """exp of the entropy of a sentence over its expected number of predictions.

        A sentence is as surprising backwards as forwards, so that both directions have it.
        """

        def entropy(p: np.ndarray) -> np.ndarray:
            return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)

        visits = np.linalg.solve(np.eye(N_WORDS) - self.moves[:, :-1].T, self.start)
        whole = entropy(self.start) + visits @ entropy(self.moves)
        return float(np.exp(whole / (1 + visits.sum())))


def learn(settings: dict[str, Any], tokens: int, folder: Path) -> tuple[float, float, float]:
    language = Language(seed=1)
    text = write_text(folder / "text.txt", language.sample(4000, seed=2))
    data = prepare([text], folder / "data", vocabulary=100, tokenized=True, workers=1)
    recipe = small_recipe(
        {
            "model.tokens": "words",
            "model.dim": 32,
            "model.projection_dim": 16,
            "model.n_layers": 1,
            "data.batch_tokens": 512,
            "data.max_length": 60,
            "data.pool_sentences": 4096,
            "loss.dropout": "0.0",
            "loss.kind": "full",
            "optimizer.lr": 0.02,
            "schedule.tokens": tokens,
            "schedule.warmup_tokens": 2000,
            "schedule.decay_share": 0.5,
            "run.save_minutes": 1000,
            "run.log_steps": 50,
            "run.evaluate_tokens": 0,
            **settings,
        }
    )
    run = pretrain(data, folder / "run", recipe=recipe, threads=1)
    fresh = language.sample(3000, seed=3)
    found = perplexity(run.elmo(), fresh, tokenized=True)
    assert found.oov_rate == 0
    return found.forward, found.backward, language.perplexity()


def test_a_language_of_known_entropy(tmp_path: Path) -> None:
    forward, backward, expected = learn({}, 200_000, tmp_path)
    assert 3 < expected < 8
    assert forward == pytest.approx(expected, rel=0.05)
    assert backward == pytest.approx(expected, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"loss.kind": "sampled", "loss.negatives": 8, "loss.unigram_bias": "true"},
        {"model.tokens": "characters", "model.n_layers": 2},
        {"model.n_layers": 2, "loss.dropout": "0.1"},
    ],
)
def test_a_language_of_known_entropy_by_other_means(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    forward, backward, expected = learn(settings, 200_000, tmp_path)
    assert forward == pytest.approx(expected, rel=0.05)
    assert backward == pytest.approx(expected, rel=0.05)


# A run ----------------------------------------------------------------------------------------


def small(**settings: object) -> Recipe:
    return small_recipe({"run.save_minutes": 1000, "schedule.tokens": 300, **settings})


def test_what_a_run_leaves(data: Prepared, tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    run = pretrain(data.folder, tmp_path / "run", recipe=small(), threads=1, progress=heard.append)
    names = {path.name for path in run.path.iterdir()}
    assert names == {"best", "checkpoint", "lock", "log.jsonl", "recipe.json", "resume"}
    assert run.recipe == small()
    assert [line["step"] for line in heard[1:]] == [line["step"] for line in run.log()]
    elmo = run.elmo(threads=1)
    assert isinstance(elmo, Elmo)
    assert elmo.embed([["wa", "zz"]], tokenized=True)[0].shape == (2, 12)
    last = [line["heldout"] for line in run.log() if "heldout" in line][-1]
    notes = Elmo.load(run.checkpoint_path).checkpoint.notes["training"]
    assert notes["step"] == run.log()[-1]["step"]
    assert notes["tokens_seen"] == run.log()[-1]["tokens"]
    assert notes["heldout_loss"] == pytest.approx(last["loss"])


def test_a_look_says_what_elmore_perplexity_says(data: Prepared, tmp_path: Path) -> None:
    from elmore.corpus.prepared import read_shard

    recipe = small(**{"run.heldout_tokens": 10**6, "data.max_length": 50})
    run = pretrain(data, tmp_path / "run", recipe=recipe, threads=1)
    shard = read_shard(data.heldout_path)
    text = [shard.sentence(k) for k in range(shard.n_sentences)]
    found = perplexity(run.elmo(best=False), text, tokenized=True)
    last = [line["heldout"] for line in run.log() if "heldout" in line][-1]
    assert found.forward == pytest.approx(last["forward_perplexity"], rel=1e-5)
    assert found.backward == pytest.approx(last["backward_perplexity"], rel=1e-5)
    assert found.mean == pytest.approx(last["perplexity"], rel=1e-5)
    assert found.without_unknown == pytest.approx(last["without_unknown"], rel=1e-5)
    assert found.oov_rate == pytest.approx(last["oov_rate"])
    assert found.oov_rate > 0


def test_epochs_count_every_prediction(data: Prepared, tmp_path: Path) -> None:
    recipe = small(**{"schedule.epochs": 1.5, "schedule.tokens": "null"})
    run = pretrain(data, tmp_path / "run", recipe=recipe, threads=1)
    per_epoch = data.n_tokens + data.n_sentences  # a marker a sentence; pieces add a few
    seen = run.log()[-1]["tokens"]
    assert 1.5 * per_epoch <= seen < 1.5 * per_epoch + 60


def test_finish_lets_the_rate_fall_from_where_it_is(data: Prepared, tmp_path: Path) -> None:
    out = tmp_path / "run"
    recipe = small(**{"schedule.decay": "constant", "schedule.warmup_tokens": 0})
    pretrain(data, out, recipe=recipe, threads=1)
    state = load_state(out / "resume")
    seen = int(state[1]["seen"])
    ending = finish_recipe(recipe, out, 400)
    assert ending.schedule.tokens == seen + 400
    assert ending.schedule.decay == "linear"
    run = pretrain(data, out, recipe=ending, threads=1, resume=True)
    rates = [(line["tokens"], line["lr"]) for line in run.log() if "lr" in line]
    peak = recipe.optimizer.lr
    assert {rate for tokens, rate in rates if tokens <= seen} == {peak}
    falling = [rate for tokens, rate in rates if tokens > seen]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] <= peak
    assert falling[-1] < 0.2 * peak
    assert run.log()[-1]["tokens"] >= seen + 400
    with pytest.raises(ResumeError, match="holds no training run"):
        finish_recipe(recipe, tmp_path / "nothing", 10)


# Refusals -------------------------------------------------------------------------------------


def test_a_folder_with_a_run_is_not_overwritten(data: Prepared, tmp_path: Path) -> None:
    out = tmp_path / "run"
    pretrain(data, out, recipe=small(), threads=1)
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    with pytest.raises(ResumeError, match=r"holds a run; pass resume=True \(--resume\)"):
        pretrain(data, out, recipe=small(), threads=1)
    other = small_data(tmp_path / "other", seed=9)
    with pytest.raises(ResumeError, match="other training data") as caught:
        pretrain(other, out, recipe=small(), threads=1, resume=True)
    assert "\n" not in str(caught.value)
    after = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    assert {k: v for k, v in before.items() if k.name != "lock"} == {
        k: v for k, v in after.items() if k.name != "lock"
    }


def test_a_run_is_replaced_and_nothing_else(data: Prepared, tmp_path: Path) -> None:
    out = tmp_path / "run"
    pretrain(data, out, recipe=small(), threads=1, overwrite=True)  # there is none: it starts one
    first = Run(out).log()
    again = pretrain(data, out, recipe=small(), seed=1, threads=1, overwrite=True)
    assert again.log()[0]["step"] == first[0]["step"]
    assert again.log() != first
    with pytest.raises(ConfigError, match="either resumed or replaced"):
        pretrain(data, out, recipe=small(), threads=1, overwrite=True, resume=True)
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(ResumeError, match=r"'thesis\.txt', which is not part of a run"):
        pretrain(data, out, recipe=small(), threads=1, overwrite=True)
    assert (out / "best").is_dir()
    (out / "thesis.txt").unlink()
    (out / "recipe.json").write_text('{"name": "another program"}')
    with pytest.raises(FormatError):
        pretrain(data, out, recipe=small(), threads=1, overwrite=True)
    assert (out / "best").is_dir()


def test_an_empty_corpus(data: Prepared, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(InputError):
        prepare([tmp_path / "empty.txt"], tmp_path / "data", workers=1)
    nothing = dataclasses.replace(data, training=Part())
    with pytest.raises(InputError, match="holds no text; prepare some first"):
        pretrain(nothing, tmp_path / "run", recipe=small(), threads=1)
    assert not (tmp_path / "run").exists()
