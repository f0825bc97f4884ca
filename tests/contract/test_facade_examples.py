"""The examples in the docstrings of the facade run as they stand."""

from __future__ import annotations

import doctest
import inspect
import shutil
from pathlib import Path

import pytest

import elmore
from elmore import Elmo
from elmore import elmo as elmo_module
from elmore.embedding import results, search

FINDER = doctest.DocTestFinder(recurse=True)
TESTS = {
    test.name: test
    for thing, name, module in (
        (Elmo, "Elmo", elmo_module),
        (elmore.cosine, "cosine", results),
        (elmore.search, "search", search),
    )
    for test in FINDER.find(thing, name, module=module)
    if test.examples
}


@pytest.mark.parametrize("name", TESTS)
def test_example(
    name: str,
    tiny_elmo: Elmo,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(tiny_folder, tmp_path / "my-model")
    monkeypatch.chdir(tmp_path)
    test = TESTS[name]
    test.globs = {"elmo": tiny_elmo, "Elmo": Elmo}
    report: list[str] = []
    runner = doctest.DocTestRunner()
    result = runner.run(test, out=report.append, clear_globs=False)
    assert result.failed == 0, "".join(report)
    assert result.attempted > 0


def test_every_method_has_an_example() -> None:
    methods = {
        f"Elmo.{name}"
        for name, member in inspect.getmembers(Elmo)
        if not name.startswith("_") and callable(member)
    }
    assert methods <= set(TESTS), sorted(methods - set(TESTS))
    assert {"cosine", "search"} <= set(TESTS)
