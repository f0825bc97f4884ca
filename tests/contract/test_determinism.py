"""C1 and C2 of the contract in docs/architecture.md (more of C2 in tests/embedding)."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import SENTENCES

from elmore import Elmo

ROWS = [*SENTENCES, *([f"word{k % 5}"] * (k % 9) for k in range(30))]
CODE = """
import sys, hashlib, json
from elmore import Elmo
elmo = Elmo.load(sys.argv[1], threads=int(sys.argv[2]))
digest = hashlib.sha256()
for layers in elmo.layers(json.loads(sys.argv[3]), tokenized=True):
    digest.update(layers.values.tobytes())
print(digest.hexdigest())
"""


def digest(elmo: Elmo) -> str:
    result = hashlib.sha256()
    for layers in elmo.layers(ROWS, tokenized=True):
        result.update(layers.values.tobytes())
    return result.hexdigest()


@pytest.mark.parametrize("threads", [1, 2])
def test_c1_the_same_run_gives_the_same_bits(tiny_folder: Path, threads: int) -> None:
    digests = {digest(Elmo.load(tiny_folder, threads=threads)) for _ in range(3)}
    assert len(digests) == 1


def test_c1_in_another_process_too(tiny_folder: Path) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", CODE, str(tiny_folder), "2", json.dumps(ROWS)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert outputs[0] == outputs[1] == digest(Elmo.load(tiny_folder, threads=2))


def test_c1_a_carried_state_repeats(tiny_folder: Path) -> None:
    def run() -> list[bytes]:
        stream = Elmo.load(tiny_folder, threads=2).stateful()
        batches = [ROWS[k : k + 3] for k in range(0, 12, 3)]
        return [v.tobytes() for batch in batches for v in stream.embed(batch, tokenized=True)]

    assert run() == run()


@pytest.mark.parametrize("start", ["zeros", "warm"])
def test_c2_nothing_but_the_sentence_counts(tiny_folder: Path, start: str) -> None:
    """Batch size, order, padding, neighbours, threads, cache: at most 1e-5."""
    alone = Elmo.load(tiny_folder, threads=1, start=start)
    expected = [alone.embed([row], tokenized=True)[0] for row in ROWS]
    order = np.random.default_rng(0).permutation(len(ROWS))
    worst = 0.0
    for threads, budget in ((1, 1), (1, 9000), (2, 40), (3, 300)):
        elmo = Elmo.load(tiny_folder, threads=threads, start=start)
        for _ in range(2):  # the second time from a warm cache
            shuffled = [ROWS[k] for k in order]
            results = list(elmo.pipe(shuffled, tokenized=True, batch_tokens=budget))
            for k, vectors in zip(order, results, strict=True):
                assert vectors.shape == expected[k].shape
                worst = max(worst, float(np.abs(vectors - expected[k]).max(initial=0)))
    assert worst <= 1e-5


def test_c2_would_notice_a_carried_state(tiny_folder: Path) -> None:
    elmo = Elmo.load(tiny_folder)
    stream = elmo.stateful()
    stream.embed([ROWS[0]], tokenized=True)
    difference = (
        stream.embed([ROWS[0]], tokenized=True)[0] - elmo.embed([ROWS[0]], tokenized=True)[0]
    )
    assert np.abs(difference).max() > 1e-3
