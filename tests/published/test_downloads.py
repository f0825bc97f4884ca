"""One file over HTTP: resumed, checked, whole or not there."""

from __future__ import annotations

import errno
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import Server, serve

from elmore.errors import ElmoreError, FormatError
from elmore.limits import Limits
from elmore.published import downloads
from elmore.published.downloads import WrongChecksum, download

DATA = bytes(range(256)) * 40
SUM = "sha256:" + hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "_TIMEOUT", 0.5)
    monkeypatch.setattr(downloads, "_ATTEMPTS", 3)
    monkeypatch.setattr(downloads, "_PAUSE", 0.001)
    with serve() as running:
        running.files["/x.bin"] = DATA
        yield running


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_complete(server: Server, tmp_path: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    target = tmp_path / "x.bin"
    download([server.url("/x.bin")], target, progress=lambda *news: heard.append(news))
    assert target.read_bytes() == DATA
    assert heard[-1] == (len(DATA), len(DATA))
    assert names(tmp_path) == ["x.bin"]
    assert server.requests[0][1]["accept-encoding"] == "identity"


def test_a_broken_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000, 500]
    target = tmp_path / "x.bin"
    download([server.url("/x.bin")], target, checksum=SUM)
    assert target.read_bytes() == DATA
    assert server.asked() == [None, "bytes=1000-", "bytes=1500-"]
    assert server.requests[1][1]["if-range"] == '"one"'


def test_another_run_resumes_too(server: Server, tmp_path: Path) -> None:
    server.cuts = [3000, 0, 0, 0]
    target = tmp_path / "x.bin"
    with pytest.raises(ElmoreError, match=r"after 3000 of 10240 bytes"):
        download([server.url("/x.bin")], target)
    assert names(tmp_path) == ["x.bin.download", "x.bin.download.version"]
    assert (tmp_path / "x.bin.download").read_bytes() == DATA[:3000]
    download([server.url("/x.bin")], target)
    assert server.asked()[-1] == "bytes=3000-"
    assert target.read_bytes() == DATA
    assert names(tmp_path) == ["x.bin"]


def test_a_new_version_on_the_server_is_not_joined_to_the_old(
    server: Server, tmp_path: Path
) -> None:
    target = tmp_path / "x.bin"
    (tmp_path / "x.bin.download").write_bytes(b"old" * 100)
    (tmp_path / "x.bin.download.version").write_text('"zero"')
    download([server.url("/x.bin")], target)
    assert server.requests[0][1]["if-range"] == '"zero"'
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_mark_of_the_version_it_starts_again(
    server: Server, tmp_path: Path, etag: str | None
) -> None:
    server.etag = etag
    server.cuts = [1000]
    download([server.url("/x.bin")], tmp_path / "x.bin")
    assert server.asked() == [None, None]
    assert (tmp_path / "x.bin").read_bytes() == DATA


