"""Does a training that is killed again and again end with the weights of one that never was?

    python benchmarks/resume_kills.py
    python benchmarks/resume_kills.py --kills 40 --processes 1 --seed 7

A tiny model on random sentences, with dropout. One run goes through; another is killed with
SIGKILL at random places, all its processes at once, and resumed each time. Several processes are
started by torchrun (gloo). SHA-256 of the final state (weights, optimiser, carried LSTM state) and
of the model must be equal.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from elmore.corpus.prepare import prepare
from elmore.training.run import Run

SETTINGS = {
    "model.char_dim": 4,
    "model.max_chars": 8,
    "model.filters": "[[1, 4], [2, 6]]",
    "model.dim": 12,
    "model.projection_dim": 6,
    "data.batch_tokens": 48,
    "data.max_length": 12,
    "data.pool_sentences": 64,
    "data.batch_rows": 4,
    "data.unroll": 5,
    "loss.negatives": 8,
    "loss.dropout": 0.1,
    "schedule.warmup_tokens": 500,
    "run.log_steps": 1,
    "run.save_minutes": 0.001,
    "run.evaluate_tokens": 1000,
    "run.heldout_tokens": 200,
}
REGIMES = {
    "sentences": {},
    "stream": {"data.regime": "stream", "optimizer.name": "adagrad", "loss.shared": "none"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--regimes", nargs="+", default=["sentences", "stream"], choices=REGIMES)
    parser.add_argument("--tokens", type=int, default=12_000, help="length of a run")
    parser.add_argument("--seed", type=int, default=0, help="decides where it is killed")
    args = parser.parse_args()
    rng, equal = random.Random(args.seed), True
    print(
        "processes  regime     kills  in a save  steps lost  steps  seconds  SHA-256        equal"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder)
        for processes in args.processes:
            for regime in args.regimes:
                started = time.monotonic()
                command = training(folder, regime, processes, args.tokens)
                whole, parts = (folder / f"{k}-{processes}-{regime}" for k in ("whole", "parts"))
                subprocess.run([*command, "-o", str(whole)], check=True, stderr=subprocess.DEVNULL)
                torn, lost = kill_often(command, parts, args.kills, args.tokens, rng)
                expected, found = digest(whole), digest(parts)
                equal &= expected == found
                print(
                    f"{processes:9}  {regime:9}  {args.kills:5}  {torn:9}  {lost:10}  "
                    f"{Run(whole).log()[-1]['step']:5}  {time.monotonic() - started:7.0f}  "
                    f"{found[:12]}…  {'yes' if expected == found else 'NO: ' + expected[:12]}",
                    flush=True,
                )
    sys.exit(0 if equal else 1)


def make_data(folder: Path) -> None:
    """Prepare random sentences in several shards."""
    rng = random.Random(1)
    words = [f"w{chr(97 + k)}" for k in range(20)]
    lines = [
        " ".join(rng.choices(words, k=rng.randint(1, 15))) + ("\n" if k % 5 == 4 else "")
        for k in range(400)
    ]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    prepare(
        [folder / "text.txt"],
        folder / "data",
        vocabulary=15,
        tokenized=True,
        heldout=0.1,
        shard_tokens=700,
        workers=1,
    )


def training(folder: Path, regime: str, processes: int, tokens: int) -> list[str]:
    """Give the command of a training that starts or goes on, without its folder."""
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(processes)]
    command += ["-m", "elmore", "pretrain", str(folder / "data"), "--recipe", "tiny"]
    command += ["--resume", "--threads", "1", "--quiet"]
    for key, value in {**SETTINGS, **REGIMES[regime], "schedule.tokens": tokens}.items():
        command += ["--set", f"{key}={value}"]
    return command


def kill_often(
    command: list[str], out: Path, kills: int, tokens: int, rng: random.Random
) -> tuple[int, int]:
    """Run to the end with so many kills; count those within a save, and steps done in vain."""
    torn = lost = 0
    # A place a stretch, so that every stretch gets somewhere.
    for k in range(kills):
        target = tokens * (k + rng.random()) / (kills + 1)
        with subprocess.Popen([*command, "-o", str(out)], stderr=subprocess.DEVNULL) as process:
            while seen(out) < target:
                if process.poll() is not None:
                    sys.exit(f"the training ended by itself: {process.returncode}")
                time.sleep(0.003)
            time.sleep(rng.random() * 0.05)
            kill(process.pid)
        resume = out / "resume"
        torn += any(".partial" in path.name for path in out.rglob("*"))
        states = sorted(resume.glob("step-*")) if resume.is_dir() else []
        saved = int(states[-1].name[5:]) if states else 0
        lost += max(0, Run(out).log()[-1]["step"] - saved)
    subprocess.run([*command, "-o", str(out)], check=True, stderr=subprocess.DEVNULL)
    return torn, lost


def kill(pid: int) -> None:
    """Kill a process with all that it started; torchrun puts its workers in other groups."""
    everyone = [pid]
    for parent in everyone:
        children = Path(f"/proc/{parent}/task/{parent}/children")
        everyone += [int(child) for child in children.read_text().split()]
    for victim in everyone:
        os.kill(victim, signal.SIGKILL)
    while any(alive(victim) for victim in everyone[1:]):  # they give their lock back then
        time.sleep(0.001)


def alive(pid: int) -> bool:
    """Tell whether a process lives; a dead one that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def seen(out: Path) -> int:
    """Read how far a run says it is; a line may be torn while it is being written."""
    try:
        log = Run(out).log()
    except (OSError, ValueError):
        return 0
    return log[-1]["tokens"] if log else 0


def digest(out: Path) -> str:
    """Hash the last state and the model."""
    [*_, last] = sorted((out / "resume").glob("step-*"))
    whole = hashlib.sha256((last / "state.safetensors").read_bytes())
    whole.update((out / "checkpoint/model.safetensors").read_bytes())
    return whole.hexdigest()


if __name__ == "__main__":
    main()
