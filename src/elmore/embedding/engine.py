"""From batches of tokens to all layers of a loaded model; the only place that computes."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmore.config import BiLmConfig, Precision, count_parameters
from elmore.embedding.cache import WordCache, read_token_vectors, word_keys
from elmore.errors import ConfigError, FormatError
from elmore.formats.checkpoint import Checkpoint, StartState
from elmore.kernels._load import native
from elmore.kernels.workers import Workers
from elmore.nn.bilm import BiLm, BiLmState, Layers, in_turn
from elmore.nn.frozen import FrozenBiLm
from elmore.nn.inputs import TensorBatch
from elmore.text.batching import Batch, TokenIndexer
from elmore.text.vocabulary import Vocabulary

__all__ = ["Engine", "Start", "build_bilm"]

Start = Literal["zeros", "warm"]
# Seconds of work below which a thread does everything itself, and how many multiplications of few
# rows a thread does in a second (benchmarks/embed.py). Handing over costs some 0.1 ms, and nothing
# waits for a thread that does not come (`Workers.share`).
_HAND_OVER = 0.001
_RATES = {"float32": 15e9, "float16": 25e9, "int8": 60e9}
# Weights from which on it pays to pack them in several threads.
_LARGE = 5_000_000
# Words of one piece of work: enough rows for the products, and what is between them stays small.
_WORDS_AT_ONCE = 576
# Each may hold a batch; whoever has more processors than this runs several processes.
_MOST_WORKERS = 16
_BURN_IN = Path(__file__).parent.parent / "data" / "burn_in.txt"
# Words of a token-vector file that are computed anew, to see that it belongs to the model.
_SAMPLED_WORDS = 8


def build_bilm(checkpoint: Checkpoint, device: torch.device | str = "cpu") -> BiLm:
    """Make a module that holds the weights of a checkpoint."""
    bilm = BiLm(checkpoint.config)
    parameters = dict(bilm.named_parameters())
    with torch.no_grad():
        for name, array in checkpoint.checked_weights():
            # Copied by numpy: a mapped file is read-only, which torch warns about.
            parameters[name].numpy()[...] = array
    bilm.requires_grad_(False).eval()
    return bilm.to(device)


class Engine:
    """A biLM with what surrounds it: ids, cache, threads, start state.

    Args:
        checkpoint: the model.
        device: where to compute.
        threads: processors to use on the CPU; all by default.
        start: the state before each sentence.
        precision: how to compute; as the model is stored by default.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "cpu",
        threads: int | None = None,
        start: Start = "zeros",
        precision: Precision | None = None,
    ) -> None:
        if start not in get_args(Start):
            raise ConfigError(f'start={start!r}; use "zeros" or "warm"')
        self.device = find_device(device)
        config = checkpoint.config
        if start == "warm" and config.lstm.mixed:
            raise ConfigError("this model's LSTM carries no state; use start='zeros'")
        self.config = config
        self.indexer = TokenIndexer(
            checkpoint.alphabet if config.tokens.n_characters else None,
            checkpoint.vocabulary if config.tokens.n_words else None,
        )
        self.checkpoint = checkpoint
        self.precision = _precision(precision, checkpoint, self.device)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._bilm: BiLm | None = None
        self._frozen: FrozenBiLm | None = None
        self.workers = Workers(threads, _MOST_WORKERS)
        in_torch = self.precision == "float32" and (config.lstm.mixed or not native().vectors)
        if self.device.type != "cpu" or in_torch:
            # Without vector kernels torch's own products are the faster way in float32.
            self._bilm = build_bilm(checkpoint, self.device)
        else:
            large = count_parameters(config) > _LARGE and self.workers.count > 1
            self._frozen = FrozenBiLm(
                config,
                lambda name: checkpoint.numbers(name, self.precision),
                self.workers.share if large else in_turn,
            )
        self.cache = WordCache(config.lstm.projection_dim)
        self.start: Start = start
        self.start_state = checkpoint.start_state
        if start == "warm" and self.start_state is None:
            self.start_state = self._burn_in()
        self._start = self._start_tensors() if start == "warm" else None

    @property
    def bilm(self) -> BiLm:
        """The model as a torch module in float32, made when somebody asks for it."""
        with self._lock:
            if self._bilm is None:
                self._bilm = build_bilm(self.checkpoint, self.device)
            return self._bilm

    @property
    def packed(self) -> bool:
        """Whether our own products over packed weights are used."""
        return self._frozen is not None

    def zero_state(self, rows: int) -> BiLmState:
        """Make the state before any text, for `rows` sentences."""
        lstm = self.config.lstm
        shape = (len(self.config.directions), lstm.n_layers, rows)
        # Named, for a program may have chosen another type for its own tensors.
        zeros = partial(torch.zeros, dtype=torch.float32, device=self.device)
        return BiLmState(zeros(*shape, lstm.projection_dim), zeros(*shape, lstm.dim))

    def use_token_vectors(self, vocabulary: Vocabulary, vectors: Path) -> None:
        """Take the token layer of a vocabulary's words from a file.

        Args:
            vocabulary: the words.
            vectors: HDF5 with a row for each, as `elmore cache` writes it.
        """
        dim = self.config.lstm.projection_dim
        table = read_token_vectors(vectors, dim, vocabulary)
        batch = self._words(vocabulary.words)
        rows = np.linspace(0, len(vocabulary) - 1, _SAMPLED_WORDS).astype(np.int64)
        difference = float(np.abs(self._compute_words(batch, rows) - table[rows]).max())
        if difference > 1e-3:
            raise FormatError(
                f"'{vectors}' does not belong to this model (vectors differ by {difference:.2g}); "
                "write it anew with `elmore cache`"
            )
        pinned = dict(zip(word_keys(batch), table, strict=True))
        self.cache = WordCache(dim, pinned=pinned)

    def token_vectors(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Compute the token layer of words, (n_words, dim of one direction)."""
        batch = self._words(words)
        return self._compute_words(batch, np.arange(len(words)))

    def word_vectors(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Give the token layer of words, each distinct one computed once or remembered.

        Returns:
            (n_words, dim of one direction).
        """
        places: dict[str, int] = {}
        index = [places.setdefault(word, len(places)) for word in words]
        with torch.no_grad():
            return self.vectors(self._words(list(places)))[index]

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.device.type == "cpu"

    def vectors(self, batch: Batch) -> NDArray[np.float32]:
        """Give the token layer of a batch's words for `run` on the CPU, from the cache or computed.

        Returns:
            (n_words, dim of one direction).
        """
        if batch.words is None:  # a row of a table is not worth caching
            everything = np.arange(len(batch.word_ids if batch.word_ids is not None else ()))
            return self._compute_words(batch, everything)
        return self.cache.fetch(batch, lambda missing: self._compute_words(batch, missing))

    def run(
        self,
        batch: Batch,
        state: BiLmState | None = None,
        vectors: NDArray[np.float32] | None = None,
    ) -> tuple[Layers, BiLmState]:
        """Compute all layers of a batch.

        Args:
            batch: the sentences.
            state: where each begins; the start state if not given.
            vectors: of `vectors`, where they are known.
        """
        self._mind_forks()
        with torch.no_grad():
            if state is None:
                state = self.initial_state(len(batch.lengths))
            if not self.on_cpu:
                tensors = TensorBatch.from_batch(batch, self.device)
                bottom = self.bilm.tokens(tensors.words, tensors.word_ids)
                return self.bilm.contextualize(bottom, tensors.index, tensors.lengths, state)
            bottom = torch.from_numpy(self.vectors(batch) if vectors is None else vectors)
            index, lengths = torch.from_numpy(batch.index), torch.from_numpy(batch.lengths)
            if self._frozen is None:
                return self.bilm.contextualize(bottom, index, lengths, state, self.workers.run)
            run = in_turn
            if self._worthwhile(int(batch.lengths.sum()) * _lstm_products(self.config)):
                run = self.workers.share
            return self._frozen.contextualize(bottom, index, lengths, state, run)

    def read_on(
        self, direction: int, inputs: Tensor, hidden: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a stretch of one sequence in one direction, as `nn.bilm.read_stretch`."""
        model = self.bilm if self._frozen is None else self._frozen
        with torch.no_grad():
            return model.read_on(direction, inputs.to(self.device), hidden, memory)

    def initial_state(self, rows: int) -> BiLmState:
        """Make the state in which `rows` sentences start."""
        if self._start is None:
            return self.zero_state(rows)
        hidden, memory = self._start
        return BiLmState(
            hidden[:, :, None].expand(-1, -1, rows, -1).clone(),
            memory[:, :, None].expand(-1, -1, rows, -1).clone(),
        )

    def _mind_forks(self) -> None:
        """Hold torch to one thread in a forked process.

        The threads of OpenMP do not survive a fork, and the first loop that waits for them would
        wait for ever.
        """
        if self._process != os.getpid():
            self._process = os.getpid()
            torch.set_num_threads(1)

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
        self._mind_forks()
        if not len(positions):
            return np.zeros((0, self.config.lstm.projection_dim), np.float32)
        count = self.workers.count
        if self._frozen is not None and not self._worthwhile(
            len(positions) * _token_products(self.config)
        ):
            count = 1
        rounds = -(-len(positions) // (_WORDS_AT_ONCE * count))
        pieces = np.array_split(positions, rounds * count)

        def job(piece: NDArray[np.int64]) -> Tensor:
            with torch.no_grad():
                if self._frozen is not None:
                    return self._frozen.tokens(
                        None if batch.words is None else batch.words[piece],
                        None if batch.word_ids is None else batch.word_ids[piece],
                    )
                part = [
                    None if a is None else torch.from_numpy(a[piece]).long().to(self.device)
                    for a in (batch.words, batch.word_ids)
                ]
                vectors: Tensor = self.bilm.tokens(part[0], part[1])
                return vectors.cpu()

        jobs = [lambda piece=piece: job(piece) for piece in pieces if len(piece)]
        if len(jobs) == 1:
            done = [job(positions)]
        else:
            few = self._frozen is not None and rounds == 1
            done = (self.workers.share if few else self.workers.run)(jobs)
        return torch.cat(done).numpy()

    def _worthwhile(self, products: int) -> bool:
        """Tell whether so many multiplications are worth waking other threads."""
        return self.workers.count > 1 and products > _HAND_OVER * _RATES[self.precision]

    def _burn_in(self) -> StartState:
        """Read the burn-in text with carried state, and keep where the LSTMs stand after it."""
        state = self.zero_state(1)
        for line in _BURN_IN.read_text(encoding="utf-8").split("\n"):
            if line:
                _, state = self.run(self.indexer.batch([line.split(" ")]), state)
        return StartState(
            state.hidden[:, :, 0].cpu().numpy().copy(), state.memory[:, :, 0].cpu().numpy().copy()
        )

    def _start_tensors(self) -> tuple[Tensor, Tensor] | None:
        if self.start_state is None:
            return None
        return (
            torch.from_numpy(self.start_state.hidden.copy()).to(self.device),
            torch.from_numpy(self.start_state.memory.copy()).to(self.device),
        )


def _precision(wanted: Precision | None, checkpoint: Checkpoint, device: torch.device) -> Precision:
    mixed = checkpoint.config.lstm.mixed
    if wanted is None:
        return checkpoint.precision if device.type == "cpu" and not mixed else "float32"
    if wanted not in get_args(Precision):
        raise ConfigError(f"precision={wanted!r}; use one of {', '.join(get_args(Precision))}")
    if wanted != "float32" and device.type != "cpu":
        raise ConfigError(f"precision={wanted!r} needs device='cpu'; use float32 on {device}")
    if wanted != "float32" and mixed:
        raise ConfigError(
            f"precision={wanted!r} is not for an LSTM that mixes its directions; use 'float32'"
        )
    return wanted


def _lstm_products(config: BiLmConfig) -> int:
    """Count the multiplications of a token in all LSTM layers."""
    lstm = config.lstm
    one = 8 * lstm.dim * lstm.projection_dim + lstm.dim * lstm.projection_dim * lstm.projected
    return one * lstm.n_layers * len(config.directions)


def _token_products(config: BiLmConfig) -> int:
    """Count the multiplications of a word in the token layer."""
    tokens = config.tokens
    products = tokens.n_features * config.lstm.projection_dim * tokens.projected
    return products + 2 * tokens.n_filters**2 * tokens.n_highway


def find_device(name: str) -> torch.device:
    """Give the device of a name, or say why it cannot be used."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r} is unknown; use cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r} but torch finds no CUDA here; use device='cpu'")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, NotImplementedError, AssertionError):
        raise ConfigError(f"device={name!r} cannot be used here; use device='cpu'") from None
    return device
