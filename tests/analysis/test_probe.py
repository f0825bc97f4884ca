"""The control of every probe: a biLM that never saw text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo
from elmore.analysis.probe import random_model
from elmore.config import Precision

SENTENCE = [["Stocks", "fell", "."]]


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_the_control_knows_nothing_of_the_model(
    precision: Precision, tiny_elmo: Elmo, tmp_path: Path
) -> None:
    tiny_elmo.save(tmp_path / "model", precision=precision)
    elmo = Elmo.load(tmp_path / "model")
    control = random_model(elmo)
    assert (control.precision, control.config) == (precision, elmo.config)
    (ours,), (theirs,) = (
        elmo.layers(SENTENCE, tokenized=True),
        control.layers(SENTENCE, tokenized=True),
    )
    for layer, other in zip(ours.values, theirs.values, strict=True):
        assert np.abs(layer - other).max() > 1e-2
    (again,) = random_model(elmo).layers(SENTENCE, tokenized=True)
    np.testing.assert_array_equal(again.values, theirs.values)
    (another,) = random_model(elmo, seed=1).layers(SENTENCE, tokenized=True)
    assert np.abs(another.values - theirs.values).max() > 1e-2
