"""ELMORE_NATIVE: which path computes."""

from __future__ import annotations

import importlib.util

import pytest

from elmore.compute.native import native
from elmore.errors import ConfigError, NativeError

BUILT = importlib.util.find_spec("elmore._native") is not None


def test_zero_never_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    assert native().module is None
    assert "ELMORE_NATIVE=0" in native().reason


def test_auto_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELMORE_NATIVE", raising=False)
    assert (native().module is not None) == BUILT
    assert native().reason


def test_require(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", "require")
    if BUILT:
        assert native().module is not None
    else:
        with pytest.raises(NativeError, match="install a C compiler and reinstall"):
            native()


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", "yes")
    with pytest.raises(ConfigError, match="ELMORE_NATIVE='yes'; use 0, auto or require"):
        native()
