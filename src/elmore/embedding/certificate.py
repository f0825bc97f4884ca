"""What fewer bits cost: vectors compared with those of float32, on a text inside the package.

The certificate is in a folder's notes, where `elmore info` shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.config import Precision
from elmore.embedding.engine import Engine
from elmore.embedding.stateful import burn_in_text
from elmore.formats.checkpoint import Checkpoint
from elmore.options import Compute

__all__ = ["CERTIFICATE", "certified", "certify", "fixed_text"]

# Key in `Checkpoint.notes`.
CERTIFICATE = "certificate"
# Long words, other scripts and repeats, so that every part of a model is used.
_TEXT = (
    "The bank by the river lent no money to the bank .".split(" "),
    "« Naïveté » , 速い狐 , Ταχίστη 🦊 : antidisestablishmentarianism !".split(" "),
    ["Yes"],
)


def fixed_text(checkpoint: Checkpoint) -> list[list[str]]:
    """Token lists to embed; if a model knows only words, words of its vocabulary."""
    if checkpoint.config.tokens.n_words and checkpoint.vocabulary is not None:
        return [list(checkpoint.vocabulary.words[:40])]
    return [*burn_in_text(), *_TEXT]


def certified(
    checkpoint: Checkpoint, precision: Precision, probes: Mapping[str, Any] | None = None
) -> Checkpoint:
    """A checkpoint whose notes say what a precision costs it; float32 costs nothing.

    Args:
        checkpoint: the model; if it is stored so already, it keeps the certificate it has.
        precision: how it will be stored.
        probes: downstream scores, beside those of float32.
    """
    notes = dict(checkpoint.notes)
    if precision == checkpoint.precision and CERTIFICATE in notes and probes is None:
        return checkpoint
    notes.pop(CERTIFICATE, None)
    if precision != "float32":
        notes[CERTIFICATE] = certify(checkpoint, precision, probes)
    return dataclasses.replace(checkpoint, notes=notes)


def certify(
    checkpoint: Checkpoint, precision: Precision, probes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Compare a precision with float32 on the fixed text.

    Returns:
        JSON values; cosines and errors are lists with one number for each layer.
    """
    batch_text = fixed_text(checkpoint)
    exact = Engine(checkpoint, Compute(precision="float32"))
    cheap = Engine(checkpoint, Compute(precision=precision))
    batch = exact.indexer.batch(batch_text)
    expected, found = exact.run(batch)[0], cheap.run(batch)[0]
    places = np.arange(expected.shape[2])
    inner = (places > 0) & (places < batch.lengths[:, None] - 1)  # without markers and padding
    expected, found = expected[:, inner], found[:, inner]  # (layers, tokens, dim)
    cosines = _cosines(expected.astype(np.float64), found.astype(np.float64))
    certificate: dict[str, Any] = {
        "precision": precision,
        "against": "float32",
        "tokens": int(inner.sum()),
        "mean_cosine": _numbers(cosines.mean(axis=1)),
        "min_cosine": _numbers(cosines.min(axis=1)),
        "max_error": _numbers(np.abs(expected - found).max(axis=(1, 2))),
        "max_value": _numbers(np.abs(expected).max(axis=(1, 2))),
    }
    if probes is not None:
        certificate["probes"] = dict(probes)
    return certificate


def _cosines(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosine of every two vectors along the last axis."""
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosines: NDArray[np.float64] = (a * b).sum(axis=-1) / np.maximum(lengths, 1e-8)
    return cosines


def _numbers(values: NDArray[np.generic]) -> list[float]:
    return [round(float(value), 7) for value in values]
