"""How fast are vectors? elmore and a step-by-step LSTM, in one interleaved run.

    python benchmarks/embed.py --text corpus.txt            # both published sizes
    python benchmarks/embed.py --text corpus.txt --size small --tokens 20000 --rounds 3
    python benchmarks/embed.py --model my-model             # a trained model

Weights of the published sizes are random (in bilm-tf's distributions); the text is real. `cold`
starts with an empty word cache, `warm` has seen the text once. Single sentences have 20 tokens; a
cold one has no word in the cache. Peak memory and the time to the first vector are measured in
processes of their own, and so is the plain cell once more, also under an allocator that keeps
memory.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from machine import Neighbours, Timing, append_result, facts, read_bandwidth, sgemm_limit
from plain import NnLstmElmo, PlainElmo

from elmore import Elmo
from elmore.compute.native import native
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.embedding.engine import build_bilm
from elmore.embedding.load import read_checkpoint
from elmore.embedding.word_cache import WordCache
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.bilm import BiLm, initialise
from elmore.text.characters import ByteAlphabet
from elmore.text.tokenizer import tokenize

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
# (cells, projection, highway layers)
SIZES = {"original": (4096, 512, 2), "small": (1024, 128, 1)}
OPEN = {".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}
# Glibc's malloc without mmap and trimming: freed pages stay, and are not faulted in again.
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": "268435456"}


class Variant:
    """One of our ways: a precision, with or without the extension, on an instruction set."""

    def __init__(self, checkpoint: Checkpoint, precision: str, level: str | None) -> None:
        self.level = level
        with self.used():
            self.elmo = Elmo(checkpoint, precision=precision)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Compute this way inside the block; None is pure torch."""
        before = os.environ.get("ELMORE_NATIVE", "auto")
        os.environ["ELMORE_NATIVE"] = "0" if self.level is None else "require"
        try:
            if self.level is not None and not native().module.force(self.level):
                raise SystemExit(f"this processor has no {self.level}")
            yield
        finally:
            os.environ["ELMORE_NATIVE"] = before

    def bulk(self, sentences: list[list[str]], *, cold: bool) -> None:
        """Embed through the public stream, all layers mixed."""
        with self.used():
            if cold:
                self.clear()
            for _ in self.elmo.pipe(sentences, tokenized=True):
                pass

    def one(self, sentence: list[str], *, cold: bool) -> None:
        """Embed one sentence."""
        with self.used():
            if cold:
                self.clear()
            self.elmo.embed([sentence], tokenized=True)

    def clear(self) -> None:
        """Forget all words."""
        self.elmo.engine.cache = WordCache(self.elmo.config.lstm.projection_dim)


def levels() -> list[str]:
    """Name the instruction sets worth a row: AVX2 as on most machines, and the best one."""
    module = native().module
    if module is None:
        return []
    return [name for name in ("avx2", "avx_vnni", "avx512_vnni") if module.force(name)] or ["plain"]


def variants(checkpoint: Checkpoint) -> dict[str, Variant]:
    """Make every way that this machine has; int8 also as a machine without VNNI computes it."""
    found = {"pure torch": Variant(checkpoint, "float32", None)}
    for level in levels():
        for precision in ("float32", "float16", "int8"):
            found[f"{precision}, {level}"] = Variant(checkpoint, precision, level)
    return found


def make(size: str) -> tuple[BiLm, Checkpoint]:
    """Build a published size with random weights."""
    cells, dim, highways = SIZES[size]
    config = BiLmConfig(
        tokens=TokenEncoderConfig(
            n_characters=261, char_dim=16, filters=FILTERS, n_highway=highways
        ),
        lstm=LstmConfig(dim=cells, projection_dim=dim),
    )
    bilm = BiLm(config)
    initialise(bilm, np.random.default_rng(0))
    weights = {name: w.detach().numpy() for name, w in bilm.named_parameters()}
    return bilm, Checkpoint(config=config, weights=weights, alphabet=ByteAlphabet())


def load(name: str) -> tuple[BiLm, Checkpoint]:
    """Give a published size by name, or a trained model by its path."""
    if name in SIZES:
        return make(name)
    checkpoint = read_checkpoint(name)
    return build_bilm(checkpoint), checkpoint


def flops(config: BiLmConfig) -> tuple[float, float]:
    """Count the MFLOP of a token by the plain way, and those of its LSTMs alone."""
    tokens, lstm = config.tokens, config.lstm
    cnn = sum(
        (tokens.max_chars - width + 1) * width * tokens.char_dim * count
        for width, count in tokens.filters
    )
    word = cnn + 2 * tokens.n_highway * tokens.n_filters**2
    word += tokens.n_features * lstm.projection_dim
    layer = 8 * lstm.dim * lstm.projection_dim + lstm.projected * lstm.dim * lstm.projection_dim
    layers = layer * lstm.n_layers * len(config.directions)
    return 2 * (word + layers) / 1e6, 2 * layers / 1e6


