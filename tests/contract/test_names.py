"""The public names are all there."""

from __future__ import annotations

import pytest

import elmore
from elmore import errors

NAMES = elmore.__all__


def test_dir_lists_the_names() -> None:
    assert dir(elmore) == NAMES == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name: str) -> None:
    thing = getattr(elmore, name)
    if name != "__version__":
        assert thing.__name__.removeprefix("elmore.") == name
        assert thing.__doc__


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'elmore' has no attribute 'Elmoe'"):
        elmore.Elmoe  # noqa: B018


def test_star() -> None:
    space: dict[str, object] = {}
    exec("from elmore import *", space)
    assert set(NAMES) <= set(space)


def test_errors_are_what_they_are_said_to_be() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.ModelNotFound, FileNotFoundError)
    assert issubclass(errors.MissingExtra, ImportError)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), elmore.ElmoreError)
    drawn = [line.split("─ ")[1].split()[0] for line in errors.__doc__.split("\n") if "─ " in line]
    assert sorted([*drawn, "ElmoreError"]) == sorted(errors.__all__)
