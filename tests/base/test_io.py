"""elmore.base.io: checked and unpacking reading."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib.util
import io
import lzma
from pathlib import Path
from typing import Any

import pytest

from elmore.base.io import open_checked, open_text, read_lines
from elmore.errors import FormatError, InputError, MissingExtra


def lines(data: bytes, max_line: int = 100, **options: Any) -> list[tuple[int, str]]:
    return list(read_lines(io.BytesIO(data), what="text.txt", max_line=max_line, **options))


def test_open_checked_reads_and_follows_what_the_user_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").symlink_to("a")
    with open_checked(tmp_path / "b", what="file") as stream:
        assert stream.read() == b"abc"
    with pytest.raises(FormatError, match="symbolic link"):
        open_checked(tmp_path / "b", what="file", follow=False)
    with pytest.raises(FormatError, match=r"options file '.*/c' does not exist; "):
        open_checked(tmp_path / "c", what="options file")
    with pytest.raises(FormatError, match="is a folder"):
        open_checked(tmp_path, what="file")


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
TEXT = b"One here .\nTwo there .\n"


def text_of(path: Path, data: bytes) -> list[str]:
    path.write_bytes(data)
    with open_text(path, what="input") as stream:
        return [line for _, line in read_lines(stream, what="x", max_line=100)]


@pytest.mark.parametrize("pack", [bytes, *PACKERS.values()], ids=["plain", *PACKERS])
def test_open_text_knows_compression_by_the_first_bytes(tmp_path: Path, pack: Any) -> None:
    for name in ("any-name", "other.gz"):
        assert text_of(tmp_path / name, pack(TEXT)) == ["One here .", "Two there ."]
    # Several streams in one file.
    assert text_of(tmp_path / "x", pack(TEXT[:7]) + pack(TEXT[7:])) == ["One here .", "Two there ."]
    assert text_of(tmp_path / "empty", pack(b"")) == []


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_open_text_tells_damage(tmp_path: Path, pack: Any) -> None:
    data = pack(hashlib.sha256(TEXT).hexdigest().encode() + b"\n" * 3000)
    for bad in (data[:-9], data[:20] + b"\x00" * 9 + data[29:]):
        with pytest.raises(
            InputError, match=r"x: the compressed data is damaged: .*; copy it again$"
        ):
            text_of(tmp_path / "x", bad)


def test_open_text_leaves_other_errors_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(gzip.compress(TEXT))
    for error in (OSError(28, "No space left on device"), ValueError("x"), InputError("y")):
        with pytest.raises(type(error)) as caught, open_text(tmp_path / "x", what="input"):
            raise error
        assert caught.value is error
    with pytest.raises(FormatError, match=r"input '.*' does not exist"):
        text_of_nothing(tmp_path)


def text_of_nothing(folder: Path) -> None:
    with open_text(folder / "nothing", what="input"):
        pass


def test_open_text_of_zstandard(tmp_path: Path) -> None:
    if importlib.util.find_spec("zstandard") is None:
        with pytest.raises(MissingExtra, match=r"install elmore\[train\]"):
            text_of(tmp_path / "x.zst", b"\x28\xb5\x2f\xfd\x00")
        return
    import zstandard

    pack = zstandard.ZstdCompressor().compress
    data = pack(TEXT[:7]) + pack(TEXT[7:])
    assert text_of(tmp_path / "x.zst", data) == ["One here .", "Two there ."]
    with pytest.raises(InputError, match="is damaged"):
        text_of(tmp_path / "x.zst", data[:4] + b"\xff" * 9 + data[13:])


def test_read_lines_ends_lines_at_newline_only() -> None:
    text = "a\x0bb\x0c\x1cc\x85\u2028d\rx\u3000 \n\r\n\n\ufeffe\r\r\nlast"
    assert lines(b"\xef\xbb\xbf" + text.encode()) == [
        (1, "a\x0bb\x0c\x1cc\x85\u2028d\rx\u3000 "),
        (2, ""),
        (3, ""),
        (4, "\ufeffe\r"),
        (5, "last"),
    ]
    assert lines(b"") == []
    assert lines(b"\xef\xbb\xbf") == [(1, "")]
    assert lines(b"\n") == [(1, "")]
    assert lines(b"a\r") == [(1, "a\r")]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_read_lines_limit(start: bytes, end: bytes) -> None:
    assert lines(start + b"x" * 10 + end, 10) == [(1, "x" * 10)]
    assert lines(b"a\n" + b"x" * 10 + end, 10)[-1] == (2, "x" * 10)
    with pytest.raises(InputError, match=r"text\.txt:1: .* 10 bytes"):
        lines(start + b"x" * 11 + end, 10)
    with pytest.raises(InputError, match=r"text\.txt:2: .* 10 bytes"):
        lines(b"a\n" + b"x" * 1000 + end, 10)


def test_read_lines_with_invalid_utf8() -> None:
    data = b"good\nab\xffc\nend"
    with pytest.raises(InputError) as caught:
        lines(data, errors="strict")
    assert caught.value.line == 2
    assert "text.txt:2: invalid UTF-8 at byte 2" in str(caught.value)
    assert "--errors replace" in str(caught.value)
    assert "--errors skip" in str(caught.value)
    with pytest.raises(InputError, match=r"convert the file to UTF-8$"):  # no such flag to pass
        lines(data)
    assert lines(data, errors="replace") == [(1, "good"), (2, "ab\ufffdc"), (3, "end")]
    assert lines(data, errors="skip") == [(1, "good"), (3, "end")]
    with pytest.raises(InputError, match="at byte 3 "):
        lines(b"\xef\xbb\xbf\xff")
    with pytest.raises(InputError, match="at byte 0 "):  # a lone surrogate is not UTF-8
        lines(b"\xed\xa0\x80")
