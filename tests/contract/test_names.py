"""The public names are all there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import elmore
from elmore import errors


@pytest.mark.parametrize("name", elmore.__all__)
def test_every_name_is_there(name: str) -> None:
    thing = getattr(elmore, name)
    if name != "__version__":
        assert thing.__name__.removeprefix("elmore.") == name
        assert thing.__doc__


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'elmore' has no attribute 'Elmoe'"):
        elmore.Elmoe  # noqa: B018


def test_type_checkers_and_python_see_the_same_names() -> None:
    source = Path(elmore.__file__).read_text(encoding="utf-8")
    assert sorted(re.findall(r" as (\w+)", source)) == dir(elmore) == elmore.__all__


def test_errors_are_what_they_are_said_to_be() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.ModelNotFound, FileNotFoundError)
    assert issubclass(errors.MissingExtra, ImportError)
    for kind in vars(errors).values():
        assert not isinstance(kind, type) or issubclass(kind, elmore.ElmoreError)
