"""What a model has learned: perplexity, grammar, tags, senses, substitutes, similar sentences.

    python benchmarks/evaluation.py --data DATA -o english.json               # the included model
    python benchmarks/evaluation.py --data DATA --model runs/x/best --quick   # to compare two runs
    python benchmarks/evaluation.py --data DATA --precision int8 --only pos   # what int8 costs
    python benchmarks/evaluation.py --data DATA --model int8/ --reference float32/ --only vectors

DATA has `pretrain/*.valid.txt.xz`, `pretrain/*.test.txt.xz`, `pos/*.conllu.xz`, `wsd/`, `lm/`,
`snli/` and `glove/`. Each part of the result is written when it is ready and is not measured again,
so a stopped run can be continued. The tables are printed as Markdown.

Long input: held-out text is joined into sequences of 500, 2,000 and 10,000 tokens, without markers
between sentences, as when somebody embeds a paragraph or a chapter. The table has the perplexity of
each direction per fifth of what it has read. A model that was only trained on single sentences may
diverge after a hundred tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from alternatives import entailed_pairs, retrieved

from elmore import Elmo, perplexity
from elmore.analysis import Blimp, LexicalSubstitution, Pos, Wsd
from elmore.base.atomic import atomic_file
from elmore.base.io import open_text
from elmore.language_model.predictions import LanguageModel
from elmore.published.catalog import BUNDLED
from elmore.text.tokenizer import Sentence

# What `--quick` measures: enough to tell two runs apart, in three minutes of one core.
QUICK_SENTENCES = 2_000
QUICK_POS_SENTENCES = 4_000
JOINED_TOKENS = 500
# Long input: tokens per sequence, tokens per fifth, and how many sequences are read.
SIZES = ((500, 100, 200), (2_000, 400, 100), (10_000, 2_000, 25))
# Tokens of all held-out files together whose vectors are compared with a reference.
VECTOR_TOKENS = 24_000


def main() -> None:
    """Measure what is missing in the result file, then print it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=None, help="default: the included model")
    parser.add_argument("-o", "--output", type=Path, help="the result file, JSON")
    parser.add_argument("--cache", type=Path, help="where the layers are kept for next time")
    parser.add_argument("--precision", choices=("float32", "float16", "int8"))
    parser.add_argument("--reference", help="compare vectors with this; default: --model")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quick", action="store_true", help="two perplexities and UPOS, small")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="measure these alone")
    args = parser.parse_args()
    result: dict[str, Any] = {}
    if args.output is not None and args.output.exists():
        result = json.loads(args.output.read_text(encoding="utf-8"))
    model = args.model or BUNDLED
    elmo = Elmo.load(model, threads=args.threads, precision=args.precision)
    parts = QUICK if args.quick else PARTS
    for part, measure in parts.items():
        if part in result or part not in (args.only or parts):
            continue
        start = time.process_time()
        result[part] = measure(elmo, args)
        result[part]["cpu_seconds"] = round(time.process_time() - start)
        print(json.dumps({part: result[part]}), flush=True)
        if args.output is not None:
            with atomic_file(args.output, overwrite=True) as stream:
                stream.write((json.dumps(result, indent=1) + "\n").encode())
    print(table(result))


