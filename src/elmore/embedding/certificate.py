"""What fewer bits cost: vectors compared with those of float32, on a text inside the package.

The certificate is in a folder's notes, where `elmore info` shows it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from elmore.config import Precision
from elmore.embedding.engine import Engine
from elmore.embedding.stateful import burn_in_text
from elmore.formats.checkpoint import CERTIFICATE, Checkpoint
from elmore.options import Compute

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


def certified(checkpoint: Checkpoint, precision: Precision) -> Checkpoint:
    """A checkpoint whose notes say what a precision costs it; float32 costs nothing.

    If it is stored in that precision already, it keeps the certificate it has.
    """
    notes = dict(checkpoint.notes)
    if precision == checkpoint.precision and CERTIFICATE in notes:
        return checkpoint
    notes.pop(CERTIFICATE, None)
    if precision != "float32":
        notes[CERTIFICATE] = certify(checkpoint, precision)
    return dataclasses.replace(checkpoint, notes=notes)


def certify(checkpoint: Checkpoint, precision: Precision) -> dict[str, Any]:
    """Compare a precision with float32 on the fixed text.

    Returns:
        JSON values; cosines and errors are lists with one number for each layer.
    """
    exact = Engine(checkpoint, Compute(precision="float32"))
    cheap = Engine(checkpoint, Compute(precision=precision))
    batch = exact.indexer.batch(fixed_text(checkpoint))
    expected, found = exact.run(batch)[0], cheap.run(batch)[0]
    places = np.arange(expected.shape[2])
    inner = (places > 0) & (places < batch.lengths[:, None] - 1)  # without markers and padding
    expected, found = expected[:, inner], found[:, inner]  # (layers, tokens, dim)
    a, b = expected.astype(np.float64), found.astype(np.float64)
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosines = (a * b).sum(axis=-1) / np.maximum(lengths, 1e-8)
    numbers = {
        "mean_cosine": cosines.mean(axis=1),
        "min_cosine": cosines.min(axis=1),
        "max_error": np.abs(expected - found).max(axis=(1, 2)),
        "max_value": np.abs(found).max(axis=(1, 2)),
    }
    return {
        "precision": precision,
        "against": "float32",
        "tokens": int(inner.sum()),
        **{name: [round(float(v), 7) for v in values] for name, values in numbers.items()},
    }
