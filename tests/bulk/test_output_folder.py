"""The folder of a bulk run: what it resumes, and what it refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from elmore.base.journal import JournalFolder
from elmore.bulk.output_folder import ShardRecord, finish, opened, resume
from elmore.errors import ConfigError, ElmoreError, FormatError, ResumeError
from elmore.text.reading import Counts

FACTS = {
    "format": "elmore-vectors",
    "version": 1,
    "settings": {"layers": "mean", "shard_bytes": 10},
    "model": {"sha256": "m"},
    "software": {"torch": "2"},
    "inputs": [{"path": "a.txt", "size": 3, "sha256": "x"}],
}


Folder = JournalFolder[ShardRecord]


def add(folder: Folder, number: int) -> ShardRecord:
    path = folder.path / f"shard-{number:06d}.jsonl"
    path.write_text(f"shard {number}\n")
    counts = {"first": number, "sentences": 1, "tokens": 2, "empty": 0, "cut": 0}
    size = path.stat().st_size
    record = ShardRecord(number=number, file=path.name, **counts, bytes=size, sha256="s")
    folder.add(record)
    return record


def found(path: Path, facts: dict[str, Any] = FACTS, *, overwrite: bool = False) -> set[int]:
    """The shards that a run would keep."""
    with opened(path) as folder:
        return set(resume(folder, facts, overwrite=overwrite))


def started(path: Path, *numbers: int) -> None:
    with opened(path) as folder:
        resume(folder, FACTS, overwrite=False)
        for number in numbers:
            add(folder, number)


def started_with_one(path: Path) -> None:
    started(path, 0)


def finished(path: Path) -> None:
    started(path, 1, 0)
    with opened(path) as folder:
        done = resume(folder, FACTS, overwrite=False)
        assert set(done) == {0, 1}
        finish(folder, FACTS, done, Counts(skipped=3))


def test_it_resumes_with_what_is_done(tmp_path):
    out = tmp_path / "out"
    started(out, 0, 2)
    assert {path.name for path in out.iterdir()} == {
        "journal.jsonl",
        "lock",
        "shard-000000.jsonl",
        "shard-000002.jsonl",
    }
    assert found(out) == {0, 2}


def test_a_torn_journal_and_a_damaged_shard_cost_these_shards_only(tmp_path):
    out = tmp_path / "out"
    started(out, 0, 1, 2)
    (out / "shard-000001.jsonl").write_text("sh")
    journal = (out / "journal.jsonl").read_bytes()
    (out / "journal.jsonl").write_bytes(journal[:-5])
    assert found(out) == {0}


def test_a_finished_folder_holds_shards_and_manifest(tmp_path):
    out = tmp_path / "out"
    finished(out)
    assert {path.name for path in out.iterdir()} == {
        "manifest.json",
        "shard-000000.jsonl",
        "shard-000001.jsonl",
    }
    manifest = json.loads((out / "manifest.json").read_text())
    assert [shard["number"] for shard in manifest["shards"]] == [0, 1]
    assert manifest["counts"] == {
        "sentences": 2,
        "tokens": 4,
        "empty": 0,
        "cut": 0,
        "replaced": 0,
        "skipped": 3,
    }
    assert {key: manifest[key] for key in FACTS} == FACTS


def test_missing_shards_of_a_finished_folder_are_made_again(tmp_path):
    out = tmp_path / "out"
    finished(out)
    (out / "shard-000000.jsonl").unlink()
    assert found(out) == {1}
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("settings", "layers"), "top", "layers=mean, not top"),
        (("settings", "new"), 1, "new=None, not 1"),
        (("software", "torch"), "3", "torch=2, not 3"),
        (("model", "sha256"), "n", "another model"),
        (("inputs",), [], "1 inputs, not 0"),
        (("inputs",), [{"path": "b.txt", "size": 3, "sha256": "y"}], "'b.txt' changed since"),
    ],
)
@pytest.mark.parametrize("make", [started_with_one, finished])
def test_another_run_is_refused(tmp_path, make, path, value, says):
    make(tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    facts = copy.deepcopy(FACTS)
    place = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ResumeError, match=says) as caught:
        found(tmp_path / "out", facts)
    assert "--force" in str(caught.value)
    after = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    before.pop("lock", None)
    after.pop("lock", None)
    assert after == before
    assert found(tmp_path / "out", facts, overwrite=True) == set()


def test_a_renamed_input_is_the_same_input(tmp_path):
    started(tmp_path / "out", 0)
    facts = {**FACTS, "inputs": [{"path": "moved.txt", "size": 3, "sha256": "x"}]}
    assert found(tmp_path / "out", facts) == {0}


def test_two_at_once(tmp_path):
    with opened(tmp_path / "out"), pytest.raises(ElmoreError, match="written by another"):  # noqa: SIM117
        with opened(tmp_path / "out"):
            pass


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json", "shard-000000.jsonl"])
def test_foreign_files_are_left_alone(tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("{}")
    problem = "did not write|something other than bulk vectors"
    with pytest.raises(ConfigError, match=problem), opened(out):
        pass
    assert (out / name).read_text() == "{}"
    with pytest.raises(ConfigError, match="is not a folder"), opened(out / name):
        pass
    with pytest.raises(ConfigError, match="create it first"), opened(out / "a" / "b"):
        pass


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("shards", value) for value in (5, [5], [{}], [{"number": [0]}])),
        *((key, value) for key in ("settings", "software", "model") for value in (True, [0])),
        *(("inputs", value) for value in (None, 5, [5], [{}])),
    ],
)
def test_a_damaged_manifest(tmp_path, key, value):
    out = tmp_path / "out"
    finished(out)
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, key: value}))
    with pytest.raises(FormatError, match=r"damaged.*--force"):
        found(out)


def test_nothing_begun_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), opened(tmp_path / "out"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
