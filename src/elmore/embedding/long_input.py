"""Sequences of any length in bounded memory: chunk by chunk, the state carried along.

A direction of the biLM reads in its own order and needs nothing of the other one, so each walks
through the sequence in chunks, exactly as it would in one go, and sets its layers aside: in
memory if they are small, else in a temporary file. When both are done, all layers are there, chunk
by chunk.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import free_bytes
from elmore.compute.network import LstmState
from elmore.errors import ElmoreError

if TYPE_CHECKING:
    from elmore.embedding.engine import Engine

__all__ = ["LONG_TOKENS", "LongLayers", "is_long", "read_long"]

# Longer sequences, markers included, are read in chunks.
LONG_TOKENS = 4096
# With these the gates of a chunk take at most 64 MB in the largest published model.
_CHUNK_TOKENS = 1024
# Larger ones are set aside on disk.
_MEMORY_BYTES = 64 << 20


def is_long(engine: Engine, n_tokens: int, longest: int = LONG_TOKENS) -> bool:
    """Whether a sequence of so many tokens, without markers, is read in chunks.

    An LSTM that mixes its directions cannot be: its second layer needs the end of the first.
    """
    return n_tokens + 2 > longest and not engine.config.lstm.mixed


class LongLayers:
    """All layers of one long sequence, held outside of its batch.

    Attributes:
        state: after the last token, for one row.
    """

    def __init__(self, rows: _Rows, parts: Sequence[_Rows], state: LstmState, chunk: int) -> None:
        self._tokens = rows
        self._parts = parts  # of each direction, its layers side by side
        self._chunk = chunk
        self.state = state

    def chunks(self) -> Iterator[NDArray[np.float32]]:
        """The layers without the markers, in order, each (layers, some, dim)."""
        dim = self._tokens.width
        for start in range(1, self._tokens.count - 1, self._chunk):
            end = min(start + self._chunk, self._tokens.count - 1)
            bottom = self._tokens.read(start, end)
            halves = []
            for part in self._parts:
                above = part.read(start, end).reshape(end - start, -1, dim)
                halves.append(np.concatenate([bottom[None], above.swapaxes(0, 1)]))
            yield np.concatenate(halves, axis=2)


@contextlib.contextmanager
def read_long(
    engine: Engine,
    tokens: Sequence[str],
    state: LstmState | None = None,
    *,
    chunk: int = _CHUNK_TOKENS,
) -> Iterator[LongLayers]:
    """Read one long sequence of tokens without markers; the layers last as long as the block.

    Args:
        engine: the model.
        tokens: the sequence.
        state: where to start, one row; the start state by default.
        chunk: tokens that are read at once.
    """
    begin, end = engine.indexer.markers
    n_tokens = len(tokens) + 2
    dim, n_lstm = engine.config.lstm.projection_dim, engine.config.lstm.n_layers
    if state is None:
        state = engine.initial_state(1)
    with contextlib.ExitStack() as stack:

        def set_aside(width: int) -> _Rows:
            return stack.enter_context(_Rows(n_tokens, width))

        bottom = set_aside(dim)
        marked = itertools.chain([begin], tokens, [end])
        for start in range(0, n_tokens, chunk):
            bottom.write(start, engine.word_vectors(list(itertools.islice(marked, chunk))))
        parts = [set_aside(dim * n_lstm) for _ in engine.config.directions]
        stop = threading.Event()
        jobs = [
            _direction(engine, k, bottom, part, state, chunk, stop) for k, part in enumerate(parts)
        ]
        # One job may run for minutes; when the other fails or is interrupted, it must end too.
        done = engine.workers.run(jobs, stop.set)
        after = LstmState(
            np.stack([hidden for hidden, _ in done]), np.stack([cell for _, cell in done])
        )
        yield LongLayers(bottom, parts, after, chunk)


def _direction(
    engine: Engine,
    number: int,
    bottom: _Rows,
    part: _Rows,
    state: LstmState,
    chunk: int,
    stop: threading.Event,
) -> Callable[[], tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """The job of one direction: read everything, set the layers aside, return the state."""
    starts = range(0, bottom.count, chunk)
    backward = engine.config.directions[number] == "backward"

    def job() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        hidden, cell = state.hidden[number], state.cell[number]
        for start in reversed(starts) if backward else starts:
            if stop.is_set():
                raise CancelledError
            values = bottom.read(start, min(start + chunk, bottom.count))
            inputs = values[::-1].copy() if backward else values
            layers, hidden, cell = engine.read_on(number, inputs, hidden, cell)
            rows = layers.swapaxes(0, 1).reshape(len(values), -1)
            part.write(start, rows[::-1] if backward else rows)
        return hidden, cell

    return job


class _Rows(contextlib.AbstractContextManager["_Rows"]):
    """A matrix of float32 rows: in memory, or in a nameless file if it is large.

    The file is read and written, not mapped: pages of a map count as memory of the process.
    """

    def __init__(self, count: int, width: int) -> None:
        self.count = count
        self.width = width
        self._array: NDArray[np.float32] | None = None
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()  # both directions read the token layer
        if count * width * 4 <= _MEMORY_BYTES:
            self._array = np.empty((count, width), np.float32)
        else:
            self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - __exit__ closes it

    def __exit__(self, *details: object) -> None:
        self._array = None
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def write(self, start: int, rows: NDArray[np.float32]) -> None:
        """Write rows from a row number on."""
        if self._array is not None:
            self._array[start : start + len(rows)] = rows
            return
        file = cast(BinaryIO, self._file)
        try:
            with self._lock:
                file.seek(start * self.width * 4)
                file.write(np.ascontiguousarray(rows).data)
                file.flush()
        except OSError as error:
            raise _no_room(error, self.count * self.width * 4) from error

    def read(self, start: int, end: int) -> NDArray[np.float32]:
        """Rows, (end - start, width)."""
        if self._array is not None:
            return self._array[start:end]
        rows = np.empty((end - start, self.width), np.float32)
        file = cast(Any, self._file)
        with self._lock:
            file.seek(start * self.width * 4)
            left = rows.reshape(-1).view(np.uint8).data
            while left and (count := file.readinto(left)):
                left = left[count:]
        return rows


def _no_room(error: OSError, n_bytes: int) -> ElmoreError:
    folder = Path(tempfile.gettempdir())
    return ElmoreError(
        f"a long sentence needs {n_bytes} bytes in '{folder}', which has {free_bytes(folder)}: "
        f"{(error.strerror or str(error)).lower()}; free some space or point TMPDIR elsewhere"
    )