def read_text(path: Path, n_tokens: int) -> list[list[str]]:
    """Read sentences until there are enough tokens."""
    sentences, count = [], 0
    with OPEN.get(path.suffix, open)(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            tokens = list(tokenize(line.rstrip("\n")).tokens)
            if tokens:
                sentences.append(tokens)
                count += len(tokens)
            if count >= n_tokens:
                break
    return sentences


def plain_bulk(plain: PlainElmo, sentences: list[list[str]]) -> None:
    """Embed in batches of 64, sorted by length."""
    ordered = sorted(sentences, key=len, reverse=True)
    for start in range(0, len(ordered), 64):
        plain.embed(ordered[start : start + 64])


def check(
    plain: PlainElmo, ways: dict[str, Variant], sentences: list[list[str]]
) -> dict[str, float]:
    """Compare outputs before anything is timed; float32 must agree."""
    expected, worst = plain.embed(sentences[:16]), {}
    for name, way in ways.items():
        with way.used():
            found = way.elmo.layers(sentences[:16], tokenized=True)
        worst[name] = max(
            float((torch.from_numpy(f.values) - expected[:, row, 1 : 1 + len(f)]).abs().max())
            for row, f in enumerate(found)
        )
        if way.elmo.precision == "float32" and worst[name] > 1e-4:
            sys.exit(f"outputs of {name} differ by {worst[name]}; nothing is timed")
    return worst


def measure(name: str, args: argparse.Namespace) -> None:
    """Print one table and append one result line."""
    bilm, checkpoint = load(name)
    plain, library, ways = PlainElmo(bilm), NnLstmElmo(bilm), variants(checkpoint)
    sentences = read_text(args.text, args.tokens)
    tokens = sum(map(len, sentences))
    differences = check(plain, ways, sentences)
    singles = [s[:20] for s in sentences if len(s) >= 20][:40]
    plain.embed(singles[:2])
    neighbours = Neighbours()
    limit, bandwidth = sgemm_limit(), read_bandwidth()
    jobs: dict[str, Callable[[], object]] = {
        "plain": lambda: plain_bulk(plain, sentences),
        "nn.LSTM (no clip)": lambda: plain_bulk(library, sentences),
    }
    single: dict[str, Callable[[list[str]], object]] = {
        "plain": lambda s: plain.embed([s]),
        "nn.LSTM (no clip)": lambda s: library.embed([s]),
    }
    for label, way in ways.items():
        for state in ("cold", "warm"):
            cold = state == "cold"
            jobs[f"{label}, {state}"] = lambda way=way, cold=cold: way.bulk(sentences, cold=cold)
            single[f"{label}, {state}"] = lambda s, way=way, cold=cold: way.one(s, cold=cold)
    timings = {label: Timing() for label in jobs}
    for _ in range(args.rounds):
        for label, job in jobs.items():
            timings[label].add(job)
        limit = max(limit, sgemm_limit())
    one = {label: Timing() for label in jobs}
    for sentence in singles:
        for label, embed in single.items():
            one[label].add(lambda embed=embed, sentence=sentence: embed(sentence))
    limit, bandwidth = max(limit, sgemm_limit()), max(bandwidth, read_bandwidth())
    print(f"\nothers took {neighbours.share():.0%} of the machine")
    report(name, args, checkpoint, tokens, sentences, timings, one, limit, bandwidth, differences)


def report(
    name: str, args: argparse.Namespace, checkpoint: Checkpoint, tokens: int,
    sentences: list[list[str]], timings: dict[str, Timing], one: dict[str, Timing],
    limit: float, bandwidth: float, differences: dict[str, float],
) -> None:  # fmt: skip
    """Print the table and append the line."""
    whole, lstm = flops(checkpoint.config)
    distinct = len({t for s in sentences for t in s}) / tokens
    print(
        f"\n## {name}: {tokens} tokens, {len(sentences)} sentences, {distinct:.0%} distinct words"
    )
    print(f"sgemm limit {limit:.0f} GFLOP/s, read bandwidth {bandwidth:.1f} GB/s\n")
    head = "| way | tokens/s | per CPU s | x plain, wall | median | CPU | one ms | x | median x |"
    print(head + "\n|" + "---|" * (head.count("|") - 1))
    base, base_one, rows = timings["plain"], one["plain"], {}
    for label, timing in timings.items():
        rows[label] = {
            "tokens_per_s": round(tokens / timing.best),
            "tokens_per_cpu_s": round(tokens / timing.best_cpu),
            "ratio_wall": round(base.best / timing.best, 2),
            "ratio_median": round(base.median / timing.median, 2),
            "ratio_cpu": round(base.best_cpu / timing.best_cpu, 2),
            "one_ms": round(one[label].best * 1e3, 2),
            "one_ratio": round(base_one.best / one[label].best, 2),
            "one_ratio_median": round(base_one.median / one[label].median, 2),
        }
        print(f"| {label} | " + " | ".join(str(value) for value in rows[label].values()) + " |")
    share = tokens / base.best * whole / 1e3 / limit
    print(f"\nplain reaches {share:.0%} of the sgemm limit")
    markers = 1 + 2 * len(sentences) / tokens
    shares = {
        label: tokens / timings[label].best * markers * lstm / 1e3 / limit
        for label in timings
        if label.startswith("float32") and label.endswith("warm")
    }
    print("LSTM alone, word cache warm: " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items()))
    print("differences: " + ", ".join(f"{k} {v:.1e}" for k, v in differences.items()))
    processes = {
        way: in_process(name, way, args) for way in ("plain", "float32", "float16", "int8")
    }
    # Next to the others, the plain cell reuses memory that they allocated; alone it may not.
    alone = keeping = 0.0
    for _ in range(args.rounds):
        found = in_process(name, "plain", args, tokens=args.tokens)
        alone = max(alone, found["tokens_per_s"])
        found = in_process(name, "plain", args, tokens=args.tokens, environment=KEEPING)
        keeping = max(keeping, found["tokens_per_s"])
    print(
        f"plain in a process of its own: {alone} tokens/s, {alone * base.best / tokens:.2f} x plain"
        f"; with an allocator that keeps memory {keeping}, {keeping * base.best / tokens:.2f} x"
    )
    for way, found in processes.items():
        print(f"{way}: {found}")
    append_result(
        args.results,
        {
            "script": "embed",
            "size": name,
            "tokens": tokens,
            "rounds": args.rounds,
            "sgemm_gflops": round(limit),
            "read_gb_per_s": round(bandwidth, 1),
            "plain_share": round(share, 3),
            "warm_share": {k: round(v, 3) for k, v in shares.items()},
            "plain_alone_tokens_per_s": alone,
            "plain_keeping_tokens_per_s": keeping,
            "rows": rows,
            "differences": differences,
            "processes": processes,
        },
    )


