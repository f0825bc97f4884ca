r"""Text files of a corpus, read as blocks of whole documents.

Documents are separated by blank lines. In a file without a blank line between lines of text, every
hundred lines are a document. Only "\n" ends a line; one "\r" before it is dropped, and so is a byte
order mark at the start of a file. Files may be compressed; their first bytes tell, not their names.
"""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import hashlib
import itertools
import json
import lzma
import os
import queue
import re
import signal
import subprocess
import sys
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

import numpy as np

from elmore import errors
from elmore._extras import require
from elmore._io import open_checked, sha256_stream, shown
from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.text.sentences import split_sentences
from elmore.text.tokenizer import CONVENTIONS, Convention, tokenize
from elmore.training.shards import KEYS, Piece, Selection, Shard, merge, write_piece

__all__ = [
    "BLOCK_BYTES",
    "LINES_PER_DOCUMENT",
    "Block",
    "Errors",
    "Position",
    "Reading",
    "Segment",
    "TextFile",
    "Tokenized",
    "Workers",
    "expand_inputs",
    "inspect_file",
    "perform",
    "read_blocks",
    "serve",
    "tokenize_block",
]

Errors: TypeAlias = Literal["strict", "replace", "skip"]

BLOCK_BYTES = 1 << 21  # of text, handed to one worker: about 400,000 tokens of English
LINES_PER_DOCUMENT = 100  # in files without blank lines
# Longer documents are cut at the end of a line, so that memory stays bounded.
_DOCUMENT_BYTES = 1 << 24
_READ_BYTES = 1 << 20

_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
# The end of a document: a blank line, with text after it.
_BORDER = re.compile(rb"\n[ \t\r]*+\n[ \t\r\n]*+(?=[^ \t\r\n])")

_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How text becomes tokens.

    Attributes:
        tokenized: lines are tokens separated by single spaces.
        split_sentences: documents are running text.
        tokenizer: the convention for text that is not tokenized.
        errors: what to do with lines that are not UTF-8.
    """

    tokenized: bool = False
    split_sentences: bool = False
    tokenizer: Convention = "ptb"
    errors: Errors = "strict"

    def __post_init__(self) -> None:
        if self.tokenized and self.split_sentences:
            raise ConfigError("tokenized and split_sentences exclude each other; pass one of them")
        if self.tokenizer not in CONVENTIONS:
            raise ConfigError(
                f"tokenizer={self.tokenizer!r} is unknown; use {', '.join(CONVENTIONS)}"
            )
        if self.errors not in ("strict", "replace", "skip"):
            raise ConfigError(f"errors={self.errors!r} is unknown; use strict, replace or skip")

    @property
    def convention(self) -> Convention:
        """The convention of the tokens that come out."""
        return "spaces" if self.tokenized else self.tokenizer

    def sentences(self, text: str) -> Iterator[Sequence[str]]:
        """Give the tokens of the sentences of a document."""
        texts = split_sentences(text) if self.split_sentences else text.split("\n")
        if self.tokenized:
            for line in texts:
                # str.split() would also split at U+00A0 and its like, which may stand in tokens.
                yield [token for token in line.split(" ") if token]
        else:
            for line in texts:
                yield tokenize(line, self.tokenizer).tokens


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of the corpus.

    Attributes:
        path: where it is.
        size: bytes, as stored.
        sha256: of the bytes as stored.
        linewise: it has no blank lines between documents.
        heldout: all of it is held out.
    """

    path: str
    size: int
    sha256: str
    linewise: bool
    heldout: bool = False


def expand_inputs(inputs: Iterable[str | Path]) -> list[Path]:
    """Turn names and patterns into the files they mean, in order, each once.

    Raises:
        InputError: a pattern without a match, a folder, or a file that is not there.
    """
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    found: dict[str, Path] = {}
    for name in inputs:
        text = os.fspath(name)
        if os.path.lexists(text) or not glob.has_magic(text):
            names = [text]
        else:
            names = sorted(n for n in glob.glob(text, recursive=True) if not os.path.isdir(n))
            if not names:
                raise InputError(f"'{shown(text, 140)}' matches no file; check the pattern")
        for file in names:
            if os.path.isdir(file):
                raise InputError(
                    f"'{shown(file, 140)}' is a folder; name its files, such as "
                    f"'{shown(os.path.join(file, '*.txt'), 140)}'"
                )
            if not os.path.exists(file):
                raise InputError(f"'{shown(file, 140)}' does not exist; check the path")
            found.setdefault(os.path.realpath(file), Path(file))
    return list(found.values())


