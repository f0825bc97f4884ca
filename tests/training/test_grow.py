"""examples/grow.py: a larger model that starts with the predictions of a smaller one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo, score
from elmore.embedding.load import read_checkpoint
from elmore.published.catalog import bundled_model

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
    before, after = (list(score(Elmo(one, threads=1), TEXT)) for one in (small, large))
    for one, other in zip(before, after, strict=True):
        assert np.allclose(one.forward, other.forward, atol=1e-4)
        assert np.allclose(one.backward, other.backward, atol=1e-4)
    # The new dimensions must not be zero: weights that read zeros get no gradient.
    new = slice(lstm.projection_dim, lstm.projection_dim + 8)
    assert np.abs(Elmo(large, threads=1).layers(TEXT[0]).values[..., new]).mean() > 0.01


def test_a_smaller_size_is_refused(script):
    small = read_checkpoint(bundled_model())
    with pytest.raises(SystemExit, match="pass no less"):
        script.grow(small, 16, 8, seed=0)
