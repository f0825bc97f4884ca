"""Make a small model, embed a sample text, and show what the vectors tell.

Until a trained model ships with elmore the weights are random: the vectors depend on the context,
as the table shows, but mean nothing yet.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from elmore import Elmo, cosine
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.bilm import BiLm
from elmore.nn.initial import initialise
from elmore.text.characters import ByteAlphabet

TEXT = [
    "She sat down on the bank of the river.",
    "They walked along the bank until dark.",
    "The bank raised its interest rates.",
    "He borrowed the money from a bank.",
]


def small_model() -> Checkpoint:
    """Draw the weights of a small biLM."""
    config = BiLmConfig(
        tokens=TokenEncoderConfig(
            n_characters=261, char_dim=16, filters=((1, 16), (2, 16), (3, 32), (4, 64)), n_highway=1
        ),
        lstm=LstmConfig(dim=128, projection_dim=32),
    )
    bilm = BiLm(config)
    initialise(bilm, torch.Generator().manual_seed(0))
    weights = {name: weight.detach().numpy() for name, weight in bilm.named_parameters()}
    return Checkpoint(config=config, weights=weights, alphabet=ByteAlphabet())


def main() -> None:
    """Run the demonstration."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "demo-model"
        Elmo(small_model()).save(folder)
        start = time.perf_counter()
        elmo = Elmo.load(folder)
        layers = elmo.layers(TEXT)
        seconds = time.perf_counter() - start
    print("A small model with RANDOM weights (no trained model ships with elmore yet).")
    print(f"Loaded it and embedded {len(TEXT)} sentences in {seconds * 1e3:.0f} ms.\n")
    vectors = []
    for sentence in layers:
        place_of_bank = sentence.tokens.index("bank")
        vectors.append(sentence.values[:, place_of_bank])
        print("  " + " ".join(sentence.tokens))
    for layer, name in enumerate(["token layer (no context)", "layer 1", "layer 2"]):
        table = cosine([v[layer] for v in vectors], [v[layer] for v in vectors])
        print(f"\nCosine between the four vectors of 'bank', {name}:")
        for row in table:
            print("  " + "  ".join(f"{value:5.2f}" for value in row))


if __name__ == "__main__":
    main()
