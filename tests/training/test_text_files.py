"""elmore.training.text_files: names, patterns, compression, kinds."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from small_corpus import EXPECTED, TEXT, texts, write

from elmore.errors import InputError
from elmore.training.text_files import expand_inputs, inspect_file


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
