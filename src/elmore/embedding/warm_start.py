"""The state of the LSTMs after a short text, from which `start="warm"` begins every sentence."""

from __future__ import annotations

from pathlib import Path

from elmore.embedding.engine import Engine
from elmore.formats.checkpoint import StartState

__all__ = ["burn_in", "burn_in_text"]

_TEXT = Path(__file__).parent.parent / "data" / "burn_in.txt"


def burn_in_text() -> list[list[str]]:
    """The token lists of a short text inside the package."""
    lines = _TEXT.read_text(encoding="utf-8").split("\n")
    return [line.split(" ") for line in lines if line]


def burn_in(engine: Engine) -> StartState:
    """Read that text with carried state, and return the state after it."""
    state = engine.zero_state(1)
    for tokens in burn_in_text():
        _, state = engine.run(engine.indexer.batch([tokens]), state)
    return StartState(state.hidden[:, :, 0].copy(), state.cell[:, :, 0].copy())
