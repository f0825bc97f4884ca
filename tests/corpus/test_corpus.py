"""elmore.corpus.texts: names, patterns, compression, and where documents end."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from small_corpus import EXPECTED, TEXT, documents, texts, write

from elmore.corpus import texts as module
from elmore.corpus.texts import expand_inputs, inspect_file
from elmore.errors import InputError


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"]
)
def test_compressed_files(tmp_path: Path, pack) -> None:
    assert texts([write(tmp_path / "any-name", pack(TEXT.encode()))]) == EXPECTED


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_truncated_file_is_refused(tmp_path: Path, pack) -> None:
    path = write(tmp_path / "x", pack(bytes(range(65, 91)) * 1000)[:-9])
    with pytest.raises(InputError, match="is damaged"):
        inspect_file(str(path))


def test_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.txt", "c.md", "[x].txt"):
        write(tmp_path / name, "a\n")
    (tmp_path / "folder.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    assert expand_inputs(["b.txt", "*.txt"]) == [Path(n) for n in ("b.txt", "[x].txt", "a.txt")]
    assert expand_inputs(["[x].txt"]) == [Path("[x].txt")]
    assert expand_inputs("a.txt") == [Path("a.txt")]
    for name, message in (
        ("*.csv", "matches no file"),
        ("nothing.txt", "does not exist"),
        ("folder.txt", "is a folder; name its files"),
    ):
        with pytest.raises(InputError, match=message):
            expand_inputs([name])


@pytest.mark.parametrize("around", ["", "\n\n", "\ufeff\n"])
def test_without_blank_lines_a_hundred_lines_are_a_document(tmp_path: Path, around: str) -> None:
    path = write(tmp_path / "x", around + "".join(f"w{k}\n" for k in range(250)) + "\n\n")
    assert inspect_file(str(path)).linewise
    for block_bytes in (1, 300, 1 << 20):
        found = list(documents([path], block_bytes=block_bytes).values())
        assert sum(map(len, found)) == 250
        assert len(found) == 3
        assert max(map(len, found)) == 100
        assert sorted(word for d in found for [word] in d) == sorted(f"w{k}" for k in range(250))


def test_a_late_blank_line_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2, 3, 1000):
        monkeypatch.setattr(module, "_READ_BYTES", size)
        for end, linewise in (("\n \n\n", True), ("\n \n\nc\n", False), ("\nc\n", True)):
            path = write(tmp_path / "x", "a\n" * 50 + "b" + end)
            assert inspect_file(str(path)).linewise is linewise
