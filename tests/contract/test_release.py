"""What must agree before a version is released."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elmore import __version__

ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## (\S+) \((.+)\)$", read("CHANGELOG.md"), re.M)
    cited = re.search(r"^version: (\S+)$", read("CITATION.cff"), re.M)
    assert newest
    assert cited
    assert cited[1] == __version__
    assert __version__.partition(".dev")[0] == newest[1]
    # Only a release has a date, in all three places.
    assert (newest[2] == "unreleased") == (".dev" in __version__)
    assert ("date-released" in read("CITATION.cff")) == (".dev" not in __version__)


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"])
def test_no_page_installs_from_an_index(page: Path) -> None:
    """elmore is not on PyPI yet: every page installs from a clone."""
    assert not re.search(r"pip install ['\"]?elmore", page.read_text(encoding="utf-8"))
