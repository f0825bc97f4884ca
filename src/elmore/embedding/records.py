"""A stream of sentences in, a stream of records for the writers out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from elmore.embedding.elmo import Elmo
from elmore.embedding.finishing import choose_finish
from elmore.embedding.layers import LayerChoice
from elmore.embedding.pipe import BATCH_TOKENS, embed_stream
from elmore.embedding.pooling import Pooling
from elmore.embedding.writers import Record
from elmore.text.sentence import Sentence

__all__ = ["embed_records"]


def embed_records(
    elmo: Elmo,
    sentences: Iterable[tuple[str, Sentence]],
    *,
    layers: LayerChoice | Literal["all"] = "mean",
    pool: Pooling | None = None,
    batch_tokens: int | None = None,
) -> Iterator[Record]:
    """Embed a stream: lazy, in order, in bounded memory.

    Args:
        elmo: the model.
        sentences: each as text and as tokens; read ahead by some 1,000.
        layers: as in `Elmo.embed`, or "all".
        pool: one vector a sentence, as `Elmo.encode`.
        batch_tokens: token budget of a batch.
    """
    # The pipe reads ahead by a window and gives the results in order: what it has read waits here.
    waiting: deque[tuple[str, Sentence]] = deque()

    def fed() -> Iterator[Sentence]:
        for text, sentence in sentences:
            waiting.append((text, sentence))
            yield sentence

    finish = choose_finish(layers, pool, elmo.n_layers)
    budget = BATCH_TOKENS if batch_tokens is None else batch_tokens
    for values in embed_stream(elmo.engine, fed(), finish, batch_tokens=budget):
        text, sentence = waiting.popleft()
        yield Record(text, sentence.tokens, sentence.spans, values)
