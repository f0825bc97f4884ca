"""Two words with two meanings each: the model inside the package tells them apart."""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from elmore import Elmo, cosine

USES = {
    "bank": [
        "She sat down on the bank of the river.",
        "Trees grew on the muddy bank of the stream.",
        "The bank raised its interest rates.",
        "He borrowed the money from a bank.",
    ],
    "play": [
        "Hamlet is a play by Shakespeare.",
        "We saw a new play at the theatre.",
        "They play football every week.",
        "He wants to play for another team.",
    ],
}


def main() -> None:
    """Run the demonstration."""
    start = time.perf_counter()
    elmo = Elmo.load()
    loaded = time.perf_counter()
    elmo.embed("The first sentence.")
    first = time.perf_counter()
    print(
        f"The English model inside the package: loaded in {loaded - start:.2f} s, "
        f"first sentence {1e3 * (first - loaded):.0f} ms later, "
        f"{_peak_megabytes():.0f} MB at most."
    )
    for word, texts in USES.items():
        layers = elmo.layers(texts)
        vectors = np.stack([one.values[:, one.tokens.index(word)] for one in layers])
        print(f"\nHow alike are these four uses of '{word}' (cosine)?")
        print(f"{'':48}without context    in context (layer 2)")
        static, contextual = (cosine(vectors[:, layer], vectors[:, layer]) for layer in (0, 2))
        for text, left, right in zip(texts, static, contextual, strict=True):
            print(f"  {text:44}  {_row(left)}   {_row(right)}")
    print("\nDraw it: python examples/senses.py senses.svg   More: README.md")


def _row(values: np.ndarray) -> str:
    return " ".join(f"{value:4.2f}" for value in values)


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


if __name__ == "__main__":
    main()
