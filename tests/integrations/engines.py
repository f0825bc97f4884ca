"""What the tests of Ray and Spark share: rows, the answer of one process, a worker that dies."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_models import TEXT

from elmore import Elmo

needs_java = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ,
    reason="Spark needs Java 17 or later, and none is here",
)
NULL, EMPTY = 3, 8  # rows without a text, and without a word


def make_texts(count: int) -> list[str | None]:
    """Sentences of 1 to 23 words; one is missing and one is empty."""
    texts: list[str | None] = [
        " ".join(TEXT[(5 * k + j * j) % len(TEXT)] for j in range(1 + k % 23)) for k in range(count)
    ]
    texts[NULL], texts[EMPTY] = None, ""
    return texts


def make_table(count: int) -> pa.Table:
    """Sentences between columns that must survive."""
    names = [f"document {k % 7}" for k in range(count)]
    columns = {"id": range(10, 10 + count), "text": make_texts(count), "name": names}
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def read_files(folder: Path) -> pa.Table:
    """Read all files of a folder in the order of their names."""
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("*.parquet")))


def check_pooled(rows: list[dict[str, Any]], table: pa.Table, model: Path) -> None:
    """See that rows are those of a table, in order, with the vectors of a single process."""
    for name in table.schema.names:
        assert [row[name] for row in rows] == table[name].to_pylist()
    texts = table["text"].to_pylist()
    expected = Elmo.load(model, threads=1).encode([text or "" for text in texts])
    for row, text, vector in zip(rows, texts, expected, strict=True):
        if text is None:
            assert row["vector"] is None
        else:
            np.testing.assert_allclose(row["vector"], vector, rtol=0, atol=1e-5)
    assert np.any(expected[0]), "the model says something"
    assert not np.any(rows[EMPTY]["vector"])


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Fail instead of waiting for an engine without end."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
