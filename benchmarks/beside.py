"""Two versions of elmore side by side: speed and vectors, in one interleaved run.

    python beside.py --old OLD --new NEW --model english -o results/beside.json
    python beside.py --old OLD --new NEW --shape 4096/512 --native 0

OLD and NEW are environments (folders made by `python -m venv`) with two versions. Each loads the
model in a process of its own and waits for its turn; they compute the same in alternation, and
the best round of each counts, in wall and in CPU seconds. `--shape CELLS/DIM` makes a model with
random weights in the shapes of the published ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from machine import facts

WORKER = """
import json, sys, time
import numpy as np
from elmore import Elmo
model, precision, threads, text = json.loads(sys.argv[1])
options = {} if precision is None else {"precision": precision}
elmo = Elmo.load(model, threads=threads, **options)
lines = [line.split() for line in open(text, encoding="utf-8")]
single = [line for line in lines if 18 <= len(line) <= 22][:40]
def bulk(clear):
    if clear:
        elmo.engine.cache.clear()
    return elmo.embed(lines, tokenized=True)
def one(clear):
    for line in single:
        if clear:
            elmo.engine.cache.clear()
        elmo.embed([line], tokenized=True)
    return []
print("ready", flush=True)
for line in sys.stdin:
    kind, clear, path = json.loads(line)
    wall, cpu = time.perf_counter(), time.process_time()
    vectors = (bulk if kind == "bulk" else one)(clear)
    result = [time.perf_counter() - wall, time.process_time() - cpu]
    if path:
        np.save(path, np.concatenate(vectors))
    print(json.dumps([*result, sum(map(len, lines)), len(single)]), flush=True)
"""
CASES = (("bulk", True), ("bulk", False), ("one", True), ("one", False))


class Version:
    """A process of one version."""

    def __init__(self, environment: Path, argument: list[Any], native: str) -> None:
        self._process = subprocess.Popen(
            [str(environment / "bin/python"), "-c", WORKER, json.dumps(argument)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tempfile.gettempdir(),
            env={**os.environ, "ELMORE_NATIVE": native},
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker ended")
        return line

    def ask(self, kind: str, clear: bool, path: str | None = None) -> list[float]:
        """Compute once: wall seconds, CPU seconds, tokens of the text, single sentences."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, clear, path]) + "\n")
        self._process.stdin.flush()
        found: list[float] = json.loads(self._read())
        return found


def random_model(shape: str, folder: Path) -> Path:
    """Write a byte-CNN model of a published shape with random weights."""
    from elmore import Elmo
    from elmore.compute.initial_weights import initial_weights
    from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
    from elmore.formats.checkpoint import Checkpoint
    from elmore.text.characters import ByteAlphabet

    cells, dim = map(int, shape.split("/"))
    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    config = BiLmConfig(
        tokens=TokenEncoderConfig(
            n_characters=261,
            char_dim=16,
            max_chars=50,
            filters=filters,
            n_highway=2,
            projected=True,
        ),
        lstm=LstmConfig(dim=cells, projection_dim=dim),
    )
    weights = initial_weights(config, np.random.default_rng(0))
    path = folder / "random"
    Elmo(Checkpoint(config=config, weights=weights, alphabet=ByteAlphabet())).save(path)
    return path


def measure(args: argparse.Namespace, precision: str | None, model: Any, folder: Path) -> Any:
    """All cases of one precision."""
    versions = {
        side: Version(path.resolve(), [str(model), precision, args.threads, str(args.text)], native)
        for side, path, native in (
            ("old", args.old, args.native),
            ("new", args.new, args.native),
        )
    }
    row: dict[str, Any] = {"precision": precision or "as stored"}
    saved = {}
    for side, version in versions.items():
        saved[side] = str(folder / f"{side}.npy")
        version.ask("bulk", True, saved[side])
    old, new = (np.load(saved[side]) for side in ("old", "new"))
    row["largest difference"] = float(np.abs(old - new).max())
    norms = np.linalg.norm(old, axis=1) * np.linalg.norm(new, axis=1)
    cosines = (old * new).sum(axis=1) / norms
    row["lowest cosine"] = float(cosines.min())
    for kind, clear in CASES:
        best = {side: [np.inf, np.inf] for side in versions}
        for _ in range(args.rounds):
            for side, version in versions.items():
                wall, cpu, tokens, single = version.ask(kind, clear)
                best[side] = [min(best[side][0], wall), min(best[side][1], cpu)]
        name = f"{kind}, {'empty' if clear else 'warm'} word cache"
        amount = tokens if kind == "bulk" else single
        row[name] = {
            "old": round(amount / best["old"][0], 1),
            "new": round(amount / best["new"][0], 1),
            "ratio": round(best["old"][0] / best["new"][0], 3),
            "CPU ratio": round(best["old"][1] / best["new"][1], 3),
        }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--model", default="english")
    parser.add_argument("--shape", help="CELLS/DIM, random weights instead of a model")
    parser.add_argument("--text", type=Path, required=True, help="tokens separated by spaces")
    parser.add_argument("--precision", nargs="*", default=["float32", "float16", "int8"])
    parser.add_argument("--native", default="auto", help="ELMORE_NATIVE of both")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path, help="a line is added to this file")
    args = parser.parse_args()
    args.text = args.text.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = random_model(args.shape, folder) if args.shape else args.model
        rows = [measure(args, precision, model, folder) for precision in args.precision]
    result = {
        "machine": facts(),
        "model": args.shape or str(args.model),
        "native": args.native,
        "rows": rows,
    }
    if args.output is not None:
        with args.output.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