def in_process(
    name: str,
    way: str,
    args: argparse.Namespace,
    *,
    tokens: int = 2000,
    environment: dict[str, str] | None = None,
) -> dict[str, float]:
    """Run one way in a process of its own; give peak memory and the time to the first vector."""
    command = [
        sys.executable, __file__, "--text", str(args.text), "--model", name, "--only", way,
        "--tokens", str(tokens),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        if way != "plain":
            Elmo(load(name)[1]).save(Path(folder) / "model", precision=way)
            command += ["--folder", f"{folder}/model"]
        variables = {**os.environ, **(environment or {})}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return json.loads(done.stdout.splitlines()[-1])


def only(name: str, args: argparse.Namespace) -> None:
    """Run one way and print what it took, as JSON."""
    sentences = read_text(args.text, args.tokens)
    result: dict[str, float] = {}
    if args.only == "plain":
        bilm, checkpoint = load(name)
        plain = PlainElmo(bilm)
        del bilm, checkpoint
        plain.embed(sentences[:2])
        embed: Callable[[], object] = lambda: plain_bulk(plain, sentences)  # noqa: E731
    else:
        start = time.perf_counter()
        elmo = Elmo.load(args.folder)
        result["load_s"] = round(time.perf_counter() - start, 3)
        elmo.embed([sentences[0][:20]], tokenized=True)
        result["first_vector_s"] = round(time.perf_counter() - start, 3)
        embed = lambda: list(elmo.pipe(sentences, tokenized=True))  # noqa: E731
    start = time.perf_counter()
    embed()
    result["tokens_per_s"] = round(sum(map(len, sentences)) / (time.perf_counter() - start))
    # Not getrusage, whose maximum a child inherits from the process that started it.
    status = Path("/proc/self/status").read_text()
    result["peak_mb"] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024
    print(json.dumps(result))


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    corpus = Path(__file__).parents[1] / "docs/assets/uses/news.txt"
    parser.add_argument(
        "--text", type=Path, default=corpus, help="one sentence per line; the default is short"
    )
    parser.add_argument("--size", choices=SIZES, action="append", default=[])
    parser.add_argument("--model", action="append", default=[], help="a trained model, by path")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, help="append a line of JSON to this file")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.text.exists():
        parser.error(f"{args.text} does not exist; pass --text with a file of sentences")
    for name in [*args.size, *args.model] or SIZES:
        if args.only:
            only(name, args)
        else:
            measure(name, args)
    if not args.only:
        print(facts())


if __name__ == "__main__":
    main()
