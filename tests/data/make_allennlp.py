"""Make the AllenNLP archive in this folder and the vectors that AllenNLP 0.9 computes with it.

A tagger's state dict with AllenNLP's own `ElmoTokenEmbedder` in it, trained mix included. Needs its
own environment (torch, numpy, h5py and overrides==3.1.0 of any recent version):

    pip install --no-deps allennlp==0.9.0 overrides==3.1.0
    python make_allennlp.py

AllenNLP pins versions of libraries that no longer install together; none of them takes part in
the ELMo modules, so empty modules stand in for them.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import io
import json
import sys
import tarfile
import tempfile
import types
from pathlib import Path

import h5py
import numpy as np
import torch

HERE = Path(__file__).parent
SENTENCES = [
    ["the", "bank", "of", "the", "river", "."],
    ["naïve", "速い狐", "antidisestablishmentarianism"],
    ["the"],
]
OPTIONS = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 4,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 8,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 4], [2, 5]],
        "n_highway": 2,
        "embedding": {"dim": 3},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}
STAND_INS = ("requests", "spacy", "nltk", "flask", "unidecode", "sqlparse", "word2number", "boto3")
STAND_INS += ("pytorch_transformers", "pytorch_pretrained_bert", "jsonpickle", "ftfy", "_jsonnet")
STAND_INS += ("botocore", "conllu", "editdistance", "tensorboardX", "scipy", "sklearn")
STAND_INS += ("allennlp.data", "allennlp.common.file_utils", "allennlp.training", "allennlp.models")


class StandIn(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return (lambda path: path) if name == "cached_path" else type(name, (), {})


class Finder:
    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> object:
        if any(name == known or name.startswith(f"{known}.") for known in STAND_INS):
            return importlib.machinery.ModuleSpec(name, cls, is_package=True)
        return None

    @staticmethod
    def create_module(spec: object) -> StandIn:
        return StandIn(spec.name)

    @staticmethod
    def exec_module(module: object) -> None:
        pass


def characters(token: str) -> list[int]:
    """ELMoCharacterMapper, which lies in AllenNLP's data package: ids for inference."""
    special = {"<S>": [256], "</S>": [257]}
    inner = special.get(token) or list(token.encode("utf-8", "ignore")[:48])
    ids = [258, *inner, 259]
    return [n + 1 for n in ids + [260] * (50 - len(ids))]


def weights() -> dict[str, np.ndarray]:
    """Random weights under the names of bilm's HDF5 files."""
    draw = np.random.default_rng(11)
    cnn, lstm = OPTIONS["char_cnn"], OPTIONS["lstm"]
    width, dim, cells = sum(n for _, n in cnn["filters"]), lstm["projection_dim"], lstm["dim"]
    shapes = {"char_embed": (261, 3), "CNN_proj/W_proj": (width, dim), "CNN_proj/b_proj": (dim,)}
    for i, (size, count) in enumerate(cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{i}": (1, size, 3, count), f"CNN/b_cnn_{i}": (count,)}
    for k in range(cnn["n_highway"]):
        for kind in ("carry", "transform"):
            shapes[f"CNN_high_{k}/W_{kind}"] = (width, width)
            shapes[f"CNN_high_{k}/b_{kind}"] = (width,)
    for d in range(2):
        for k in range(lstm["n_layers"]):
            cell = f"RNN_{d}/RNN/MultiRNNCell/Cell{k}/LSTMCell"
            shapes[f"{cell}/W_0"] = (2 * dim, 4 * cells)
            shapes |= {f"{cell}/B": (4 * cells,), f"{cell}/W_P_0": (cells, dim)}
    return {name: draw.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def main() -> None:
    sys.meta_path.insert(0, Finder)
    indexer = importlib.import_module("allennlp.data.token_indexers.elmo_indexer")  # a stand-in
    indexer.ELMoCharacterMapper = types.SimpleNamespace(
        max_word_length=50,
        beginning_of_sentence_characters=[n - 1 for n in characters("<S>")],
        end_of_sentence_characters=[n - 1 for n in characters("</S>")],
    )
    from allennlp.modules.token_embedders.elmo_token_embedder import ElmoTokenEmbedder

    with tempfile.TemporaryDirectory() as folder:
        options, arrays = Path(folder, "options.json"), Path(folder, "weights.hdf5")
        options.write_text(json.dumps(OPTIONS))
        with h5py.File(arrays, "w") as file:
            for name, array in weights().items():
                file[name] = array
        embedder = ElmoTokenEmbedder(str(options), str(arrays), dropout=0.0)
    torch.manual_seed(2)
    mix = embedder._elmo.scalar_mix_0
    with torch.no_grad():
        for k, parameter in enumerate(mix.scalar_parameters):
            parameter.fill_((0.3, -0.2, 0.5)[k])
        mix.gamma.fill_(1.25)
    model = torch.nn.Module()
    model.text_field_embedder = torch.nn.Module()
    model.text_field_embedder.add_module("token_embedder_elmo", embedder)
    model.tag_projection_layer = torch.nn.Linear(8, 3)
    length = max(map(len, SENTENCES))
    ids = torch.zeros(len(SENTENCES), length, 50, dtype=torch.long)
    for row, tokens in enumerate(SENTENCES):
        ids[row, : len(tokens)] = torch.tensor([characters(token) for token in tokens])
    embedder.eval()
    with torch.no_grad(), h5py.File(HERE / "allennlp_tagger.hdf5", "w") as file:
        layers = embedder._elmo._elmo_lstm(ids)["activations"]
        embedder._elmo._elmo_lstm._elmo_lstm.reset_states()
        mixed = embedder(ids)
        for row, tokens in enumerate(SENTENCES):
            own = [layer[row, 1 : len(tokens) + 1].numpy() for layer in layers]
            file[f"layers/{row}"] = np.stack(own)
            file[f"mixed/{row}"] = mixed[row, : len(tokens)].numpy()
    state = io.BytesIO()
    torch.save(model.state_dict(), state, _use_new_zipfile_serialization=False)
    path = "/gone/elmo/options.json"
    elmo = {"type": "elmo_token_embedder", "options_file": path, "weight_file": "/gone/w.hdf5"}
    config = {"model": {"text_field_embedder": {"token_embedders": {"elmo": elmo}}}}
    key = "fta/model.text_field_embedder.token_embedders.elmo.options_file"
    members = {
        "config.json": json.dumps(config).encode(),
        "weights.th": state.getvalue(),
        "vocabulary/labels.txt": b"O\nB-LOC\nI-LOC\n",
        "files_to_archive.json": json.dumps({key.removeprefix("fta/"): path}).encode(),
        key: json.dumps(OPTIONS).encode(),
    }
    with tarfile.open(HERE / "allennlp_tagger.tar.gz", "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    text = json.dumps(SENTENCES, ensure_ascii=False) + "\n"
    (HERE / "allennlp_sentences.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
