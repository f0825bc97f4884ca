"""How well a model predicts a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from elmore.base.messages import ProgressOption, progress_of, size_of
from elmore.embedding.inputs import sentences_of
from elmore.embedding.stream import windows
from elmore.errors import ConfigError, InputError
from elmore.language_model.predictions import Ids, LanguageModel, Logs
from elmore.options import BATCH_TOKENS
from elmore.text.batching import plan_batches

if TYPE_CHECKING:
    from elmore.elmo import Elmo

# A larger share of unknown words makes the perplexity of all words say little: <UNK> is one
# frequent word, and easy to predict.
_MAX_UNKNOWN = 0.1


@dataclass(frozen=True, kw_only=True, repr=False)
class Perplexity:
    """How well a model predicts a text; two of them add up to that of both texts.

    Attributes:
        n_sentences: sentences measured.
        n_empty: sentences without a token, which were left out.
        n_words: words, markers not counted.
        n_unknown: words that the vocabulary lacks; they are predicted as `<UNK>`.
        n_tokens: predictions in each direction: the words and one marker per sentence.
        forward_loss: summed negative log probability, forward.
        backward_loss: the same backward, or None in a model of one direction.
        n_known: predictions of both directions whose target is not `<UNK>`.
        known_loss: their summed negative log probability.
    """

    n_sentences: int = 0
    n_empty: int = 0
    n_words: int = 0
    n_unknown: int = 0
    n_tokens: int = 0
    forward_loss: float = 0.0
    backward_loss: float | None = None
    n_known: int = 0
    known_loss: float = 0.0

    @property
    def forward(self) -> float:
        """Perplexity of each word given those before it."""
        return mean_perplexity(self.forward_loss, self.n_tokens)

    @property
    def backward(self) -> float | None:
        """Perplexity of each word given those after it, or None without that direction."""
        if self.backward_loss is None:
            return None
        return mean_perplexity(self.backward_loss, self.n_tokens)

    @property
    def mean(self) -> float:
        """exp of the mean of both directions' losses."""
        if self.backward_loss is None:
            return self.forward
        return mean_perplexity(self.forward_loss + self.backward_loss, 2 * self.n_tokens)

    @property
    def without_unknown(self) -> float:
        """`mean` over the targets that the vocabulary has: use it to compare vocabularies."""
        return mean_perplexity(self.known_loss, self.n_known)

    @property
    def oov_rate(self) -> float:
        """Share of the words (markers aside) that the vocabulary lacks."""
        return self.n_unknown / self.n_words if self.n_words else 0.0

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Everything as JSON values; null for what is not a finite number."""
        means = {
            "forward": self.forward,
            "backward": self.backward,
            "mean": self.mean,
            "without_unknown": self.without_unknown,
        }
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in means.items()}
        counts = ("n_tokens", "n_words", "n_unknown", "n_sentences", "n_empty")
        numbers = {name: getattr(self, name) for name in counts}
        return {**finite, "oov_rate": self.oov_rate, **numbers, "softmax": "full"}

    def __add__(self, other: Perplexity) -> Perplexity:
        # None and a number have no sum, and a mean over one direction and two would be wrong.
        if (self.backward_loss is None) != (other.backward_loss is None):
            raise ConfigError(
                "one of these perplexities has no backward direction; add those of one model"
            )
        sums: dict[str, Any] = {
            name: None if mine is None else mine + getattr(other, name)
            for name, mine in vars(self).items()
        }
        return Perplexity(**sums)

    def __repr__(self) -> str:
        backward = "None" if self.backward is None else f"{self.backward:.6g}"
        return f"Perplexity(forward={self.forward:.6g}, backward={backward}, mean={self.mean:.6g})"


def perplexity(
    elmo: Elmo,
    sentences: Iterable[str] | Iterable[Sequence[str]],
    *,
    tokenized: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressOption = None,
) -> Perplexity:
    """Measure how well a model predicts a text: full softmax, every sentence on its own.

    Args:
        elmo: a model that has a softmax.
        sentences: one text per sentence, read as a stream; those without a token are left out.
        tokenized: whether the sentences are lists of tokens.
        batch_tokens: token budget of a batch.
        progress: as in `Elmo.embed`.

    Raises:
        ConfigError: the model has no softmax.
        InputError: there is no sentence.

    Examples:
        >>> result = perplexity(elmo, ["Stocks fell .", "She fell ."])
        >>> result.n_tokens, result.n_sentences
        (8, 2)
    """
    model = LanguageModel(elmo)
    if isinstance(sentences, str) and not tokenized:
        sentences = [sentences]
    total = Perplexity(backward_loss=0.0 if model.bidirectional else None)
    n_empty = 0
    with closing(progress_of(progress, unit="sentences", total=size_of(sentences))) as report:
        # A window at a time, sorted by length: sums do not depend on the order, and memory is
        # bounded.
        for window in windows(sentences_of(sentences, tokenized, elmo.tokenize), len):
            busy = [sentence for sentence in window if len(sentence)]
            n_empty += len(window) - len(busy)
            for rows in plan_batches([len(s) for s in busy], batch_tokens=batch_tokens):
                total += tally(
                    model.unknown,
                    *model.predict([busy[row] for row in rows]),
                    n_sentences=len(rows),
                    n_markers=len(rows),
                )
                report.update(len(rows))
    if not total.n_sentences:
        raise InputError("there is no sentence with a token to measure; give at least one")
    return replace(total, n_empty=n_empty)


def tally(
    unknown: int, logs: list[Logs], ids: list[Ids], *, n_sentences: int, n_markers: int
) -> Perplexity:
    """The sum of some predictions.

    Args:
        unknown: the id of `<UNK>`; -1 without one.
        logs: log probabilities of each direction, (n,).
        ids: targets of each direction, (n,); words are counted in the first.
        n_sentences: sentences that they come from.
        n_markers: how many targets of the first direction are markers.
    """
    # No target is -1, so without an <UNK> all words are known.
    known = [targets != unknown for targets in ids]
    return Perplexity(
        n_sentences=n_sentences,
        n_words=len(ids[0]) - n_markers,
        n_unknown=int((~known[0]).sum()),
        n_tokens=len(ids[0]),
        forward_loss=-float(logs[0].sum()),
        backward_loss=-float(logs[1].sum()) if len(logs) > 1 else None,
        n_known=sum(int(mask.sum()) for mask in known),
        known_loss=-sum(float(p[mask].sum()) for p, mask in zip(logs, known, strict=True)),
    )


def headline(mean: float, without_unknown: float | None, oov_rate: float) -> str:
    """A perplexity in one line, always with the share of unknown words and the value without."""
    without = "none left" if without_unknown is None else f"{without_unknown:.1f}"
    return f"{mean:.1f} (without <UNK> {without}; {oov_rate:.1%} of the words are <UNK>)"


def misleading(oov_rate: float) -> str | None:
    """Why a perplexity should not be quoted alone; None where few words are unknown."""
    if oov_rate <= _MAX_UNKNOWN:
        return None
    return (
        f"{oov_rate:.0%} of the words are not in the vocabulary, and predicting <UNK> is easy, so "
        "the perplexity of all words is misleading; quote the one without <UNK>"
    )


def mean_perplexity(loss: float, n: int) -> float:
    """exp(loss / n): NaN without a prediction, infinity if no float is large enough."""
    try:
        return math.exp(loss / n) if n else math.nan
    except OverflowError:
        return math.inf
