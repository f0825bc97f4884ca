"""Folders with links, FIFOs, sockets and devices where files should be."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from small_models import posix

from elmore.base.io import open_checked
from elmore.formats.containers.sources import folder_source
from elmore.formats.detect import open_source

from .attack import SECRET, refused, table


def use(folder: Path) -> None:
    with open_source(folder) as source:
        for name in source.names:
            assert SECRET not in source.read(name, 1 << 20)
            with source.open(name) as stream:
                assert SECRET not in stream.read()
        source.read("options.json", 1 << 20)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "options.json").symlink_to(target)


def link_chain(folder: Path) -> None:
    (folder / "inner").symlink_to("../secret.txt")
    (folder / "options.json").symlink_to("inner")


def link_loop(folder: Path) -> None:
    (folder / "options.json").symlink_to("options.json")


def link_below(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "options.json").symlink_to("../../secret.txt")


def linked_folder(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "options.json").write_bytes(SECRET)
    (folder / "sub").symlink_to("../elsewhere")


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "options.json")


def unix_socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("options.json")
    finally:
        os.chdir(here)


def folder_as_file(folder: Path) -> None:
    (folder / "options.json").mkdir()


def sparse_terabyte(folder: Path) -> None:
    with (folder / "options.json").open("wb") as stream:
        stream.truncate(1 << 40)


def two_models(folder: Path) -> None:
    for name in "ab":
        (folder / name).mkdir()
        (folder / name / "options.json").write_bytes(b"{}")


ATTACKS: dict[str, Callable[[Path], None]] = {
    "link out": link_to("../secret.txt"),
    "link to a device": link_to("/dev/zero"),
    "link to proc": link_to("/proc/self/environ"),
    "dangling link": link_to("nowhere"),
    "link chain out": link_chain,
    "link loop": link_loop,
    "link out of a sub-folder": link_below,
    "linked folder": linked_folder,
    "folder as file": folder_as_file,
    "1 TB of nothing": sparse_terabyte,
    "two models": two_models,
    "nothing": lambda folder: None,
}
if hasattr(os, "mkfifo"):  # Windows has neither
    ATTACKS |= {"fifo": fifo, "socket": unix_socket}


@table(ATTACKS)
def test_refused(maker: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(SECRET)
    folder = tmp_path / "model"
    folder.mkdir()
    maker(folder)
    refused(lambda: use(folder))


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "/nowhere/x", "/proc/self", "a\0b"])
def test_paths_refused(name: str) -> None:
    refused(lambda: open_checked(Path(name), what="options file"))
    refused(lambda: open_source(Path(name)).read("options.json", 100))


@posix
def test_swapped_between_look_and_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor is looked at again, so that a swap of the name gains nothing."""
    path = tmp_path / "options.json"
    path.write_bytes(b"{}")
    real = os.open

    def swap(name: object, flags: int, *args: int, **more: object) -> int:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", swap)
    refused(lambda: open_checked(path, what="options file"))


@posix
def test_link_swapped_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.txt").write_bytes(SECRET)
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "options.json"
    path.write_bytes(b"{}")
    real = os.open

    def swap(name: object, flags: int, *args: int, **more: object) -> int:
        path.unlink()
        path.symlink_to("../secret.txt")
        return real(path, flags)

    source = folder_source(folder)
    monkeypatch.setattr(os, "open", swap)
    refused(lambda: source.read("options.json", 100))


def test_followed_links_lead_to_regular_files_only(tmp_path: Path) -> None:
    for target in ("/dev/zero", "nowhere", "."):
        link = tmp_path / "options.json"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        source = folder_source(tmp_path, follow_links=True)
        refused(lambda source=source: source.read("options.json", 100))
