"""examples/grow.py: a larger model that starts with the predictions of a smaller one."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from small_training import SMALL, small_data, small_recipe

from elmore import Elmo, Run, pretrain, score
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Softmax
from elmore.published.catalog import bundled_model
from elmore.text.vocabulary import Vocabulary

SCRIPT = Path(__file__).parents[2] / "examples" / "grow.py"
TEXT = ["She sat on the bank of the river .", "The bank lent them money for a new house ."]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("grow", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_larger_model_predicts_the_same_and_can_learn(script):
    small = read_checkpoint(bundled_model())
    lstm = small.config.lstm
    large = script.grow(small, lstm.dim + 24, lstm.projection_dim + 8, seed=0)
    assert large.config.lstm.dim == lstm.dim + 24
    exact = {"precision": "float32", "threads": 1}  # whatever the small one is stored in
    before, after = (list(score(Elmo(one, **exact), TEXT)) for one in (small, large))
    for one, other in zip(before, after, strict=True):
        assert np.allclose(one.forward, other.forward, atol=1e-4)
        assert np.allclose(one.backward, other.backward, atol=1e-4)
    # The new dimensions must not be zero: weights that read zeros get no gradient.
    new = slice(lstm.projection_dim, lstm.projection_dim + 8)
    assert np.abs(Elmo(large, threads=1).layers(TEXT[0]).values[..., new]).mean() > 0.01


def test_what_fits_the_small_model_alone_is_left_out(script, tmp_path, tiny_elmo):
    words = Vocabulary(["<S>", "</S>", "<UNK>", "bank"])
    softmax = Softmax(np.ones((4, tiny_elmo.config.lstm.projection_dim), np.float32), np.zeros(4))
    small = dataclasses.replace(tiny_elmo.checkpoint, vocabulary=words, softmax=softmax)
    Elmo(small, start="warm").save(tmp_path / "small", precision="int8")
    warm = read_checkpoint(tmp_path / "small")
    lstm = warm.config.lstm
    grown = script.grow(warm, lstm.dim + 2, lstm.projection_dim + 1, seed=0)
    elmore_folder.write(grown, tmp_path / "grown")
    again = read_checkpoint(tmp_path / "grown")
    assert warm.start_state is not None
    assert again.start_state is None
    assert "certificate" in warm.notes
    assert not again.notes


def test_a_smaller_size_is_refused(script):
    small = read_checkpoint(bundled_model())
    with pytest.raises(SystemExit, match="pass no less"):
        script.grow(small, 16, 8, seed=0)


def test_the_script_trains_the_larger_model(script, tmp_path, monkeypatch):
    data = small_data(tmp_path)
    small = pretrain(data, tmp_path / "small", recipe=small_recipe(), threads=1, progress=False)
    size = ["--dim", "14", "--projection-dim", "8"]
    settings = {k: v for k, v in SMALL.items() if not k.startswith("model.")}
    settings["schedule.tokens"] = "200"
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = ["grow.py", str(small.checkpoint_path), "-o", str(tmp_path / "grown"), *size]
    command += ["--data", str(data.folder), "--run", str(tmp_path / "run"), "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*command, *flags])
    script.main()
    run = Run(tmp_path / "run")
    assert run.elmo().config == read_checkpoint(tmp_path / "grown").config
    # It starts from what the small model learned, not from nothing.
    last = [line["heldout"]["loss"] for line in small.log() if "heldout" in line][-1]
    first = next(line["heldout"]["loss"] for line in run.log() if "heldout" in line)
    assert first < last + 0.1
    script.main()  # a finished run is left as it is
    # Another size or vocabulary than the model's is refused in one line.
    for recipe, other in (
        (small_recipe(), data),
        (run.recipe, small_data(tmp_path / "other", vocabulary=9)),
    ):
        with pytest.raises(ConfigError, match="the model to start from"):
            pretrain(other, tmp_path / "no", recipe=recipe, start=tmp_path / "grown")
