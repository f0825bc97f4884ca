"""The kinds of work that the service does, for sentences of many clients at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from elmore.elmo import Elmo
from elmore.embedding.results import Array, Finish, all_layers
from elmore.embedding.stream import embed_stream
from elmore.language_model.likely_words import substitutes_at
from elmore.language_model.scores import pipe_scores

if TYPE_CHECKING:
    from elmore.language_model.sense_vectors import SenseVectors
    from elmore.text.sentence import Sentence

__all__ = ["Item", "Likely", "Scored", "Senses", "Vectors", "compute"]


class Item(Protocol):
    """One sentence, and what to make of it."""

    @property
    def sentence(self) -> Sentence:
        """The sentence."""


class Vectors:
    """Vectors of a sentence: whatever `finish` makes of its layers; all layers by default."""

    __slots__ = ("finish", "sentence")

    def __init__(self, sentence: Sentence, finish: Finish[Any] | None = None) -> None:
        self.sentence = sentence
        self.finish: Finish[Any] = all_layers if finish is None else finish


class Scored:
    """Log probabilities of a sentence."""

    __slots__ = ("sentence",)

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence


class Likely:
    """Words that are likely at a position of a sentence."""

    __slots__ = ("k", "position", "sentence")

    def __init__(self, sentence: Sentence, position: int, k: int) -> None:
        self.sentence, self.position, self.k = sentence, position, k


class Senses:
    """Sense vectors of positions in a sentence: whatever `finish` makes of them."""

    __slots__ = ("finish", "positions", "sentence")

    def __init__(
        self, sentence: Sentence, positions: Sequence[int], finish: Callable[[SenseVectors], Any]
    ) -> None:
        self.sentence, self.positions, self.finish = sentence, positions, finish


def compute(elmo: Elmo, items: Sequence[Item], batch_tokens: int) -> list[Any]:
    """Compute items of all kinds, those of a kind together; the results are in their order."""
    results: list[Any] = [None] * len(items)
    vectors = [k for k, item in enumerate(items) if isinstance(item, Vectors)]
    if vectors:
        chosen = [item for item in items if isinstance(item, Vectors)]
        sentences = [item.sentence for item in chosen]
        # Each sentence is finished in its own way; two clients may send equal ones.
        finishes = {id(item.sentence): item.finish for item in chosen}

        def finish(sentence: Sentence, values: Array, /) -> Any:
            return finishes[id(sentence)](sentence, values)

        found = embed_stream(elmo.engine, sentences, finish, batch_tokens=batch_tokens)
        for k, (_, result) in zip(vectors, found, strict=True):
            results[k] = result
    scored = [k for k, item in enumerate(items) if isinstance(item, Scored)]
    if scored:
        sentences = [items[k].sentence for k in scored]
        scores = pipe_scores(elmo, sentences, batch_tokens=batch_tokens)
        for k, score in zip(scored, scores, strict=True):
            results[k] = score
    likely = [(k, item) for k, item in enumerate(items) if isinstance(item, Likely)]
    if likely:
        places = [(item.sentence, item.position) for _, item in likely]
        most = max(item.k for _, item in likely)
        words = substitutes_at(elmo, places, most, batch_tokens=batch_tokens)
        for (k, item), some in zip(likely, words, strict=True):
            results[k] = some[: item.k]
    senses = [(k, item) for k, item in enumerate(items) if isinstance(item, Senses)]
    if senses:
        asked = ((one.sentence, one.positions) for _, one in senses)
        parts = elmo.sense_space.pipe(asked, batch_tokens=batch_tokens)
        for (k, asking), part in zip(senses, parts, strict=True):
            results[k] = asking.finish(part)
    return results
