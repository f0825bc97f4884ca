"""A small language model for tests of senses; it is never changed."""

from __future__ import annotations

import pytest
from slow_language_model import Slow, load_both

from elmore import Elmo


@pytest.fixture(scope="session")
def both_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Elmo, Slow]:
    """The same language model in elmore and in plain float64."""
    return load_both(tmp_path_factory.mktemp("lm"))


@pytest.fixture(scope="session")
def lm(both_models: tuple[Elmo, Slow]) -> Elmo:
    """An `Elmo` with a softmax."""
    return both_models[0]
