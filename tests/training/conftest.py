"""What the tests of training share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A prepared corpus of random sentences; it is never changed."""
    from small_training import small_data  # which needs torch

    return small_data(tmp_path_factory.mktemp("corpus"))
