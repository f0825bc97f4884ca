"""The samples of files in docs/tasks.md are what the readers read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_tasks import NAMES, task_class

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
EXAMPLES = {
    "tag": 1,
    "classify": 2,
    "ner": 1,
    "sentiment": 2,
    "nli": 1,
    "qa": 1,
    "srl": 2,
    "coref": 1,
}


def sample(name: str) -> str:
    text = PAGE.read_text(encoding="utf-8").split("\n## Data files\n")[1].split("\n## ")[0]
    return re.split("\n```\n", text.split(f"**`{name}`**")[1].split("```text\n")[1])[0] + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_samples_can_be_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "sample").write_text(sample(name), encoding="utf-8")
    task = task_class(name)(None)
    found = task.read(tmp_path / "sample")
    assert len(task.for_training(found)) == len(found) == EXAMPLES[name]


def test_the_samples_say_what_the_page_says(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text(sample(name), encoding="utf-8")
    (answer,) = task_class("qa")(None).read(tmp_path / "qa")
    assert answer.paragraph.tokens[answer.span[0]] == "Paris"
    predicates = [len(e.predicates) for e in task_class("srl")(None).read(tmp_path / "srl")]
    assert predicates == [2, 1]
    (document,) = task_class("coref")(None).read(tmp_path / "coref")
    assert sorted(map(len, document.clusters)) == [2, 2]
