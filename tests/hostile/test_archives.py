"""Zips and tars that must be refused, when opened or when a member is read."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from elmore.embedding.load import read_checkpoint
from elmore.errors import FormatError
from elmore.formats.detect import open_source

from .attack import SECRET, check_message, check_reason, refused, table

OPTIONS = b'{"lstm": {"dim": 8}}'


def use(path: Path) -> None:
    """Do with an archive whatever readers do."""
    with open_source(path) as source:
        for name in source.names:
            assert SECRET not in source.read(name, 1 << 20)
            with source.open(name) as stream:
                assert SECRET not in stream.read()
        source.read("options.json", 1 << 20)


# ----------------------------------------------------------------- zips


def _zip(path: Path, *members: tuple[zipfile.ZipInfo | str, bytes], method: int = 8) -> bytes:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return path.read_bytes()


def _patch(path: Path, data: bytes, old: bytes, new: bytes, count: int = -1) -> None:
    assert old in data
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new, count))


def named_zip(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        stand_in = "N" * len(name.encode())
        data = _zip(path, ("options.json", OPTIONS), (stand_in, b"x"))
        _patch(path, data, stand_in.encode(), name.encode())

    return make


def zip_kind(kind: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        info = zipfile.ZipInfo("options.json")
        info.create_system = 3
        info.external_attr = (kind | 0o644) << 16
        _zip(path, (info, b"../secret.txt"))

    return make


def _directory(data: bytes) -> int:
    return data.index(b"PK\x01\x02")


def zip_field(offset: int, value: bytes, *, local: int | None = None) -> Callable[[Path], None]:
    """Overwrite a field of the first central directory entry (and of the local header)."""

    def make(path: Path) -> None:
        data = bytearray(_zip(path, ("options.json", OPTIONS * 40)))
        place = _directory(data) + offset
        data[place : place + len(value)] = value
        if local is not None:
            data[local : local + len(value)] = value
        path.write_bytes(data)

    return make


def zip_twice(path: Path) -> None:
    data = _zip(path, ("options.json", OPTIONS), ("optionz.json", b'{"evil": 1}'))
    _patch(path, data, b"optionz.json", b"options.json")


def zip_quoted_overlap(path: Path) -> None:
    """Fifield's bomb in small: each member's data begins with the next member's header."""
    kernel = zlib.compress(b"\0" * 100_000, 9)[2:-4]
    names = [b"a", b"b", b"options.json"]
    crc = zlib.crc32(b"\0" * 100_000)
    body, entries = b"", b""
    blob = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 0, crc, len(kernel), 100_000, 12, 0)
    blob += names[-1] + kernel
    for name in names[:-1]:
        head = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name
        body += head
    starts = [0, 31, 62]
    whole = body + blob
    for name, start in zip(names, starts, strict=True):
        size = len(whole) - start - 30 - len(name)
        method = 8 if name == names[-1] else 0
        entries += struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, method, 0, 0, crc, size,
            100_000 if method else size, len(name), 0, 0, 0, 0, 0, start,
        ) + name  # fmt: skip
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, len(entries), len(whole), 0)
    path.write_bytes(whole + entries + end)


def zip_bomb(path: Path) -> None:
    _zip(path, ("options.json", OPTIONS), ("weights.hdf5", b"\0" * (32 << 20)))


def zip_truncated(path: Path) -> None:
    data = _zip(path, ("options.json", OPTIONS))
    path.write_bytes(data[:-30])


def zip_bad_data(path: Path) -> None:
    data = bytearray(_zip(path, ("options.json", os.urandom(3000)), method=0))
    data[1000] ^= 1
    path.write_bytes(data)


def zip_local_name(path: Path) -> None:
    data = _zip(path, ("options.json", OPTIONS))
    _patch(path, data, b"options.json", b"../../x.json", 1)


def zip_without_options(path: Path) -> None:
    _zip(path, ("README", b"hello"))


