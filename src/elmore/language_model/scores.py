"""Log probabilities of sentences, token by token."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import ProgressOption, progress_of, size_of
from elmore.embedding.inputs import as_list, sentences_of
from elmore.embedding.stream import windows
from elmore.language_model.perplexity import mean_perplexity
from elmore.language_model.predictions import LanguageModel, Logs
from elmore.options import BATCH_TOKENS, TextOptions, TokenOptions
from elmore.text.batching import plan_batches
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SentenceScore:
    """Log probabilities of one sentence; entry i of each array belongs to token i.

    Attributes:
        tokens: the tokens, (n,).
        forward: log p(token | `<S>` and the tokens before it), (n,).
        end: log p(`</S>` | all tokens), the last prediction forward.
        backward: log p(token | the tokens after it and `</S>`), (n,), or None in a model of one
            direction.
        begin: log p(`<S>` | all tokens), the last prediction backward, or None.
        unknown: which tokens the vocabulary lacks, (n,); their values are those of `<UNK>`.
    """

    tokens: tuple[str, ...]
    forward: Logs
    end: float
    backward: Logs | None
    begin: float | None
    unknown: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        total = f"total={self.total:.2f}, perplexity={self.perplexity:.4g}"
        return f"SentenceScore({reprlib.repr(self.tokens)}, {total})"

    @property
    def forward_total(self) -> float:
        """Log probability of the sentence, its end included."""
        return float(self.forward.sum()) + self.end

    @property
    def backward_total(self) -> float | None:
        """The same for the backward model, or None."""
        if self.backward is None or self.begin is None:
            return None
        return float(self.backward.sum()) + self.begin

    @property
    def total(self) -> float:
        """Mean of both directions' log probabilities of the sentence."""
        backward = self.backward_total
        return self.forward_total if backward is None else 0.5 * (self.forward_total + backward)

    @property
    def perplexity(self) -> float:
        """exp of minus `total` for each of the n + 1 predictions."""
        return mean_perplexity(-self.total, len(self) + 1)

    def to_dict(self, *, per_token: bool = False) -> dict[str, Any]:
        """Everything as JSON values; the values of single tokens only on request."""
        record: dict[str, Any] = {
            "tokens": self.tokens,
            "log_prob": rounded(self.total),
            "forward_log_prob": rounded(self.forward_total),
            "backward_log_prob": rounded(self.backward_total),
            "perplexity": rounded(self.perplexity),
        }
        if per_token:
            record["forward"] = [rounded(value) for value in self.forward.tolist()]
            record["end"] = rounded(self.end)
            record["backward"] = None
            if self.backward is not None:
                record["backward"] = [rounded(value) for value in self.backward.tolist()]
            record["begin"] = rounded(self.begin)
            record["unknown"] = self.unknown.tolist()
        return record


def rounded(value: float | None) -> float | None:
    """A number for JSON, which has no infinity; a very unlikely sentence may reach it."""
    return None if value is None or not math.isfinite(value) else round(value, 6)


@overload
def score(elmo: Elmo, sentences: str, **how: Unpack[TextOptions]) -> SentenceScore: ...  # type: ignore[overload-overlap]
@overload
def score(
    elmo: Elmo, sentences: Sequence[str], **how: Unpack[TextOptions]
) -> list[SentenceScore]: ...
@overload
def score(elmo: Elmo, sentences: Sequence[str], **how: Unpack[TokenOptions]) -> SentenceScore: ...  # type: ignore[overload-overlap]
@overload
def score(
    elmo: Elmo, sentences: Sequence[Sequence[str]], **how: Unpack[TokenOptions]
) -> list[SentenceScore]: ...
def score(
    elmo: Elmo,
    sentences: str | Sequence[str] | Sequence[Sequence[str]],
    *,
    tokenized: bool = False,
    batch_tokens: int | None = None,
    progress: ProgressOption = None,
) -> SentenceScore | list[SentenceScore]:
    """The log probability of every token, in both directions.

    Args:
        elmo: a model that has a softmax.
        sentences: a sentence, or a list of sentences.
        tokenized: whether the sentences are lists of tokens.
        batch_tokens: as in `Elmo.embed`.
        progress: as in `Elmo.embed`.

    Returns:
        one result for one sentence, a list for a list. An empty sentence has its markers alone.

    Examples:
        >>> result = score(elmo, "She fell .")
        >>> result.tokens, result.forward.shape, result.total < 0
        (('She', 'fell', '.'), (3,), True)
    """
    items, single = as_list(sentences, tokenized)
    budget = BATCH_TOKENS if batch_tokens is None else batch_tokens
    results = []
    with closing(progress_of(progress, unit="sentences", total=size_of(items))) as report:
        for result in pipe_scores(elmo, items, tokenized=tokenized, batch_tokens=budget):
            results.append(result)
            report.update(1)
    return results[0] if single else results


def pipe_scores(
    elmo: Elmo,
    sentences: Iterable[str] | Iterable[Sequence[str]] | Iterable[Sentence],
    *,
    tokenized: bool = False,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[SentenceScore]:
    """Score a stream: lazy, in order, in bounded memory; arguments as in `perplexity`."""
    model = LanguageModel(elmo)

    def results() -> Iterator[SentenceScore]:
        for window in windows(sentences_of(sentences, tokenized, elmo.tokenize), len):
            done: dict[int, SentenceScore] = {}
            for rows in plan_batches([len(s) for s in window], batch_tokens=batch_tokens):
                scores = _score_batch(model, [window[row] for row in rows])
                done.update(zip(rows.tolist(), scores, strict=True))
            # Batches are sorted by length; the caller gets the order of the input.
            yield from (done[k] for k in range(len(window)))

    return results()


def _score_batch(model: LanguageModel, sentences: Sequence[Sentence]) -> list[SentenceScore]:
    logs, ids = model.predict(sentences)
    results, stop = [], 0
    for sentence in sentences:
        start, stop = stop, stop + len(sentence) + 1  # its tokens and one marker
        forward = logs[0][start:stop]
        backward = logs[1][start:stop] if model.bidirectional else None
        results.append(
            SentenceScore(
                tokens=sentence.tokens,
                # Copies: a view would keep the arrays of the complete batch in memory.
                forward=forward[:-1].copy(),
                end=float(forward[-1]),
                backward=None if backward is None else backward[1:].copy(),
                begin=None if backward is None else float(backward[0]),
                unknown=ids[0][start : stop - 1] == model.unknown,
            )
        )
    return results
