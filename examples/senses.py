"""Draw how the uses of a word come apart by sense: `python examples/senses.py senses.svg`.

Cosine between all uses without context, in layer 2, and by sense vectors; then the sense vectors on
their two principal axes. Needs matplotlib (`elmore[plot]`).
"""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt  # after the choice of backend

from elmore import Elmo, cosine
from elmore.senses import sense_vectors
from elmore.text.tokenizer import Sentence

USES = {
    "bank": {
        "of a river": [
            "She sat down on the bank of the river.",
            "They walked along the bank until dark.",
            "The boat was tied to the left bank.",
            "Trees grew on the muddy bank of the stream.",
        ],
        "of money": [
            "The bank raised its interest rates.",
            "He borrowed the money from a bank.",
            "She works at a bank in London.",
            "The bank refused to lend him any money.",
        ],
    },
    "play": {
        "on a stage": [
            "She wrote a play about the war.",
            "The play opened in London last year.",
            "Hamlet is a play by Shakespeare.",
            "We saw a new play at the theatre.",
        ],
        "a game": [
            "The children play in the garden.",
            "They play football every week.",
            "He wants to play for another team.",
            "You can play chess with your friends.",
        ],
    },
}
COLOURS = ("#0072b2", "#d55e00")  # apart for every kind of sight


def main(path: str) -> None:
    """Embed the uses and draw them."""
    elmo = Elmo.load()
    figure, axes = plt.subplots(len(USES), 4, figsize=(14, 3.4 * len(USES)), layout="constrained")
    for row, (word, senses) in zip(axes, USES.items(), strict=True):
        texts = [text for group in senses.values() for text in group]
        colours = [c for c, group in zip(COLOURS, senses.values(), strict=True) for _ in group]
        layers = elmo.layers(texts)
        vectors = np.stack([one.values[:, one.tokens.index(word)] for one in layers])
        senses_of = sense_vectors(
            elmo, [(Sentence(one.tokens), one.tokens.index(word)) for one in layers]
        )
        views = {
            "without context": cosine(vectors[:, 0], vectors[:, 0]),
            "in layer 2": cosine(vectors[:, 2], vectors[:, 2]),
            "by sense vectors": senses_of.similarity(),
        }
        for axis, (title, alike) in zip(row, views.items(), strict=False):
            picture = axis.imshow(alike, vmin=0, vmax=1, cmap="viridis")
            axis.set_title(f"'{word}' {title}")
            axis.set_xticks([])
            axis.set_yticks([])
            half = len(texts) / 2 - 0.5
            axis.axhline(half, color="white", linewidth=1)
            axis.axvline(half, color="white", linewidth=1)
            for place, name in zip((1.5, 5.5), senses, strict=True):
                axis.text(-0.8, place, name, rotation=90, ha="right", va="center")
        figure.colorbar(picture, ax=row[2], shrink=0.8, label="cosine")
        dense = senses_of.dense()
        dense /= np.linalg.norm(dense, axis=1, keepdims=True)
        _map(row[3], dense, texts, colours, word)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def _map(
    axis: plt.Axes, vectors: np.ndarray, texts: list[str], colours: list[str], word: str
) -> None:
    centred = vectors - vectors.mean(0)
    axes_of_most = np.linalg.svd(centred, full_matrices=False)[2][:2]
    points = centred @ axes_of_most.T
    axis.scatter(points[:, 0], points[:, 1], c=colours, s=40)
    # Labels point outwards, and neighbours stand alternately above and below their dots.
    for rank, k in enumerate(np.argsort(points[:, 1])):
        left = points[k, 0] < 0
        axis.annotate(
            _around(texts[k], word),
            points[k],
            xytext=(-6 if left else 6, 2 if rank % 2 else -6),
            textcoords="offset points",
            fontsize=7,
            ha="right" if left else "left",
        )
    axis.margins(1.8, 0.15)
    axis.set_title("two principal axes")
    axis.set_xticks([])
    axis.set_yticks([])


def _around(text: str, word: str) -> str:
    words = text.rstrip(".").split()
    place = words.index(word)
    return " ".join(words[max(0, place - 2) : place + 3])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "senses.svg")
