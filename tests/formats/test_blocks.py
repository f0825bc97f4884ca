"""Files of compressed blocks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from elmore.errors import FormatError
from elmore.formats.containers.blocks import Blocks, write_blocks

ITEMS = ["first", "second", "third" * 1000]
WHAT = "block {} is not what it should be"


def decode(data: bytes, n: int) -> list[str] | None:
    found = data.decode().split()
    return found if len(found) == n else None


def refuse(reason: str) -> NoReturn:
    raise FormatError(reason)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_blocks(tmp_path / "a.blocks", [" ".join(ITEMS[:2]).encode(), ITEMS[2].encode()])
    return tmp_path / "a.blocks"


def test_each_block_is_read_alone(path: Path) -> None:
    blocks = Blocks(path, 3, 2, decode, refuse)
    assert [blocks.read(1), blocks.read(0)] == [ITEMS[2:], ITEMS[:2]]
    write_blocks(path, [])
    Blocks(path, 0, 2, decode, refuse)


def test_a_block_does_not_fill_the_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmore.formats.containers.blocks._MAX_BYTES", 1000)
    blocks = Blocks(path, 3, 2, decode, refuse)
    assert blocks.read(0) == ITEMS[:2]
    with pytest.raises(FormatError, match=WHAT.format(1)):
        blocks.read(1)


def test_damage_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    with pytest.raises(FormatError, match=WHAT.format(1)):
        Blocks(path, 4, 2, decode, refuse).read(1)
    path.write_bytes(b"?" + whole[1:])
    with pytest.raises(FormatError, match="block 0: Error -3"):
        Blocks(path, 3, 2, decode, refuse).read(0)
    path.write_bytes(whole[:-1] + b"\x7f")
    with pytest.raises(FormatError, match=WHAT.format(1)):
        Blocks(path, 3, 2, decode, refuse).read(1)
    os.truncate(path, 15)
    with pytest.raises(FormatError, match="fewer than 3 items"):
        Blocks(path, 3, 2, decode, refuse)
