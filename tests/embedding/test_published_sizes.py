"""The published shapes build, save, load and embed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo
from elmore.config import BiLmConfig, count_parameters
from elmore.elmo import Elmo as Facade
from elmore.formats.allennlp_hdf5 import write
from elmore.formats.bilm_options import config_from_options
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.bilm import BiLm, initialise
from elmore.text.characters import ByteAlphabet

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
# The options as they were published, key by key.
SMALL = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 128,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 1024,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": FILTERS,
        "n_highway": 1,
        "embedding": {"dim": 16},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}
ORIGINAL = {
    "lstm": {**SMALL["lstm"], "projection_dim": 512, "dim": 4096},
    "char_cnn": {**SMALL["char_cnn"], "n_highway": 2},
}


def random_checkpoint(config: BiLmConfig) -> Checkpoint:
    bilm = BiLm(config)
    initialise(bilm, np.random.default_rng(0))
    weights = {name: weight.detach().numpy() for name, weight in bilm.named_parameters()}
    return Checkpoint(config=config, weights=weights, alphabet=ByteAlphabet())


@pytest.mark.parametrize(
    ("options", "parameters", "dim"),
    [
        pytest.param(SMALL, 13_593_296, 256, id="small"),
        pytest.param(ORIGINAL, 93_600_848, 1024, id="original", marks=pytest.mark.slow),
    ],
)
def test_a_published_size_makes_the_whole_round(
    options: dict[str, object], parameters: int, dim: int, tmp_path: Path
) -> None:
    config = config_from_options(options, bidirectional=True, n_words=0, what="options.json")
    assert count_parameters(config) == parameters
    built = Facade(random_checkpoint(config))
    texts = ["The quick brown fox jumps over the lazy dog .", "Yes ."]
    expected = built.embed(texts)
    assert expected[0].shape == (10, dim)
    assert np.isfinite(expected[0]).all()

    built.save(tmp_path / "own")
    write(built.checkpoint, tmp_path / "pair")
    assert json.loads((tmp_path / "pair" / "options.json").read_text()) == options
    for folder in ("own", "pair"):
        loaded = Elmo.load(tmp_path / folder)
        for a, b in zip(
            loaded.embed([t.split() for t in texts], tokenized=True), expected, strict=True
        ):
            np.testing.assert_allclose(a, b, atol=1e-6)
