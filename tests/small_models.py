"""Small models whose weights the tests make themselves, and where the golden values lie."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import random_weights, write_hdf5

from elmore.embedding.load import read_checkpoint
from elmore.formats.checkpoint import Checkpoint

DATA = Path(__file__).parent / "data"
# Values of the original programs: ours, and where they are present the programs' own test files.
GOLDEN = Path(__file__).parent / "golden"
FIXTURES = Path(__file__).resolve().parents[2] / "shared" / "data" / "fixtures"
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
needs_originals = pytest.mark.originals
posix = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs signals, pipes or limits of POSIX systems"
)

TEXT = (
    "The U.S. Centers for Disease Control advised school systems to close if outbreaks occurred , "
    "then reversed itself , saying the apparent mildness of the virus meant most schools should "
    "stay open , even if they had confirmed cases . Elk calling -- a skill that hunters perfected "
    'long ago to lure game -- is now its own sport , with naïve fans , 6-3 scores and " talk " . '
    "Ταχίστη ἀλώπηξ 速い狐 🦊 antidisestablishmentarianismantidisestablishmentarianism"
).split()
SENTENCES = [TEXT[:14], TEXT[14:17], [], TEXT[17:40], ["<S>", "</S>"], TEXT[40:41], TEXT[41:]]


def make_options(
    dim: int = 32,
    projection_dim: int = 16,
    n_layers: int = 2,
    *,
    cell_clip: float | None = 3,
    proj_clip: float | None = 3,
    skip: bool = True,
    bidirectional: bool = True,
    n_words: int = 0,
    **char_cnn: Any,
) -> dict[str, Any]:
    """Options of a byte-CNN model, or of a word model if `n_words` is given."""
    options: dict[str, Any] = {
        "lstm": {
            "dim": dim,
            "projection_dim": projection_dim,
            "n_layers": n_layers,
            "cell_clip": cell_clip,
            "proj_clip": proj_clip,
            "use_skip_connections": skip,
        }
    }
    if not bidirectional:
        options["bidirectional"] = False
    if n_words:
        options["n_tokens_vocab"] = n_words
    else:
        options["char_cnn"] = {
            "activation": "relu",
            "embedding": {"dim": 4},
            "filters": [[1, 4], [2, 8], [3, 16]],
            "max_characters_per_token": 50,
            "n_characters": 262,
            "n_highway": 1,
            **char_cnn,
        }
    return options


def write_pair(
    folder: Path,
    options: Mapping[str, Any],
    weights: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
) -> tuple[Path, Path]:
    """Write options.json and weights.hdf5, with random weights by default; give their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = folder / "options.json", folder / "weights.hdf5"
    pair[0].write_text(json.dumps(options), encoding="utf-8")
    write_hdf5(pair[1], random_weights(options, seed) if weights is None else weights)
    return pair


def make_checkpoint(
    folder: Path,
    options: Mapping[str, Any],
    vocabulary: Sequence[str] | None = None,
    seed: int = 0,
) -> Checkpoint:
    """A checkpoint with random weights, read through files in `folder`."""
    files: tuple[Path, ...] = write_pair(folder, options, seed=seed)
    if vocabulary is not None:
        words = folder / "vocab.txt"
        words.write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
        files = (*files, words)
    return read_checkpoint(files)
