"""Run the command line inside the test's process, and take what it says."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from elmore.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Call `elmore` with arguments and the bytes of stdin."""

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Three sentences, one of them empty."""
    path = tmp_path / "text.txt"
    path.write_text('It fell .\n\nHe said "no".\n', encoding="utf-8")
    return path
