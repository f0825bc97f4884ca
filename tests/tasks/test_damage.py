"""Folders of trained tasks that were damaged, or made by somebody else: one line, never a crash."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_tasks import make, write_data

from elmore import Elmo
from elmore.analysis import Mixes
from elmore.errors import ElmoreError
from elmore.tasks import load

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 3, 2**70, 0.5, 1e308, float("nan"), "", "x", "os:system", "\x1b[31m"),
    *([], [0], ["x"], [[]], {}, {"x": 1}, ["O", "B-", "x"]),
)


def positions(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a JSON document are."""
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from positions(inner, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(document))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


def survives(folder: Path, *, full: bool) -> None:
    """The folder is used, or refused in one line."""
    problem = ""
    try:
        for light in (True, False) if full else (True,):
            model = load(folder, light=light, threads=1)
            list(model.lines(["Ada fell .", "", "Rome \x00 x"], "jsonl"))
            list(model.lines(["Ada fell ."]))
        Mixes().run([folder])
    except ElmoreError as error:
        problem = str(error)
    assert "\n" not in problem
    assert "\x1b" not in problem


# Damaged weights may be huge.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["tag", "classify", "ner", "srl"])
def test_mutants_of_a_folder(name: str, tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = make(name, tiny_elmo, schedule__steps="2")
    task.fit(write_data(name, tmp_path), out=tmp_path / "run")
    folder = tmp_path / "run" / "checkpoint"
    files = {f: (folder / f).read_bytes() for f in ("task.json", "model.safetensors", "words.txt")}
    facts = json.loads(files["task.json"])
    draw = random.Random(0)
    mutants = [(path, odd) for path in positions(facts) for odd in (..., *ODD)]
    for path, odd in draw.sample(mutants, 150):
        (folder / "task.json").write_text(json.dumps(changed(facts, path, odd)))
        survives(folder, full=True)
    for _ in range(100):
        victim = draw.choice(list(files))
        data = bytearray(files[victim])
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(min(len(data), 4000))] = draw.randrange(256)
        if draw.random() < 0.2:
            del data[draw.randrange(len(data)) :]
        (folder / victim).write_bytes(data)
        if victim != "task.json":  # whoever changes a file can change its digest too
            sums = {**facts["sha256"], victim: hashlib.sha256(data).hexdigest()}
            (folder / "task.json").write_text(json.dumps({**facts, "sha256": sums}))
        survives(folder, full=True)
        for file, whole in files.items():
            (folder / file).write_bytes(whole)


def test_what_is_not_there(tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = make("tag", tiny_elmo, schedule__steps="2")
    task.fit(write_data("tag", tmp_path), out=tmp_path / "run")
    for file in ("task.json", "model.safetensors", "words.txt", "elmo", "elmo/config.json"):
        folder = tmp_path / file.replace("/", "-")
        shutil.copytree(tmp_path / "run" / "checkpoint", folder)
        victim = folder / file
        shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
        with pytest.raises(ElmoreError):
            load(folder, light=True)
