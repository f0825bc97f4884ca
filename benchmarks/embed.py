"""How fast are vectors? Our model beside the plain step-by-step cell, in one interleaved run.

    python benchmarks/embed.py --text corpus.txt            # both published sizes
    python benchmarks/embed.py --text corpus.txt --size small --tokens 20000 --rounds 3

Weights are random (in bilm-tf's distributions); the text is real. `cold` starts with an empty word
cache, `warm` has seen the text once. Peak memory is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from machine import Timing, append_result, facts, sgemm_limit
from plain import PlainElmo

from elmore import Elmo
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.embedding.cache import WordCache
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.bilm import BiLm
from elmore.nn.initial import initialise
from elmore.text.characters import ByteAlphabet
from elmore.text.tokenizer import tokenize

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
# (cells, projection, highway layers, MFLOP of a token by the plain way)
SIZES = {"original": (4096, 512, 2, 204), "small": (1024, 128, 1, 44)}
OPEN = {".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}


def make(size: str) -> tuple[BiLm, Checkpoint]:
    """Build a published size with random weights."""
    cells, dim, highways, _ = SIZES[size]
    config = BiLmConfig(
        tokens=TokenEncoderConfig(
            n_characters=261, char_dim=16, filters=FILTERS, n_highway=highways
        ),
        lstm=LstmConfig(dim=cells, projection_dim=dim),
    )
    bilm = BiLm(config)
    initialise(bilm, torch.Generator().manual_seed(0))
    weights = {name: w.detach().numpy() for name, w in bilm.named_parameters()}
    return bilm, Checkpoint(config=config, weights=weights, alphabet=ByteAlphabet())


def read_text(path: Path, n_tokens: int) -> list[list[str]]:
    """Read whole sentences until there are enough tokens."""
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


def ours_bulk(elmo: Elmo, sentences: list[list[str]], *, cold: bool) -> None:
    """Embed through the public stream, all layers mixed."""
    if cold:
        clear(elmo)
    for _ in elmo.pipe(sentences, tokenized=True):
        pass


def clear(elmo: Elmo) -> None:
    """Forget all words."""
    elmo.engine.cache = WordCache(elmo.config.lstm.projection_dim)


def check(plain: PlainElmo, elmo: Elmo, sentences: list[list[str]]) -> float:
    """Compare outputs before anything is timed."""
    worst = 0.0
    expected = plain.embed(sentences[:16])
    for row, layers in enumerate(elmo.layers_tokens(sentences[:16])):
        want = expected[:, row, 1 : 1 + len(layers)]
        worst = max(worst, float((torch.from_numpy(layers.values) - want).abs().max()))
    if worst > 1e-4:
        sys.exit(f"outputs differ by {worst}; nothing is timed")
    return worst


def measure(size: str, args: argparse.Namespace) -> None:
    """Print one table and append one result line."""
    bilm, checkpoint = make(size)
    plain, elmo = PlainElmo(bilm), Elmo(checkpoint)
    n_tokens = args.tokens // (4 if size == "original" else 1)
    sentences = read_text(args.text, n_tokens)
    tokens = sum(map(len, sentences))
    difference = check(plain, elmo, sentences)
    singles = [s[:20] for s in sentences if len(s) >= 20][:40]
    plain.embed(singles[:2])
    limit = sgemm_limit()
    jobs: dict[str, tuple[Callable[[], object], int]] = {
        "plain": (lambda: plain_bulk(plain, sentences), tokens),
        "ours cold": (lambda: ours_bulk(elmo, sentences, cold=True), tokens),
        "ours warm": (lambda: ours_bulk(elmo, sentences, cold=False), tokens),
    }
    timings = {name: Timing() for name in jobs}
    for _ in range(args.rounds):
        for name, (job, _) in jobs.items():
            timings[name].add(job)
    one = {name: Timing() for name in jobs}
    for tokens_of_one in singles:
        one["plain"].add(lambda s=tokens_of_one: plain.embed([s]))
        clear(elmo)
        one["ours cold"].add(lambda s=tokens_of_one: elmo.embed_tokens([s]))
        one["ours warm"].add(lambda s=tokens_of_one: elmo.embed_tokens([s]))
    limit = max(limit, sgemm_limit())
    distinct = len({t for s in sentences for t in s}) / tokens
    print(
        f"\n## {size}: {tokens} tokens, {len(sentences)} sentences, {distinct:.0%} distinct words"
    )
    print(f"outputs agree to {difference:.1e}; sgemm limit {limit:.0f} GFLOP/s\n")
    print("| variant | tokens/s | per CPU s | x plain, wall | x plain, CPU | median | one ms | x |")
    print("|---|---|---|---|---|---|---|---|")
    base, base_one = timings["plain"], one["plain"]
    rows = {}
    for name, timing in timings.items():
        row = {
            "tokens_per_s": round(tokens / timing.best),
            "tokens_per_cpu_s": round(tokens / timing.best_cpu),
            "ratio_wall": round(base.best / timing.best, 2),
            "ratio_cpu": round(base.best_cpu / timing.best_cpu, 2),
            "ratio_median": round(base.median / timing.median, 2),
            "one_ms": round(one[name].best * 1e3, 1),
            "one_ratio": round(base_one.best / one[name].best, 2),
        }
        rows[name] = row
        print(f"| {name} | " + " | ".join(str(value) for value in row.values()) + " |")
    share = rows["plain"]["tokens_per_s"] * SIZES[size][3] / 1e3 / limit
    print(f"\nplain reaches {share:.0%} of the sgemm limit")
    peaks = {name: peak(size, name, args) for name in ("plain", "ours cold")}
    print("peak memory MB: " + ", ".join(f"{name} {mb}" for name, mb in peaks.items()))
    append_result(
        args.results,
        {
            "script": "embed",
            "size": size,
            "tokens": tokens,
            "rounds": args.rounds,
            "sgemm_gflops": round(limit),
            "plain_share": round(share, 3),
            "rows": rows,
            "peak_mb": peaks,
        },
    )


def peak(size: str, variant: str, args: argparse.Namespace) -> int:
    """Run one variant in a process of its own and give its peak memory in MB."""
    command = [
        sys.executable,
        __file__,
        "--text",
        str(args.text),
        "--size",
        size,
        "--only",
        variant,
        "--tokens",
        "2000",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def only(size: str, args: argparse.Namespace) -> None:
    """Run one variant and print the peak memory."""
    bilm, checkpoint = make(size)
    sentences = read_text(args.text, args.tokens)
    if args.only == "plain":
        del checkpoint
        plain_bulk(PlainElmo(bilm), sentences)
    else:
        del bilm
        ours_bulk(Elmo(checkpoint), sentences, cold=True)
    # Not getrusage, whose maximum a child inherits from the process that started it.
    status = Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024)


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    corpus = Path(__file__).parents[2] / "shared/data/pretrain/wiki-core.valid.txt.xz"
    parser.add_argument("--text", type=Path, default=corpus, help="real text, a sentence a line")
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results.jsonl")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.text.exists():
        parser.error(f"{args.text} does not exist; pass --text with a file of sentences")
    for size in args.size or SIZES:
        if args.only:
            only(size, args)
        else:
            measure(size, args)
    if not args.only:
        print(facts())


if __name__ == "__main__":
    main()
