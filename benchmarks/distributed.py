"""What do Ray and Spark add to one process, and what does a killed worker cost?

    python benchmarks/distributed.py --text corpus.txt
    python benchmarks/distributed.py --text corpus.txt --rows 20000 --engines ray --rounds 2

A sentence a line becomes rows of Parquet files; each engine reads them, pools with the model, and
writes Parquet. *One process* does the same with one thread and no engine. Engines are running
before the clock starts; their workers start, and load the model, within the first round. In the
last round one worker is killed by SIGKILL as soon as it computes. CPU seconds are those of all
processes of an engine, so that tokens per CPU second can be compared on a busy machine. Rows must
come back whole, in order, and equal to those of the one process. Results go to results.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 16
TICK = os.sysconf("SC_CLK_TCK")
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
}
Embed = Callable[[Path, Path], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="what Elmo.load takes (default: the English model)")
    parser.add_argument("--text", type=Path, required=True, help="a sentence a line")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="without a kill; one more with it")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    args = parser.parse_args()
    os.environ.update(QUIET)
    place = Path(tempfile.mkdtemp(prefix="rd", dir="/tmp"))
    try:
        n_tokens = write_rows(args.text, args.rows, place / "in", args.model)
        measure(args, place, n_tokens)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def measure(args: argparse.Namespace, place: Path, n_tokens: int) -> None:
    """Run everything, print a table and keep the result."""
    rows: dict[str, dict[str, object]] = {}
    print(f"\n{args.rows} rows, {n_tokens} tokens, load {os.getloadavg()[0]:.1f}")
    print("\n| run | seconds | CPU s | tokens/s | tokens per CPU s | largest difference |")
    print("|---|---|---|---|---|---|", flush=True)

    def run(name: str, embed: Embed, kill: Callable[[int], bool] | None = None) -> None:
        out = place / f"out-{len(rows)}"
        with Watch(kill) as watch:
            embed(place / "in", out)
        row: dict[str, object] = {
            "seconds": round(watch.seconds, 1),
            "cpu_seconds": round(watch.cpu, 1),
            "tokens_per_s": round(n_tokens / watch.seconds),
            "tokens_per_cpu_s": round(n_tokens / watch.cpu),
            "difference": difference(place / "out-0", out),
        }
        if kill is not None:
            row["killed"] = watch.killed
        rows[name] = row
        print(f"| {name} | " + " | ".join(str(value) for value in row.values()) + " |", flush=True)

    run("one process", lambda source, out: one_process(source, out, args.model))
    for engine in args.engines:
        start, is_worker = ENGINES[engine]
        with start(args, place) as embed:
            for number in range(args.rounds):
                run(f"{engine}, {args.workers} workers, round {number + 1}", embed)
            run(f"{engine}, {args.workers} workers, one killed", embed, is_worker)
    # Imported last: torch is not needed in this process.
    from machine import append_result

    result = {
        "script": "distributed",
        "model": "english" if args.model is None else Path(args.model).name,
        "table_rows": args.rows,
        "tokens": n_tokens,
        "workers": args.workers,
        "load": os.getloadavg(),
        "rows": rows,
    }
    append_result(Path(__file__).with_name("results.jsonl"), result)


def write_rows(text: Path, count: int, folder: Path, model: str | None) -> int:
    """Write sentences as Parquet files, and count their tokens."""
    from elmore import Elmo

    with text.open(encoding="utf-8") as stream:
        lines = [line for line in (line.strip() for line in stream) if line]
    lines = [lines[k % len(lines)] for k in range(count)]
    table = pa.table({"id": range(count), "text": lines})
    folder.mkdir()
    size = -(-count // FILES)
    for part in range(FILES):
        pq.write_table(table.slice(part * size, size), folder / f"part-{part:03d}.parquet")
    elmo = Elmo.load(model, threads=1)
    return sum(len(elmo.tokenize(line)) for line in lines)


def difference(expected: Path, found: Path) -> float:
    """Compare two folders of vectors, rows by their ids."""
    tables = []
    for folder in (expected, found):
        files = sorted(folder.glob("*.parquet"))
        tables.append(pa.concat_tables(pq.read_table(file) for file in files).sort_by("id"))
    if tables[0]["id"] != tables[1]["id"] or tables[0]["text"] != tables[1]["text"]:
        sys.exit(f"{found} has other rows")
    one, other = (np.stack(table["vector"].to_numpy(zero_copy_only=False)) for table in tables)
    return float(np.abs(one - other).max())


# ----------------------------------------------------------------------------------- the engines


def one_process(source: Path, out: Path, model: str | None) -> None:
    """Do without an engine."""
    from elmore.integrations.columns import ColumnEmbedder, ColumnJob, load_model

    job = ColumnJob(model=model, pool="mean")
    embedder = ColumnEmbedder(job, load_model(job))
    out.mkdir()
    for path in sorted(source.glob("*.parquet")):
        pieces = list(embedder.tables(pq.read_table(path)))
        pq.write_table(pa.concat_tables(pieces), out / path.name, compression="zstd")


@contextlib.contextmanager
def ray_engine(args: argparse.Namespace, place: Path) -> Iterator[Embed]:
    """Start Ray with a processor more than workers, for what reads and writes."""
    import ray

    from elmore.integrations.ray import embed_parquet

    ray.init(
        num_cpus=args.workers + 1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=256 << 20,
        _temp_dir=str(place / "ray"),
        _node_ip_address="127.0.0.1",
    )
    yield lambda source, out: embed_parquet(
        source, out, model=args.model, pool="mean", workers=args.workers
    )
    ray.shutdown()


@contextlib.contextmanager
def spark_engine(args: argparse.Namespace, place: Path) -> Iterator[Embed]:
    """Start Spark; four failures of a task are allowed, as on a cluster."""
    from pyspark.sql import SparkSession

    from elmore.integrations.spark import embed_parquet

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(place),
        "spark.sql.files.openCostInBytes": "67108864",  # two files a task: small ones are joined
    }
    builder = SparkSession.builder.master(f"local[{args.workers}, 4]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield lambda source, out: embed_parquet(session, source, out, model=args.model, pool="mean")
    session.stop()


def is_ray_worker(pid: int) -> bool:
    """Tell an actor by the title that Ray gives it."""
    return b"EmbedRows" in Path(f"/proc/{pid}/cmdline").read_bytes()


def is_spark_worker(pid: int) -> bool:
    """Tell a process of Spark's that has loaded torch."""
    if b"pyspark.daemon" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return False
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


