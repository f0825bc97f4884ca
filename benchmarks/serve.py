"""What does the service cost, and what does it do when too much is asked of it?

    python benchmarks/serve.py                          # a few minutes
    python benchmarks/serve.py --soak 10                # and ten minutes of steady load
    python benchmarks/serve.py --seconds 2 --rounds 1   # does it run at all?

Three processes: this one, which measures the in-process bulk rate with one thread; the service
with one compute thread; and the clients, all in one asyncio loop over loopback, which read answers
without parsing them. Bulk and service take turns in every round. Sentences have mixed lengths
(log-normal, median 18 tokens, 1 to 120) and common words of the model's vocabulary; every request
holds `--sentences` of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from machine import Neighbours, append_result

from elmore import Elmo

CLIENTS = (1, 8, 32)
KINDS = {
    "npz": ("application/x-npz", {}),
    "json": ("application/json", {}),
    "npz pooled": ("application/x-npz", {"pooling": "mean"}),
    "json pooled": ("application/json", {"pooling": "mean"}),
}


def make_sentences(words: list[str], count: int, seed: int) -> list[list[str]]:
    """Draw sentences of mixed lengths from common words."""
    draw = random.Random(seed)
    lengths = [min(120, max(1, round(draw.lognormvariate(2.9, 0.6)))) for _ in range(count)]
    return [
        [words[int(len(words) * draw.random() ** 3)] for _ in range(length)] for length in lengths
    ]


# --------------------------------------------------------------------------- clients


class Load:
    """What the clients saw."""

    def __init__(self) -> None:
        self.seconds: list[float] = []  # of answers 200
        self.refusals: list[float] = []
        self.tokens = 0
        self.statuses: Counter[int] = Counter()
        self.failed = 0


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bool]:
    """Send a request and read the answer; give its status and whether the connection stays."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    left = int(found[1]) if found else 0
    while left:
        part = await reader.read(min(left, 1 << 18))
        if not part:
            raise ConnectionError("the answer broke off")
        left -= len(part)
    return status, b"connection: close" not in head.lower()


async def client(
    port: int, requests: list[tuple[bytes, int]], first: int, step: int, end: float, load: Load
) -> None:
    """Send one request after the other on one connection until the time is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    k = first
    while time.perf_counter() < end:
        request, tokens = requests[k % len(requests)]
        k += step
        start = time.perf_counter()
        try:
            status, stays = await asyncio.wait_for(ask(reader, writer, request), 60)
        except (OSError, EOFError, TimeoutError):
            load.failed += 1
            stays, status = False, 0
        spent = time.perf_counter() - start
        load.statuses[status] += 1
        if status == 200:
            load.seconds.append(spent)
            load.tokens += tokens
        elif status:
            load.refusals.append(spent)
            await asyncio.sleep(0.05)
        if not stays:
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def drive(
    port: int, requests: list[tuple[bytes, int]], clients: int, seconds: float
) -> dict[str, Any]:
    """Run some clients for some seconds."""
    load = Load()
    start = time.perf_counter()
    end = start + seconds
    await asyncio.gather(*(client(port, requests, k, clients, end, load) for k in range(clients)))
    spent = time.perf_counter() - start
    times = sorted(load.seconds)
    return {
        "clients": clients,
        "tokens_per_s": round(load.tokens / spent),
        "requests_per_s": round(len(times) / spent, 1),
        "p50_ms": _ms(times, 0.5),
        "p99_ms": _ms(times, 0.99),
        "refused": len(load.refusals),
        "refused_p99_ms": _ms(sorted(load.refusals), 0.99),
        "failed": load.failed,
        "statuses": {str(status): count for status, count in load.statuses.items()},
    }


def _ms(times: list[float], share: float) -> float | None:
    if not times:
        return None
    return round(1000 * times[min(len(times) - 1, int(share * len(times)))], 2)


def clients_process(
    port: int, requests: list[tuple[bytes, int]], clients: int, seconds: float, pipe: Any
) -> None:
    """Be the second process."""
    pipe.send(asyncio.run(drive(port, requests, clients, seconds)))


def loaded(
    port: int, requests: list[tuple[bytes, int]], clients: int, seconds: float
) -> dict[str, Any]:
    """Load the service from another process."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=clients_process, args=(port, requests, clients, seconds, theirs)
    )
    process.start()
    result: dict[str, Any] = ours.recv()
    process.join()
    return result


# --------------------------------------------------------------------------- the service


class Service:
    """`elmore serve` with one compute thread."""

    def __init__(self, model: str | None, *flags: str) -> None:
        command = [sys.executable, "-m", "elmore", "serve", *([model] if model else [])]
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--threads", "1", *flags],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        line = self._process.stderr.readline() if self._process.stderr else ""
        found = re.search(r":(\d+)/", line)
        if found is None:
            raise SystemExit(f"the service did not start: {line}")
        self.port = int(found[1])

    def memory(self) -> float:
        """Give its resident memory in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def cpu(self) -> float:
        """Give the CPU seconds it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """End it and give its exit code."""
        self._process.terminate()
        self._process.communicate(timeout=60)
        return self._process.returncode