ZIPS: dict[str, Callable[[Path], None]] = {
    "zip absolute": named_zip("/etc/options.json"),
    "zip dot dot": named_zip("../options.json"),
    "zip backslash": named_zip("..\\options.json"),
    "zip symlink": zip_kind(0o120000),
    "zip encrypted": zip_field(8, b"\x01\x00", local=6),
    "zip declares more": zip_field(24, struct.pack("<I", 5_000), local=22),
    "zip declares 4 GB": zip_field(24, struct.pack("<I", 0xFFFFFFFE), local=22),
    "zip offset beyond file": zip_field(42, struct.pack("<I", 1 << 30)),
    "zip wrong CRC": zip_field(16, b"\1\2\3\4", local=14),
    "zip unknown method": zip_field(10, b"\x63\x00", local=8),
    "zip duplicate": zip_twice,
    "zip quoted overlap": zip_quoted_overlap,
    "zip bomb": zip_bomb,
    "zip truncated": zip_truncated,
    "zip damaged data": zip_bad_data,
    "zip other local name": zip_local_name,
    "zip without options": zip_without_options,
}

# ----------------------------------------------------------------- tars


def _header(name: bytes, size: int | bytes, kind: bytes = b"0", link: bytes = b"") -> bytes:
    field = size if isinstance(size, bytes) else b"%011o\0" % size
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = field
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[157 : 157 + len(link)] = link
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _pad(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 512)


def _member(name: bytes, data: bytes, kind: bytes = b"0", link: bytes = b"") -> bytes:
    return _header(name, len(data), kind, link) + _pad(data)


GOOD = _member(b"options.json", OPTIONS)
END = b"\0" * 1024


def tar(*blocks: bytes, end: bytes = END) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(b"".join(blocks) + end)

    return make


def pax(records: bytes, kind: bytes = b"x") -> bytes:
    return _member(b"PaxHeader", records, kind)


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length += 1
    return str(length).encode() + body