@contextlib.contextmanager
def _open_text(path: str) -> Iterator[BinaryIO]:
    """Open a file and undo its compression."""
    label = f"'{shown(path, 140)}'"
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(open_checked(Path(path), what="input"))
        head = raw.read(10)
        raw.seek(0)
        stream: Any = raw
        if head.startswith(_GZIP):
            stream = stack.enter_context(gzip.GzipFile(fileobj=raw))
        elif head.startswith(_BZIP2) and head[4:] == b"1AY&SY":
            stream = stack.enter_context(bz2.BZ2File(raw))
        elif head.startswith(_XZ):
            stream = stack.enter_context(lzma.LZMAFile(raw))
        elif head.startswith(_ZSTD):
            zstandard = require("zstandard", "train", f"reading {label}")
            reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            stream = stack.enter_context(reader)
        try:
            yield cast(BinaryIO, stream)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise InputError(f"{label} is damaged: {shown(error, 80)}; copy it again") from error
        except OSError as error:
            if error.errno is not None or stream is raw:
                raise
            raise InputError(f"{label} is damaged: {shown(error, 80)}; copy it again") from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "zstandard":
                raise
            raise InputError(f"{label} is damaged: {shown(error, 80)}; copy it again") from error


def inspect_file(path: str) -> dict[str, Any]:
    """Find size, SHA-256 and kind of a file, as the fields of `TextFile`."""
    with open_checked(Path(path), what="input") as stream:
        size = os.fstat(stream.fileno()).st_size
        sha256 = sha256_stream(stream)
    with _open_text(path) as text:
        linewise = not _has_border(text)
    return {"path": path, "size": size, "sha256": sha256, "linewise": linewise}


def _has_border(stream: BinaryIO) -> bool:
    rest = b""  # the last character of text, and what is blank after it
    while chunk := stream.read(_READ_BYTES):
        data = rest + chunk if rest else chunk.removeprefix(_BOM).lstrip(_BLANK)
        if _BORDER.search(data):
            return True
        rest = data[max(0, len(data.rstrip(_BLANK)) - 1) :]
        if rest.count(b"\n") > 1:
            rest = rest[:1] + b"\n\n"
    return False


# --------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class Position:
    """A place between two documents: file, bytes of its text, line from 1, document from 0."""

    file: int = 0
    offset: int = 0
    line: int = 1
    document: int = 0


@dataclass(frozen=True)
class Segment:
    """Documents of one file in a block."""

    start: Position
    size: int


@dataclass(frozen=True)
class Block:
    """Whole documents of one or several files.

    Attributes:
        segments: where the text is from, in order.
        data: the text.
        end: where the next block starts.
        heldout: all of it is held out.
        n_cut: documents that were too long and are cut at the end of this block.
    """

    segments: tuple[Segment, ...]
    data: bytes
    end: Position
    heldout: bool
    n_cut: int


