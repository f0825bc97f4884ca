"""Bulk runs with real processes: the same bytes for any number of them and any death."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_models import make_checkpoint, make_options, posix

from bulk.conftest import digests
from elmore.bulk import embed_files
from elmore.bulk.job import Job, ShardEmbedder
from elmore.compute.native import native
from elmore.errors import ConfigError, InputError

FLAGS = {"tokenized": True, "shard_bytes": 2500, "format": "npz", "pool": None}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_checkpoint(folder, make_options())
    return folder / "options.json", folder / "weights.hdf5"


@pytest.fixture(scope="module")
def reference(tmp_path_factory, model, corpus):
    """A run of one worker that nobody disturbed."""
    out = tmp_path_factory.mktemp("reference") / "out"
    result = embed_files([corpus], out, model=model, workers=1, **FLAGS)
    assert len(result.shards) > 20
    return out


def test_the_shards_hold_the_vectors_of_the_text(reference, tiny_elmo, corpus):
    lines = corpus.read_text("utf-8").split("\n")[:-1]
    expected = tiny_elmo.embed([line.split() for line in lines], tokenized=True)
    found = {}
    for path in sorted(reference.glob("*.npz")):
        with np.load(path) as arrays:
            found.update(arrays)
    assert list(found) == [str(k) for k in range(len(lines))]
    for k, vectors in enumerate(expected):
        np.testing.assert_allclose(found[str(k)], vectors, atol=1e-5)
    manifest = json.loads((reference / "manifest.json").read_text())
    assert manifest["counts"]["sentences"] == len(lines)
    assert manifest["counts"]["tokens"] == sum(map(len, expected))
    names = digests(reference)
    assert all(names[shard["file"]] == shard["sha256"] for shard in manifest["shards"])


def test_any_number_of_workers_gives_the_same_bytes(reference, model, corpus, tmp_path):
    result = embed_files([corpus], tmp_path / "out", model=model, workers=2, **FLAGS)
    assert digests(tmp_path / "out") == digests(reference)
    assert result.counts.sentences == 2000
    # Once more: nothing is computed again, nothing changes.
    changed = [path.stat().st_mtime_ns for path in result.shards]
    assert embed_files([corpus], tmp_path / "out", model=model, **FLAGS).counts == result.counts
    assert [path.stat().st_mtime_ns for path in result.shards] == changed
    assert digests(tmp_path / "out") == digests(reference)


def command(model, corpus: Path, out: Path, workers: int) -> list[str]:
    return [
        *(sys.executable, "-m", "elmore", "embed", str(corpus)),
        *("--model", ",".join(map(str, model)), "-o", str(out), "-f", "npz"),
        *("--workers", str(workers), "--shard-bytes", "2500", "--tokenized", "--quiet"),
    ]


def children(pid: int) -> list[int]:
    """The worker processes; multiprocessing has one more, which tracks resources."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if b"spawn_main" in cmdline(child)]


def cmdline(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def disturb(arguments: list[str], out: Path, victim: str | int, n_shards: int, rng) -> bool:
    """Run, and kill a worker or signal the parent when so many shards are there.

    Returns:
        whether that came before the run was done.
    """
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 120
            workers: list[int] = []
            while not workers or len(list(out.glob("shard-*"))) < n_shards:
                assert time.monotonic() < deadline
                if process.poll() is not None:
                    assert process.returncode == 0
                    return False
                time.sleep(0.002)
                workers = children(process.pid)
            time.sleep(rng.random() * 0.01)
            if victim == "worker":
                with contextlib.suppress(ProcessLookupError):  # done already
                    os.kill(rng.choice(workers), signal.SIGKILL)
            else:
                process.send_signal(victim)
            expected = 1 if victim == "worker" else -victim
            in_time = process.wait(60) == expected and not (out / "manifest.json").exists()
            assert in_time or process.returncode in (0, expected)
            while not all(map(gone, workers)):
                assert time.monotonic() < deadline, "a worker outlives its parent"
                time.sleep(0.01)
            errors = process.stderr.read()
            # A worker that is just starting loses its parent inside multiprocessing, and says so.
            assert victim == signal.SIGKILL or b"Traceback" not in errors
            assert (b"a worker process died" in errors) == (process.returncode == 1)
        finally:
            process.kill()
    if victim != signal.SIGKILL:
        assert not list(out.glob(".*.partial"))
    return in_time


def survive(model, corpus, out, reference, runs, rng) -> int:
    """Disturb run after run; in the end all files must be those of the reference.

    Returns:
        how many were stopped before their end.
    """
    total = len(list(reference.glob("shard-*")))
    stopped = 0
    for k, victim in enumerate(runs):
        n_shards = 1 + k * (total - 6) // len(runs)
        arguments = command(model, corpus, out, rng.choice([1, 2]))
        in_time = disturb(arguments, out, victim, n_shards, rng)
        stopped += in_time
        if not in_time:  # so that the next one has something to do: missing shards are made again
            for path in sorted(out.glob("shard-*"))[n_shards:]:
                path.unlink()
    subprocess.run(command(model, corpus, out, 1), check=True)
    assert digests(out) == digests(reference)
    return stopped


@posix
def test_kills_leave_no_trace_in_the_result(reference, model, corpus, tmp_path):
    runs = ["worker", signal.SIGTERM, signal.SIGKILL]
    assert survive(model, corpus, tmp_path / "out", reference, runs, random.Random(0)) >= 1


# Without processes ------------------------------------------------------------------------------


@pytest.fixture
def lines(corpus):
    return corpus.read_text("utf-8").split("\n")[:60]


@pytest.mark.parametrize("layers", ["all", [0.2, 0.3, 0.5]])
def test_a_shard_does_not_depend_on_earlier_ones(model, lines, tmp_path, layers):
    job = Job(model=model, tokenized=True, format="npz", layers=layers)
    embedder = ShardEmbedder(pickle.loads(pickle.dumps(job)))
    first = embedder.write_shard(tmp_path / "a", 0, lines[:30])
    embedder.write_shard(tmp_path / "b", 0, lines[30:])
    engine, computed = embedder.elmo.engine, []
    compute = engine._compute_words
    engine._compute_words = lambda batch, some: computed.extend(some) or compute(batch, some)
    again = embedder.write_shard(tmp_path / "c", 0, lines[:30])
    assert first == again
    # Our kernels give a word the same bits in any batch, so it is computed once per process.
    words = {word for line in lines[:30] for word in line.split()}
    assert not computed if native().module is not None else len(computed) >= len(words)


def test_what_a_worker_refuses_is_reported_once(model, corpus, tmp_path):
    with pytest.raises(ConfigError, match="device='gpu'") as caught:
        embed_files([corpus], tmp_path / "out", model=model, device="gpu")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_early_refusals(model, corpus, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no input files"):
        embed_files([], out, model=model)
    with pytest.raises(ConfigError, match="layers=7"):
        embed_files([corpus], out, model=model, layers=7)
    with pytest.raises(ConfigError, match="workers=0"):
        embed_files([corpus], out, model=model, workers=0)
    for bad in ({"format": "xml"}, {"dtype": "int4"}, {"pool": "sum"}, {"shard_bytes": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            embed_files([corpus], out, model=model, **bad)
    with pytest.raises(ConfigError, match="cannot be combined"):
        embed_files([corpus], out, model=model, tokenized=True, split_sentences=True)
    assert list(tmp_path.iterdir()) == []
