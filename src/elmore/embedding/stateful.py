"""LSTM states that continue from one batch to the next: the published behaviour; a warm start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore.compute.network import LstmState
from elmore.embedding.engine import Engine
from elmore.embedding.inputs import sentences_of
from elmore.embedding.results import SentenceLayers, all_layers, layer_weights
from elmore.errors import ConfigError
from elmore.formats.checkpoint import StartState
from elmore.options import LayerChoice
from elmore.text.tokenizer import Sentence

_TEXT = Path(__file__).parent.parent / "data" / "burn_in.txt"


class Stream:
    """Embeds batch after batch, each row continuing where the same row of the last batch ended.

    AllenNLP and bilm-tf always worked like this. One call is one batch, its rows in the caller's
    order. A smaller batch leaves the state of the other rows alone; new rows begin with the start
    state. An empty sentence still reads its two markers. Made by `Elmo.stateful`; not for several
    threads.

    Attributes:
        state: where each row is; None before the first batch.
    """

    def __init__(self, engine: Engine, tokenize: Callable[[str], Sentence]) -> None:
        self._engine = engine
        self._tokenize = tokenize
        self.state: LstmState | None = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *details: object) -> None:
        self.reset()

    def layers(
        self, texts: Sequence[str] | Sequence[Sequence[str]], *, tokenized: bool = False
    ) -> list[SentenceLayers]:
        """All layers of one batch of texts, or of token lists if `tokenized`."""
        sentences = list(sentences_of(texts, tokenized, self._tokenize))
        if not sentences:
            return []
        rows = len(sentences)
        before = self._grown(rows)
        batch = self._engine.indexer.batch([sentence.tokens for sentence in sentences])
        mine = LstmState(*(part[:, :, :rows] for part in before))
        values, last = self._engine.run(batch, mine)
        results = [
            all_layers(sentence, values[:, row, 1 : len(sentence) + 1])
            for row, sentence in enumerate(sentences)
        ]
        # Only now: if a sentence fails, every row is still where it was.
        self.state = _joined(last, LstmState(*(part[:, :, rows:] for part in before)))
        return results

    def embed(
        self,
        texts: Sequence[str] | Sequence[Sequence[str]],
        *,
        tokenized: bool = False,
        layers: LayerChoice = "mean",
    ) -> list[NDArray[np.float32]]:
        """Embed one batch of texts, or of token lists if `tokenized`, each (time, dim)."""
        layer_weights(layers, self._engine.config.n_layers)  # a bad choice must not move the state
        return [result.mix(layers) for result in self.layers(texts, tokenized=tokenized)]

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Forget the state of all rows, or of some."""
        if rows is None:
            self.state = None
        elif self.state is not None:
            known = self.state.hidden.shape[2]
            for row in rows:
                if not 0 <= row < known:
                    raise ConfigError(f"row {row} has no state; rows are 0..{known - 1}")
            fresh = self._engine.initial_state(len(rows))
            self.state = LstmState(*(part.copy() for part in self.state))
            for part, new in zip(self.state, fresh, strict=True):
                part[:, :, list(rows)] = new

    def _grown(self, count: int) -> LstmState:
        """The state of all rows, with new rows if there are fewer than `count`."""
        if self.state is None:
            return self._engine.initial_state(count)
        missing = count - self.state.hidden.shape[2]
        if missing <= 0:
            return self.state
        return _joined(self.state, self._engine.initial_state(missing))


def _joined(state: LstmState, more: LstmState) -> LstmState:
    """The state of the rows of both."""
    return LstmState(*(np.concatenate(both, axis=2) for both in zip(state, more, strict=True)))


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
