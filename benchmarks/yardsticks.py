"""What a model knows: perplexities, parts of speech and word senses, on the fixed data sets.

    python yardsticks.py --data ../../shared/data --model english -o results/english.json
    python yardsticks.py --data ... --model runs/x/checkpoint --quick     # to choose between runs
    python yardsticks.py --data ... --model runs/x/checkpoint -o results/english-float32.json
    python yardsticks.py --data ... --model runs/x/checkpoint -o results/english-int8.json \
        --precision int8 --beside results/english-float32.json --certify english-int8

DATA holds `pretrain/*.valid.txt.xz`, `pretrain/*.test.txt.xz`, `pos/*.conllu.xz`, `wsd/` and
`glove/`. Each part of the result is written as soon as it is there, and a part that is there
is not measured again, so that a stopped run goes on. `--certify` stores the model in the precision
that was measured, with what it costs in its certificate.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from elmore import Elmo, perplexity
from elmore._atomic import atomic_file
from elmore._io import open_text
from elmore.analysis import Pos, Wsd
from elmore.embedding.certificate import certified
from elmore.formats import elmore_folder
from elmore.published.catalog import bundled_model

# What `--quick` measures: enough to tell two runs apart, in three minutes of one core.
QUICK_SENTENCES = 2_000
# What a certificate tells: its title, the part of the result, the name there.
PROBES = (
    ("parts of speech (UPOS, EWT test), mean of layers", "pos", "upos mean"),
    ("word senses (ALL), layer 2, averages", "wsd", "ALL layer 2, sense averages"),
    ("word senses (ALL), layer 2, nearest instance", "wsd", "ALL layer 2, nearest instance"),
)
QUICK_POS_SENTENCES = 4_000


def main() -> None:
    """Measure what is missing in the result file, then print it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=None, help="default: the bundled model")
    parser.add_argument("-o", "--output", type=Path, help="the result file, JSON")
    parser.add_argument("--cache", type=Path, help="where the layers are kept for next time")
    parser.add_argument("--precision", choices=("float32", "float16", "int8"))
    parser.add_argument("--beside", type=Path, help="the result file of float32")
    parser.add_argument("--certify", type=Path, metavar="FOLDER", help="store the model there")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quick", action="store_true", help="two perplexities and UPOS, small")
    args = parser.parse_args()
    if args.certify is not None and (args.beside is None or args.precision is None):
        parser.error("--certify needs --precision and --beside")
    result: dict[str, Any] = {}
    if args.output is not None and args.output.exists():
        result = json.loads(args.output.read_text(encoding="utf-8"))
    model = args.model or bundled_model()
    elmo = Elmo.load(model, threads=args.threads, precision=args.precision)
    parts = QUICK if args.quick else PROBED if args.beside else PARTS
    for part, measure in parts.items():
        if part in result:
            continue
        start = time.process_time()
        result[part] = measure(elmo, args)
        result[part]["cpu_seconds"] = round(time.process_time() - start)
        print(json.dumps({part: result[part]}), flush=True)
        if args.output is not None:
            with atomic_file(args.output, overwrite=True) as stream:
                stream.write((json.dumps(result, indent=1) + "\n").encode())
    print(table(result))
    if args.certify is not None:
        beside = json.loads(args.beside.read_text(encoding="utf-8"))
        probes = {
            title: {"float32": beside[part]["metrics"][name], args.precision: found}
            for title, part, name in PROBES
            if (found := result[part]["metrics"].get(name)) is not None
        }
        checkpoint = certified(elmo.checkpoint, args.precision, probes)
        elmore_folder.write(checkpoint, args.certify, overwrite=True, precision=args.precision)


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
    controls = not args.quick and args.beside is None
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


def measure_wsd(elmo: Elmo, args: argparse.Namespace) -> dict[str, Any]:
    """Tell senses apart, beside static vectors and random weights."""
    vectors = args.data / "glove" / "glove.6B.100d.40k.float16.npy"
    controls = args.beside is None
    probe = Wsd(elmo, vectors=vectors if controls else None, random=controls, cache=args.cache)
    return probe.run(args.data / "wsd").to_dict()


PARTS = {"perplexity": measure_perplexity, "pos": measure_pos, "wsd": measure_wsd}
QUICK = {"perplexity": measure_perplexity, "pos": measure_pos}
PROBED = {"pos": measure_pos, "wsd": measure_wsd}


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
    for part in ("pos", "wsd"):
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