def measure_perplexity(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Measure every held-out file, full softmax, every sentence on its own."""
    folder = args.data / "pretrain"
    names = sorted(folder.glob("*.test.txt.xz")) + sorted(folder.glob("*.valid.txt.xz"))
    if args.quick:
        names = [folder / "wiki-core.test.txt.xz", folder / "novels.test.txt.xz"]
    found = {}
    for path in names:
        with open_text(path, what="text") as stream:
            lines = [line.decode().strip() for line in stream if line.strip()]
        # every k-th line, so that no single document decides
        step = max(1, len(lines) // QUICK_SENTENCES) if args.quick else 1
        found[path.name.removesuffix(".txt.xz")] = perplexity(elmo, lines[::step]).to_dict()
    return found


def measure_pos(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Probe UD-EWT for its own and the universal tags."""
    files = [args.data / "pos" / f"en_ewt-ud-{part}.conllu.xz" for part in ("train", "dev", "test")]
    vectors = args.data / "glove" / "glove.6B.100d.40k.float16.npy"
    controls = not args.quick and args.precision is None
    return (
        Pos(
            elmo,
            tags=["upos", "xpos"] if controls else ["upos"],
            vectors=vectors if controls else None,
            random=controls,
            limit=QUICK_POS_SENTENCES if args.quick else None,
            cache=args.cache,
        )
        .run(files)
        .to_dict()
    )


def measure_joined(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """The same, learned from sentences, on test sentences joined to 500 tokens."""
    files = [args.data / "pos" / f"en_ewt-ud-{part}.conllu.xz" for part in ("train", "dev", "test")]
    with tempfile.TemporaryDirectory() as folder:
        long = Path(folder, "joined.conllu")
        long.write_text("".join(_joined(files[2])), encoding="utf-8")
        return Pos(elmo, tags=["upos"], cache=args.cache).run([*files[:2], long]).to_dict()


def _joined(path: Path) -> Iterator[str]:
    """The lines of a CoNLL-U file with many sentences made one, its words numbered again."""
    number = 0
    with open_text(path, what="text") as stream:
        for line in stream.read().decode().splitlines():
            cells = line.split("\t")
            if cells[0].isdigit():
                number += 1
                yield "\t".join([str(number), *cells[1:]]) + "\n"
            elif not line and number >= JOINED_TOKENS:
                number = 0
                yield "\n"
    yield "\n"


def measure_long(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Measure perplexity along sequences of 500, 2,000 and 10,000 tokens."""
    with open_text(args.data / "pretrain" / "wiki-core.test.txt.xz", what="text") as stream:
        lines = stream.read().decode("utf-8").splitlines()
    tokens = [token for line in lines if line for token in elmo.tokenize(line).tokens]
    model = LanguageModel(elmo)
    return {"rows": [_along(model, tokens, *size) for size in SIZES]}


def _along(model: LanguageModel, tokens: list[str], length: int, fifth: int, count: int) -> Any:
    """The perplexity of each direction, per fifth of what it has read."""
    count = min(count, len(tokens) // length)
    sums = np.zeros((2, -(-length // fifth)))
    for k in range(count):
        sentence = Sentence(tuple(tokens[k * length : (k + 1) * length]), None)
        logs, _ = model.predict([sentence])
        for d, values in enumerate((logs[0][:length], logs[1][::-1][:length])):
            sums[d] += np.add.reduceat(-values, np.arange(0, length, fifth))
    means = sums / (count * fifth)
    return {
        "tokens": length,
        "sequences": count,
        **{
            name: [round(math.exp(min(value, 700)), 1) for value in row]
            for name, row in zip(("forward", "backward"), means, strict=True)
        },
        "worst": round(float(np.exp((means - means[:, :1]).max())), 3),
    }


def measure_blimp(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Choose the grammatical one of 67,000 pairs of sentences."""
    return Blimp(elmo).run(args.data / "lm" / "blimp.jsonl.xz").to_dict()


def measure_substitutes(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Rank the words that people gave as substitutes."""
    return LexicalSubstitution(elmo).run(args.data / "lm" / "lexsub07.test.jsonl.xz").to_dict()


def measure_retrieval(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Find a premise's own entailed hypothesis among 1,000, by two poolings."""
    pairs = entailed_pairs(args.data / "snli" / "dev.jsonl.xz")
    return {
        pool: retrieved(
            elmo.encode(list(pairs), pool=pool, normalize=True),
            elmo.encode(list(pairs.values()), pool=pool, normalize=True),
        )
        for pool in ("mean", "sif")
    }


def measure_wsd(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Choose senses, compared with static vectors and random weights."""
    vectors = args.data / "glove" / "glove.6B.100d.40k.float16.npy"
    controls = args.precision is None
    probe = Wsd(elmo, vectors=vectors if controls else None, random=controls, cache=args.cache)
    return probe.run(args.data / "wsd").to_dict()


def measure_vectors(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Compare the vectors of every layer with those of a reference in float32."""
    reference = args.reference or args.model or BUNDLED
    exact = Elmo.load(reference, threads=args.threads, precision="float32")
    paths, found = sorted((args.data / "pretrain").glob("*.test.txt.xz")), []
    for path in paths:
        count = 0
        with open_text(path, what="text") as stream:
            for line in stream:
                tokens = [list(exact.tokenize(line.decode().strip()).tokens)]
                if not tokens[0]:
                    continue
                a, b = (model.layers(tokens, tokenized=True)[0].values for model in (exact, elmo))
                lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
                found.append((a * b).sum(axis=-1) / lengths)  # (layers, tokens)
                count += len(tokens[0])
                if count >= VECTOR_TOKENS / len(paths):
                    break
    cosines = np.concatenate(found, axis=1)
    return {
        "precision": elmo.precision,
        "reference": str(reference),
        "tokens": cosines.shape[1],
        "mean": cosines.mean(axis=1, dtype=np.float64).round(6).tolist(),
        "one in a thousand": np.quantile(cosines.astype(np.float64), 0.001, axis=1)
        .round(5)
        .tolist(),
        "lowest": cosines.min(axis=1).astype(np.float64).round(5).tolist(),
    }


PARTS = {
    "vectors": measure_vectors,
    "perplexity": measure_perplexity,
    "long": measure_long,
    "pos": measure_pos,
    "pos joined": measure_joined,
    "wsd": measure_wsd,
    "blimp": measure_blimp,
    "substitutes": measure_substitutes,
    "retrieval": measure_retrieval,
}
QUICK = {"perplexity": measure_perplexity, "pos": measure_pos}


def table(result: dict[str, Any]) -> str:
    """Lay the result out as Markdown."""
    lines = []
    if "perplexity" in result:
        lines += ["| text | tokens | OOV | forward | backward | mean | without `<UNK>` |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|"]
        for name, row in result["perplexity"].items():
            if isinstance(row, dict):
                lines.append(
                    f"| {name} | {row['n_tokens']:,} | {100 * row['oov_rate']:.2f} % | "
                    f"{row['forward']:.1f} | {row['backward']:.1f} | {row['mean']:.1f} | "
                    f"{row['without_unknown']:.1f} |"
                )
    for part in ("pos", "pos joined", "wsd", "blimp", "substitutes"):
        if part in result:
            lines.append("")
            for name, rows in result[part]["tables"].items():
                lines += ["", f"{name}", "", "| " + " | ".join(rows[0]) + " |"]
                lines.append("|" + "---|" * len(rows[0]))
                lines += [
                    "| " + " | ".join("-" if v is None else str(v) for v in row.values()) + " |"
                    for row in rows
                ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
