"""Folders, named files and archives look the same to readers."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elmore.errors import FormatError
from elmore.formats.containers import sources
from elmore.formats.containers.sources import files_source, folder_source
from elmore.formats.detect import open_source

WEIGHTS = np.random.default_rng(0).bytes(3 << 20)
FILES = {"options.json": b"{}", "weights.hdf5": WEIGHTS, "vocab.txt": b"a\nb\n", "empty": b""}


def folder(path: Path) -> Path:
    path.mkdir()
    for name, data in FILES.items():
        (path / name).write_bytes(data)
    return path


def folder_below(path: Path) -> Path:
    path.mkdir()
    return folder(path / "model").parent


def zipped(prefix: str) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            if prefix:
                file.mkdir(prefix.rstrip("/"))
            for name, data in FILES.items():
                file.writestr(prefix + name, data)
        return path

    return make


def tarred(mode: str, prefix: str = "", form: int = tarfile.DEFAULT_FORMAT) -> Callable[..., Path]:
    def make(path: Path) -> Path:
        with tarfile.open(path, mode, format=form) as file:
            for name, data in FILES.items():
                info = tarfile.TarInfo(prefix + name)
                info.size = len(data)
                info.mtime = 1.5 if form == tarfile.PAX_FORMAT else 1  # forces a pax header
                file.addfile(info, io.BytesIO(data))
        return path

    return make


MAKERS = {
    "folder": folder,
    "folder below": folder_below,
    "zip": zipped(""),
    "zip below": zipped("model/"),
    "tar": tarred("w"),
    "tar dot": tarred("w", "./"),
    "tar gz": tarred("w:gz", "model/"),
    "tar pax": tarred("w", "ü" * 90 + "/", tarfile.PAX_FORMAT),
    "tar gnu": tarred("w:gz", "d" * 120 + "/", tarfile.GNU_FORMAT),
    "tar ustar": tarred("w", "d" * 120 + "/", tarfile.USTAR_FORMAT),
}


@pytest.mark.parametrize("maker", list(MAKERS.values()), ids=list(MAKERS))
def test_every_kind_shows_the_same(
    maker: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_IN_MEMORY", 1 << 20)  # the weights go into a temporary file
    path = maker(tmp_path / "model.x")
    with open_source(path) as source:
        assert source.names == tuple(sorted(FILES))
        assert str(path) == source.name or "…" in source.name
        for name in reversed(FILES):
            data = FILES[name]
            assert source.size(name) == len(data)
            assert source.read(name, len(data)) == data
            with source.open(name) as stream:
                assert stream.seek(0, os.SEEK_END) == len(data)
                stream.seek(len(data) // 2)
                assert stream.read() == data[len(data) // 2 :]
        with pytest.raises(FormatError, match=r"has 3145728 bytes, allowed are 1000; "):
            source.read("weights.hdf5", 1000)
        for use in (source.size, source.open):
            with pytest.raises(FormatError, match="has no file 'nothing'"):
                use("nothing")
    assert len(os.listdir(tmp_path)) == 1


def test_members_are_only_doubtful_when_wanted(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("options.json", "a/README", "b/README"):
            file.writestr(name, b"{}")
    with open_source(path) as source:
        assert source.read("options.json", 10) == b"{}"
        with pytest.raises(FormatError, match=r"'a/README' and 'b/README'"):
            source.read("README", 10)


def test_files_source(tmp_path: Path) -> None:
    (tmp_path / "my.json").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("my.json")  # named by the user: followed
    source = files_source({"options.json": tmp_path / "link", "weights.hdf5": tmp_path / "no"})
    assert source.names == ("options.json", "weights.hdf5")
    assert source.read("options.json", 10) == b"{}"
    with pytest.raises(FormatError, match="does not exist"):
        source.open("weights.hdf5")


def test_links_inside_a_folder(tmp_path: Path) -> None:
    model = folder(tmp_path / "model")
    (model / "inner").symlink_to("vocab.txt")
    assert folder_source(model).read("inner", 10) == b"a\nb\n"
    (tmp_path / "blob").write_bytes(b"blob")
    (model / "outer").symlink_to("../blob")
    with pytest.raises(FormatError, match="link that leaves the folder"):
        folder_source(model).read("outer", 10)
    assert folder_source(model, follow_links=True).read("outer", 10) == b"blob"


def test_upper_names_hide_lower_ones_in_folders(tmp_path: Path) -> None:
    model = folder(tmp_path / "model")
    (model / "checkpoint").mkdir()
    (model / "checkpoint" / "options.json").write_bytes(b'{"other": 1}')
    (model / "checkpoint" / "extra").write_bytes(b"x")
    source = folder_source(model)
    assert source.read("options.json", 100) == b"{}"
    assert source.read("extra", 100) == b"x"
