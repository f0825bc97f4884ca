"""Does a model stay sane on long input? Perplexity along sequences of many sentences.

    python long_input.py --data ../../shared/data/pretrain --model english -o results/long.json

The held-out encyclopedia is joined into sequences of 500, 2,000 and 10,000 tokens, sentence after
sentence without markers between them, as when somebody embeds a paragraph or a chapter. Each
sequence is read as one. Every direction's perplexity is given per stretch of what it has read: for
the forward direction the first stretch is the beginning of the text, for the backward direction
its end. A model that was only trained on sentences may diverge after some hundred tokens.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from elmore import Elmo
from elmore.base.io import open_text
from elmore.language_model.predictions import LanguageModel
from elmore.text.sentence import Sentence

# Tokens of a sequence, of a stretch, and how many sequences are read.
SIZES = ((500, 100, 200), (2_000, 400, 100), (10_000, 2_000, 25))


def tokens_of(path: Path, elmo: Elmo) -> list[str]:
    """Tokenise a file of sentences into one list."""
    with open_text(path, what="text") as stream:
        lines = stream.read().decode("utf-8").splitlines()
    return [token for line in lines if line for token in elmo.tokenize(line).tokens]


def along(model: LanguageModel, tokens: list[str], length: int, stretch: int, count: int) -> Any:
    """Perplexity of each direction per stretch of what it has read."""
    count = min(count, len(tokens) // length)
    sums = np.zeros((2, -(-length // stretch)))
    for k in range(count):
        sentence = Sentence(tuple(tokens[k * length : (k + 1) * length]), None)
        logs, _ = model.predict([sentence])
        for d, values in enumerate((logs[0][:length], logs[1][::-1][:length])):
            sums[d] += np.add.reduceat(-values, np.arange(0, length, stretch))
    means = sums / (count * stretch)
    names = ("forward", "backward")
    return {
        "tokens": length,
        "stretch": stretch,
        "sequences": count,
        **{
            n: [round(math.exp(min(v, 700)), 1) for v in m]
            for n, m in zip(names, means, strict=True)
        },
        "worst": round(float(np.exp((means - means[:, :1]).max())), 3),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds wiki-core.test.txt.xz")
    parser.add_argument("--model", default="english")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    elmo = Elmo.load(args.model)
    model = LanguageModel(elmo)
    tokens = tokens_of(args.data / "wiki-core.test.txt.xz", elmo)
    result = {"model": str(args.model), "rows": [along(model, tokens, *size) for size in SIZES]}
    for row in result["rows"]:
        print(f"{row['sequences']} sequences of {row['tokens']:,} tokens, per {row['stretch']:,}:")
        for name in ("forward", "backward"):
            print(f"  {name:9}", *(f"{value:10,.1f}" for value in row[name]))
        print(f"  largest stretch against the first: {row['worst']:.3f}")
    if args.output is not None:
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
