"""elmore.base.manifest: format, version, sizes and sums."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from elmore.base.manifest import FolderFormat, check_file, check_size, check_sum, file_entries
from elmore.errors import FormatError

KIND = FolderFormat(name="elmore-x", version=2, label="an x", fix="copy it again")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"version": 1}, "'x.json' does not belong to an x; copy it again"),
        ({"format": "elmore-y", "version": 1}, "'x.json' does not belong to an x; copy it again"),
        ({"format": "elmore-x"}, "'x.json' has version None; copy it again"),
        ({"format": "elmore-x", "version": True}, "'x.json' has version True; copy it again"),
        ({"format": "elmore-x", "version": 0}, "'x.json' has version 0; copy it again"),
        ({"format": "elmore-x", "version": 3}, "version 3, this elmore reads up to 2; upgrade"),
    ],
)
def test_a_head_that_cannot_be_read(head: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as raised:
        KIND.check(head, what="x.json")
    assert message in str(raised.value)


def test_older_and_newest_heads_are_read() -> None:
    KIND.check(KIND.head(), what="x.json")
    KIND.check({"format": "elmore-x", "version": 1}, what="x.json")


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
