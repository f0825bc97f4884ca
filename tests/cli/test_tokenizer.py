"""--tokenizer: every verb that reads text has it, and all of them mean the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_models import make_options, write_pair

from elmore import Elmo

TEXT = "It's 'no more' .\n"


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("unicode", ["It's", "'", "no", "more", "'", "."]),
        ("builtins:str.split", ["It's", "'no", "more'", "."]),
    ],
)
@pytest.mark.parametrize("workers", [[], ["--workers", "1", "-f", "jsonl"]])
def test_embed(cli, tiny_folder: Path, tmp_path: Path, name, tokens, workers):
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(TEXT)
    flags = ["--model", tiny_folder, "--tokenizer", name, "-o", out, "-f", "jsonl", *workers]
    assert cli("embed", text, *flags).code == 0
    [file] = out.glob("*.jsonl") if workers else [out]
    assert json.loads(file.read_text())["tokens"] == tokens


def test_convert_stores_it(cli, tmp_path: Path):
    pair = write_pair(tmp_path, make_options())
    assert cli("convert", *pair, "-o", tmp_path / "a", "--tokenizer", "unicode").code == 0
    checkpoint = Elmo.load(tmp_path / "a").checkpoint
    assert checkpoint.tokenizer == "unicode"
    assert "tokenizer" not in checkpoint.notes
