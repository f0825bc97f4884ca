"""How fast is a training step, and where does its time go?

    python benchmarks/train.py --text corpus.txt
    python benchmarks/train.py --text corpus.txt --size 512/128 --rounds 7

One interleaved run of three steps on the same batches of 64 sequences of 20 tokens: ours, a plain
step-by-step cell under autograd, and torch's nn.LSTM(proj_size), which cannot clip. 512 filters,
50,000 words, 4,096 negatives per direction, Adagrad. Tokens count once, not once per direction.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from embed import read_text
from machine import Timing, append_result, facts, sgemm_limit
from plain_training import PlainStep

from elmore.compute.native import native
from elmore.compute.recurrence import Clips
from elmore.corpus.prepare import prepare
from elmore.nn.lstm_steps import LstmSteps
from elmore.nn.softmax import draw_negatives, sampled_softmax
from elmore.nn.threads import TorchWorkers
from elmore.text.vocabulary import Vocabulary
from elmore.training.bilm.batches import LmBatch
from elmore.training.bilm.recipe import Recipe
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.distributed import Group
from elmore.training.optimizers import Update
from elmore.training.run import Run

SIZES = ("512/128", "1024/128", "1024/256")
ROWS, STEPS, WORDS = 64, 20, 50_000


def make_vocabulary(sentences: list[list[str]]) -> Vocabulary:
    """Take the words of the text by falling frequency, filled up to the full number."""
    counts: dict[str, int] = {}
    for sentence in sentences:
        for token in sentence:
            counts[token] = counts.get(token, 0) + 1
    words = ["<S>", "</S>", "<UNK>", *sorted(counts, key=lambda word: -counts[word])]
    words += [f"filler-{k}" for k in range(max(0, WORDS - len(words)))]
    return Vocabulary(words[:WORDS])


def make_trainer(
    size: str, sentences: list[list[str]], threads: int, negatives: int, folder: Path
) -> LmTrainer:
    """Build our trainer on packed windows of the text, which is prepared in the folder."""
    cells, dim = size.split("/")
    recipe = Recipe.load(
        "laptop",
        {
            "model.dim": cells,
            "model.projection_dim": dim,
            "data.regime": "stream",
            "data.batch_rows": str(ROWS),
            "data.unroll": str(STEPS),
            "loss.negatives": str(negatives),
            "loss.shared": "none",
            "optimizer.name": "adagrad",
            "optimizer.lr": "0.1",
            "optimizer.clip_norm": "10.0",
        },
    )
    text, vocabulary = folder / "text.txt", folder / "vocab.txt"
    text.write_text("\n".join(" ".join(tokens) for tokens in sentences), encoding="utf-8")
    vocabulary.write_bytes(make_vocabulary(sentences).to_bytes())
    options = {"vocabulary": vocabulary, "tokenized": True, "heldout": 0, "progress": False}
    prepared = prepare([text], folder / "data", **options)
    return LmTrainer(recipe, Run(folder), prepared, 0, Group(), TorchWorkers(threads))


class Fixed:
    """The same few batches again and again."""

    def __init__(self, batches: list[LmBatch]) -> None:
        self.batches, self.place = batches, 0

    def next(self) -> LmBatch:
        """Give the next one."""
        self.place += 1
        return self.batches[self.place % len(self.batches)]


def parts(trainer: LmTrainer, batch: LmBatch, negatives: int, rounds: int) -> dict[str, float]:
    """Time the parts of a step by themselves, on one thread, in CPU milliseconds."""
    torch.set_num_threads(1)
    bilm = trainer.bilm
    timings = {name: Timing() for name in ("token layer", "LSTMs", "softmax", "optimizer")}
    words = torch.from_numpy(batch.words).long()
    layers = [*bilm.forward_layers, *bilm.backward_layers]
    dim, cells = trainer.recipe.model.projection_dim, trainer.recipe.model.dim
    hidden = torch.randn(ROWS * STEPS, dim)
    draw = draw_negatives(negatives, WORDS, np.random.default_rng(0))

    def token_layer() -> None:
        bilm.tokens(words).sum().backward()

    def lstms() -> None:
        for layer in layers:
            x = hidden.clone().requires_grad_()
            gates = torch.nn.functional.linear(x, layer.input_weight, layer.full_bias())
            output, _ = LstmSteps.apply(
                gates,
                batch.sizes,
                layer.state_weight,
                layer.projection,
                torch.zeros(ROWS, dim),
                torch.zeros(ROWS, cells),
                Clips(3.0, 3.0),
            )
            output.backward(hidden)

    def softmax() -> None:
        with torch.no_grad():
            for aims in batch.targets:
                sampled_softmax(
                    hidden,
                    torch.from_numpy(aims),
                    trainer.softmax_weight,
                    trainer.softmax_bias,
                    1e-3,
                    draw,
                )

    gradients = [torch.randn_like(p) for p in bilm.parameters()]

    def optimizer() -> None:
        named = zip(bilm.named_parameters(), gradients, strict=True)
        updates = [Update(n, p.detach(), g) for (n, p), g in named]
        rows = torch.randn(len(draw.ids), dim)
        updates.append(Update("softmax.weight", trainer.softmax_weight, rows, draw.ids))
        trainer.optimizer.step(updates, 1e-6)

    jobs = dict(zip(timings, (token_layer, lstms, softmax, optimizer), strict=True))
    for _ in range(rounds):
        for name, job in jobs.items():
            timings[name].add(job)
    return {name: round(timing.best_cpu * 1e3, 1) for name, timing in timings.items()}


def lstm_part(
    trainer: LmTrainer,
    plain: PlainStep,
    library: PlainStep,
    sizes: tuple[int, ...],
    args: argparse.Namespace,
) -> dict[str, dict[str, float]]:
    """Time the LSTMs alone, forward and backward, both directions; wall and CPU milliseconds."""
    dim, cells = trainer.recipe.model.projection_dim, trainer.recipe.model.dim
    inputs = torch.randn(ROWS * STEPS, dim)
    padded = inputs.view(STEPS, ROWS, dim)

    def direction(layers: list[torch.nn.Module]) -> None:
        x = inputs.clone().requires_grad_()
        for layer in layers:
            gates = torch.nn.functional.linear(x, layer.input_weight, layer.full_bias())
            x, _ = LstmSteps.apply(
                gates, sizes, layer.state_weight, layer.projection, torch.zeros(ROWS, dim),
                torch.zeros(ROWS, cells), Clips(3.0, 3.0),
            )  # fmt: skip
        x.backward(inputs)

    bilm = trainer.bilm

    def ours() -> None:
        jobs = [bilm.forward_layers, bilm.backward_layers]
        trainer.objective.workers.run([lambda layers=layers: direction(layers) for layers in jobs])

    def other(step: PlainStep) -> None:
        for d in range(2):
            x = padded.clone().requires_grad_()
            for k in range(2):
                x = step._run(step.layers[2 * k + d], x)
            x.backward(padded)

    jobs = {
        "ours": ours,
        "plain cell": lambda: other(plain),
        "nn.LSTM (no clip)": lambda: other(library),
    }
    timings = {name: Timing() for name in jobs}
    torch.set_num_threads(args.threads)
    for _ in range(args.rounds + 1):
        for name, job in jobs.items():
            timings[name].add(job)
    return {
        name: {"wall_ms": round(t.best * 1e3, 1), "cpu_ms": round(t.best_cpu * 1e3, 1)}
        for name, t in timings.items()
    }


def measure(size: str, args: argparse.Namespace) -> None:
    """Print one table and append one result line."""
    sentences = read_text(args.text, 60_000)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(size, sentences, args.threads, args.negatives, Path(folder))
        batches = [trainer.batches.next() for _ in range(8)]
    trainer.batches = Fixed(batches)
    config = trainer.bilm.config
    plain = PlainStep(config, WORDS, 0.01, library=False)
    library = PlainStep(config, WORDS, 0.01, library=True)
    generator = np.random.default_rng(0)
    draws = [draw_negatives(args.negatives, WORDS, generator) for _ in range(2)]
    place = iter(range(10**9))
    torch.set_num_threads(args.threads)

    def ours() -> None:
        torch.set_num_threads(1)
        trainer.step()
        torch.set_num_threads(args.threads)

    jobs = {
        "ours": ours,
        "plain cell": lambda: plain.step(batches[next(place) % 8], draws),
        "nn.LSTM (no clip)": lambda: library.step(batches[next(place) % 8], draws),
    }
    for job in jobs.values():
        job()
    timings = {name: Timing() for name in jobs}
    limit = sgemm_limit()
    for _ in range(args.rounds):
        for name, job in jobs.items():
            timings[name].add(job)
    tokens = ROWS * STEPS
    distinct = np.mean([len(batch.words) for batch in batches]) / (2 * tokens)
    print(f"\n## {size}: {tokens} tokens a step, {distinct:.0%} distinct, {args.threads} threads")
    print(f"sgemm limit {limit:.0f} GFLOP/s; kernels: {native().reason}\n")
    print("| step | tokens/s | per CPU s | x plain, wall | x plain, CPU | median tokens/s |")
    print("|---|---|---|---|---|---|")
    base, rows = timings["plain cell"], {}
    for name, timing in timings.items():
        rows[name] = {
            "tokens_per_s": round(tokens / timing.best),
            "tokens_per_cpu_s": round(tokens / timing.best_cpu),
            "ratio_wall": round(base.best / timing.best, 2),
            "ratio_cpu": round(base.best_cpu / timing.best_cpu, 2),
            "median": round(tokens / timing.median),
        }
        print(f"| {name} | " + " | ".join(str(value) for value in rows[name].values()) + " |")
    lstms = lstm_part(trainer, plain, library, batches[0].sizes, args)
    print(
        "\nLSTMs alone, wall / CPU ms: "
        + ", ".join(f"{name} {row['wall_ms']} / {row['cpu_ms']}" for name, row in lstms.items())
    )
    ratio = {n: round(row["wall_ms"] / lstms["ours"]["wall_ms"], 2) for n, row in lstms.items()}
    print(
        f"ours against the plain cell {ratio['plain cell']}x, nn.LSTM {ratio['nn.LSTM (no clip)']}x"
    )
    shares = parts(trainer, batches[0], args.negatives, args.rounds)
    print("\nparts, CPU ms on one thread: " + ", ".join(f"{k} {v}" for k, v in shares.items()))
    append_result(
        args.results,
        {
            "script": "train",
            "size": size,
            "threads": args.threads,
            "rounds": args.rounds,
            "negatives": args.negatives,
            "native": native().module is not None,
            "sgemm_gflops": round(limit),
            "rows": rows,
            "lstm_part": lstms,
            "parts_cpu_ms": shares,
        },
    )


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    corpus = Path(__file__).parents[1] / "docs/assets/uses/news.txt"
    parser.add_argument(
        "--text", type=Path, default=corpus, help="one sentence per line; the default is short"
    )
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--negatives", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path, help="append a line of JSON to this file")
    args = parser.parse_args()
    if not args.text.exists():
        parser.error(f"{args.text} does not exist; pass --text with a file of sentences")
    for size in args.size or SIZES:
        measure(size, args)
    print(facts())


if __name__ == "__main__":
    main()
