"""Make the ELMoForManyLangs models in this folder and the vectors of the original program.

Random weights in the original's own modules, saved by torch as its trainer does. Needs its own
environment (torch, numpy and h5py of any recent version):

    pip install --no-deps elmoformanylangs==0.0.4.post2 overrides==3.1.0
    python make_manylangs.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import torch
from elmoformanylangs import Embedder
from elmoformanylangs.frontend import Model
from elmoformanylangs.modules.embedding_layer import EmbeddingLayer

HERE = Path(__file__).parent
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "the", "bank", "of", "river", "naïve", "antidisest"]
# As the original makes it: characters of the text (those of <bos> first), specials at the end.
LETTERS = [*"<bos>etharnkifïv.", "\u3000", "速"]
CHARACTERS = [*LETTERS, "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
SENTENCES = [
    ["the", "bank", "of", "the", "river", "."],
    ["naïve", "速い狐", "antidisestablishmentarianism", "a\u3000b"],
    ["the"],
    ["<bos>", "of"],
]
SECOND = [["river", "bank"], ["the", "bank", "."]]
ENCODER = {
    "name": "elmo",
    "projection_dim": 4,
    "cell_clip": 0.8,
    "proj_clip": 0.6,
    "dim": 7,
    "n_layers": 2,
}
TOKENS = {
    "name": "cnn",
    "activation": "relu",
    "filters": [[1, 3], [2, 4]],
    "n_highway": 1,
    "word_dim": 3,
    "char_dim": 2,
    "max_characters_per_token": 12,
}
MODELS = {
    "manylangs_both": (ENCODER, TOKENS),
    "manylangs_characters_old": (ENCODER, {**TOKENS, "word_dim": 0, "activation": "tanh"}),
    "manylangs_words": (ENCODER, {**TOKENS, "char_dim": 0}),
    "manylangs_lstm_encoder": ({**ENCODER, "name": "lstm"}, TOKENS),
    "manylangs_lstm_words": (ENCODER, {"name": "lstm", "word_dim": 3, "char_dim": 0}),
}


def make(name: str, encoder: dict, tokens: dict) -> None:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = {"encoder": encoder, "token_embedder": tokens, "dropout": 0.1}
    outer = {"config_path": "/gone/configs/tiny.json", "seed": 1, "gpu": 0, "model": "/gone/out"}
    (folder / "config.json").write_text(json.dumps(outer) + "\n")
    (folder / "tiny.json").write_text(json.dumps(config, indent=1) + "\n")
    for file, symbols in (("word.dic", WORDS), ("char.dic", CHARACTERS)):
        if file == "word.dic" or tokens["char_dim"]:
            lines = "".join(f"{symbol}\t{k}\n" for k, symbol in enumerate(symbols))
            (folder / file).write_text(lines, encoding="utf-8")
    torch.manual_seed(5)

    def layer(symbols: list[str], dim: int) -> EmbeddingLayer | None:
        ids = {symbol: k for k, symbol in enumerate(symbols)}
        return EmbeddingLayer(dim, ids, fix_emb=False) if dim else None

    model = Model(config, layer(WORDS, tokens["word_dim"]), layer(CHARACTERS, tokens["char_dim"]))
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
        for key, parameter in model.encoder.named_parameters():
            if "state_projection" in key:
                parameter.mul_(2)  # so that the clips bite
    zipped = "old" not in name
    for part in ("token_embedder", "encoder"):
        state = getattr(model, part).state_dict()
        path = folder / f"{part}.pkl"
        torch.save(state, path, _use_new_zipfile_serialization=zipped)
    embedder = Embedder(str(folder))
    elmo = encoder["name"] == "elmo"

    def fresh() -> None:
        if elmo:
            embedder.model.encoder.reset_states()

    with h5py.File(HERE / f"{name}.hdf5", "w") as file:
        for output_layer in (-2, -1, 0, 1, 2) if elmo else (-2, -1, 0):
            fresh()
            for k, values in enumerate(embedder.sents2elmo(SENTENCES, output_layer)):
                file[f"fresh/{output_layer}/{k}"] = np.asarray(values, np.float32)
        fresh()
        for call, sentences in enumerate([SENTENCES, SECOND, SENTENCES] if elmo else []):
            for k, values in enumerate(embedder.sents2elmo(sentences, -2)):
                file[f"stateful/{call}/{k}"] = values
        # Each sentence on its own, so that no padding is seen.
        for k, sentence in enumerate(SENTENCES):
            fresh()
            file[f"alone/{k}"] = embedder.sents2elmo([sentence], -2)[0]


if __name__ == "__main__":
    for name, (encoder, tokens) in MODELS.items():
        make(name, encoder, tokens)
    text = json.dumps({"first": SENTENCES, "second": SECOND}, ensure_ascii=False) + "\n"
    (HERE / "manylangs_sentences.json").write_text(text, encoding="utf-8")
