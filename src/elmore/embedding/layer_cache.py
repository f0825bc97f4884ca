"""Frozen layers on disk, computed once and shared by analyses and tasks.

A folder of blocks: safetensors files of a few thousand sentences each, with the digest of every
sentence beside its layers in float16. A block belongs to one model, known by a digest of all that
its vectors depend on, and appears under its name only when it is complete; a process that is killed
loses the block it was computing. Sentences are found by their tokens, so that a part of a text, or
another text with the same sentences, needs nothing new. When the folder is full, the least recently
used blocks are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_path, write_error
from elmore.base.messages import SILENT, Progress
from elmore.embedding.results import LayerChoice, layer_weights
from elmore.embedding.stream import BATCH_TOKENS
from elmore.errors import ConfigError, ElmoreError, FormatError
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors
from elmore.text.sentence import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo

__all__ = [
    "MAX_BYTES",
    "CachedLayers",
    "LayerCache",
    "cache_folder",
    "make_room",
    "model_digest",
]

# SemCor through the published large model takes 5 GB.
MAX_BYTES = 16 << 30
# What a killed process may lose, and what is held in memory: 40,000 tokens of a 256-wide model.
_BLOCK_BYTES = 64 << 20
_VERSION = "1"
_PREFIX = "layers-"
# Tokens that are turned into float32 at a time when a complete text is read.
_READ_TOKENS = 8192
_logger = logging.getLogger(__name__)

Half = NDArray[np.float16]


class LayerCache:
    """All layers of sentences, from disk where they were computed before.

    Args:
        elmo: the model.
        folder: where the blocks are; created if missing. Several models may share it.
        max_bytes: what the folder may hold.
        batch_tokens: token budget of a batch.

    Examples:
        >>> cache = LayerCache(elmo, "cache")
        >>> layers = cache.layers([["Stocks", "fell", "."], ["Yes"]])
        >>> layers[0].shape
        (3, 3, 32)
    """

    def __init__(
        self,
        elmo: Elmo,
        folder: str | Path,
        *,
        max_bytes: int = MAX_BYTES,
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        if max_bytes < 1:
            raise ConfigError(f"max_bytes={max_bytes} leaves no room; use 1 or more")
        self.elmo = elmo
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self.batch_tokens = batch_tokens
        self._model: str | None = None

    @property
    def model(self) -> str:
        """The digest of the model."""
        if self._model is None:
            self._model = model_digest(self.elmo)
        return self._model

    def layers(
        self, sentences: Iterable[Sequence[str]], *, progress: Progress = SILENT
    ) -> CachedLayers:
        """The layers of a text; those that are not there are computed.

        Args:
            sentences: token lists, read twice: a list, or an object that can be iterated again
                and yields the same.
            progress: counts sentences.

        Raises:
            ConfigError: the text needs more room than `max_bytes`.
        """
        # The digests are compared first, and only then are tokens read again, for what is missing.
        if iter(sentences) is sentences:
            raise ConfigError("the sentences can be read only once; pass a list")
        digests: list[bytes] = []
        lengths: list[int] = []
        for tokens in sentences:
            digests.append(_text_digest(tokens))
            lengths.append(len(tokens))
        wanted = dict(zip(digests, lengths, strict=True))
        self._check_room(sum(wanted.values()))
        blocks = [block for block in self._blocks() if not wanted.keys().isdisjoint(block.places)]
        found = _places(blocks)
        for block in blocks:
            with contextlib.suppress(OSError):
                os.utime(block.path)  # it was used: others are deleted first
        missing = {digest for digest, n in wanted.items() if n and digest not in found}
        progress.update(sum(digest not in missing for digest in digests))
        if missing:
            _logger.info("computing %d of %d sentences", len(missing), len(digests))
            chosen = _first_of(sentences, digests, missing)
            blocks += self._compute(chosen, {block.path for block in blocks}, progress)
            progress.update(sum(digest in missing for digest in digests) - len(missing))
        return CachedLayers(blocks, digests, lengths, (self.elmo.n_layers, self.elmo.dim))

    def _check_room(self, n_tokens: int) -> None:
        needed = n_tokens * self.elmo.n_layers * self.elmo.dim * 2  # float16
        if needed > self.max_bytes:
            raise ConfigError(
                f"{n_tokens} tokens need {needed / 1e9:.1f} GB but the cache may hold "
                f"{self.max_bytes / 1e9:.1f}; raise max_bytes (--cache-gb) or use less text"
            )

    def _blocks(self) -> Iterator[_Block]:
        for path in sorted(self.folder.glob(f"{_PREFIX}{self.model[:16]}-*.safetensors")):
            try:
                yield _open_block(path, self.model, (self.elmo.n_layers, self.elmo.dim))
            except FormatError as error:
                # Deleted or damaged by someone else: computing again is always right.
                _logger.warning("%s is left out: %s", path.name, error)
                with contextlib.suppress(OSError):
                    path.unlink()

    def _compute(
        self, sentences: Iterator[Sentence], used: set[Path], progress: Progress
    ) -> list[_Block]:
        """Compute sentences and write them block by block."""
        blocks: list[_Block] = []
        waiting: dict[bytes, Half] = {}
        size = 0

        def write() -> None:
            blocks.append(self._write(waiting, used))
            progress.update(len(waiting))

        found = self.elmo.pipe(
            sentences, batch_tokens=self.batch_tokens, progress=False, layers="all"
        )
        for layers in found:
            values = _half(layers.values)
            waiting[_text_digest(layers.tokens)] = values
            size += values.nbytes
            if size >= _BLOCK_BYTES:
                write()
                waiting, size = {}, 0
        if waiting:
            write()
        return blocks

    def _write(self, values: dict[bytes, Half], used: set[Path]) -> _Block:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, self.folder) from error
        path = self.folder / f"{_PREFIX}{self.model[:16]}-{secrets.token_hex(6)}.safetensors"
        tensors: dict[str, NDArray[Any]] = {
            "digests": np.frombuffer(b"".join(values), np.int64).reshape(-1, 2),
            "lengths": np.array([len(array) for array in values.values()], np.int64),
            "values": np.concatenate(list(values.values())),
        }
        needed = sum(tensor.nbytes for tensor in tensors.values())
        make_room(self.folder, self.max_bytes - needed, keep=used)
        with atomic_path(path) as temporary:
            write_safetensors(temporary, tensors, {"elmore_layers": _VERSION, "model": self.model})
        used.add(path)
        return _open_block(path, self.model, (self.elmo.n_layers, self.elmo.dim))


class CachedLayers(Sequence[NDArray[np.float32]]):
    """The layers of a text: a sequence of (layers, time, dim), read from disk when asked for.

    Made by `LayerCache.layers`. Blocks that are deleted from the folder stay readable here.

    Attributes:
        lengths: tokens of each sentence, (n_sentences,).
    """

    def __init__(
        self,
        blocks: Sequence[_Block],
        digests: Sequence[bytes],
        lengths: Sequence[int],
        shape: tuple[int, int],
    ) -> None:
        self._values = [block.values for block in blocks]
        places = _places(blocks)
        where = [places[d] if n else (0, 0) for d, n in zip(digests, lengths, strict=True)]
        self._where = np.array(where, np.int64).reshape(-1, 2)  # block, row in it
        self.lengths = np.array(lengths, np.int64)
        self.n_layers, self.dim = shape

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_tokens(self) -> int:
        """Tokens of the text."""
        return int(self.lengths.sum())

    @overload
    def __getitem__(self, k: int) -> NDArray[np.float32]: ...
    @overload
    def __getitem__(self, k: slice) -> list[NDArray[np.float32]]: ...
    def __getitem__(self, k: int | slice) -> NDArray[np.float32] | list[NDArray[np.float32]]:
        if isinstance(k, slice):
            return [self[place] for place in range(*k.indices(len(self)))]
        length = int(self.lengths[k])
        if not length:
            return np.zeros((self.n_layers, 0, self.dim), np.float32)
        block, row = self._where[k]
        values = self._values[block][row : row + length]
        return np.ascontiguousarray(values.transpose(1, 0, 2), np.float32)

    def tokens(
        self, sentences: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """All layers of single tokens, (n, layers, dim), by sentence (n,) and place in it (n,)."""
        result = np.empty((len(sentences), self.n_layers, self.dim), np.float32)
        for mine, values, rows in self._by_block(sentences, positions):
            result[mine] = values[rows]
        return result

    def vectors(self, layers: LayerChoice = "mean") -> Iterator[NDArray[np.float32]]:
        """One vector per token of the text, a few thousand at a time, (n, dim)."""
        weights = layer_weights(layers, self.n_layers)
        used = np.flatnonzero(weights)
        for start, stop in self._runs():
            lengths = self.lengths[start:stop]
            sentences = np.repeat(np.arange(start, stop), lengths)
            ends = np.cumsum(lengths)
            positions = np.arange(len(sentences)) - np.repeat(ends - lengths, lengths)
            result = np.zeros((len(sentences), self.dim), np.float32)
            for mine, values, rows in self._by_block(sentences, positions):
                for layer in used:  # the others need not be read from disk
                    result[mine] += weights[layer] * values[rows, layer].astype(np.float32)
            yield result

    def _by_block(
        self, sentences: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.bool_], Half, NDArray[np.int64]]]:
        """For each block: which of the tokens it holds, its values, and their rows in it."""
        block, row = self._where[sentences].T
        row = row + positions
        for number in np.unique(block):
            mine = block == number
            yield mine, self._values[number], row[mine]

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Divide the sentences into runs of bounded length."""
        start = size = 0
        for k, length in enumerate(self.lengths):
            if size and size + length > _READ_TOKENS:
                yield start, k
                start, size = k, 0
            size += int(length)
        if size:
            yield start, len(self.lengths)


