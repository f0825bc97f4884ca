"""The models that AllenNLP used in its own tests, and a small one for a clone without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_models import FIXTURES, make_options, needs_originals, write_pair

Pair = tuple[Path, Path]

GOLDEN = FIXTURES / "allennlp" / "elmo"


@pytest.fixture(scope="session")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Options and weights of a model with random weights, dim 32, 3 layers."""
    return write_pair(tmp_path_factory.mktemp("compat"), make_options(), seed=5)


@pytest.fixture(params=["small", pytest.param("golden", marks=needs_originals)])
def pair(request: pytest.FixtureRequest, small_pair: Pair) -> Pair:
    """A small model, and that of AllenNLP's tests; both give vectors of 32 numbers."""
    if request.param == "small":
        return small_pair
    return GOLDEN / "options.json", GOLDEN / "lm_weights.hdf5"
