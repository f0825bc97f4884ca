"""From batches of tokens to all layers: a loaded model, its threads and its cache."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.compute.native import native
from elmore.compute.network import BiLmArrays, LstmState, in_turn
from elmore.compute.workers import Workers, one_blas_thread
from elmore.config import BiLmConfig, ComputePrecision, Precision, count_parameters
from elmore.embedding.torch_network import BiLmTensors, build_bilm
from elmore.embedding.word_cache import WordCache
from elmore.errors import ConfigError, InputError
from elmore.formats.checkpoint import Checkpoint, StartState
from elmore.options import BATCH_TOKENS, Compute
from elmore.text.batching import Batch, TokenIndexer

if TYPE_CHECKING:
    from elmore.nn.bilm import BiLm

# Seconds of work below which a thread does everything itself, and how many multiplications of few
# rows a thread does per second (benchmarks/embed.py). Handing work over costs about 0.1 ms, and
# nothing waits for a thread that does not come (`Workers.share`).
_HAND_OVER = 0.001
_RATES = {"float32": 15e9, "float16": 25e9, "int8": 60e9}
# With more weights than this it pays to pack them in several threads.
_LARGE = 5_000_000
# Words that a job computes: enough rows for the products, and intermediate results stay small.
_WORDS_AT_ONCE = 576
# Each may hold a batch; with more processors than this, use several processes.
_MAX_WORKERS = 16
# All layers of a sentence are in memory: 1.2 GB for so many in the largest published model.
MAX_TOKENS = 100_000


class Engine:
    """A biLM with what it needs to run: ids, cache, threads, start state.

    Args:
        checkpoint: the model.
        compute: how it computes; on the CPU with all processors by default.
    """

    def __init__(self, checkpoint: Checkpoint, compute: Compute | None = None) -> None:
        self.compute = compute = compute or Compute()
        self.device = find_device(compute.device)
        config = checkpoint.config
        self.config = config
        self.indexer = TokenIndexer(
            checkpoint.alphabet if config.tokens.n_characters else None,
            checkpoint.vocabulary if config.tokens.n_words else None,
        )
        self.checkpoint = checkpoint
        self.precision = _choose_precision(compute.precision, checkpoint, self.device)
        self.batch_tokens = compute.batch_tokens or BATCH_TOKENS
        self._lock = threading.Lock()
        self._bilm: BiLm | None = None
        self.workers = Workers(compute.threads, _MAX_WORKERS)
        self._network: BiLmArrays | BiLmTensors
        if self.on_cpu:
            large = count_parameters(config) > _LARGE and self.workers.count > 1
            with one_blas_thread():  # for products so small its threads cost more than they bring
                stored = cast(Precision, self.precision)  # bfloat16 was refused
                self._network = BiLmArrays(
                    config,
                    lambda name: checkpoint.numbers(name, stored),
                    self.workers.share if large else in_turn,
                )
        else:
            self._network = network = BiLmTensors(checkpoint, self.device, self.precision)
            if self.precision == "float32":
                self._bilm = network.bilm
        self.cache = WordCache(config.lstm.projection_dim)
        self.start_state: StartState | None = None  # the state before each sentence; None for zeros
        self.whitening = checkpoint.whitening  # of `Sif`; made when it is first used

    @property
    def bilm(self) -> BiLm:
        """The model as a torch module in float32, made when it is first used."""
        with self._lock:
            if self._bilm is None:
                self._bilm = build_bilm(self.checkpoint, self.device)
            return self._bilm

    def zero_state(self, rows: int) -> LstmState:
        """The state before any text, for `rows` sentences."""
        lstm = self.config.lstm
        shape = (len(self.config.directions), lstm.n_layers, rows)
        return LstmState(
            np.zeros((*shape, lstm.projection_dim), np.float32),
            np.zeros((*shape, lstm.dim), np.float32),
        )

    def token_vectors(self, words: Sequence[str]) -> NDArray[np.float32]:
        """The token layer of words, computed without the cache, (n_words, dim of one direction)."""
        batch = self._words(words)
        return self._compute_words(batch, np.arange(len(words)))

    def word_vectors(self, words: Sequence[str]) -> NDArray[np.float32]:
        """The token layer of words, (n_words, dim of one direction); repeats cost nothing."""
        places: dict[str, int] = {}  # of the distinct words
        index = [places.setdefault(word, len(places)) for word in words]
        return self.vectors(self._words(list(places)))[index]

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.device == "cpu"

    def vectors(self, batch: Batch) -> NDArray[np.float32]:
        """The token layer of a batch's words, from the cache or computed, (n_words, dim)."""
        if batch.words is None:  # a row of a table is not worth caching
            everything = np.arange(len(batch.word_ids if batch.word_ids is not None else ()))
            return self._compute_words(batch, everything)
        return self.cache.fetch(batch, lambda missing: self._compute_words(batch, missing))

    def run(
        self,
        batch: Batch,
        state: LstmState | None = None,
        vectors: NDArray[np.float32] | None = None,
        at: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[np.float32], LstmState]:
        """Compute all layers of a batch.

        Args:
            batch: the sentences.
            state: where each begins; the start state if not given.
            vectors: what `vectors` gives, if it is known already.
            at: see `BiLmArrays.contextualize`.

        Returns:
            as `BiLmArrays.contextualize`.

        Raises:
            InputError: a sentence has more than 100,000 tokens.
        """
        longest = int(batch.lengths.max(initial=2)) - 2  # without the markers
        if longest > MAX_TOKENS:
            raise InputError(
                f"a sentence has {longest:,} tokens; split the text into sentences of at most "
                f"{MAX_TOKENS:,}"
            )
        if state is None:
            state = self.initial_state(len(batch.lengths))
        if vectors is None:
            vectors = self.vectors(batch)
        run = in_turn
        if self._worthwhile(int(batch.lengths.sum()) * _lstm_products(self.config)):
            run = self.workers.share
        with one_blas_thread():
            return self._network.contextualize(vectors, batch.index, batch.lengths, state, run, at)

    def initial_state(self, rows: int) -> LstmState:
        """The state in which `rows` sentences start."""
        if self.start_state is None:
            return self.zero_state(rows)
        hidden, cell = self.start_state
        return LstmState(
            np.repeat(hidden[:, :, None], rows, axis=2), np.repeat(cell[:, :, None], rows, axis=2)
        )

    def _words(self, words: Sequence[str]) -> Batch:
        """Index words one by one, in their order and without markers."""
        alphabet, vocabulary = self.indexer.alphabet, self.indexer.vocabulary
        nothing = np.zeros(0, np.int64)
        return Batch(
            words=None if alphabet is None else alphabet.encode(words),
            word_ids=None if vocabulary is None else vocabulary.encode(words),
            index=nothing.reshape(0, 0),
            lengths=nothing,
            positions=nothing,
        )

    def _compute_words(self, batch: Batch, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Run the token layer over some of a batch's words, shared between the workers."""
        if not len(positions):
            return np.zeros((0, self.config.lstm.projection_dim), np.float32)
        count = self.workers.count
        if not self._worthwhile(len(positions) * _token_products(self.config)):
            count = 1
        rounds = -(-len(positions) // (_WORDS_AT_ONCE * count))

        def job(some: NDArray[np.int64]) -> NDArray[np.float32]:
            return self._network.tokens(
                None if batch.words is None else batch.words[some],
                None if batch.word_ids is None else batch.word_ids[some],
            )

        parts = [part for part in np.array_split(positions, rounds * count) if len(part)]
        with one_blas_thread():
            if len(parts) == 1:
                return job(positions)
            run = self.workers.share if rounds == 1 else self.workers.run
            return np.concatenate(run([partial(job, part) for part in parts]))

    def _worthwhile(self, products: int) -> bool:
        """Whether so many multiplications are worth waking other threads."""
        busy = self.on_cpu and self.workers.count > 1
        return busy and products > _HAND_OVER * _RATES[self.precision]


def find_device(name: str) -> str:
    """Check that a device can be used, or say why not; "cpu" needs no torch.

    Returns:
        its full name.
    """
    if name == "cpu":
        return name
    torch = require("torch", "torch", f"device={name!r}")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, NotImplementedError, AssertionError, TypeError):
        raise ConfigError(
            f"device={name!r} cannot be used here; use device='cpu', or cuda, cuda:0 or mps where "
            "torch finds one"
        ) from None
    return str(device)


def _choose_precision(
    wanted: ComputePrecision | None, checkpoint: Checkpoint, device: str
) -> ComputePrecision:
    """The precision to compute in: the one that is asked for, or that of the model's files.

    Where numpy computes, models stored in int8 are computed in float32, which is faster there.
    """
    joint = checkpoint.config.lstm.mixed  # both directions are computed together
    if wanted is None:
        slow = checkpoint.precision == "int8" and not native().vectors
        return "float32" if slow or joint or device != "cpu" else checkpoint.precision
    if wanted == "int8" and device != "cpu":
        raise ConfigError(f"precision='int8' needs device='cpu'; use float16 on {device}")
    if wanted == "bfloat16" and device == "cpu":
        raise ConfigError("precision='bfloat16' needs a GPU; use float16 on the CPU")
    if wanted != "float32" and joint:
        raise ConfigError(
            f"precision={wanted!r} is not for an LSTM that mixes its directions; use 'float32'"
        )
    return wanted


def _lstm_products(config: BiLmConfig) -> int:
    """Multiplications per token in all LSTM layers."""
    lstm = config.lstm
    one = 8 * lstm.dim * lstm.projection_dim + lstm.dim * lstm.projection_dim * lstm.projected
    return one * lstm.n_layers * len(config.directions)


def _token_products(config: BiLmConfig) -> int:
    """Multiplications per word in the token layer."""
    tokens = config.tokens
    products = tokens.n_features * config.lstm.projection_dim * tokens.projected
    return products + 2 * tokens.n_filters**2 * tokens.n_highway