@contextlib.contextmanager
def cache_folder(cache: str | Path | None) -> Iterator[Path]:
    """The folder of a cache, or a temporary one that lasts as long as the block."""
    if cache is not None:
        yield Path(cache)
        return
    with tempfile.TemporaryDirectory(prefix="elmore-layers-") as folder:
        yield Path(folder)


def model_digest(elmo: Elmo) -> str:
    """A digest of all that the vectors of a sentence depend on."""
    engine = elmo.engine
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        digest.update(json.dumps(values, sort_keys=True, default=str).encode())

    alphabet, vocabulary = engine.indexer.alphabet, engine.indexer.vocabulary
    add(_VERSION, asdict(elmo.config), elmo.precision)
    if alphabet is not None:
        add(alphabet.kind, alphabet.max_chars, alphabet.markers, getattr(alphabet, "__dict__", {}))
    if vocabulary is not None:
        add(list(vocabulary.words), list(vocabulary.specials))
    for name, weight in engine.checkpoint.checked_weights():
        add(name, list(weight.shape))
        digest.update(np.ascontiguousarray(weight).data)
    for state in engine._start or ():
        digest.update(np.ascontiguousarray(state).data)
    return digest.hexdigest()


def make_room(folder: Path, max_bytes: int, *, keep: Collection[Path] = ()) -> None:
    """Delete the least recently used files until a cache holds at most `max_bytes`; `keep` last."""
    entries: list[tuple[bool, float, int, Path]] = []
    for pattern in (f"{_PREFIX}*.safetensors", "uses-*"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                size = sum(f.stat().st_size for f in path.iterdir()) if path.is_dir() else 0
                status = path.stat()
                entries.append((path in keep, status.st_mtime, size or status.st_size, path))
    total = sum(size for _, _, size, _ in entries)
    for _, _, size, path in sorted(entries):
        if total <= max_bytes:
            return
        _logger.info("%s is deleted from the cache", path.name)
        with contextlib.suppress(OSError):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        total -= size


# --------------------------------------------------------------------------- blocks


@dataclass(frozen=True, eq=False)
class _Block:
    """A file of layers: values (tokens, layers, dim) and where each sentence starts in them."""

    path: Path
    places: dict[bytes, int]
    values: Half


def _open_block(path: Path, model: str, shape: tuple[int, int]) -> _Block:
    """Map a block, or raise FormatError if it is damaged or of another model."""
    what = f"'{path.name}'"
    with read_safetensors(path, what=what) as view:
        tensors = view.names()
        if view.metadata.get("elmore_layers") != _VERSION or view.metadata.get("model") != model:
            raise FormatError(f"{what} is not a block of this model; delete it")
        if set(tensors) != {"digests", "lengths", "values"}:
            raise FormatError(f"{what} is not a complete block; delete it")
        digests = np.array(view.read("digests"))
        lengths = np.array(view.read("lengths"))
        # Mapped, not read: a text may need a few sentences of many blocks.
        mapped = view.read("values", check=False)
    values = tensors["values"]
    ends = np.cumsum(lengths)
    if (
        values.dtype != "F16"
        or digests.shape != (len(lengths), 2)
        or values.shape != (int(lengths.sum()), *shape)
        or (lengths < 1).any()
    ):
        raise FormatError(f"{what} has parts that do not fit together; delete it")
    raw = digests.tobytes()
    keys = (raw[k : k + 16] for k in range(0, len(raw), 16))
    places = dict(zip(keys, (ends - lengths).tolist(), strict=True))
    return _Block(path, places, np.asarray(mapped))


def _places(blocks: Sequence[_Block]) -> dict[bytes, tuple[int, int]]:
    return {
        digest: (number, row)
        for number, block in enumerate(blocks)
        for digest, row in block.places.items()
    }


def _first_of(
    sentences: Iterable[Sequence[str]], digests: Sequence[bytes], wanted: Collection[bytes]
) -> Iterator[Sentence]:
    """Each wanted sentence once."""
    left = set(wanted)
    for tokens, digest in zip(sentences, digests, strict=True):
        if digest in left:
            left.remove(digest)
            if _text_digest(tokens) != digest:
                raise ConfigError("the sentences changed while they were read; pass a list")
            yield Sentence(tuple(tokens))


def _text_digest(tokens: Sequence[str]) -> bytes:
    if isinstance(tokens, str):
        raise ConfigError("got a string where a list of tokens belongs; tokenize it first")
    text = "".join(f"{len(token)}:{token}" for token in tokens)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _half(values: NDArray[np.float32]) -> Half:
    """Turn (layers, time, dim) into (time, layers, dim) of half the size."""
    largest = float(np.abs(values).max(initial=0))
    if not largest <= float(np.finfo(np.float16).max):
        raise ElmoreError(
            f"a vector holds {largest:.3g}, which float16 cannot; check the weights of the model"
        )
    return np.ascontiguousarray(values.transpose(1, 0, 2), np.float16)
