"""Going on with a trained model on other text."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import make_options, write_pair
from small_training import WORDS, make_sentences, small_data, small_recipe, write_text

from elmore import Elmo, perplexity
from elmore.corpus.prepared import Prepared
from elmore.errors import ConfigError, ResumeError
from elmore.formats.allennlp_hdf5 import write as write_hdf5
from elmore.text.vocabulary import Vocabulary
from elmore.training.bilm.fine_tune import fine_tune
from elmore.training.bilm.pretrain import pretrain
from elmore.training.bilm.recipe import Recipe
from elmore.training.run import Run

# The new text has the words of the old one, but other favourites.
OTHER = make_sentences(150, seed=5, words=[*WORDS[6::-1], *WORDS[7:]])


def recipe(**settings: object) -> Recipe:
    quick = {
        "run.save_minutes": 1000,
        "run.evaluate_tokens": 200,
        "schedule.tokens": "null",
        "schedule.epochs": 2,
        "optimizer.lr": 0.02,
        "loss.negatives": 8,
    }
    return small_recipe({**quick, **settings})


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [write_text(tmp_path_factory.mktemp("new") / "other.txt", OTHER[:120])]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of our own, with a softmax."""
    folder = tmp_path_factory.mktemp("trained")
    data = small_data(folder, count=120, vocabulary=30)
    settings = small_recipe({"schedule.tokens": 1500, "run.save_minutes": 1000})
    return pretrain(data, folder / "run", recipe=settings, threads=1).checkpoint_path


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """options.json and weights.hdf5, which never have a softmax."""
    folder = tmp_path_factory.mktemp("published")
    options = make_options(16, 6, max_characters_per_token=8, n_characters=262)
    return write_pair(folder, options)


def weights(elmo: Elmo) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in elmo.checkpoint.checked_weights()}


def test_a_model_of_our_own_keeps_its_softmax(
    trained: Path, texts: list[Path], tmp_path: Path
) -> None:
    before = Elmo.load(trained, threads=1)
    run = fine_tune(trained, texts, tmp_path / "run", recipe=recipe(), tokenized=True, threads=1)
    after = run.elmo(threads=1)
    assert after.checkpoint.vocabulary == before.checkpoint.vocabulary
    assert after.config == before.config
    assert run.recipe.schedule.frozen_tokens == 0
    fresh = OTHER[120:]
    old, new = (perplexity(elmo, fresh, tokenized=True) for elmo in (before, after))
    assert new.forward < 0.8 * old.forward
    assert new.backward < 0.8 * old.backward


def test_a_model_in_int8_is_started_from_as_it_is_stored(
    trained: Path, texts: list[Path], tmp_path: Path
) -> None:
    Elmo.load(trained, threads=1).save(tmp_path / "int8", precision="int8")
    before = Elmo.load(tmp_path / "int8", threads=1)
    still = recipe(**{"optimizer.lr": 1e-9, "schedule.epochs": 1})
    run = fine_tune(tmp_path / "int8", texts, tmp_path / "run", recipe=still, tokenized=True)
    after = run.elmo(threads=1)
    assert after.checkpoint.precision == "float32"
    for name, weight in weights(before).items():
        np.testing.assert_allclose(weights(after)[name], weight, atol=1e-5)
    rows = after.checkpoint.softmax.floats()
    np.testing.assert_allclose(rows, before.checkpoint.softmax.floats(), atol=1e-5)


