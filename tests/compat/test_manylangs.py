"""elmore.compat.manylangs against the original's values, its quirks included."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from small_models import DATA, GOLDEN

from elmore.compat.manylangs import Embedder
from elmore.errors import ConfigError, FormatError

close = {"atol": 1e-6, "rtol": 1e-5}
OWN = [
    "manylangs_both",
    "manylangs_characters_old",
    "manylangs_words",
    "manylangs_lstm_encoder",
    "manylangs_lstm_words",
]


def check(folder: Path, golden: Path, first: list[list[str]], second: list[list[str]]) -> None:
    embedder = Embedder(folder)
    with h5py.File(golden) as file:
        for layer in file["fresh"]:
            embedder.reset_states()
            for k, values in enumerate(embedder.sents2elmo(first, output_layer=int(layer))):
                expected = file[f"fresh/{layer}/{k}"][...]
                assert values.shape == expected.shape
                np.testing.assert_allclose(values, expected, **close)
        embedder.reset_states()
        for call in sorted(file.get("stateful", ())):
            sentences = second if call == "1" else first
            for k, values in enumerate(embedder.sents2elmo(sentences, -2)):
                expected = file[f"stateful/{call}/{k}"][...]
                np.testing.assert_allclose(values, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", OWN)
def test_the_values_of_the_original(name: str) -> None:
    sentences = json.loads((DATA / "manylangs_sentences.json").read_text(encoding="utf-8"))
    check(DATA / name, DATA / f"{name}.hdf5", sentences["first"], sentences["second"])


@pytest.mark.parametrize("name", ["base", "charonly", "wordonly", "lstmenc"])
def test_golden_models(name: str) -> None:
    folder = GOLDEN / "manylangs" / name
    sentences = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    check(folder, folder / "expected.hdf5", sentences["sentences"], sentences["sentences2"])


def test_batches_and_their_order() -> None:
    """State is carried by the place in the sorted batch, so the batch size shows."""
    sentences = [["the"], ["of", "the", "bank"], ["bank", "of"]]
    one, all_at_once = (Embedder(DATA / "manylangs_words", size) for size in (1, 64))
    single = one.sents2elmo(sentences)
    together = all_at_once.sents2elmo(sentences)
    np.testing.assert_allclose(single[1], together[1], **close)  # the longest comes first
    assert np.abs(single[0] - together[0]).max() > 1e-4
    assert all_at_once.sents2elmo([]) == []
    assert all_at_once.sents2elmo([[]])[0].shape == (0, 8)


def test_misuse() -> None:
    with pytest.raises(FormatError, match="not an ELMoForManyLangs model"):
        Embedder(DATA / "tf1_characters")
    with pytest.raises(ConfigError, match="batch_size=0"):
        Embedder(DATA / "manylangs_words", batch_size=0)
    embedder = Embedder(DATA / "manylangs_words")
    with pytest.raises(ConfigError, match="output_layer=3 but there are 3"):
        embedder.sents2elmo([["the"]], output_layer=3)
    encoder = Embedder(DATA / "manylangs_lstm_encoder")
    assert encoder.sents2elmo([[]])[0].shape == (8,)