def tar_bomb(pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(pack(GOOD + _member(b"weights.hdf5", b"\0" * (24 << 20)) + END))

    return make


def tar_header_bomb(path: Path) -> None:
    """A gigabyte of pax header, which tarfile would read at once."""
    start = _header(b"PaxHeader", 1 << 30, b"x")
    path.write_bytes(gzip.compress(start + b"1" * (1 << 20)))


def tar_truncated_gz(path: Path) -> None:
    path.write_bytes(gzip.compress(GOOD + _member(b"w", os.urandom(100_000)) + END)[:-50_000])


def tar_bad_gz(path: Path) -> None:
    data = bytearray(gzip.compress(GOOD + _member(b"w", os.urandom(10_000)) + END))
    data[-6] ^= 1
    path.write_bytes(data)


def tar_swapped_later(path: Path) -> None:
    """A broken header after a good member, where tarfile would quietly stop."""
    broken = bytearray(_member(b"weights.hdf5", b"x"))
    broken[3] ^= 1
    path.write_bytes(GOOD + bytes(broken) + END)


def text_file(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


TARS: dict[str, Callable[[Path], None]] = {
    "tar absolute": tar(GOOD, _member(b"/etc/passwd", b"x")),
    "tar dot dot": tar(GOOD, _member(b"../x", b"x")),
    "tar symlink": tar(_header(b"options.json", 0, b"2", b"secret.txt")),
    "tar hard link": tar(_header(b"options.json", 0, b"1", b"secret.txt")),
    "tar GNU sparse": tar(_header(b"options.json", 0, b"S")),
    "tar pax dot dot": tar(pax(record("path", "../../x")), _member(b"a", b"x"), GOOD),
    "tar pax negative size": tar(pax(record("size", "-512")), GOOD),
    "tar pax slow to search": tar(pax(b"1" * 60_000), GOOD),
    "tar pax long size": tar(pax(record("size", "9" * 5000)), GOOD),
    "tar pax too long": tar(_header(b"PaxHeader", 1 << 30, b"x"), GOOD),
    "tar pax chain": tar(pax(record("comment", "x")) * 50_000, GOOD),
    "tar pax bomb": tar_header_bomb,
    "tar negative size": tar(_header(b"a", b"\xff" * 12), GOOD),
    "tar octal 8 GB in 1 KB": tar(GOOD, _header(b"a", b"77777777777\0")),
    "tar duplicate": tar(GOOD, GOOD),
    "tar broken later header": tar_swapped_later,
    "tar data cut": tar(_header(b"options.json", 600) + b"x" * 100, end=b""),
    "tar gz bomb": tar_bomb(lambda data: gzip.compress(data, 9)),
    "tar gz truncated": tar_truncated_gz,
    "tar gz wrong CRC": tar_bad_gz,
    "gz of text": text_file(gzip.compress(b"hello " * 1000)),
    "nothing": text_file(b""),
    "text": text_file(b"hello\n" * 1000),
    "zeros": text_file(b"\0" * 4096),
}


# Parts of the names of attacks that may do no harm instead of being refused: nothing is extracted,
# so that the names and kinds of members mean nothing.
HARMLESS = (
    "absolute dot drive backslash NUL zip.symlink fifo device socket more packed bzip2 lzma "
    "with.size nameless sparse"
).split()
# Part of the attack's name → part of the message.
REASONS = {
    "encrypted": "encrypt",
    "unknown method": "method",
    "duplicate": "has both",
    "zip bomb": "200 times",
    "gz bomb": "200 times",
    "too long": "header of",
    "slow to search": "header of",
    "pax bomb": "header of",
    "pax chain": "recursion",
    "negative size": "negative size",
    "later header": "no valid header",
    "garbage after": "no valid header",
    "truncated": "broken",
    "wrong CRC": "CRC",
    "without options": "no file 'options.json'",
    "link": "no file 'options.json'",
}


@table(ZIPS | TARS)
def test_refused_or_harmless(
    maker: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    (tmp_path / "secret.txt").write_bytes(SECRET)
    monkeypatch.chdir(tmp_path)  # messages must not hold the name of the test
    path = Path("model.bin")
    maker(path)
    before = {item.name for item in tmp_path.iterdir()}
    attack = request.node.name.replace(" ", ".")
    if any(part in attack for part in HARMLESS):
        with contextlib.suppress(FormatError):
            use(path)
    else:
        check_reason(refused(lambda: use(path)), request.node.name, REASONS)
    assert {item.name for item in tmp_path.iterdir()} == before  # nothing was extracted


def test_the_makers_can_make_good_files(tmp_path: Path) -> None:
    """Without this, a maker of nonsense would prove nothing."""
    path = tmp_path / "model"
    _zip(path, ("options.json", OPTIONS))
    use(path)
    for pack in (bytes, gzip.compress):
        path.write_bytes(pack(GOOD + END))
        use(path)
    tar(pax(record("path", "a/options.json")), _member(b"x", OPTIONS))(path)
    use(path)
    tar(_member(b"L", b"d/" * 80 + b"options.json\0", b"L"), _member(b"x", OPTIONS))(path)
    use(path)
    # Odd, but tarfile takes them and they are harmless.
    for odd in (
        pax(record("GNU.sparse.name", "options.json")),
        pax(record("path", "options.json"), b"g"),
    ):
        tar(odd, GOOD)(path)
        use(path)
    with tarfile.open(fileobj=io.BytesIO(GOOD + END)) as file:
        assert file.getnames() == ["options.json"]


def test_names_in_a_message_are_printable(tmp_path: Path) -> None:
    """Escape sequences in the names of members do not reach a terminal."""
    path = tmp_path / "model.zip"
    _zip(path, ("\x1b[31mred\x7f", b"x"), ("model.safe\rtensors", b"x"))
    with pytest.raises(FormatError, match="is not a known model") as caught:
        read_checkpoint(path)
    check_message(caught.value)
