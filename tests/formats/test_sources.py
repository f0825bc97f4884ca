"""elmore.formats.containers.sources: folders and named files."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmore.errors import FormatError
from elmore.formats.containers.sources import FilesSource, FolderSource


def folder(path: Path) -> Path:
    path.mkdir()
    (path / "options.json").write_bytes(b"{}")
    (path / "vocab.txt").write_bytes(b"a\nb\n")
    return path


def test_files_source(tmp_path: Path) -> None:
    (tmp_path / "my.json").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("my.json")  # named by the user: followed
    source = FilesSource({"options.json": tmp_path / "link", "weights.hdf5": tmp_path / "no"})
    assert source.names() == ("options.json", "weights.hdf5")
    assert source.read("options.json", 10) == b"{}"
    assert source.local_path("options.json") == tmp_path / "link"
    with pytest.raises(FormatError, match="does not exist"):
        source.open("weights.hdf5")


def test_links_inside_a_folder(tmp_path: Path) -> None:
    model = folder(tmp_path / "model")
    (model / "inner").symlink_to("vocab.txt")
    assert FolderSource(model).read("inner", 10) == b"a\nb\n"
    (tmp_path / "blob").write_bytes(b"blob")
    (model / "outer").symlink_to("../blob")
    with pytest.raises(FormatError, match="link that leaves the folder"):
        FolderSource(model).read("outer", 10)
    assert FolderSource(model, follow_links=True).read("outer", 10) == b"blob"


def test_upper_names_hide_lower_ones_in_folders(tmp_path: Path) -> None:
    model = folder(tmp_path / "model")
    (model / "checkpoint").mkdir()
    (model / "checkpoint" / "options.json").write_bytes(b'{"other": 1}')
    (model / "checkpoint" / "extra").write_bytes(b"x")
    source = FolderSource(model)
    assert source.read("options.json", 100) == b"{}"
    assert source.read("extra", 100) == b"x"
