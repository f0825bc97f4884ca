"""Frozen layers on disk, computed once and shared by analyses and tasks.

A text has one file per model: `layers-DIGEST.npy`, float16 (tokens, layers, dim), mapped into
memory when it is read. The digest is that of the model and of all tokens of the text, so a file
never belongs to another text or model. It appears under its name when it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file, write_error
from elmore.base.messages import SILENT, Progress
from elmore.embedding.results import layer_weights
from elmore.errors import ElmoreError
from elmore.options import LayerChoice

if TYPE_CHECKING:
    from elmore.elmo import Elmo

# Tokens that are turned into float32 at a time when a complete text is read.
_READ_TOKENS = 8192
_logger = logging.getLogger(__name__)

Half = NDArray[np.float16]


class LayerCache:
    """All layers of texts, from disk where they were computed before.

    Args:
        elmo: the model.
        folder: where the files are; created if missing. Several models may share it.

    Examples:
        >>> cache = LayerCache(elmo, "cache")
        >>> layers = cache.layers([["Stocks", "fell", "."], ["Yes"]])
        >>> layers[0].shape
        (3, 3, 32)
    """

    def __init__(self, elmo: Elmo, folder: str | Path) -> None:
        self.elmo, self.folder = elmo, Path(folder)

    def layers(
        self, sentences: Sequence[Sequence[str]], *, progress: Progress = SILENT
    ) -> CachedLayers:
        """The layers of a text, computed if they are not there.

        Args:
            sentences: token lists.
            progress: counts sentences.
        """
        digest = hashlib.sha256(self.elmo.digest.encode())
        for tokens in sentences:
            text = "".join(f"{len(token)}:{token}" for token in tokens) + "\n"
            digest.update(text.encode("utf-8", "surrogatepass"))
        lengths = np.array([len(tokens) for tokens in sentences], np.int64)
        shape = (int(lengths.sum()), self.elmo.n_layers, self.elmo.dim)
        if not shape[0]:
            progress.update(len(sentences))
            return CachedLayers(np.zeros(shape, np.float16), lengths)
        path = self.folder / f"layers-{digest.hexdigest()[:32]}.npy"
        values = _mapped(path, shape)
        if values is not None:
            progress.update(len(sentences))
            return CachedLayers(values, lengths)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, self.folder) from error
        found = self.elmo.pipe(sentences, tokenized=True, progress=False, layers="all")
        with atomic_file(path, overwrite=True) as stream:
            header = {"descr": "<f2", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            for layers in found:
                stream.write(_half(layers.values).tobytes())
                progress.update(1)
        values = _mapped(path, shape)
        if values is None:
            raise ElmoreError(f"'{path}' changed while it was read; is the disk damaged?")
        return CachedLayers(values, lengths)


def _mapped(path: Path, shape: tuple[int, ...]) -> Half | None:
    """Map a file; None if there is none, or a damaged one, which is computed again."""
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        _logger.warning("'%s' is computed again: %s", path, error)
        return None
    return np.asarray(values) if values.shape == shape and values.dtype == "<f2" else None


class CachedLayers(Sequence[NDArray[np.float32]]):
    """The layers of a text: a sequence of (layers, time, dim), read from disk when asked for.

    Made by `LayerCache.layers`.

    Attributes:
        lengths: tokens of each sentence, (n_sentences,).
    """

    def __init__(self, values: Half, lengths: NDArray[np.int64]) -> None:
        self._values = values  # (tokens, layers, dim)
        self._starts = np.cumsum(lengths) - lengths
        self.lengths = lengths
        _, self.n_layers, self.dim = values.shape

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_tokens(self) -> int:
        """Tokens of the text."""
        return len(self._values)

    def __getitem__(self, k: int) -> NDArray[np.float32]:  # type: ignore[override]  # no slices
        values = self._values[self._starts[k] : self._starts[k] + self.lengths[k]]
        return np.ascontiguousarray(values.transpose(1, 0, 2), np.float32)

    def tokens(
        self, sentences: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """All layers of single tokens, (n, layers, dim), by sentence (n,) and position (n,)."""
        return np.asarray(self._values[self._starts[sentences] + positions], np.float32)

    def vectors(self, layers: LayerChoice = "mean") -> Iterator[NDArray[np.float32]]:
        """One vector per token of the text, a few thousand at a time, (n, dim)."""
        weights = layer_weights(layers, self.n_layers)
        for start in range(0, self.n_tokens, _READ_TOKENS):
            some = self._values[start : start + _READ_TOKENS]
            result = np.zeros((len(some), self.dim), np.float32)
            for layer in np.flatnonzero(weights):  # the others need not be read from disk
                result += weights[layer] * some[:, layer].astype(np.float32)
            yield result


@contextlib.contextmanager
def cache_folder(cache: str | Path | None) -> Iterator[Path]:
    """The folder of a cache, or a temporary one that lasts as long as the block."""
    if cache is not None:
        yield Path(cache)
        return
    with tempfile.TemporaryDirectory(prefix="elmore-layers-") as folder:
        yield Path(folder)


def _half(values: NDArray[np.float32]) -> Half:
    """Turn (layers, time, dim) into (time, layers, dim) of half the size."""
    largest = float(np.abs(values).max(initial=0))
    if not largest <= float(np.finfo(np.float16).max):
        raise ElmoreError(
            f"a vector holds {largest:.3g}, which float16 cannot; check the weights of the model"
        )
    return np.ascontiguousarray(values.transpose(1, 0, 2), np.float16)
