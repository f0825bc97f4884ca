"""What must agree before a version is released."""

from __future__ import annotations

import json
import re
import tomllib
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


def test_one_ruff_checks_everywhere() -> None:
    hook = re.search(r"ruff-pre-commit\n    rev: v(\S+)", read(".pre-commit-config.yaml"))
    assert hook
    assert f'"ruff=={hook[1]}"' in read("pyproject.toml")


def test_every_python_is_named_and_tested() -> None:
    project = tomllib.loads(read("pyproject.toml"))
    name = "Programming Language :: Python :: 3."
    named = [line.removeprefix(name) for line in project["project"]["classifiers"] if name in line]
    built = [entry[3:-2] for entry in project["tool"]["cibuildwheel"]["build"]]
    assert built == named
    tested = re.search(r"python: (\[.*\])", read(".github/workflows/tests.yml").replace("3.", ""))
    assert tested is not None
    assert built == json.loads(tested[1])


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"])
def test_no_page_installs_from_an_index(page: Path) -> None:
    """elmore is not on PyPI yet: every page installs from a clone."""
    assert not re.search(r"pip install ['\"]?elmore", page.read_text(encoding="utf-8"))
