"""Compare uses of two words that have two meanings each, with the included model."""

from __future__ import annotations

import sys
import sysconfig
import time
from pathlib import Path

START = time.perf_counter()

import numpy as np  # noqa: E402 - the imports count, too

from elmore import Elmo, cosine  # noqa: E402
from elmore.senses import sense_vectors  # noqa: E402
from elmore.text.tokenizer import Sentence  # noqa: E402

USES = {
    "match": [
        "Jack fidgeted, lit a match and blew it out.",
        "I threw a match without looking.",
        "The match was held at the stadium in Lens.",
        "The winner of the match takes top spot.",
    ],
    "court": [
        "A court ruled that the law was invalid.",
        "The court ordered her to pay the costs.",
        "They walked across the court of the castle.",
        "The windows look into a small court.",
    ],
}


def main() -> None:
    """Run the demonstration."""
    elmo = Elmo.load()
    elmo.embed("The first sentence.")
    seconds = time.perf_counter() - START
    model, packages = _installed_megabytes()
    print(
        f"The models inside the package: {model:.0f} MB on disk, and {packages:.0f} MB of "
        f"packages. English, from the first import to the first vector: {seconds:.2f} s, "
        f"{_peak_megabytes()} of memory."
    )
    for word, texts in USES.items():
        layers = elmo.layers(texts)
        vectors = np.stack([one.values[:, one.tokens.index(word)] for one in layers])
        senses = sense_vectors(
            elmo, [(Sentence(one.tokens), one.tokens.index(word)) for one in layers]
        )
        print(f"\nHow similar are these four uses of '{word}' (cosine)?")
        print(f"{'':48}without context       layer 2               sense vectors")
        views = [cosine(vectors[:, layer], vectors[:, layer]) for layer in (0, 2)]
        for text, *rows in zip(texts, *views, senses.similarity(), strict=True):
            print(f"  {text:44}  {'   '.join(map(_row, rows))}")
        print(f"Which words could replace '{word}'?")
        for row, text in enumerate(texts):
            print(f"  {text:44}  {', '.join(name for name, _ in senses.words(row, 6))}")
    print("\nDraw it: python examples/senses.py senses.svg   More: README.md")


def _row(values: np.ndarray) -> str:
    return " ".join(f"{value:4.2f}" for value in values)


def _installed_megabytes() -> tuple[float, float]:
    """The size of the models, and of all other packages except pip."""
    model = other = 0
    for path in Path(sysconfig.get_path("purelib")).rglob("*"):
        if path.is_file() and not {"pip", "setuptools"} & set(path.parts):
            if "models" in path.parts:
                model += path.stat().st_size
            else:
                other += path.stat().st_size
    return model / 1e6, other / 1e6


def _peak_megabytes() -> str:
    try:
        import resource
    except ImportError:  # Windows
        return "an unknown amount"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return f"{peak / (1 << 20 if sys.platform == 'darwin' else 1 << 10):.0f} MB"


if __name__ == "__main__":
    main()
