"""The samples of files in docs/tasks.md are what the readers read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_tasks import NAMES, task_class

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"


def sample(name: str) -> str:
    text = PAGE.read_text(encoding="utf-8").split("\n## Data files\n")[1].split("\n## ")[0]
    return re.split("\n```\n", text.split(f"**`{name}`**")[1].split("```text\n")[1])[0] + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_samples_can_be_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "sample").write_text(sample(name), encoding="utf-8")
    task = task_class(name)(None)
    found = task.examples(tmp_path / "sample")
    assert found == task.for_training(found) != []
