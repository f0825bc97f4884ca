"""The published behaviour: LSTM states that continue from one batch to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from elmore.compute.network import LstmState
from elmore.embedding.engine import Engine
from elmore.embedding.inputs import sentences_from_texts, sentences_from_tokens
from elmore.embedding.results import LayerChoice, SentenceLayers, all_layers, layer_weights
from elmore.errors import ConfigError
from elmore.text.sentence import Sentence

__all__ = ["Stream"]


class Stream:
    """Embeds batch after batch, each row continuing where the same row of the last batch ended.

    AllenNLP and bilm-tf always worked like this. One call is one batch, its rows in the caller's
    order. A smaller batch leaves the state of the other rows alone; new rows begin with the start
    state. An empty sentence still reads its two markers. Made by `Elmo.stateful`; not for several
    threads.
    """

    def __init__(self, engine: Engine, tokenize: Callable[[str], Sentence]) -> None:
        self._engine = engine
        self._tokenize = tokenize
        self._state: LstmState | None = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *details: object) -> None:
        self.reset()

    def layers(
        self, texts: Sequence[str] | Sequence[Sequence[str]], *, tokenized: bool = False
    ) -> list[SentenceLayers]:
        """All layers of one batch of texts, or of token lists if `tokenized`."""
        if tokenized:
            return self._run(list(sentences_from_tokens(texts)))
        # Type checkers cannot know what `tokenized` says; what is not a text is refused.
        lines = cast("Sequence[str]", texts)
        return self._run(list(sentences_from_texts(lines, self._tokenize)))

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
            self._state = None
        elif self._state is not None:
            known = self._state.hidden.shape[2]
            for row in rows:
                if not 0 <= row < known:
                    raise ConfigError(f"row {row} has no state; rows are 0..{known - 1}")
            fresh = self._engine.initial_state(len(rows))
            state = LstmState(self._state.hidden.copy(), self._state.cell.copy())
            _put_rows(state, list(rows), fresh)
            self._state = state

    @property
    def state(self) -> LstmState | None:
        """Where each row is, or None before the first batch."""
        return self._state

    def _run(self, sentences: list[Sentence]) -> list[SentenceLayers]:
        if not sentences:
            return []
        before = self._grown(len(sentences))
        batch = self._engine.indexer.batch([sentence.tokens for sentence in sentences])
        rows = list(range(len(sentences)))
        values, last = self._engine.run(batch, _some_rows(before, rows))
        # A copy: if a sentence fails, every row is still where it was.
        after = LstmState(before.hidden.copy(), before.cell.copy())
        _put_rows(after, rows, last)
        results = [
            all_layers(sentence, values[:, row, 1 : len(sentence) + 1])
            for row, sentence in enumerate(sentences)
        ]
        self._state = after
        return results

    def _grown(self, count: int) -> LstmState:
        """The state of all rows, with new rows if there are fewer than `count`."""
        if self._state is None:
            return self._engine.initial_state(count)
        missing = count - self._state.hidden.shape[2]
        if missing <= 0:
            return self._state
        new = self._engine.initial_state(missing)
        return LstmState(
            np.concatenate([self._state.hidden, new.hidden], axis=2),
            np.concatenate([self._state.cell, new.cell], axis=2),
        )


def _some_rows(state: LstmState, rows: list[int]) -> LstmState:
    return LstmState(state.hidden[:, :, rows], state.cell[:, :, rows])


def _put_rows(state: LstmState, rows: list[int], new: LstmState) -> None:
    state.hidden[:, :, rows] = new.hidden
    state.cell[:, :, rows] = new.cell