def test_the_tokenizer_is_the_models_or_the_users(
    published: tuple[Path, ...], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("It's 'no more' .\n" * 60)

    def words(name: str, model: Any = published, **options: Any) -> tuple[Run, Vocabulary]:
        settings = {"schedule.epochs": 0.1}
        run = fine_tune(
            model, [text], tmp_path / name, recipe=recipe(**settings), threads=1, **options
        )
        return run, Prepared.open(run.path / "data").vocabulary

    with pytest.warns(UserWarning, match="raw text is split as 'billion-word'"):
        assert "'s" in words("assumed")[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "It's" in words("named", tokenizer="unicode")[1]
        loaded = Elmo.load(published, tokenizer="builtins:str.split")
        run, found = words("own", loaded)
    assert "'no" in found
    # A function is not stored; whoever uses the model later is told its name.
    note = run.elmo(best=False).checkpoint.notes["tokenizer"]
    assert note == "its training text was split by builtins:str.split"


def test_published_weights_get_a_new_softmax_first(
    published: tuple[Path, ...], texts: list[Path], tmp_path: Path
) -> None:
    before = Elmo.load(published, threads=1)
    assert before.checkpoint.softmax is None
    looks: list[tuple[int, bool]] = []
    out = tmp_path / "run"

    def watch(line: dict[str, Any]) -> None:
        if "heldout" in line and (out / "best").exists():
            now = weights(Elmo.load(out / "best"))
            same = all(np.array_equal(now[name], old) for name, old in weights(before).items())
            looks.append((line["tokens"], same))

    settings = {"run.evaluate_tokens": 60, "schedule.epochs": 1.5}
    run = fine_tune(
        published,
        texts,
        out,
        recipe=recipe(**settings),
        vocabulary=25,
        tokenized=True,
        threads=1,
        progress=watch,
    )
    frozen = run.recipe.schedule.frozen_tokens
    total = run.log()[-1]["tokens"]
    assert total / 4 < frozen < total / 2
    # `best` is written after the report, so that each look sees an earlier one's
    inside = [same for tokens, same in looks if tokens < frozen]
    assert len(inside) > 2
    assert all(inside)  # to the bit
    end = weights(run.elmo(best=False))
    assert all(not np.array_equal(end[name], old) for name, old in weights(before).items())
    losses = [line["heldout"]["loss"] for line in run.log() if "heldout" in line]
    assert losses[-1] < losses[0]
    checkpoint = run.elmo().checkpoint
    assert checkpoint.softmax is not None
    assert checkpoint.vocabulary is not None
    assert len(checkpoint.vocabulary) <= 25
    # and back into the format that it came from
    write_hdf5(checkpoint, tmp_path / "hdf5")
    again = Elmo.load(tmp_path / "hdf5", threads=1)
    np.testing.assert_allclose(
        again.embed([["wa", "zz"]], tokenized=True)[0],
        run.elmo().embed([["wa", "zz"]], tokenized=True)[0],
        atol=1e-6,
    )


def test_epochs_win_and_resume_goes_on(trained: Path, texts: list[Path], tmp_path: Path) -> None:
    options: dict[str, Any] = {"recipe": recipe(), "tokenized": True, "threads": 1}
    run = fine_tune(trained, texts, tmp_path / "run", epochs=1, **options)
    first = run.log()[-1]["tokens"]
    with pytest.raises(ResumeError, match="holds a run"):
        fine_tune(trained, texts, tmp_path / "run", **options)
    fine_tune(trained, texts, tmp_path / "run", epochs=2, resume=True, **options)
    assert run.log()[-1]["tokens"] == pytest.approx(2 * first, rel=0.1)
    whole = fine_tune(trained, texts, tmp_path / "whole", epochs=2, **options)
    assert Run(tmp_path / "run").log()[-1]["tokens"] == whole.log()[-1]["tokens"]


@pytest.mark.parametrize("name", ["manylangs_both", "manylangs_words", "manylangs_characters_old"])
def test_models_of_elmoformanylangs(name: str, tmp_path: Path) -> None:
    """Words, characters or both go in; the words of a table are also those that are predicted."""
    model = Path(__file__).parents[1] / "data" / name
    before = Elmo.load(model, threads=1)
    known = [word for word in before.checkpoint.vocabulary or WORDS if word[0] != "<"][:12]
    text = write_text(tmp_path / "text.txt", make_sentences(80, words=known))
    # Long windows too: their markers are made elsewhere.
    settings = {"data.long_share": 0.3, "data.long_tokens": 20, "schedule.epochs": 2}
    options = {"recipe": recipe(**settings), "tokenized": True, "threads": 1, "heldout": 0.1}
    run = fine_tune(model, [text], tmp_path / "run", **options)
    after = run.elmo(threads=1)
    assert after.config == before.config
    assert type(after.checkpoint.alphabet) is type(before.checkpoint.alphabet)
    if before.checkpoint.vocabulary is not None:
        assert after.checkpoint.vocabulary == before.checkpoint.vocabulary
    old, new = weights(before), weights(after)
    assert all((old[name] != new[name]).any() for name in old)
    assert after.checkpoint.softmax is not None
    fresh = make_sentences(30, seed=9, words=known)
    # Better than a guess among the words and the end; before, the model predicted none.
    assert perplexity(after, fresh, tokenized=True).mean < len(known) + 1
    # It goes on from where it was, and a second run of a tuned model keeps its softmax.
    again = fine_tune(model, [text], tmp_path / "run", resume=True, **options)
    assert again.log()[-1]["step"] == run.log()[-1]["step"]
    second = fine_tune(after, [text], tmp_path / "second", **options)
    assert second.recipe.schedule.frozen_tokens == 0
    # Its shape is that of the model, so a recipe alone cannot describe it.
    with pytest.raises(ConfigError, match="needs a model to start from; use `elmore fine-tune`"):
        pretrain(run.path / "data", tmp_path / "no", recipe=recipe(**{"model.tokens": "model"}))
