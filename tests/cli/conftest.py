"""Run the command line inside the test's process, and take what it says."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from elmore import Elmo
from elmore.cli.main import main
from elmore.formats.checkpoint import Softmax
from elmore.text.vocabulary import Vocabulary


def as_new_click(message: str) -> str:
    """Without quotes and colons, which click writes around an option or not, by its version."""
    return re.sub(r"'(--\w+)'", r"\1", message.replace("option: --", "option --"))


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


@pytest.fixture(scope="session")
def lm_model(tiny_elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a random softmax over eight words."""
    words = ["<S>", "</S>", "<UNK>", "It", "fell", ".", "no", "said"]
    weights = np.random.default_rng(0).normal(0, 0.2, (len(words), 16)).astype(np.float32)
    checkpoint = dataclasses.replace(
        tiny_elmo.checkpoint,
        softmax=Softmax(weights, np.zeros(len(words), np.float32)),
        vocabulary=Vocabulary(words),
        tokenizer="ptb",
    )
    path = tmp_path_factory.mktemp("lm") / "my-model"
    Elmo(checkpoint).save(path)
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Three sentences, one of them empty."""
    path = tmp_path / "text.txt"
    path.write_text('It fell .\n\nHe said "no".\n', encoding="utf-8")
    return path
