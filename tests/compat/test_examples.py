"""The examples in the docstrings of compat run as they stand."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from elmore import Elmo
from elmore.compat import simple_elmo
from elmore.compat.allennlp import elmo_modules, embedder

FINDER = doctest.DocTestFinder(recurse=True)
TESTS = {
    test.name: test
    for module in (elmo_modules, embedder, simple_elmo)
    for test in FINDER.find(module)
    if test.examples
}


@pytest.mark.parametrize("name", TESTS)
def test_example(
    name: str, small_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in small_pair:
        shutil.copy(path, tmp_path)
    Elmo.load(small_pair).save(tmp_path / "my-model")
    monkeypatch.chdir(tmp_path)
    test = TESTS[name]
    test.globs["batch_to_ids"] = embedder.batch_to_ids
    report: list[str] = []
    result = doctest.DocTestRunner().run(test, out=report.append, clear_globs=False)
    assert result.failed == 0, "".join(report)
