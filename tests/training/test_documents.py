"""elmore.training.documents: where documents end."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_corpus import documents, write

from elmore.training import documents as module
from elmore.training.text_files import inspect_file


@pytest.mark.parametrize("around", ["", "\n\n", "\ufeff\n"])
def test_without_blank_lines_a_hundred_lines_are_a_document(tmp_path: Path, around: str) -> None:
    path = write(tmp_path / "x", around + "".join(f"w{k}\n" for k in range(250)) + "\n\n")
    assert inspect_file(str(path))["linewise"]
    for block_bytes in (1, 300, 1 << 20):
        found = list(documents([path], block_bytes=block_bytes).values())
        assert sum(map(len, found)) == 250
        assert len(found) == 3
        assert max(map(len, found)) == 100
        assert sorted(word for d in found for [word] in d) == sorted(f"w{k}" for k in range(250))


def test_a_late_blank_line_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2, 3, 1000):
        monkeypatch.setattr(module, "READ_BYTES", size)
        for end, linewise in (("\n \n\n", True), ("\n \n\nc\n", False), ("\nc\n", True)):
            path = write(tmp_path / "x", "a\n" * 50 + "b" + end)
            assert inspect_file(str(path))["linewise"] is linewise
