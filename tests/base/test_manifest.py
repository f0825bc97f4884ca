"""elmore.base.manifest: format, version, sizes and sums."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from elmore.base.manifest import check_file, check_size, check_sum, file_entries
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
