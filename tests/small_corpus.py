"""Text files as documents: read in blocks, tokenized, and put in order again."""

from __future__ import annotations

from pathlib import Path

from elmore.corpus import pieces
from elmore.corpus.pieces import tokenize_block
from elmore.corpus.texts import inspect_file, read_blocks
from elmore.text.reading import Reading

TEXT = "One here .\nTwo there .\n\nThree .\n"
EXPECTED = [["One here .", "Two there ."], ["Three ."]]


def documents(
    paths: list[Path], reading: Reading | None = None, *, block_bytes: int = 1 << 21
) -> dict[tuple[int, int], list[list[str]]]:
    """Give the documents by file and running number, read block by block."""
    files = [inspect_file(str(path)) for path in paths]
    found = []
    for block in read_blocks(files, block_bytes=block_bytes):
        piece, _ = tokenize_block(block.segments, reading or Reading(tokenized=True), 0, block.data)
        assert (piece.keys[:-1] < piece.keys[1:]).all()
        places = piece.shard.documents.tolist()
        for key, start, end in zip(piece.keys.tolist(), places, places[1:], strict=False):
            found.append((key, [piece.shard.sentence(k) for k in range(start, end)]))
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
