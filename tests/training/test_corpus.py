"""elmore.training.corpus: files, blocks, documents, tokens, processes."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.errors import ConfigError, ElmoreError, InputError, MissingExtra
from elmore.text.tokenizer import tokenize
from elmore.training import corpus
from elmore.training.corpus import (
    Reading,
    TextFile,
    Workers,
    expand_inputs,
    inspect_file,
    read_blocks,
    tokenize_block,
)

TEXT = "One here .\nTwo there .\n\nThree .\n"


def documents(
    paths: list[Path], reading: Reading | None = None, *, block_bytes: int = 1 << 21
) -> dict[tuple[int, int], list[list[str]]]:
    """Give the documents by file and running number, read block by block."""
    files = [TextFile(**inspect_file(str(path))) for path in paths]
    found = []
    for block in read_blocks(files, block_bytes=block_bytes):
        used = [files[segment.start.file] for segment in block.segments]
        piece = tokenize_block(
            block.segments,
            block.data,
            [file.path for file in used],
            [file.linewise for file in used],
            reading or Reading(tokenized=True),
            0,
        ).piece
        assert (piece.keys[:-1] < piece.keys[1:]).all()
        places = piece.shard.documents.tolist()
        for key, start, end in zip(piece.keys.tolist(), places, places[1:], strict=False):
            found.append((key, [piece.shard.sentence(k) for k in range(start, end)]))
    keys = {
        corpus._key(0, "deal", f"{file}/{number}"): (file, number)
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


EXPECTED = [["One here .", "Two there ."], ["Three ."]]


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"]
)
def test_compressed_files(tmp_path: Path, pack) -> None:
    assert texts([write(tmp_path / "any-name", pack(TEXT.encode()))]) == EXPECTED


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_files_of_several_streams(tmp_path: Path, pack) -> None:
    data = TEXT.encode()
    assert texts([write(tmp_path / "x", pack(data[:9]) + pack(data[9:]))]) == EXPECTED


def test_zstandard(tmp_path: Path) -> None:
    if importlib.util.find_spec("zstandard") is None:
        path = write(tmp_path / "x.zst", b"\x28\xb5\x2f\xfd\x00")
        with pytest.raises(MissingExtra, match=r"install elmore\[train\]"):
            inspect_file(str(path))
        return
    import zstandard

    pack = zstandard.ZstdCompressor().compress
    data = TEXT.encode()
    assert texts([write(tmp_path / "x.zst", pack(data[:9]) + pack(data[9:]))]) == EXPECTED


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_truncated_file_is_refused(tmp_path: Path, pack) -> None:
    path = write(tmp_path / "x", pack(bytes(range(65, 91)) * 1000)[:-9])
    with pytest.raises(InputError, match="is damaged"):
        inspect_file(str(path))


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
        monkeypatch.setattr(corpus, "_READ_BYTES", size)
        for end, linewise in (("\n \n\n", True), ("\n \n\nc\n", False), ("\nc\n", True)):
            path = write(tmp_path / "x", "a\n" * 50 + "b" + end)
            assert inspect_file(str(path))["linewise"] is linewise


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
        patch.setattr(corpus, "_READ_BYTES", read_bytes)
        assert documents(paths, block_bytes=block_bytes) == whole
        known = [TextFile(**inspect_file(str(path))) for path in paths]
        blocks = list(read_blocks(known, block_bytes=block_bytes))
        for k, block in enumerate(blocks):
            rest = list(read_blocks(known, block.end, block_bytes=block_bytes))
            assert rest == blocks[k + 1 :]  # an interrupted reader goes on
    lines = [line for text in files for line in text.split("\n")]
    expected = [
        words
        for line in lines
        if (words := [w for w in line.removesuffix("\r").split(" ") if w]) and line.strip(" \t\r")
    ]
    found = [sentence for document in whole.values() for sentence in document]
    assert [s for s in found if "".join(s).strip("\t\r")] == expected


def test_long_documents_are_cut_and_long_lines_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(corpus, "_READ_BYTES", 64)
    path = write(tmp_path / "x", "a b c d\n" * 500 + "\nend\n")
    files = [TextFile(**inspect_file(str(path)))]
    blocks = list(read_blocks(files, block_bytes=100))
    assert b"".join(block.data for block in blocks) == path.read_bytes()
    assert max(len(block.data) for block in blocks) <= 1100
    assert sum(block.n_cut for block in blocks) >= 3
    bad = write(tmp_path / "y", "a\n" * 70 + "\n" + "x" * 2000 + "\n\nb\n")
    with pytest.raises(InputError, match=r"y:\d+: the line is longer"):
        list(read_blocks([TextFile(**inspect_file(str(bad)))], block_bytes=100))


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


@pytest.mark.parametrize(
    "options",
    [{"tokenized": True, "split_sentences": True}, {"tokenizer": "x"}, {"errors": "ignore"}],
)
def test_bad_reading(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Reading(**options)  # type: ignore[arg-type] # that is the point


@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_reply_in_order_and_pass_errors_on(tmp_path: Path, n_workers: int) -> None:
    paths = [write(tmp_path / f"{k}", f"{k}\n" * k) for k in range(7)]
    requests = [({"task": "inspect", "paths": [str(path)]}, b"") for path in paths]
    with Workers(n_workers) as pool:
        for (request, reply), path in zip(pool.map(requests), paths, strict=True):
            assert request["paths"] == [reply["files"][0]["path"]] == [str(path)]
        write(tmp_path / "bad", gzip.compress(b"a" * 100)[:-5])
        with pytest.raises(InputError, match="is damaged"):
            list(pool.map([({"task": "inspect", "paths": [str(tmp_path / "bad")]}, b"")]))


def test_a_killed_worker_is_told(tmp_path: Path) -> None:
    request = {"task": "inspect", "paths": [str(write(tmp_path / "a", "a\n"))]}
    with Workers(2) as pool:
        for process in pool._processes:
            process.kill()
            process.wait()
        with pytest.raises(ElmoreError, match="worker process ended with code -9"):
            list(pool.map([(request, b"")]))
