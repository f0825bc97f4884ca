"""C1 of the contract in docs/architecture.md (C2 is in tests/embedding/test_independence.py)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

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
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in "12"
    ]
    assert outputs[0] == outputs[1] == digest(Elmo.load(tiny_folder, threads=2))


def test_c1_a_carried_state_repeats(tiny_folder: Path) -> None:
    def run() -> list[bytes]:
        stream = Elmo.load(tiny_folder, threads=2).stateful()
        batches = [ROWS[k : k + 3] for k in range(0, 12, 3)]
        return [v.tobytes() for batch in batches for v in stream.embed(batch, tokenized=True)]

    assert run() == run()
