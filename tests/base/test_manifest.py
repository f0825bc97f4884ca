"""elmore.base.manifest: format, version, sizes and sums."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from elmore.base.manifest import ListedFiles, check_file, check_size, check_sum, file_entries
from elmore.errors import FormatError


def test_a_file_is_compared_with_its_entry(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    entry = file_entries(tmp_path)["a"]
    assert entry["size"] == 3
    check_size(3, entry["size"], what="a", fix="")
    check_file(tmp_path / "a", entry["sha256"], fix="")
    with pytest.raises(FormatError, match="'a' has 2 bytes, the manifest says 3; copy it"):
        check_size(2, entry["size"], what="a", fix="copy it")
    with pytest.raises(FormatError, match=r"'a' differs from its SHA-256 .*; it is damaged, copy"):
        check_sum(io.BytesIO(b"abd"), entry["sha256"], what="a", fix="copy it")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(FormatError, match="symbolic link"):
        check_file(tmp_path / "b", entry["sha256"], fix="")


def test_listed_files_are_read_as_the_manifest_says(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"a": 1}')
    (tmp_path / "b").write_bytes(b"b" * (2 << 20))
    (tmp_path / "c").write_bytes(b"not listed")
    files = ListedFiles(tmp_path, file_entries(tmp_path, ["a.json", "b"]), "copy it")
    assert files.json("a.json", dict[str, int]) == {"a": 1}
    with pytest.raises(FormatError, match=r"is damaged \(a.json: Expected .*\); copy it"):
        files.json("a.json", list[int])
    (tmp_path / "b").write_bytes(b"x" * (2 << 20))
    files.open("b").close()  # large files are compared when asked
    with pytest.raises(FormatError, match="differs from its SHA-256"):
        files.verify()
    (tmp_path / "a.json").write_bytes(b'{"a": 2}')
    with pytest.raises(FormatError, match="differs from its SHA-256"):
        files.json("a.json", dict[str, int])
