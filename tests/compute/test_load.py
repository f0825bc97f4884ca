"""ELMORE_NATIVE: which path computes."""

from __future__ import annotations

import importlib.util

import pytest

from elmore.compute.native import native
from elmore.errors import ConfigError, NativeError

BUILT = importlib.util.find_spec("elmore._native") is not None


@pytest.mark.parametrize("choice", ["0", "auto", "require"])
def test_which_path_computes(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", choice)
    if choice == "require" and not BUILT:
        with pytest.raises(NativeError, match="install a C compiler and reinstall"):
            native()
        return
    assert (native().module is not None) == (BUILT and choice != "0")
    assert native().reason


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", "yes")
    with pytest.raises(ConfigError, match="ELMORE_NATIVE='yes'; use 0, auto or require"):
        native()
