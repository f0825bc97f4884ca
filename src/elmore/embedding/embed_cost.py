"""What `embed` will cost for a text: time, memory, and the size of the file in each format."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elmore.base.machine import peak_memory
from elmore.embedding.engine import Engine
from elmore.embedding.results import value_shape
from elmore.embedding.stream import embed_records
from elmore.embedding.vector_files import WRITERS, Record, Settings, open_writer
from elmore.errors import ConfigError, MissingExtra
from elmore.options import Output
from elmore.text.sentence import Sentence

__all__ = ["EmbedCost", "predict_cost"]

# Sentences that are embedded before the clock is looked at.
_CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class EmbedCost:
    """What one format costs.

    Attributes:
        format: its name.
        size_bytes: of the file.
        seconds: of embedding and writing, without loading the model.
        memory_bytes: of the process; None where the system does not tell.
    """

    format: str
    size_bytes: int
    seconds: float
    memory_bytes: int | None


def predict_cost(
    engine: Engine,
    sample: Sequence[tuple[str, Sentence]],
    n_tokens: int,
    output: Output | None = None,
    *,
    seconds: float = 3.0,
) -> list[EmbedCost]:
    """Embed and write a sample, and scale what it took to the complete text.

    Args:
        engine: the model.
        sample: the first sentences of the text.
        n_tokens: tokens of the complete text.
        output: what `embed` is asked for.
        seconds: how long to measure, roughly; more sentences of the sample are left out.

    Returns:
        one for each format that can be written here; none for a sample without tokens.
    """
    output = output or Output()
    records: list[Record] = []
    start = time.perf_counter()
    for first in range(0, len(sample), _CHUNK):
        records += embed_records(engine, sample[first : first + _CHUNK], output)
        if time.perf_counter() - start > seconds:
            break
    embedding = time.perf_counter() - start
    tokens = sum(len(record.tokens) for record in records)
    if not tokens:
        return []
    settings = Settings(shape=value_shape(engine.config, output), dtype=output.dtype)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in WRITERS:
            try:
                half, _ = _write(name, Path(folder), records[: len(records) // 2], settings)
                size, writing = _write(name, Path(folder), records, settings)
            except (MissingExtra, ConfigError):  # a format that does not take such values
                continue
            # What comes with every file must not be counted once per token.
            fewer = sum(len(record.tokens) for record in records[: len(records) // 2])
            slope = (size - half) / max(1, tokens - fewer)
            found.append(
                EmbedCost(
                    format=name,
                    size_bytes=round(size + slope * (n_tokens - tokens)),
                    seconds=(embedding + writing) * n_tokens / tokens,
                    memory_bytes=peak_memory(),
                )
            )
    return found


def _write(
    name: str, folder: Path, records: Sequence[Record], settings: Settings
) -> tuple[int, float]:
    """Write records; the size of the file and the seconds it took."""
    path = folder / f"{len(records)}{WRITERS[name].suffixes[0]}"
    start = time.perf_counter()
    with open_writer(name, path, settings) as writer:
        for record in records:
            writer.write(record)
    return path.stat().st_size, time.perf_counter() - start
