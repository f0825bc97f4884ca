"""The biLM as what it was trained to be: a language model in both directions.

A sentence is `<S> w1 … wn </S>`. Forward it is read from `<S>` and predicts w1 … wn `</S>`;
backward it is read from `</S>` and predicts wn … w1 `<S>`: n + 1 predictions each, every sentence
on its own. Words that the vocabulary lacks count as `<UNK>` where they are predicted, never where
they are read. All probabilities are those of the full softmax; logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmore._progress import SILENT, Progress
from elmore.embedding.elmo import Elmo
from elmore.embedding.pipe import BATCH_TOKENS
from elmore.errors import ConfigError, FormatError, InputError
from elmore.text.batching import Batch, plan_batches
from elmore.text.sentence import Sentence

__all__ = [
    "Perplexity",
    "SentenceScore",
    "next_words",
    "perplexity",
    "perplexity_stream",
    "pipe_scores",
    "previous_words",
    "score",
    "substitutes",
]

Logs = NDArray[np.float64]
Ids = NDArray[np.int64]

# Logits that exist at once in each thread: 4 MB stay in the cache through the four passes over
# them, and larger blocks make the matrix product no faster (50,000 words, dim 128).
_BLOCK_ROWS, _BLOCK_WORDS = 512, 2048
# How far to read ahead, so that sentences of nearly equal length fill a batch (as `pipe` does).
_WINDOW_SENTENCES, _WINDOW_TOKENS = 1024, 32_768


@dataclass(frozen=True, kw_only=True, repr=False)
class Perplexity:
    """How well a model predicts a text; two of them add up to that of both texts.

    Attributes:
        n_sentences: sentences measured.
        n_empty: sentences without a token, which were left out.
        n_words: words, markers not counted.
        n_unknown: words that the vocabulary lacks; they are predicted as `<UNK>`.
        n_tokens: predictions in each direction: the words and one marker a sentence.
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
        return _exp(self.forward_loss, self.n_tokens)

    @property
    def backward(self) -> float | None:
        """Perplexity of each word given those after it, or None without that direction."""
        return None if self.backward_loss is None else _exp(self.backward_loss, self.n_tokens)

    @property
    def mean(self) -> float:
        """exp of the mean of both directions' losses."""
        if self.backward_loss is None:
            return self.forward
        return _exp(self.forward_loss + self.backward_loss, 2 * self.n_tokens)

    @property
    def without_unknown(self) -> float:
        """`mean` over the targets that the vocabulary has: use it to compare vocabularies."""
        return _exp(self.known_loss, self.n_known)

    @property
    def oov_rate(self) -> float:
        """Share of the words (markers aside) that the vocabulary lacks."""
        return self.n_unknown / self.n_words if self.n_words else 0.0

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Give everything as JSON values; null stands for what no float can hold."""
        return {
            "forward": _finite(self.forward),
            "backward": _finite(self.backward),
            "mean": _finite(self.mean),
            "without_unknown": _finite(self.without_unknown),
            "oov_rate": self.oov_rate,
            "n_tokens": self.n_tokens,
            "n_words": self.n_words,
            "n_unknown": self.n_unknown,
            "n_sentences": self.n_sentences,
            "n_empty": self.n_empty,
            "softmax": "full",
        }

    def __add__(self, other: Perplexity) -> Perplexity:
        if (self.backward_loss is None) != (other.backward_loss is None):
            raise ConfigError("one of these perplexities has no backward direction; measure alike")
        backward = None
        if self.backward_loss is not None and other.backward_loss is not None:
            backward = self.backward_loss + other.backward_loss
        return Perplexity(
            n_sentences=self.n_sentences + other.n_sentences,
            n_empty=self.n_empty + other.n_empty,
            n_words=self.n_words + other.n_words,
            n_unknown=self.n_unknown + other.n_unknown,
            n_tokens=self.n_tokens + other.n_tokens,
            forward_loss=self.forward_loss + other.forward_loss,
            backward_loss=backward,
            n_known=self.n_known + other.n_known,
            known_loss=self.known_loss + other.known_loss,
        )

    def __repr__(self) -> str:
        backward = "None" if self.backward is None else f"{self.backward:.6g}"
        return (
            f"Perplexity(forward={self.forward:.6g}, backward={backward}, mean={self.mean:.6g}, "
            f"without_unknown={self.without_unknown:.6g}, oov_rate={self.oov_rate:.4g}, "
            f"n_tokens={self.n_tokens}, n_sentences={self.n_sentences})"
        )

    def __str__(self) -> str:
        backward = "none" if self.backward is None else f"{self.backward:.2f}"
        return (
            f"forward        {self.forward:.2f}\n"
            f"backward       {backward}\n"
            f"mean           {self.mean:.2f}\n"
            f"without <UNK>  {self.without_unknown:.2f}\n"
            f"tokens         {self.n_tokens} a direction ({self.n_words} words and one marker for "
            f"each of {self.n_sentences} sentences)\n"
            f"<UNK>          {self.oov_rate:.2%} of the words are not in the vocabulary\n"
            "softmax        full"
        )


@dataclass(frozen=True, slots=True, eq=False)
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

    @property
    def forward_total(self) -> float:
        """Log probability of the whole sentence, its end included."""
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
        return _exp(-self.total, len(self) + 1)


def perplexity(
    elmo: Elmo,
    sentences: Iterable[str] | Iterable[Sequence[str]],
    *,
    tokenized: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress | None = None,
) -> Perplexity:
    """Measure how well a model predicts some text: full softmax, every sentence on its own.

    Args:
        elmo: a model that has a softmax.
        sentences: text, a sentence each, read as a stream; those without a token are left out.
        tokenized: whether the sentences are lists of tokens.
        batch_tokens: token budget of a batch.
        progress: told how many sentences were measured.

    Raises:
        ConfigError: the model has no softmax.
        InputError: there is no sentence.

    Example:
        >>> result = perplexity(elmo, ["Stocks fell .", "She fell ."])
        >>> result.n_tokens, result.n_sentences
        (8, 2)
    """
    model = _LanguageModel(elmo)
    if isinstance(sentences, str) and not tokenized:
        sentences = [sentences]
    report = SILENT if progress is None else progress
    total, n_empty = model.nothing(), 0
    for window in _windows(_read(elmo, sentences, tokenized)):
        busy = [sentence for sentence in window if len(sentence)]
        n_empty += len(window) - len(busy)
        for rows in plan_batches([len(s) for s in busy], batch_tokens=batch_tokens):
            total += model.tally(
                *model.predict([busy[row] for row in rows]),
                n_sentences=len(rows),
                n_markers=len(rows),
            )
            report.update(len(rows))
    if not total.n_sentences:
        raise InputError("there is no sentence with a token to measure; give at least one")
    return replace(total, n_empty=n_empty)


@overload
def score(elmo: Elmo, sentences: str, *, tokenized: bool = ...) -> SentenceScore: ...  # type: ignore[overload-overlap]  # a str is a Sequence[str]
@overload
def score(
    elmo: Elmo, sentences: Sequence[str] | Sequence[Sequence[str]], *, tokenized: bool = ...
) -> list[SentenceScore]: ...
def score(
    elmo: Elmo,
    sentences: str | Sequence[str] | Sequence[Sequence[str]],
    *,
    tokenized: bool = False,
) -> SentenceScore | list[SentenceScore]:
    """Give the log probability of every token, in both directions.

    Args:
        elmo: a model that has a softmax.
        sentences: a sentence, or a list of sentences.
        tokenized: whether the sentences are lists of tokens.

    Returns:
        one result for a lone string, a list for a list. An empty sentence has its markers alone.

    Example:
        >>> result = score(elmo, "She fell .")
        >>> result.tokens, result.forward.shape, result.total < 0
        (('She', 'fell', '.'), (3,), True)
    """
    if isinstance(sentences, str) and not tokenized:
        return next(pipe_scores(elmo, [sentences]))
    return list(pipe_scores(elmo, sentences, tokenized=tokenized))


def pipe_scores(
    elmo: Elmo,
    sentences: Iterable[str] | Iterable[Sequence[str]] | Iterable[Sentence],
    *,
    tokenized: bool = False,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[SentenceScore]:
    """Score a stream: lazy, in order, in bounded memory; arguments as in `perplexity`."""
    model = _LanguageModel(elmo)

    def results() -> Iterator[SentenceScore]:
        for window in _windows(_read(elmo, sentences, tokenized)):
            done: dict[int, SentenceScore] = {}
            for rows in plan_batches([len(s) for s in window], batch_tokens=batch_tokens):
                done.update(zip(rows.tolist(), model.score([window[r] for r in rows]), strict=True))
            yield from (done[k] for k in range(len(window)))

    return results()


def next_words(elmo: Elmo, tokens: str | Sequence[str], k: int = 10) -> list[tuple[str, float]]:
    """List the words that are likely to follow the beginning of a sentence.

    Args:
        elmo: a model that has a softmax.
        tokens: the beginning, as tokens or as text.
        k: how many words.

    Returns:
        (word, log probability), the likeliest first; markers and `<UNK>` are left out.

    Example:
        >>> len(next_words(elmo, ["Stocks"], k=3))
        3
    """
    model, sentence = _LanguageModel(elmo), _one(elmo, tokens)
    return model.best(model.log_distribution(model.top(sentence)[len(sentence)], 0), k)


def previous_words(elmo: Elmo, tokens: str | Sequence[str], k: int = 10) -> list[tuple[str, float]]:
    """List the words that are likely to stand before the rest of a sentence, as `next_words`."""
    model, sentence = _LanguageModel(elmo), _one(elmo, tokens)
    if not model.bidirectional:
        raise ConfigError("this model has no backward direction; use next_words")
    return model.best(model.log_distribution(model.top(sentence)[1], 1), k)


def substitutes(
    elmo: Elmo, tokens: str | Sequence[str], position: int, k: int = 10
) -> list[tuple[str, float]]:
    """List the words that are likely at a place in a sentence, given all words around it.

    A word's score is the product of its probabilities in both directions, p(w | before) and
    p(w | after), scaled so that all words together have 1. As each factor holds how frequent a
    word is, frequent words count twice: a checkpoint keeps no frequencies to divide by. A model
    of one direction judges by the words before alone.

    Args:
        elmo: a model that has a softmax.
        tokens: the sentence, as tokens or as text.
        position: the place, from 0; the word that stands there is judged like any other.
        k: how many words.

    Returns:
        (word, log of its share), the likeliest first; markers and `<UNK>` are left out.

    Example:
        >>> words = substitutes(elmo, ["She", "fell", "."], 1, k=5)
        >>> len(words), words[0][1] >= words[1][1]
        (5, True)
    """
    model, sentence = _LanguageModel(elmo), _one(elmo, tokens)
    if not 0 <= position < len(sentence):
        places = f"places 0..{len(sentence) - 1}" if len(sentence) else "no place"
        raise ConfigError(f"position={position} but the sentence has {places}; use one of them")
    top = model.top(sentence)
    logs = model.log_distribution(top[position], 0)
    if model.bidirectional:
        logs = logs + model.log_distribution(top[position + 2], 1)
    logs[model.special] = -np.inf
    return model.best(logs - _log_sum(logs), k)


def perplexity_stream(
    elmo: Elmo,
    sentences: Iterable[str] | Iterable[Sequence[str]],
    *,
    batch_size: int = 256,
    tokenized: bool = False,
) -> Perplexity:
    """Measure as bilm-tf's `run_test.py` does; its figures differ from those of `perplexity`.

    Sentences stand end to end in `batch_size` rows, each row taking the next sentence when it has
    none left; the state goes on over their borders, the marker that closes a sentence is predicted
    but never read, and what does not fill all rows at the end is dropped. `mean` is what bilm-tf
    prints.

    Args:
        elmo: a model that has a softmax.
        sentences: text, a sentence each.
        batch_size: number of rows.
        tokenized: whether the sentences are lists of tokens.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size}; use 1 or more")
    model = _LanguageModel(elmo)
    begin, end = model.markers
    marked = ((begin, *s.tokens, end) for s in _read(elmo, sentences, tokenized))
    steps = _fill_rows(marked, batch_size)
    states = [model.engine.bilm.zero_state(batch_size) for _ in elmo.config.directions]
    total = model.nothing()
    while window := list(islice(steps, max(1, BATCH_TOKENS // batch_size))):
        logs: list[Logs] = []
        ids: list[Ids] = []
        for direction, state in enumerate(states):
            # Backward the place is counted from the end: its words are -1, -2, …
            reads = [[w[~p if direction else p] for w, p in step] for step in window]
            wanted = [w[~(p + 1) if direction else p + 1] for step in window for w, p in step]
            layers, states[direction] = model.engine.run(model.rows(reads, direction), state)
            hidden = model.half(layers.values[-1], direction).transpose(0, 1)  # (steps, rows, dim)
            hidden = (hidden.flip(0) if direction else hidden).flatten(0, 1)
            ids.append(model.vocabulary.encode(wanted))
            logs.append(model.log_probs(hidden, ids[-1]))
        total += model.tally(
            logs,
            ids,
            n_sentences=sum(place == 0 for step in window for _, place in step),
            n_markers=sum(place == len(words) - 2 for step in window for words, place in step),
        )
    if not total.n_tokens:
        raise InputError(
            f"there are too few sentences to fill {batch_size} rows; use a smaller batch_size"
        )
    return total


class _LanguageModel:
    """A model with its softmax: sentences in, log probabilities out."""

    def __init__(self, elmo: Elmo) -> None:
        checkpoint, engine = elmo.checkpoint, elmo._engine
        softmax, vocabulary = checkpoint.softmax, checkpoint.vocabulary
        if softmax is None or vocabulary is None:
            raise ConfigError(
                "this model has no softmax (published HDF5 weights never do); use a checkpoint "
                "that has one or `elmore fine-tune` to train one"
            )
        dim = elmo.config.lstm.projection_dim
        if softmax.weight.shape != (len(vocabulary), dim) or len(softmax.bias) != len(vocabulary):
            raise FormatError(
                f"{checkpoint.origin} has a softmax of shape {softmax.weight.shape}, expected "
                f"{(len(vocabulary), dim)}; its files do not belong together"
            )
        for marker in engine.indexer.markers:
            if marker not in vocabulary:
                raise FormatError(
                    f"the vocabulary of {checkpoint.origin} has no {marker}, which a language "
                    "model predicts; pass the vocabulary that it was trained with"
                )
        self.softmax, self.vocabulary, self.engine = softmax, vocabulary, engine
        self.markers = engine.indexer.markers
        self.bidirectional = elmo.config.lstm.bidirectional
        self.unknown = -1 if vocabulary.unknown is None else vocabulary.unknown
        special = [vocabulary.find(marker) for marker in self.markers] + [vocabulary.unknown]
        self.special = [k for k in special if k is not None]

    def half(self, top: Tensor, direction: int) -> Tensor:
        """Give one direction's part of the last axis."""
        dim = self.softmax.weight.shape[1]
        return top[..., direction * dim : (direction + 1) * dim]

    def top(self, sentence: Sentence) -> Tensor:
        """Give the top layer of one sentence, markers included, (time, dim)."""
        layers, _ = self.engine.run(self.engine.indexer.batch([sentence.tokens]))
        return layers.values[-1, 0]

    def nothing(self) -> Perplexity:
        """Give the sum of no predictions."""
        return Perplexity(backward_loss=0.0 if self.bidirectional else None)

    def tally(
        self,
        logs: list[Logs],
        ids: list[Ids],
        *,
        n_sentences: int,
        n_markers: int,
    ) -> Perplexity:
        """Sum up predictions.

        Args:
            logs: log probabilities of each direction, (n,).
            ids: targets of each direction, (n,); words are counted in the first.
            n_sentences: sentences that they come from.
            n_markers: how many targets of the first direction are markers.
        """
        known = [targets != self.unknown for targets in ids]
        return Perplexity(
            n_sentences=n_sentences,
            n_words=len(ids[0]) - n_markers,
            n_unknown=int((~known[0]).sum()),
            n_tokens=len(ids[0]),
            forward_loss=-float(logs[0].sum()),
            backward_loss=-float(logs[1].sum()) if self.bidirectional else None,
            n_known=sum(int(mask.sum()) for mask in known),
            known_loss=-sum(float(p[mask].sum()) for p, mask in zip(logs, known, strict=True)),
        )

    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Score a batch."""
        logs, ids = self.predict(sentences)
        results, stop = [], 0
        for sentence in sentences:
            start, stop = stop, stop + len(sentence) + 1
            forward = logs[0][start:stop]
            backward = logs[1][start:stop] if self.bidirectional else None
            results.append(
                SentenceScore(
                    tokens=sentence.tokens,
                    forward=forward[:-1].copy(),
                    end=float(forward[-1]),
                    backward=None if backward is None else backward[1:].copy(),
                    begin=None if backward is None else float(backward[0]),
                    unknown=ids[0][start : stop - 1] == self.unknown,
                )
            )
        return results

    def predict(self, sentences: Sequence[Sentence]) -> tuple[list[Logs], list[Ids]]:
        """Run a batch.

        Returns:
            log probabilities and targets of each direction, (n_predictions,), sentence after
            sentence in the order of the text: forward it ends with `</S>`, backward it begins
            with `<S>`.
        """
        batch = self.engine.indexer.batch([sentence.tokens for sentence in sentences])
        begin, end = self.vocabulary.encode(self.markers)
        ids = np.zeros(batch.index.shape, np.int64)
        for row, sentence in enumerate(sentences):
            ids[row, 0] = begin
            ids[row, 1 : len(sentence) + 1] = self.vocabulary.encode(sentence.tokens)
            ids[row, len(sentence) + 1] = end
        layers, _ = self.engine.run(batch)
        top = layers.values[-1]  # (batch, time, dim)
        # After reading tokens 0..t the forward half predicts t + 1, the backward half at t + 1
        # has read from the end down to it and predicts t: both have a pair (t, t + 1) each.
        pairs = np.arange(int(batch.lengths.max()) - 1) < batch.lengths[:, None] - 1
        chosen = torch.from_numpy(pairs).to(top.device)
        hidden, targets = [self.half(top, 0)[:, :-1][chosen]], [ids[:, 1:][pairs]]
        if self.bidirectional:
            hidden.append(self.half(top, 1)[:, 1:][chosen])
            targets.append(ids[:, :-1][pairs])
        logs = self.log_probs(torch.cat(hidden), np.concatenate(targets))
        return np.split(logs, len(hidden)), targets

    def rows(self, steps: Sequence[Sequence[str]], direction: int) -> Batch:
        """Index rows of words as they are, without further markers.

        Args:
            steps: the word that each row reads, step by step.
            direction: 1 turns the rows round, because that direction begins at their end.
        """
        seen: dict[str, int] = {}
        index = np.array([[seen.setdefault(w, len(seen)) for w in step] for step in steps]).T
        indexer, words = self.engine.indexer, list(seen)
        return Batch(
            words=None if indexer.alphabet is None else indexer.alphabet.encode(words),
            word_ids=None if indexer.vocabulary is None else indexer.vocabulary.encode(words),
            index=(index[:, ::-1] if direction else index).copy(),
            lengths=np.full(len(index), len(steps), np.int64),
            positions=np.arange(len(index)),
        )

    def log_probs(self, hidden: Tensor, targets: Ids) -> Logs:
        """Give the log probability of each target, (n,).

        Args:
            hidden: top-layer vectors of one direction, (n, dim).
            targets: words that they should predict, (n,).
        """
        wanted = torch.from_numpy(targets).to(hidden.device)
        workers = self.engine.workers
        count = workers.count if hidden.device.type == "cpu" else 1
        jobs: list[Callable[[], Tensor]] = [
            lambda h=h, t=t: self._log_probs(h, t)  # type: ignore[misc]  # mypy cannot infer a default
            for h, t in zip(hidden.tensor_split(count), wanted.tensor_split(count), strict=True)
        ]
        logs = torch.cat(workers.run(jobs) if count > 1 else [job() for job in jobs]).cpu().numpy()
        if not np.isfinite(logs).all():
            raise FormatError("the softmax gives values that are not finite; the model is damaged")
        return np.asarray(logs)

    def _log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Do one thread's share: blocks of logits, never all of them, and a running maximum."""
        with torch.no_grad():
            n = len(hidden)
            largest = hidden.new_full((n,), -torch.inf)
            total = torch.zeros(n, dtype=torch.float64, device=hidden.device)
            picked = hidden.new_zeros(n)
            buffer = hidden.new_empty(_BLOCK_ROWS * _BLOCK_WORDS)
            for first in range(0, len(self.vocabulary), _BLOCK_WORDS):
                weight, bias = self._block(first, hidden.device)
                for start in range(0, n, _BLOCK_ROWS):
                    rows = slice(start, min(n, start + _BLOCK_ROWS))
                    shape = (rows.stop - start, len(bias))
                    logits = buffer[: shape[0] * shape[1]].view(shape)
                    torch.addmm(bias, hidden[rows], weight.t(), out=logits)
                    column = targets[rows] - first
                    here = ((column >= 0) & (column < len(bias))).nonzero()[:, 0]
                    picked[start + here] = logits[here, column[here]]
                    top = torch.maximum(largest[rows], logits.amax(dim=1))
                    total[rows] *= torch.exp((largest[rows] - top).double())
                    total[rows] += logits.sub_(top[:, None]).exp_().sum(dim=1)
                    largest[rows] = top
            return (picked.double() - largest.double()) - total.log()

    def log_distribution(self, hidden: Tensor, direction: int) -> Logs:
        """Give the log probability of every word, (n_words,), from one vector of all layers."""
        with torch.no_grad():
            vector = self.half(hidden, direction)
            logits = []
            for first in range(0, len(self.vocabulary), _BLOCK_WORDS):
                weight, bias = self._block(first, vector.device)
                logits.append(torch.addmv(bias, weight, vector).double())
            logs = torch.cat(logits).cpu().numpy()
        return np.asarray(logs - _log_sum(logs))

    def best(self, logs: Logs, k: int) -> list[tuple[str, float]]:
        """List the k words of highest value, markers and `<UNK>` left out; ties by id."""
        if k < 1:
            raise ConfigError(f"k={k} asks for no word; use 1 or more")
        logs = logs.copy()
        logs[self.special] = -np.inf
        k = min(k, len(logs) - len(self.special))
        if k == 0:
            return []
        likely = np.flatnonzero(logs >= np.partition(logs, -k)[-k])
        order = likely[np.argsort(-logs[likely], kind="stable")[:k]]
        return [(self.vocabulary.words[i], float(logs[i])) for i in order]

    def _block(self, first: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Give some rows of the softmax; an array of a mapped file is read-only, so copied."""
        rows = slice(first, first + _BLOCK_WORDS)
        weight, bias = (
            torch.from_numpy(a if a.flags.writeable else a.copy()).to(device)
            for a in (self.softmax.weight[rows], self.softmax.bias[rows])
        )
        return weight, bias


def _exp(loss: float, n: int) -> float:
    try:
        return math.exp(loss / n) if n else math.nan
    except OverflowError:
        return math.inf


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _log_sum(logs: Logs) -> float:
    largest = logs.max()
    return float(largest + np.log(np.exp(logs - largest).sum()))


def _read(elmo: Elmo, items: Iterable[Any], tokenized: bool) -> Iterator[Sentence]:
    if tokenized and isinstance(items, str):
        raise ConfigError("got a string where lists of tokens belong; pass [tokens]")
    for k, item in enumerate(items):
        if isinstance(item, Sentence):
            yield item
        elif isinstance(item, str) and not tokenized:
            yield elmo.tokenize(item)
        elif isinstance(item, str):
            raise ConfigError(
                f"sentence {k} is a string, not a list of tokens; "
                "pass [tokens], or leave out tokenized for text"
            )
        elif not tokenized:
            raise ConfigError(
                f"item {k} is a {type(item).__name__}, not a string; pass tokenized=True for "
                "lists of tokens"
            )
        else:
            yield _checked(item, f"sentence {k}")


def _one(elmo: Elmo, tokens: str | Sequence[str]) -> Sentence:
    return elmo.tokenize(tokens) if isinstance(tokens, str) else _checked(tokens, "the sentence")


def _checked(tokens: Sequence[Any], what: str) -> Sentence:
    for token in tokens:
        if not isinstance(token, str):
            raise ConfigError(
                f"{what} has a token of type {type(token).__name__}; tokens are strings"
            )
    return Sentence(tuple(tokens))


def _windows(sentences: Iterator[Sentence]) -> Iterator[list[Sentence]]:
    window: list[Sentence] = []
    tokens = 0
    for sentence in sentences:
        window.append(sentence)
        tokens += len(sentence)
        if len(window) == _WINDOW_SENTENCES or tokens >= _WINDOW_TOKENS:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def _fill_rows(
    sentences: Iterator[tuple[str, ...]], batch_size: int
) -> Iterator[list[tuple[tuple[str, ...], int]]]:
    """Give each row's sentence and its place in it, step by step, until a row finds no more.

    All rows draw from the same sentences; the last word of one is never a place of its own.
    """
    rows: list[tuple[tuple[str, ...], int]] = [((), 0)] * batch_size
    while True:
        for k, (words, place) in enumerate(rows):
            if place >= len(words) - 1:
                following = next(sentences, None)
                if following is None:
                    return
                rows[k] = following, 0
        yield list(rows)
        rows = [(words, place + 1) for words, place in rows]
