"""elmore.corpus.texts: complete documents, however they are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_corpus import documents, write

from elmore.corpus import texts as corpus_module
from elmore.corpus.texts import inspect_file, read_blocks
from elmore.errors import InputError


def stripped(sentences: list[list[str]]) -> list[list[str]]:
    """Without tabs and carriage returns: those around a blank line belong to nothing."""
    words = [[word for w in sentence if (word := w.strip("\t\r"))] for sentence in sentences]
    return [sentence for sentence in words if sentence]


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(st.text("ab \n\r\t", max_size=60), min_size=1, max_size=4),
    block_bytes=st.integers(1, 50),
    read_bytes=st.integers(1, 20),
)
def test_blocks_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[str],
    block_bytes: int,
    read_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    paths = [write(folder / f"{k}", text) for k, text in enumerate(files)]
    with pytest.MonkeyPatch.context() as patch:
        whole = documents(paths)
        patch.setattr(corpus_module, "_READ_BYTES", read_bytes)
        assert documents(paths, block_bytes=block_bytes) == whole
        known = [inspect_file(str(path)) for path in paths]
        blocks = list(read_blocks(known, block_bytes=block_bytes))
        for k, block in enumerate(blocks):
            rest = list(read_blocks(known, block.end, block_bytes=block_bytes))
            assert rest == blocks[k + 1 :]  # an interrupted reader resumes
    lines = [line.split(" ") for text in files for line in text.split("\n")]
    found = [sentence for document in whole.values() for sentence in document]
    assert stripped(found) == stripped(lines)
    assert all("".join(sentence).strip("\t\r") for sentence in found)


def test_long_documents_are_cut_and_long_lines_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(corpus_module, "_READ_BYTES", 64)
    path = write(tmp_path / "x", "a b c d\n" * 500 + "\nend\n")
    files = [inspect_file(str(path))]
    blocks = list(read_blocks(files, block_bytes=100))
    assert b"".join(block.data for block in blocks) == path.read_bytes()
    assert max(len(block.data) for block in blocks) <= 1100
    assert sum(block.n_cut for block in blocks) >= 3
    bad = write(tmp_path / "y", "a\n" * 70 + "\n" + "x" * 2000 + "\n\nb\n")
    with pytest.raises(InputError, match=r"y:\d+: the line is longer"):
        list(read_blocks([inspect_file(str(bad))], block_bytes=100))
