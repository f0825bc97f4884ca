"""elmore.base.journal: what is kept, what is resumed, what is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from elmore.base.journal import FinishedFile, JournalFolder
from elmore.errors import ConfigError, FormatError

NAMES = re.compile(r"file-\d|work")
HEADER = {"format": "test", "options": [1, "é"]}


@dataclass(frozen=True, kw_only=True)
class Numbered(FinishedFile):
    number: int


def opened(path: Path):
    return JournalFolder.opened(path, Numbered, NAMES, busy="in use; wait", marks=("done.json",))


def add(folder: JournalFolder[Numbered], number: int) -> Numbered:
    path = folder.path / f"file-{number}"
    path.write_text(f"{number}" * 10)
    record = Numbered(file=path.name, bytes=10, number=number)
    folder.add(record)
    return record


def filled(path: Path, *numbers: int) -> list[Numbered]:
    with opened(path) as folder:
        assert folder.found() is None
        assert folder.begin(HEADER, []) == []
        return [add(folder, number) for number in numbers]


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_finished_files_are_found_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    records = filled(out, 0, 2)
    assert names(out) == {"journal.jsonl", "lock", "file-0", "file-2"}
    with opened(out) as folder:
        assert folder.found() == (HEADER, records)
        assert folder.begin(HEADER, records) == records
        records.append(add(folder, 1))
    with opened(out) as folder:
        assert folder.found() == (HEADER, records)


def test_a_torn_line_and_a_damaged_file_cost_these_files_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    records = filled(out, 0, 1, 2)
    (out / "file-1").write_text("1")
    journal = out / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    (out / f".file-2.{'0' * 12}.partial").write_text("of a killed writer")
    with opened(out) as folder:
        assert folder.found() == (HEADER, records[:2])
        assert folder.begin(HEADER, records[:2]) == records[:1]
        assert names(out) == {"journal.jsonl", "lock", "file-0"}
        add(folder, 1)  # the torn line does not spoil the next one
    with opened(out) as folder:
        assert folder.found() == (HEADER, records[:2])


@pytest.mark.parametrize("line", [b'{"a', b"[]", b"5", b'"\xff"', b"[" * 100_000])
def test_a_damaged_first_line_is_refused(line: bytes, tmp_path: Path) -> None:
    filled(tmp_path / "out", 0)
    (tmp_path / "out" / "journal.jsonl").write_bytes(line + b"\n")
    with (
        opened(tmp_path / "out") as folder,
        pytest.raises(FormatError, match=r"is damaged; remove '.*out' to start again"),
    ):
        folder.found()


@pytest.mark.parametrize("number", [b"[0]", b'"1"', b"null", b"{}", b"[" * 100_000])
def test_a_line_of_another_type_ends_what_is_known(number: bytes, tmp_path: Path) -> None:
    records = filled(tmp_path / "out", 0, 1)
    journal = tmp_path / "out" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"number": 1', b'"number": ' + number))
    with opened(tmp_path / "out") as folder:
        assert folder.found() == (HEADER, records[:1])


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    out, secret = tmp_path / "out", tmp_path / "elsewhere"
    records = filled(out, 0)
    (out / "journal.jsonl").rename(secret)
    (out / "journal.jsonl").symlink_to(secret)
    with opened(out) as folder, pytest.raises(FormatError, match="link"):
        folder.found()
    # Nor is a file of the journal that is a link as long as its record.
    (out / "file-0").unlink()
    (out / "file-0").symlink_to("x" * 10)
    with opened(out) as folder:
        assert not folder.is_intact(records[0])


def test_starting_again_removes_files_but_not_folders(tmp_path: Path) -> None:
    out = tmp_path / "out"
    filled(out, 0, 1)
    (out / "work").mkdir()
    with opened(out) as folder:
        folder.begin({"format": "other"}, [])
        assert names(out) == {"journal.jsonl", "lock", "work"}
        add(folder, 3)
        folder.clear()
    assert not out.exists()


@pytest.mark.parametrize("begun", [True, False])
def test_nothing_finished_leaves_nothing(tmp_path: Path, begun: bool) -> None:
    def interrupted() -> None:
        with opened(tmp_path / "out") as folder:
            if begun:
                folder.begin(HEADER, [])
                (folder.path / "file-0").write_text("not recorded")
                (folder.path / "work").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with opened(out) as folder:
        folder.begin(HEADER, [])
        add(folder, 0)
        (out / "done.json").write_text("{}")
        folder.finish()
    assert names(out) == {"file-0", "done.json"}
    with opened(out) as folder:  # known by its mark
        assert folder.found() is None
    assert names(out) == {"file-0", "done.json"}


@pytest.mark.parametrize("name", ["notes.txt", "file-0"])
def test_files_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    with pytest.raises(ConfigError, match="did not write"), opened(out):
        pass
    assert names(out) == {name}
    with pytest.raises(ConfigError, match="is not a folder"), opened(out / name):
        pass
    with pytest.raises(ConfigError, match="create it first"), opened(out / "a" / "b"):
        pass
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(ConfigError, match="is not a folder"), opened(tmp_path / "link"):
        pass
