"""A language model in plain float64, and elmore's with the same weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reference import ReferenceElmo, random_weights
from small_models import TEXT, make_options, write_pair

from elmore import Elmo
from elmore.formats.checkpoint import Softmax
from elmore.language_model.perplexity import Perplexity
from elmore.text.vocabulary import Vocabulary

# Some words of the text are missing; the markers stand where no reader expects them.
WORDS = ["<S>", "the", ",", "</S>", ".", "<UNK>", *dict.fromkeys(TEXT[3:30:2])]
MODELS: dict[str, dict[str, Any]] = {
    "skip": make_options(),
    "small clips": make_options(16, 8, cell_clip=0.5, proj_clip=0.25, skip=False),
    "one layer": make_options(n_layers=1),
    "words": make_options(n_words=len(WORDS)),
    "one direction": make_options(bidirectional=False),
}


class Slow:
    """A language model in float64 which multiplies everything by everything."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.weights = random_weights(options, seed)
        self.body = ReferenceElmo(options, self.weights, WORDS)
        rng = np.random.default_rng(seed)
        dim = options["lstm"]["projection_dim"]
        self.softmax = Softmax(
            rng.normal(0, 0.3, (len(WORDS), dim)).astype(np.float32),
            rng.normal(0, 1, len(WORDS)).astype(np.float32),
        )

    def logs(self, tokens: Sequence[str]) -> list[np.ndarray]:
        """Log probabilities of all words at all places with markers -> (time, n_words) each."""
        [layers], _ = self.body.embed_batch([tokens], keep_boundaries=True)
        dim, result = self.body.projection_dim, []
        for direction in range(self.body.n_directions):
            hidden = layers[-1, :, direction * dim : (direction + 1) * dim]
            logits = hidden @ self.softmax.weight.astype(np.float64).T + self.softmax.bias
            logits -= logits.max(axis=1, keepdims=True)
            result.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
        return result

    def targets(self, tokens: Sequence[str]) -> tuple[np.ndarray, np.ndarray | None]:
        """Of the marked tokens 1.. forward, and ..n backward."""
        ids = [
            WORDS.index(w) if w in WORDS else WORDS.index("<UNK>") for w in ["<S>", *tokens, "</S>"]
        ]
        logs = self.logs(tokens)
        forward = np.array([logs[0][t, ids[t + 1]] for t in range(len(ids) - 1)])
        if len(logs) == 1:
            return forward, None
        return forward, np.array([logs[1][t + 1, ids[t]] for t in range(len(ids) - 1)])


def load_both(
    folder: Path, name: str = "skip", seed: int = 3, **settings: Any
) -> tuple[Elmo, Slow]:
    slow = Slow(MODELS[name], seed)
    words = folder / "words.txt"
    words.write_bytes(Vocabulary(WORDS).to_bytes())
    pair = write_pair(folder, MODELS[name], slow.weights)
    checkpoint = dataclasses.replace(
        Elmo.load((*pair, words), tokenizer="ptb").checkpoint,
        softmax=slow.softmax,
        vocabulary=Vocabulary(WORDS),
    )
    return Elmo(checkpoint, **settings), slow


def known(elmo: Elmo, bias: Sequence[float]) -> Elmo:
    """A softmax that looks at nothing: its bias alone decides."""
    softmax = Softmax(np.zeros_like(elmo.checkpoint.softmax.weight), np.array(bias, np.float32))
    return Elmo(dataclasses.replace(elmo.checkpoint, softmax=softmax))


def numbers(result: Perplexity) -> dict[str, Any]:
    report = result.to_dict()
    assert report.pop("softmax") == "full"
    return report
