"""What all six tasks promise alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tasks import NAMES, PERFECT, quick_recipe, task_class, write_data

from elmore import Elmo
from elmore.errors import ConfigError, FormatError, InputError, ResumeError


def make(name: str, elmo: Elmo | None = None, *, seed: int = 0, **changes: str) -> Any:
    return task_class(name)(elmo, recipe=quick_recipe(name, **changes), seed=seed)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path, Any]]:
    """A model of each task that knows its eight examples; made when asked for."""
    return {}


@pytest.fixture
def knows(
    trained: dict[str, tuple[Any, Path, Any]],
    tiny_elmo: Elmo,
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    def get(name: str) -> tuple[Any, Path, Any]:
        if name not in trained:
            folder = tmp_path_factory.mktemp(name)
            data = write_data(name, folder)
            task = make(name, tiny_elmo)
            report = task.fit(data, dev=data, out=folder / "run")
            trained[name] = (task, folder, report)
        return trained[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_eight_examples_are_learned_by_heart(name: str, knows: Any) -> None:
    task, folder, report = knows(name)
    assert report.metrics[task.metric] == pytest.approx(PERFECT[name])
    assert task.evaluate(folder / f"{name}.data").metrics[task.metric] == report.metrics[task.metric]
