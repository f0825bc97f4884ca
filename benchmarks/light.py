"""What using a model costs: size of an install, time and memory of a cold process.

    python light.py --new NEW --old OLD --serve-new NEW_SERVE --serve-old OLD -o results/light.json

NEW and OLD are environments (folders made by `python -m venv`) with two versions of elmore and
nothing else; those for the service have the extra [serve]. Every measurement is a process of its
own; the versions take turns and the best of several rounds counts, so that a busy machine disturbs
both alike. Run it on a quiet one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FIRST_VECTOR = """
from elmore import Elmo
elmo = Elmo.load()
vectors = elmo.embed("She sat on the bank of the river .")
"""
CASES = {
    "python alone": ["bin/python", "-c", "pass"],
    "import numpy": ["bin/python", "-c", "import numpy"],
    "import elmore": ["bin/python", "-c", "import elmore"],
    "first vector": ["bin/python", "-c", FIRST_VECTOR],
    "echo | elmore embed": ["bin/elmore", "embed", "-o", "-"],
}


def run(environment: Path, command: list[str]) -> dict[str, float]:
    """Wall seconds, CPU seconds and peak megabytes of one process."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(environment / command[0]), *command[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tempfile.gettempdir(),
    )
    assert process.stdin is not None
    process.stdin.write(b"A plant grew .\n")
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed in {environment}")
    return {
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss / 1024,
    }


def serve(environment: Path) -> dict[str, float]:
    """Seconds until the service answers, and what it holds then and after a request."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(environment / "bin/elmore"), "serve", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tempfile.gettempdir(),
    )
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=1).read()
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if process.poll() is not None or time.perf_counter() - start > 60:
                    raise SystemExit(f"the service did not start in {environment}") from None
                time.sleep(0.01)
        seconds = time.perf_counter() - start
        body = json.dumps({"sentences": ["She sat on the bank of the river ."]}).encode()
        header = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}/v1/embed", body, header)
        urllib.request.urlopen(request, timeout=30).read()
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    finally:
        process.terminate()
        process.wait(60)
    return {"seconds": seconds, "megabytes": int(peak.split()[1]) / 1024}


def installed(environment: Path) -> dict[str, float]:
    """Megabytes of an environment's packages, and of the model files among them."""
    [packages] = environment.glob("lib/python*/site-packages")
    sizes = {path: path.stat().st_size for path in packages.rglob("*") if path.is_file()}
    model = sum(size for path, size in sizes.items() if "models" in path.parts)
    tools = sum(size for path, size in sizes.items() if {"pip", "setuptools"} & set(path.parts))
    total = sum(sizes.values())
    return {
        "megabytes": (total - model - tools) / 1e6,
        "model": model / 1e6,
        "pip and setuptools": tools / 1e6,
    }


def best(results: list[dict[str, float]]) -> dict[str, float]:
    """The smallest of each number."""
    return {key: round(min(r[key] for r in results), 3) for key in results[0]}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--serve-new", type=Path)
    parser.add_argument("--serve-old", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    sides = {"old": args.old.resolve(), "new": args.new.resolve()}
    result: dict[str, Any] = {}
    result["installed"] = {side: installed(path) for side, path in sides.items()}
    for name, command in CASES.items():
        rounds: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side, path in sides.items():
                rounds[side].append(run(path, command))
        result[name] = {side: best(found) for side, found in rounds.items()}
        print(name, json.dumps(result[name]), flush=True)
    services = {"old": args.serve_old, "new": args.serve_new}
    if all(services.values()):
        found: dict[str, list[dict[str, float]]] = {side: [] for side in services}
        for _ in range(args.rounds):
            for side, path in services.items():
                found[side].append(serve(path.resolve()))
        result["elmore serve"] = {side: best(list_) for side, list_ in found.items()}
        print("elmore serve", json.dumps(result["elmore serve"]), flush=True)
    print("installed", json.dumps(result["installed"]))
    # Imported last: a process counts what its parent held when it was started.
    from machine import facts

    result["machine"] = facts()
    if args.output is not None:
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