def make_requests(
    port: int, sentences: list[list[str]], each: int, kind: str
) -> list[tuple[bytes, int]]:
    """Write the requests beforehand: (bytes, tokens)."""
    accept, fields = KINDS[kind]
    requests = []
    for start in range(0, len(sentences) - each + 1, each):
        some = sentences[start : start + each]
        body = json.dumps({"tokens": some, **fields}).encode()
        head = (
            f"POST /v1/embed HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: {accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        requests.append((head.encode() + body, sum(map(len, some))))
    return requests


# --------------------------------------------------------------------------- questions


def throughput(args: argparse.Namespace, elmo: Elmo, service: Service, text: Any) -> dict[str, Any]:
    """Bulk and 32 clients in turns, for every kind of answer."""
    bulk: list[float] = []
    rates: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    tokens = sum(map(len, text))
    # Both know the words before anything is timed.
    for _ in elmo.pipe(text, tokenized=True):
        pass
    loaded(service.port, make_requests(service.port, text, args.sentences, "npz"), 32, 2)
    for _ in range(args.rounds):
        runs, start = 0, time.perf_counter()
        while time.perf_counter() - start < args.seconds:
            for _ in elmo.pipe(text, tokenized=True):
                pass
            runs += 1
        bulk.append(runs * tokens / (time.perf_counter() - start))
        for kind, found in rates.items():
            requests = make_requests(service.port, text, args.sentences, kind)
            cpu = service.cpu()
            found.append(loaded(service.port, requests, 32, args.seconds))
            found[-1]["service_cpu_s"] = round(service.cpu() - cpu, 2)
    best = max(bulk)
    print(
        f"\nbulk, one thread, in process: {best:,.0f} tokens/s "
        f"(median {statistics.median(bulk):,.0f})"
    )
    report: dict[str, Any] = {"bulk_tokens_per_s": round(best)}
    for kind, found in rates.items():
        top = max(found, key=lambda result: result["tokens_per_s"])
        ratios = [r["tokens_per_s"] / b for r, b in zip(found, bulk, strict=True)]
        report[kind] = {**top, "ratio_of_best": round(top["tokens_per_s"] / best, 3)}
        report[kind]["ratio_median"] = round(statistics.median(ratios), 3)
        print(
            f"32 clients, {kind:12} {top['tokens_per_s']:>8,} tokens/s "
            f"= {report[kind]['ratio_of_best']:.0%} of bulk (median round "
            f"{report[kind]['ratio_median']:.0%}), {top['requests_per_s']:,} requests/s"
        )
    return report


def latency(args: argparse.Namespace, service: Service, text: Any) -> list[dict[str, Any]]:
    """One sentence a request, pooled."""
    requests = make_requests(service.port, text, 1, "json pooled")
    results = [loaded(service.port, requests, clients, args.seconds) for clients in CLIENTS]
    for result in results:
        print(
            f"{result['clients']:>3} clients, one sentence: p50 {result['p50_ms']} ms, "
            f"p99 {result['p99_ms']} ms, {result['requests_per_s']:,} requests/s"
        )
    return results


def overload(args: argparse.Namespace, text: Any) -> dict[str, Any]:
    """A small queue and many clients: what is refused, how fast, and how it is afterwards."""
    service = Service(args.model, "--max-queue-tokens", "8192", "--max-requests", "48")
    try:
        requests = make_requests(service.port, text, 16, "npz pooled")
        before = loaded(service.port, requests, 2, args.seconds / 2)
        during = loaded(service.port, requests, 128, args.seconds)
        after = loaded(service.port, requests, 2, args.seconds / 2)
    finally:
        service.stop()
    print(
        f"overload, 128 clients: {during['statuses']}, refused within "
        f"{during['refused_p99_ms']} ms (p99), accepted within "
        f"{during['p99_ms']} ms (p99); p50 with 2 clients before "
        f"{before['p50_ms']} ms, after {after['p50_ms']} ms"
    )
    return {"before": before, "during": during, "after": after}


def soak(args: argparse.Namespace, service: Service, text: Any) -> dict[str, Any]:
    """Steady load; memory at the start, on the way and at the end."""
    requests = make_requests(service.port, text, args.sentences, "npz")
    memory = [service.memory()]
    total: Counter[str] = Counter()
    pieces = max(2, round(args.soak * 60 / 30))
    for _ in range(pieces):
        result = loaded(service.port, requests, 32, args.soak * 60 / pieces)
        memory.append(service.memory())
        total.update(result["statuses"])
        total["failed"] += result["failed"]
    bad = {status: count for status, count in total.items() if status != "200" and count}
    print(
        f"soak, {args.soak} min: {total['200']:,} requests, others {bad or 'none'}, MB every half "
        f"minute: {', '.join(f'{m:.0f}' for m in memory)}"
    )
    return {
        "minutes": args.soak,
        "statuses": dict(total),
        "memory_mb": [round(m, 1) for m in memory],
    }


def main() -> None:
    """Answer the questions in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the included model")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=8, help="of a request under load")
    parser.add_argument("--soak", type=float, default=0, help="minutes of steady load")
    parser.add_argument("--results", type=Path, help="append a line of JSON to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    neighbours = Neighbours()
    elmo = Elmo.load(args.model, threads=1)
    vocabulary = elmo.checkpoint.vocabulary
    words = [f"w{k}" for k in range(5000)] if vocabulary is None else vocabulary.words[3:20_003]
    text = make_sentences(list(words), 2048, 0)
    service = Service(args.model)
    try:
        report: dict[str, Any] = {
            "benchmark": "serve",
            "sentences_per_request": args.sentences,
            "throughput": throughput(args, elmo, service, text),
            "latency": latency(args, service, text),
        }
        if args.soak:
            report["soak"] = soak(args, service, text)
    finally:
        code = service.stop()
    report["overload"] = overload(args, text)
    report["stopped_by"] = code
    report["others_share"] = round(neighbours.share(), 3)
    print(f"others used {report['others_share']:.0%} of the machine meanwhile")
    append_result(args.results, report)


if __name__ == "__main__":
    main()
