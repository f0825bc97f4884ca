"""The waist between files and modules."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from small_models import make_options, write_pair

from elmore import Elmo
from elmore.config import Precision, weight_shapes
from elmore.embedding.load import read_checkpoint
from elmore.errors import FormatError
from elmore.formats.checkpoint import Checkpoint, Softmax
from elmore.formats.containers.arrays import Arrays
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary


def test_a_missing_weight(tiny_checkpoint: Checkpoint) -> None:
    weights = dict(tiny_checkpoint.weights)
    del weights["forward_layers.1.bias"]
    with pytest.raises(FormatError, match=r"has no weight forward_layers\.1\.bias"):
        dataclasses.replace(tiny_checkpoint, weights=weights)


def test_a_wrong_shape(tiny_checkpoint: Checkpoint) -> None:
    weights = dict(tiny_checkpoint.weights) | {"forward_layers.1.bias": np.zeros(3, np.float32)}
    broken = dataclasses.replace(tiny_checkpoint, weights=weights)
    with pytest.raises(FormatError, match=r"bias has shape \(3,\), the config asks for \(128,\)"):
        list(broken.checked_weights())


def test_alphabet_and_vocabulary_must_fit(tiny_checkpoint: Checkpoint) -> None:
    with pytest.raises(FormatError, match="has no alphabet"):
        dataclasses.replace(tiny_checkpoint, alphabet=None)
    with pytest.raises(FormatError, match="alphabet gives 20"):
        dataclasses.replace(tiny_checkpoint, alphabet=ByteAlphabet(20))
    softmax = Softmax(np.zeros((3, 16), np.float32), np.zeros(3, np.float32))
    with pytest.raises(FormatError, match="softmax of 3 words but no vocabulary"):
        dataclasses.replace(tiny_checkpoint, softmax=softmax)
    with pytest.raises(FormatError, match="softmax of 3 words but a vocabulary of 2"):
        dataclasses.replace(tiny_checkpoint, softmax=softmax, vocabulary=Vocabulary("ab"))


def test_reading_a_model_reads_no_weight(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that `elmore info` of a large model answers at once."""
    write_pair(tmp_path, make_options())
    read: list[str] = []
    original = Arrays.read
    monkeypatch.setattr(
        Arrays, "read", lambda self, name: (read.append(name), original(self, name))[1]
    )
    checkpoints = [read_checkpoint(path) for path in (tiny_folder, tmp_path)]
    assert read == []
    for checkpoint in checkpoints:
        read.clear()
        assert sum(1 for _ in checkpoint.checked_weights()) == len(weight_shapes(checkpoint.config))
        assert read


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_other_weights_take_nothing_of_the_old_ones(
    precision: Precision, tiny_elmo: Elmo, tmp_path: Path
) -> None:
    tiny_elmo.save(tmp_path / "model", precision=precision)
    before = read_checkpoint(tmp_path / "model")
    zeros = {name: np.zeros_like(weight) for name, weight in before.checked_weights()}
    after = before.with_weights(zeros)
    for kind in get_args(Precision):
        for name in zeros:
            assert not after.numbers(name, kind).values.any()
    assert (after.precision, after.stored, after.start_state) == ("float32", {}, None)
    assert before.numbers(next(iter(zeros)), precision).values.any()
