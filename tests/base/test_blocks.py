"""Files of compressed blocks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from elmore.base.blocks import Blocks, write_blocks
from elmore.errors import FormatError

BLOCKS = [b"first", b"", b"third" * 1000]


def refuse(reason: str) -> NoReturn:
    raise FormatError(reason)


def test_each_block_is_read_alone(tmp_path: Path) -> None:
    write_blocks(tmp_path / "a.blocks", BLOCKS)
    blocks = Blocks(tmp_path / "a.blocks", 3, refuse)
    assert [blocks.read(number, 5000) for number in (2, 0, 1)] == [BLOCKS[2], BLOCKS[0], b""]
    write_blocks(tmp_path / "none.blocks", [])
    Blocks(tmp_path / "none.blocks", 0, refuse)


def test_no_more_is_read_than_asked_for(tmp_path: Path) -> None:
    write_blocks(tmp_path / "a.blocks", [bytes(1 << 22)])
    with pytest.raises(FormatError, match=r"a\.blocks, block 0 is cut off or too long"):
        Blocks(tmp_path / "a.blocks", 1, refuse).read(0, 1 << 20)


def test_damage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.blocks"
    write_blocks(path, BLOCKS)
    whole = path.read_bytes()
    path.write_bytes(b"?" + whole[1:])
    with pytest.raises(FormatError, match="block 0: Error -3"):
        Blocks(path, 3, refuse).read(0, 100)
    path.write_bytes(whole[:-1] + b"\x7f")
    with pytest.raises(FormatError, match="block 2 is outside of the file"):
        Blocks(path, 3, refuse).read(2, 5000)
    os.truncate(path, 20)
    with pytest.raises(FormatError, match="fewer than 3 blocks"):
        Blocks(path, 3, refuse)