ENGINES = {"ray": (ray_engine, is_ray_worker), "spark": (spark_engine, is_spark_worker)}


# --------------------------------------------------------------------------------- the processes


class Watch:
    """Measures a block, and kills a worker in it when that has computed for a while.

    Args:
        kill: tells whether a process is a worker; None to kill none.
    """

    def __init__(self, kill: Callable[[int], bool] | None) -> None:
        self._is_worker, self._done = kill, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._before = self._times()
        self._now = dict(self._before)
        self.killed: int | None = None
        self.seconds = self.cpu = 0.0

    def __enter__(self) -> Watch:
        self.seconds = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.seconds = time.perf_counter() - self.seconds
        self._done.set()
        self._thread.join()
        self._now.update(self._times())
        self.cpu = sum(used - self._before.get(pid, 0) for pid, used in self._now.items())
        if self._is_worker is not None and self.killed is None and not details[0]:
            print("no worker was seen to be killed", file=sys.stderr)

    def _look(self) -> None:
        while not self._done.wait(0.25):
            self._now.update(self._times())
            if self._is_worker is not None and self.killed is None:
                self._kill()

    def _kill(self) -> None:
        for pid, used in self._times().items():
            with contextlib.suppress(OSError):
                # Loading takes two to three seconds of a processor; then it computes.
                busy = used - self._before.get(pid, 0) > (4 if pid not in self._before else 1)
                if pid != os.getpid() and busy and self._is_worker and self._is_worker(pid):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = pid
                    return

    @staticmethod
    def _times() -> dict[int, float]:
        """Give the CPU seconds of this process and all that stem from it."""
        parents: dict[int, int] = {}
        used: dict[int, float] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(fields[1])
                used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICK
        own = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in own} - own:
            own |= more
        return {pid: used[pid] for pid in own if pid in used}


if __name__ == "__main__":
    main()
