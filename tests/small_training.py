"""Small recipes, small corpora and what is compared after a training."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmore.corpus.prepare import prepare
from elmore.corpus.prepared import Prepared, Shard
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.threads import TorchWorkers
from elmore.text.batching import TokenIndexer
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.training.bilm.batches import LmBatch, Source
from elmore.training.bilm.recipe import Recipe
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.distributed import Group
from elmore.training.run import Run

WORDS = [f"w{chr(97 + k)}" for k in range(20)]
SMALL = {
    "model.char_dim": "4",
    "model.max_chars": "8",
    "model.filters": "[[1, 4], [2, 6]]",
    "model.dim": "12",
    "model.projection_dim": "6",
    "data.batch_tokens": "48",
    "data.max_length": "12",
    "data.pool_sentences": "24",
    "data.batch_rows": "4",
    "data.unroll": "5",
    "data.long_share": "0.0",
    "loss.negatives": "8",
    "loss.dropout": "0.1",
    "schedule.tokens": "900",
    "schedule.warmup_tokens": "100",
    "run.log_steps": "1",
    "run.save_minutes": "0",
    "run.evaluate_tokens": "300",
    "run.heldout_tokens": "100",
}


def small_recipe(settings: Mapping[str, object] | None = None, **sections: object) -> Recipe:
    """The recipe `tiny`, tinier; settings by "section.key" or section__key."""
    changes = {key.replace("__", "."): value for key, value in sections.items()}
    both = {**SMALL, **(settings or {}), **changes}
    return Recipe.load("tiny", {key: str(value) for key, value in both.items()})


def make_sentences(count: int, seed: int = 0, words: Sequence[str] = WORDS) -> list[list[str]]:
    """Random sentences of 1 to 15 words, frequent words first."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(words) + 1)
    shares /= shares.sum()
    return [
        [words[k] for k in rng.choice(len(words), rng.integers(1, 16), p=shares)]
        for _ in range(count)
    ]


def write_text(path: Path, sentences: Sequence[Sequence[str]], document: int = 5) -> Path:
    """A sentence a line, a blank line after every few."""
    lines = []
    for k, tokens in enumerate(sentences):
        lines.append(" ".join(tokens))
        if k % document == document - 1:
            lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def small_data(folder: Path, count: int = 60, seed: int = 0, **options: Any) -> Prepared:
    """A prepared corpus of random sentences, three shards or so."""
    folder.mkdir(parents=True, exist_ok=True)
    text = write_text(folder / "text.txt", make_sentences(count, seed))
    settings = {"heldout": 0.2, "shard_tokens": 150, "vocabulary": 15, **options}
    return prepare([text], folder / "data", tokenized=True, workers=1, **settings)


def stop_at(step: int) -> Callable[[dict[str, Any]], None]:
    """A `progress` function that stops a run after a step."""

    def ask(line: dict[str, Any]) -> None:
        if line["step"] == step and "loss" in line:
            signal.raise_signal(signal.SIGTERM)

    return ask


def digest(run: Path) -> str:
    """SHA-256 of the last state, the carried LSTM state included, and of the model."""
    [*_, last] = sorted((run / "resume").glob("step-*"))
    whole = hashlib.sha256((last / "state.safetensors").read_bytes())
    whole.update((run / "checkpoint/model.safetensors").read_bytes())
    return f"{last.name} {whole.hexdigest()}"


def characters(max_chars: int = 8) -> TokenIndexer:
    return TokenIndexer(ByteAlphabet(max_chars))


def whole_words(vocabulary: Vocabulary) -> TokenIndexer:
    return TokenIndexer(None, vocabulary)


def batch_arrays(batch: LmBatch) -> list[Any]:
    """Everything in a batch, to be compared."""
    parts: list[Any] = [batch.sizes, batch.words, batch.word_ids, *batch.rows, *batch.targets]
    return [None if part is None else np.asarray(part).tolist() for part in parts]


def relative(found: Any, expected: Any) -> float:
    """Largest difference, in units of the largest expected value."""
    found, expected = (
        x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
        for x in (found, expected)
    )
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))


class Given:
    """Batches that somebody else has made."""

    def __init__(self, batches: Sequence[LmBatch]) -> None:
        self._batches = iter(batches)

    def next(self) -> LmBatch:
        return next(self._batches)

    def cursor(self) -> dict[str, Any]:
        return {}

    def restore(self, cursor: Any) -> None: ...


def given_trainer(
    recipe: Recipe,
    data: Prepared,
    batches: Sequence[LmBatch],
    heldout: Sequence[LmBatch] = (),
    start: Checkpoint | None = None,
) -> LmTrainer:
    """A trainer that learns from given batches."""
    run = Run(data.folder.parent / "run")
    trainer = LmTrainer(recipe, run, data, 5, Group(), TorchWorkers(1), start)
    trainer.batches, trainer.heldout = Given(batches), list(heldout)
    return trainer


def given_shard(sentences: Sequence[Sequence[str]]) -> Shard:
    """A shard of one document."""
    types = list(dict.fromkeys(word for tokens in sentences for word in tokens))
    numbers = {word: k for k, word in enumerate(types)}
    flat = [numbers[word] for tokens in sentences for word in tokens]
    ends = np.cumsum([0, *map(len, sentences)])
    return Shard(np.array(flat, np.int32), ends, np.array([0, len(sentences)]), types)


def source_of(
    shards: Sequence[Sequence[Sequence[str]]],
    vocabulary: Vocabulary,
    *,
    words: bool = True,
    **options: Any,
) -> Source:
    """What batches are made from, of sentences in memory."""
    read = [given_shard(shard) for shard in shards]
    return Source(
        read=read.__getitem__,
        sizes=list(map(len, shards)),
        indexer=whole_words(vocabulary) if words else characters(),
        vocabulary=vocabulary,
        **{"seed": 0, **options},
    )
