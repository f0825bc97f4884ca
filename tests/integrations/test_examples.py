"""The examples for other libraries run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_tasks import write_data

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_sentiment_with_scikit_learn(tmp_path: Path) -> None:
    trees = write_data("sentiment", tmp_path).read_text()
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(trees)
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "sst_sklearn.py", tmp_path, "1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + 2 * 5
    accuracies = [float(line.split()[-2]) for line in lines[1:]]
    assert min(accuracies[:5]) > 0.5  # on what it was trained on
