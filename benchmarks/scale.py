"""Does cost stay flat as text grows, and does a second worker add what a second processor can?

    python benchmarks/scale.py --model my-model --text corpus.txt
    python benchmarks/scale.py --model my-model --text corpus.txt --tokens 10000 100000 --rounds 2

Three tables. *Growth*: tokens of one stream, each size in a process of its own with an empty word
cache: microseconds a token, and how much the peak of memory grew after a first window.
*Workers*: two one-thread processes at once beside one, and the same with matrix products of one
thread: the gain of the products is what the machine can give. *Long*: one single sequence.
Short texts are read again and again. Results go to results.jsonl.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import itertools
import json
import lzma
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

OPEN = {".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}
WARM_TOKENS = 30_000  # more than a window of the pipe: from here on memory should not grow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="what Elmo.load takes")
    parser.add_argument("--text", type=Path, required=True, help="a sentence a line")
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--worker-tokens", type=int, default=50_000)
    parser.add_argument("--long", type=int, default=100_000, help="tokens of the one sequence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    results = {"growth": growth(args), "workers": workers(args), "long": long_input(args)}
    # Imported last: torch in this process would only take memory from the others.
    from machine import append_result

    result = {"benchmark": "scale", "model": Path(args.model).name, **results}
    append_result(Path(__file__).with_name("results.jsonl"), result)


# ------------------------------------------------------------------------------------ the tables


def growth(args: argparse.Namespace) -> list[dict[str, float]]:
    """Embed streams of growing length."""
    runs: dict[int, list[dict[str, float]]] = {n: [] for n in args.tokens}
    for _ in range(args.rounds):
        for n_tokens in args.tokens:
            [result] = together(args, [f"stream {n_tokens}"])
            runs[n_tokens].append(result)
    print("\n| tokens | µs a token, best | median | CPU µs, best | memory grew by MB |")
    print("|---|---|---|---|---|")
    rows = []
    for n_tokens, found in runs.items():
        row = {
            "tokens": n_tokens,
            "us": min(r["wall"] / r["tokens"] for r in found) * 1e6,
            "us_median": statistics.median(r["wall"] / r["tokens"] for r in found) * 1e6,
            "cpu_us": min(r["cpu"] / r["tokens"] for r in found) * 1e6,
            "grew_mb": max(r["grew"] for r in found) / 1e6,
        }
        rows.append({key: round(value, 1) for key, value in row.items()})
        print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
    return rows


def workers(args: argparse.Namespace) -> dict[str, float]:
    """Compare the gain of a second worker with the gain of a second matrix product."""
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(args.rounds):
        for task, count in itertools.product([f"worker {args.worker_tokens}", "sgemm"], [1, 2]):
            found = together(args, [task] * count)
            rate = sum(result["tokens"] / result["wall"] for result in found)
            rates.setdefault((task.split()[0], count), []).append(rate)
    gains = {name: max(rates[name, 2]) / max(rates[name, 1]) for name in ("worker", "sgemm")}
    share = gains["worker"] / gains["sgemm"]
    print(f"\ntwo one-thread workers: x {gains['worker']:.2f}; two one-thread products: x ", end="")
    print(f"{gains['sgemm']:.2f}; share {share:.0%} (the aim: 90 %)", flush=True)
    return {
        "worker_gain": round(gains["worker"], 3),
        "sgemm_gain": round(gains["sgemm"], 3),
        "share": round(share, 3),
        "worker_tokens_per_s": round(max(rates["worker", 1])),
    }


def long_input(args: argparse.Namespace) -> dict[str, float]:
    """Embed one long sequence."""
    [result] = together(args, [f"long {args.long}"])
    row = {
        "tokens": args.long,
        "us": round(result["wall"] / args.long * 1e6, 1),
        "grew_mb": round(result["grew"] / 1e6, 1),
        "output_mb": round(result["output"] / 1e6, 1),
    }
    print(
        f"\none sequence of {args.long} tokens: {row['us']} µs a token, memory grew by "
        f"{row['grew_mb']} MB, of which {row['output_mb']} MB are its vectors"
    )
    return row


def together(args: argparse.Namespace, tasks: list[str]) -> list[dict[str, float]]:
    """Run tasks at the same time, each in a process that has loaded its model before."""
    command = [sys.executable, __file__, "--model", args.model, "--text", str(args.text)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*command, "--child", task], **pipes) for task in tasks]
    for process in processes:
        if process.stdout.readline() != "ready\n":
            sys.exit("a process failed")
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.communicate()[0]) for process in processes]


# ------------------------------------------------------------------------------- in the processes


def child(args: argparse.Namespace) -> None:
    """Perform one task when told to."""
    import torch

    task, _, size = args.child.partition(" ")
    threads = 1 if task in ("worker", "sgemm") else None
    if threads:
        torch.set_num_threads(threads)
    if task == "sgemm":
        go()
        report(*multiply())
        return
    from elmore import Elmo

    elmo, n_tokens = Elmo.load(args.model, threads=threads), int(size)
    for _ in elmo.pipe(sentences(args.text, WARM_TOKENS), tokenized=True):
        pass
    if task == "long":  # the measure of memory is what a batch needs anyway
        elmo.embed([list(itertools.islice(words(args.text), 4000))], tokenized=True)
    elmo.engine.cache.clear()
    go()
    before, wall, cpu = peak(), time.perf_counter(), time.process_time()
    done = output = 0
    if task == "long":
        [vectors] = elmo.embed([list(itertools.islice(words(args.text), n_tokens))], tokenized=True)
        done, output = len(vectors), vectors.nbytes
    else:
        for vectors in elmo.pipe(sentences(args.text, n_tokens), tokenized=True):
            done += len(vectors)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    report(done, wall, cpu, peak() - before, output)


def multiply() -> tuple[int, float]:
    """Multiply for about two seconds; give GFLOP and seconds."""
    import torch

    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    a @ b
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < 2:
        a @ b
        count += 1
    return count, time.perf_counter() - start


def report(tokens: int, wall: float, cpu: float = 0.0, grew: int = 0, output: int = 0) -> None:
    """Tell the parent."""
    print(json.dumps({"tokens": tokens, "wall": wall, "cpu": cpu, "grew": grew, "output": output}))


def go() -> None:
    """Wait until all are ready."""
    print("ready", flush=True)
    sys.stdin.readline()


def peak() -> int:
    """Give the most memory that this process has held, in bytes."""
    import resource  # of POSIX systems alone

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def sentences(path: Path, n_tokens: int) -> Iterator[list[str]]:
    """Read sentences until there are enough tokens; from the start again if need be."""
    count = 0
    while count < n_tokens:
        with OPEN.get(path.suffix, open)(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                tokens = line.split()
                if tokens:
                    yield tokens
                    count += len(tokens)
                if count >= n_tokens:
                    return
        if not count:
            sys.exit(f"{path} has no words")


def words(path: Path) -> Iterator[str]:
    """Give the words of a text, without end."""
    while True:
        yield from itertools.chain.from_iterable(sentences(path, 1_000_000))


if __name__ == "__main__":
    main()
