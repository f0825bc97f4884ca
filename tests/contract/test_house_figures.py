"""benchmarks/house.py counts what it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "house.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="a source tree has it")

TEXT = '''"""Two lines
of docstring."""

# why
X = 1  # a remark


class A:
    """What it is."""

    @property
    def f(self) -> int:  # noqa: D102
        # why
        return """
text"""
'''


def test_lines_functions_and_comments() -> None:
    spec = importlib.util.spec_from_file_location("house", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    house = importlib.util.module_from_spec(spec)
    sys.modules["house"] = house  # dataclasses look their module up
    spec.loader.exec_module(house)
    file = house.measure("room/a.py", TEXT)
    assert (file.lines, file.code, file.comments, file.remarks) == (15, 6, 2, 1)
    assert (file.functions, file.classes, file.room) == ((5,), ("A",), "room")
    result = house.report({"a/x.py": TEXT, "b/x.py": "class A: ...\n"}, by_room=True)
    assert result["names of files"] == {"x.py": ["a/x.py", "b/x.py"]}
    assert result["names of classes"] == {"A": ["a/x.py", "b/x.py"]}
    assert (result["files"], result["lines"]) == (2, 16)
    assert set(result["rooms"]) == {"a", "b"}