def read_blocks(
    files: Sequence[TextFile], start: Position | None = None, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Read files as blocks; what was held out never shares a block with the rest.

    Args:
        files: the whole corpus.
        start: the `end` of an earlier block, to go on from there.
        block_bytes: a block ends with the first document that ends beyond this size.

    Yields:
        blocks that depend on the files and `block_bytes` only.
    """
    here = start or Position()
    segments: list[Segment] = []
    parts: list[bytes] = []
    for number in range(here.file, len(files)):
        file = files[number]
        if number != here.file:
            here = Position(number)
        with _Documents(file, here) as documents:
            while data := documents.take(block_bytes - sum(map(len, parts))):
                segments.append(Segment(here, len(data)))
                parts.append(data)
                here = _after(here, data, file.linewise)
                if sum(map(len, parts)) >= block_bytes:
                    yield _block(segments, parts, here, file.heldout, documents.n_cut)
                    segments, parts, documents.n_cut = [], [], 0
        last = number + 1 == len(files)
        if parts and (last or files[number + 1].heldout != file.heldout):
            yield _block(segments, parts, Position(number + 1), file.heldout, 0)
            segments, parts = [], []


def _block(
    segments: list[Segment], parts: list[bytes], end: Position, heldout: bool, n_cut: int
) -> Block:
    return Block(tuple(segments), b"".join(parts), end, heldout, n_cut)


def _after(start: Position, data: bytes, linewise: bool) -> Position:
    n_lines = data.count(b"\n")
    if linewise:
        n_documents = -(-n_lines // LINES_PER_DOCUMENT)
    else:
        n_documents = sum(1 for _ in _BORDER.finditer(data)) + 1
    return Position(
        start.file, start.offset + len(data), start.line + n_lines, start.document + n_documents
    )


class _Documents(contextlib.AbstractContextManager["_Documents"]):
    """Cuts the text of a file between documents."""

    def __init__(self, file: TextFile, start: Position) -> None:
        self._file = file
        self._start = start
        self._line = start.line
        self._buffer = b""
        self._stack = contextlib.ExitStack()
        self.n_cut = 0

    def __enter__(self) -> _Documents:
        self._stack.__enter__()
        self._stream = self._stack.enter_context(_open_text(self._file.path))
        left = self._start.offset
        while left and (data := self._stream.read(min(left, _READ_BYTES))):
            left -= len(data)
        return self

    def __exit__(self, *details: Any) -> bool | None:
        return self._stack.__exit__(*details)

    def take(self, room: int) -> bytes:
        """Give whole documents, up to the first that ends beyond `room`; b"" at the end."""
        cut = self._cut(room)
        while not cut:
            chunk = self._stream.read(_READ_BYTES)
            if not chunk:
                self._check_unchanged()
                cut = len(self._buffer)
                break
            self._buffer += chunk
            cut = self._cut(room)
        data, self._buffer = self._buffer[:cut], self._buffer[cut:]
        self._line += data.count(b"\n")
        return data

    def _check_unchanged(self) -> None:
        if os.path.getsize(self._file.path) != self._file.size:
            raise InputError(
                f"'{shown(self._file.path, 140)}' changed while it was read; run it again"
            )

    def _cut(self, room: int) -> int:
        """Find where to cut; 0 when more text is needed."""
        buffer = self._buffer
        if len(buffer) <= room:
            return 0
        if self._file.linewise:
            lines = buffer.count(b"\n", 0, room)
            end = room
            for _ in range(LINES_PER_DOCUMENT - lines % LINES_PER_DOCUMENT):
                end = buffer.find(b"\n", end) + 1
                if not end:
                    break
            else:
                return end
        elif match := _BORDER.search(buffer, room):
            return match.end()
        if len(buffer) <= room + _DOCUMENT_BYTES:
            return 0
        end = buffer.rfind(b"\n", 0, room + _DOCUMENT_BYTES) + 1
        if not end:
            raise InputError(
                f"the line is longer than the {_DOCUMENT_BYTES} bytes allowed; split it into lines",
                file=shown(self._file.path, 120),
                line=self._line,
            )
        self.n_cut += 1
        return end


# --------------------------------------------------------------------------- tokens


@dataclass(frozen=True)
class Tokenized:
    """A block as a piece, and what was met on the way."""

    piece: Piece
    n_replaced: int
    n_skipped: int


@dataclass
class _Invalid:
    replaced: int = 0
    skipped: int = 0


def tokenize_block(
    segments: Sequence[Segment],
    data: bytes,
    names: Sequence[str],
    linewise: Sequence[bool],
    reading: Reading,
    seed: int,
) -> Tokenized:
    """Tokenise a block.

    Args:
        segments: where the text is from.
        data: the text.
        names: of the file of each segment, for messages.
        linewise: whether the file of each segment has no blank lines.
        reading: how.
        seed: shuffles the documents.

    Raises:
        InputError: a line is not UTF-8.
    """
    found: list[tuple[int, int, int, int]] = []  # key, segment, start and end of a document
    place = 0
    for k, segment in enumerate(segments):
        end = place + segment.size
        for number, (a, b) in enumerate(_documents(data, place, end, linewise[k])):
            if segment.start.offset == 0 and number == 0 and data.startswith(_BOM, a):
                a += len(_BOM)
            key = _key(seed, "deal", f"{segment.start.file}/{segment.start.document + number}")
            found.append((key, k, a, b))
        place = end
    starts = list(itertools.accumulate((s.size for s in segments), initial=0))
    found.sort()
    numbers = _Numbers()
    tokens, sentences, documents = array("i"), array("q", [0]), array("q", [0])
    keys, hashes = array("q"), array("q")
    invalid = _Invalid()
    for key, k, a, b in found:
        try:
            text = data[a:b].decode("utf-8")
        except UnicodeDecodeError:
            line = segments[k].start.line + data.count(b"\n", starts[k], a)
            text = _decode(data[a:b], reading.errors, names[k], line, invalid)
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        for sentence in reading.sentences(text):
            if sentence:
                tokens.extend(map(numbers.__getitem__, sentence))
                sentences.append(len(tokens))
        if len(sentences) - 1 > documents[-1]:
            documents.append(len(sentences) - 1)
            keys.append(key)
            hashes.append(_key(seed, "hold out", text.rstrip(" \t\r\n")))
    shard = Shard(
        np.array(tokens, np.int32),
        np.array(sentences, np.int64),
        np.array(documents, np.int64),
        list(numbers),
    )
    piece = Piece(shard, np.array(keys, np.int64), np.array(hashes, np.int64))
    return Tokenized(piece, invalid.replaced, invalid.skipped)


class _Numbers(dict[str, int]):
    """Numbers words in the order in which they are met."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def _key(seed: int, purpose: str, text: str) -> int:
    """Give a number of 62 bits that depends on all arguments."""
    # Texts from files are UTF-8; names of purposes keep the two draws apart (C4).
    digest = hashlib.blake2b(
        text.encode("utf-8"), digest_size=8, key=f"{seed}".encode(), person=purpose.encode()
    )
    return int.from_bytes(digest.digest(), "little") % KEYS


def _documents(data: bytes, start: int, end: int, linewise: bool) -> Iterator[tuple[int, int]]:
    """Find the documents between two places."""
    if linewise:
        while start < end:
            stop = start
            for _ in range(LINES_PER_DOCUMENT):
                stop = data.find(b"\n", stop, end) + 1
                if not stop:
                    stop = end
                    break
            yield start, stop
            start = stop
        return
    # A border needs text after it, which must not be that of the next segment.
    for match in _BORDER.finditer(data, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


def _decode(data: bytes, errors: str, name: str, first: int, invalid: _Invalid) -> str:
    """Decode a document that is not UTF-8, line by line."""
    lines: list[str] = []
    for number, line in enumerate(data.split(b"\n"), first):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise InputError(
                    f"invalid UTF-8 at byte {error.start} of the line; convert the file to UTF-8 "
                    "or pass --errors replace or --errors skip",
                    file=shown(name, 120),
                    line=number,
                ) from None
            if errors == "replace":
                invalid.replaced += 1
                lines.append(line.decode("utf-8", "replace"))
            else:
                invalid.skipped += 1
    return "\n".join(lines)


# --------------------------------------------------------------------------- processes


def perform(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Do a piece of work that needs nothing but its request; see `Workers`.

    Args:
        request: the task and its arguments, as JSON.
        data: text, for the tasks that need it.
    """
    task = request["task"]
    if task == "inspect":
        return {"files": [inspect_file(path) for path in request["paths"]]}
    if task == "shard":
        low, high, limit = request["low"], request["high"], request["limit"]
        held, n_inputs = request.get("heldout", False), request["n_inputs"]
        chosen = Selection(
            low=low,
            high=high,
            least_hash=0 if held else limit,
            most_hash=limit if held else KEYS,
        )
        pieces = [(Path(path), chosen) for path in request["pieces"][:n_inputs]]
        if held:
            pieces += [(Path(path), Selection()) for path in request["pieces"][n_inputs:]]
        return {"documents": merge(Path(request["path"]), pieces)}
    result = tokenize_block(
        [Segment(Position(**s["start"]), s["size"]) for s in request["segments"]],
        data,
        request["names"],
        request["linewise"],
        Reading(**request["reading"]),
        request["seed"],
    )
    shard = result.piece.shard
    if task == "count":
        counts = shard.type_counts().tolist()
        return {"words": shard.types, "counts": counts, "tokens": shard.n_tokens}
    path = Path(request["path"])
    write_piece(path, result.piece)
    return {
        "size": path.stat().st_size,
        "tokens": shard.n_tokens,
        "documents": shard.n_documents,
        "least_hash": int(result.piece.hashes.min(initial=KEYS)),
        "n_replaced": result.n_replaced,
        "n_skipped": result.n_skipped,
    }


_Request = tuple[dict[str, Any], bytes]
# Plain processes rather than multiprocessing: nothing of the caller is forked or imported again.
_CHILD = "from elmore.training.corpus import serve; serve()"
_SMALL_CORPUS = 1 << 20  # bytes; not worth starting processes


class Workers(contextlib.AbstractContextManager["Workers"]):
    """Processes that `perform` requests; with one worker, the calling process itself.

    Args:
        n_workers: processes to start.
    """

    def __init__(self, n_workers: int) -> None:
        self._n_workers = n_workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(n_workers)

    @classmethod
    def of(cls, n_workers: int | None, paths: Iterable[Path]) -> Workers:
        """Make as many workers as are wanted, or as fit the machine and the files."""
        if n_workers is None:
            small = sum(os.path.getsize(path) for path in paths) <= _SMALL_CORPUS
            n_workers = 1 if small else _processors()
        if not 1 <= n_workers <= 4096:
            raise ConfigError(f"workers={n_workers} is out of range; pass a number from 1 to 4096")
        return cls(n_workers)

    def __enter__(self) -> Workers:
        if self._n_workers > 1:
            path = os.pathsep.join(entry for entry in sys.path if entry)
            for _ in range(self._n_workers):
                process = subprocess.Popen(  # noqa: S603 - this very Python and package
                    [sys.executable, "-c", _CHILD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path},
                )
                self._processes.append(process)
                self._idle.put(process)
        return self

    def __exit__(self, *details: object) -> None:
        for process in self._processes:
            process.kill()  # all they write is atomic
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.communicate()

    def map(self, requests: Iterable[_Request]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Perform requests; give each with its reply, in order.

        Requests are taken a few ahead of their replies, in the calling thread.
        """
        if self._n_workers == 1:
            for request, data in requests:
                yield request, perform(request, data)
            return
        ahead = 2 * self._n_workers
        waiting: deque[tuple[dict[str, Any], Future[dict[str, Any]]]] = deque()
        for request, data in requests:
            waiting.append((request, self._threads.submit(self._ask, request, data)))
            if len(waiting) > ahead:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()

    def _ask(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        process = self._idle.get()
        try:
            stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
            reply = b""
            with contextlib.suppress(BrokenPipeError):
                stdin.write(json.dumps({**request, "n_bytes": len(data)}).encode() + b"\n")
                stdin.write(data)
                stdin.flush()
                reply = stdout.readline()
            if not reply.endswith(b"\n"):
                raise ElmoreError(
                    f"a worker process ended with code {process.wait()}, perhaps for lack of "
                    "memory; run it again, with fewer workers, to go on"
                )
        finally:
            self._idle.put(process)
        result: dict[str, Any] = json.loads(reply)
        if "error" in result:
            raise _rebuilt(result)
        return result


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _rebuilt(reply: Mapping[str, Any]) -> ElmoreError:
    """Make the error of another process again."""
    kind = getattr(errors, reply["error"], ElmoreError)
    error: ElmoreError = kind(reply["message"])
    if isinstance(error, InputError):
        error.file, error.line = reply["file"], reply["line"]
    return error


def serve() -> None:
    """Perform the requests on stdin and reply on stdout, until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whoever prints must not disturb
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["n_bytes"])
        if len(data) < request["n_bytes"]:
            return
        try:
            reply = perform(request, data)
        except ElmoreError as error:
            reply = {
                "error": type(error).__name__,
                "message": str(error),
                "file": getattr(error, "file", None),
                "line": getattr(error, "line", None),
            }
        try:
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()
        except BrokenPipeError:
            return
