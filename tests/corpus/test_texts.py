"""Text files as documents: names, patterns, compression, borders, blocks, lines and tokens."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.corpus import pieces
from elmore.corpus import texts as texts_module
from elmore.corpus.pieces import tokenize_block
from elmore.corpus.texts import expand_inputs, inspect_file, read_blocks
from elmore.errors import InputError
from elmore.text.reading import Reading
from elmore.text.tokenizer import tokenize

TEXT = "One here .\nTwo there .\n\nThree .\n"
EXPECTED = [["One here .", "Two there ."], ["Three ."]]


def documents(
    paths: list[Path], reading: Reading | None = None, *, block_bytes: int = 1 << 21
) -> dict[tuple[int, int], list[list[str]]]:
    """Give the documents by file and running number, read block by block."""
    files = [inspect_file(str(path)) for path in paths]
    found = []
    for block in read_blocks(files, block_bytes=block_bytes):
        how = reading or Reading(tokenized=True)
        shard, keys, _, _ = tokenize_block(block.segments, how, 0, block.data)
        assert (keys[:-1] < keys[1:]).all()
        places = shard.documents.tolist()
        for key, start, end in zip(keys.tolist(), places, places[1:], strict=False):
            found.append((key, [shard.sentence(k) for k in range(start, end)]))
    keys = {
        pieces._key(0, "deal", f"{file}/{number}"): (file, number)
        for file in range(len(files))
        for number in range(1000)
    }
    return dict(sorted((keys[key], sentences) for key, sentences in found))


def texts(paths: list[Path], reading: Reading | None = None) -> list[list[str]]:
    return [
        [" ".join(sentence) for sentence in document]
        for document in documents(paths, reading).values()
    ]


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"]
)
def test_compressed_files(tmp_path: Path, pack) -> None:
    assert texts([write(tmp_path / "any-name", pack(TEXT.encode()))]) == EXPECTED


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_truncated_file_is_refused(tmp_path: Path, pack) -> None:
    path = write(tmp_path / "x", pack(bytes(range(65, 91)) * 1000)[:-9])
    with pytest.raises(InputError, match="is damaged"):
        inspect_file(str(path))


def test_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.txt", "c.md", "[x].txt"):
        write(tmp_path / name, "a\n")
    (tmp_path / "folder.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    assert expand_inputs(["b.txt", "*.txt"]) == [Path(n) for n in ("b.txt", "[x].txt", "a.txt")]
    assert expand_inputs(["[x].txt"]) == [Path("[x].txt")]
    assert expand_inputs("a.txt") == [Path("a.txt")]
    for name, message in (
        ("*.csv", "matches no file"),
        ("nothing.txt", "does not exist"),
        ("folder.txt", "is a folder; name its files"),
    ):
        with pytest.raises(InputError, match=message):
            expand_inputs([name])


@pytest.mark.parametrize("around", ["", "\n\n", "\ufeff\n"])
def test_without_blank_lines_a_hundred_lines_are_a_document(tmp_path: Path, around: str) -> None:
    path = write(tmp_path / "x", around + "".join(f"w{k}\n" for k in range(250)) + "\n\n")
    assert inspect_file(str(path)).linewise
    for block_bytes in (1, 300, 1 << 20):
        found = list(documents([path], block_bytes=block_bytes).values())
        assert sum(map(len, found)) == 250
        assert len(found) == 3
        assert max(map(len, found)) == 100
        assert sorted(word for d in found for [word] in d) == sorted(f"w{k}" for k in range(250))


def test_a_late_blank_line_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2, 3, 1000):
        monkeypatch.setattr(texts_module, "_READ_BYTES", size)
        for end, linewise in (("\n \n\n", True), ("\n \n\nc\n", False), ("\nc\n", True)):
            path = write(tmp_path / "x", "a\n" * 50 + "b" + end)
            assert inspect_file(str(path)).linewise is linewise


# Blocks ---------------------------------------------------------------------------------------


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
        patch.setattr(texts_module, "_READ_BYTES", read_bytes)
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
    monkeypatch.setattr(texts_module, "_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(texts_module, "_READ_BYTES", 64)
    path = write(tmp_path / "x", "a b c d\n" * 500 + "\nend\n")
    files = [inspect_file(str(path))]
    blocks = list(read_blocks(files, block_bytes=100))
    assert b"".join(block.data for block in blocks) == path.read_bytes()
    assert max(len(block.data) for block in blocks) <= 1100
    assert sum(block.n_cut for block in blocks) >= 3
    bad = write(tmp_path / "y", "a\n" * 70 + "\n" + "x" * 2000 + "\n\nb\n")
    with pytest.raises(InputError, match=r"y:\d+: the line is longer"):
        list(read_blocks([inspect_file(str(bad))], block_bytes=100))


# Lines and tokens -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.rstrip("\n"),
        "\n\n \t\n" + TEXT + "\n\n",
        TEXT.replace("\n\n", "\n \t\r\n\n\n"),
        TEXT.replace(" ", "  "),
    ],
    ids=["plain", "crlf", "bom", "no end", "blanks around", "blanks between", "two spaces"],
)
def test_forms_of_lines(tmp_path: Path, text: str) -> None:
    assert texts([write(tmp_path / "x", text)]) == EXPECTED
    assert texts([write(tmp_path / "x", text)], Reading()) == EXPECTED


def test_only_line_feeds_end_lines_and_only_spaces_part_tokens(tmp_path: Path) -> None:
    odd = "a\x85b\u2028c\x0bd\u00a0e\tf"
    path = write(tmp_path / "x", f"{odd} g\n\x85\n\nh\rh\n")
    assert list(documents([path]).values()) == [[[odd, "g"], ["\x85"]], [["h\rh"]]]
    [first, second] = documents([path], Reading()).values()
    assert first == [list(tokenize(f"{odd} g").tokens)]  # U+0085 alone is white space to it
    assert second == [["h", "h"]]


def test_running_text_is_split(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "One here. Two\r\nthere, Mr. X. And\n\nThree.\n")
    reading = Reading(split_sentences=True)
    assert texts([path], reading) == [["One here .", "Two there , Mr. X .", "And"], ["Three ."]]


BAD = b"fine\nalso fine\n\nnot \xff fine\nfine again\n"


def test_invalid_utf8_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.txt", BAD)
    for block_bytes in (1, 1000):
        with pytest.raises(InputError, match=r"bad.txt:4: invalid UTF-8 at byte 4") as caught:
            documents([path], block_bytes=block_bytes)
        assert caught.value.line == 4


def test_invalid_utf8_can_be_replaced_or_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.txt", BAD)
    replaced = texts([path], Reading(tokenized=True, errors="replace"))
    assert replaced[1] == ["not \ufffd fine", "fine again"]
    skipped = texts([path], Reading(tokenized=True, errors="skip"))
    assert skipped[1] == ["fine again"]