def test_a_server_without_ranges(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [1000]
    download([server.url("/x.bin")], tmp_path / "x.bin")
    assert server.asked() == [None, "bytes=1000-"]
    assert (tmp_path / "x.bin").read_bytes() == DATA


@pytest.mark.parametrize(("arrived", "asked"), [(DATA, 1), (DATA + b"more", 2)])
def test_all_is_here_already_or_more(
    server: Server, tmp_path: Path, arrived: bytes, asked: int
) -> None:
    (tmp_path / "x.bin.download").write_bytes(arrived)
    (tmp_path / "x.bin.download.version").write_text('"one"')
    download([server.url("/x.bin")], tmp_path / "x.bin", checksum=SUM)
    assert len(server.requests) == asked
    assert (tmp_path / "x.bin").read_bytes() == DATA


def test_a_silent_server_is_given_up_and_asked_again(server: Server, tmp_path: Path) -> None:
    server.cuts, server.delay = [2000], [1.0]
    download([server.url("/x.bin")], tmp_path / "x.bin")
    assert server.asked() == [None, "bytes=2000-"]
    assert (tmp_path / "x.bin").read_bytes() == DATA


def test_the_next_mirror(server: Server, tmp_path: Path) -> None:
    server.files["/other"] = b"other"
    addresses = [server.url(f"/{name}") for name in ("none", "other", "x.bin")]
    checksum = "sha1:" + hashlib.sha1(DATA).hexdigest()
    download(addresses, tmp_path / "x.bin", checksum=checksum)
    assert (tmp_path / "x.bin").read_bytes() == DATA
    with pytest.raises(ElmoreError, match=r"none of 2 addresses gave 'y'.*404.*404"):
        download([server.url("/a"), server.url("/b")], tmp_path / "y")
    assert names(tmp_path) == ["x.bin"]


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.answers = [429, 503]
    download([server.url("/x.bin")], tmp_path / "x.bin")
    assert len(server.requests) == 3
    server.answers = [500] * 9
    with pytest.raises(ElmoreError, match="500"):
        download([server.url("/x.bin")], tmp_path / "y.bin")


@pytest.mark.parametrize(
    "checksum", ["sha256:" + "0" * 64, "sha1:" + hashlib.sha1(b"other").hexdigest()]
)
def test_a_wrong_sum(server: Server, tmp_path: Path, checksum: str) -> None:
    with pytest.raises(WrongChecksum, match=r"expected .*a different or damaged file"):
        download([server.url("/x.bin")], tmp_path / "x.bin", checksum=checksum)
    # Also if it is not the last of several addresses.
    addresses = [server.url("/x.bin"), server.url("/none")]
    with pytest.raises(WrongChecksum, match="none of 2 addresses"):
        download(addresses, tmp_path / "x.bin", checksum=checksum)
    assert names(tmp_path) == []


def test_a_web_page_is_no_model(server: Server, tmp_path: Path) -> None:
    name = "weights.hdf5"
    server.files[f"/{name}"] = b"<html>Access denied</html>"
    with pytest.raises(
        ElmoreError, match=r"starts with b'<html>Ac', which is not a valid \.hdf5 file"
    ):
        download([server.url(f"/{name}")], tmp_path / name)
    assert names(tmp_path) == []


def test_redirects_stay_on_this_machine(server: Server, tmp_path: Path) -> None:
    server.redirects["/old"] = server.url("/x.bin")
    download([server.url("/old")], tmp_path / "x.bin")
    assert (tmp_path / "x.bin").read_bytes() == DATA
    for where in ("http://example.org/x", "file:///etc/passwd"):
        server.redirects["/old"] = where
        with pytest.raises(ElmoreError):
            download([server.url("/old")], tmp_path / "y.bin")
    assert names(tmp_path) == ["x.bin"]
    with pytest.raises(ElmoreError, match="is not an https address"):  # nor does a host lead here
        downloads._check_address("http://127.0.0.1/x", local=False)


@pytest.mark.parametrize("address", ["http://example.org/x", "file:///x", "https:///x"])
def test_only_https_leaves_this_machine(tmp_path: Path, address: str) -> None:
    with pytest.raises(ElmoreError, match="is not an https address"):
        download([address], tmp_path / "x")


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as gone:
        address = gone.url("/x")
    with pytest.raises(ElmoreError, match="refused"):
        download([address], tmp_path / "x")


def test_sizes_are_checked_before_the_disk_is_filled(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "LIMITS", Limits(model_bytes=5000))
    with pytest.raises(FormatError, match="over 5000 bytes"):
        download([server.url("/x.bin")], tmp_path / "x.bin")
    server.lengths = False
    with pytest.raises(FormatError, match="over 5000 bytes"):
        download([server.url("/x.bin")], tmp_path / "x.bin")
    assert not (tmp_path / "x.bin").exists()


def test_a_full_disk_is_one_clear_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    plain = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, *how, **more: Full() if "ab" in how else plain(path, *how, **more),
    )
    with pytest.raises(ElmoreError, match=r"cannot write .*no space left.*free some space"):
        download([server.url("/x.bin")], tmp_path / "x.bin")
    assert len(server.requests) == 1  # asking again would not help
    assert not (tmp_path / "x.bin").exists()
