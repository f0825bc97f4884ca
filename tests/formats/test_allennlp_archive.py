"""The ELMo inside AllenNLP's task models, with its mix."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_models import DATA, FIXTURES, needs_originals

from elmore import Elmo
from elmore.embedding.load import read_checkpoint
from elmore.errors import FormatError
from elmore.formats import allennlp_hdf5
from elmore.formats.checkpoint import Checkpoint

close = {"atol": 1e-6, "rtol": 1e-5}
ARCHIVE = DATA / "allennlp_tagger.tar.gz"
SENTENCES = json.loads((DATA / "allennlp_sentences.json").read_text(encoding="utf-8"))
TAGGER = FIXTURES / "allennlp/simple_tagger_with_elmo"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The archive as a folder of files."""
    path = tmp_path / "model"
    path.mkdir()
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None:
                (path / Path(member.name).name).write_bytes(stream.read())
    return path


def mixed(checkpoint: Checkpoint, layers: np.ndarray) -> np.ndarray:
    [mix] = checkpoint.mixes
    scores = np.exp(mix.weights)
    return mix.gamma * np.einsum("l,ltd->td", scores / scores.sum(), layers)


def test_the_vectors_and_the_mix_of_allennlp() -> None:
    elmo = Elmo.load(ARCHIVE)
    with h5py.File(DATA / "allennlp_tagger.hdf5") as file:
        for k, result in enumerate(elmo.layers(SENTENCES, tokenized=True)):
            np.testing.assert_allclose(result.values, file[f"layers/{k}"][...], **close)
            ours = mixed(elmo.checkpoint, result.values)
            np.testing.assert_allclose(ours, file[f"mixed/{k}"][...], **close)
    assert elmo.checkpoint.notes["inside"] == "text_field_embedder.token_embedder_elmo._elmo"


@needs_originals
def test_the_tagger_of_allennlp() -> None:
    elmo = Elmo.load(TAGGER / "serialization/model.tar.gz")
    [mix] = elmo.checkpoint.mixes
    assert mix.gamma == pytest.approx(1.0046, abs=1e-4)
    assert mix.weights == pytest.approx((-0.0029, -0.0013, 0.0033), abs=1e-4)
    pair = FIXTURES / "allennlp/elmo"
    original = Elmo.load((pair / "options.json", pair / "lm_weights.hdf5"))
    for name in ("serialization", "serialization/best.th"):
        [ours] = Elmo.load(TAGGER / name).layers([["U.N.", "official", "Ekeus"]], tokenized=True)
        [theirs] = original.layers([["U.N.", "official", "Ekeus"]], tokenized=True)
        np.testing.assert_allclose(ours.values, theirs.values, **close)


@needs_originals
def test_the_logits_of_the_tagger_follow_from_its_elmo_and_mix() -> None:
    """The rest of that model is two GRU layers and a linear one; their weights are torch's own."""
    elmo = Elmo.load(TAGGER / "serialization/model.tar.gz")
    golden = json.loads((TAGGER / "expected_logits.json").read_text())
    state = torch.load(TAGGER / "serialization/best.th", weights_only=True)
    gru = torch.nn.GRU(32, 25, 2, bidirectional=True, batch_first=True)
    gru.load_state_dict(
        {k.removeprefix("encoder._module."): v for k, v in state.items() if "encoder._module" in k}
    )
    values = [
        mixed(elmo.checkpoint, r.values) for r in elmo.layers(golden["sentences"], tokenized=True)
    ]
    with torch.no_grad():
        hidden, _ = gru(torch.tensor(np.stack(values), dtype=torch.float32))
        logits = torch.nn.functional.linear(
            hidden,
            state["tag_projection_layer._module.weight"],
            state["tag_projection_layer._module.bias"],
        )
    np.testing.assert_allclose(logits.numpy(), golden["logits"], atol=1e-5)


def test_options_come_from_the_archive_else_from_the_shapes(folder: Path) -> None:
    key = "model.text_field_embedder.token_embedders.elmo.options_file"
    options = json.loads((folder / key).read_text())
    options["lstm"]["cell_clip"] = 0.5
    (folder / key).write_text(json.dumps(options))
    assert read_checkpoint(folder).config.lstm.cell_clip == 0.5
    (folder / key).rename(folder / "options.json")  # the name that config.json gives
    checkpoint = read_checkpoint(folder)
    assert checkpoint.config.lstm.cell_clip == 0.5
    assert "options" not in checkpoint.notes
    (folder / "options.json").unlink()
    inferred = read_checkpoint(folder)
    assert inferred.config.lstm.cell_clip == 3
    assert "assumed" in inferred.notes["options"]
    assert inferred.config == read_checkpoint(ARCHIVE).config
    assert read_checkpoint(folder / "weights.th").config == inferred.config


def test_write_back_to_hdf5(folder: Path, tmp_path: Path) -> None:
    before = Elmo.load(folder)
    allennlp_hdf5.write(before.checkpoint, tmp_path / "pair")
    after = Elmo.load(tmp_path / "pair")
    for a, b in zip(
        before.embed(SENTENCES, tokenized=True), after.embed(SENTENCES, tokenized=True), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def resave(folder: Path, change: Any) -> None:
    state = torch.load(folder / "weights.th", weights_only=True)
    state = change(dict(state))
    buffer = io.BytesIO()
    torch.save(state, buffer)
    (folder / "weights.th").write_bytes(buffer.getvalue())


PREFIX = "text_field_embedder.token_embedder_elmo._elmo."
CELL = f"{PREFIX}_elmo_lstm._elmo_lstm.forward_layer_0.state_projection.weight"
GAMMA = f"{PREFIX}scalar_mix_0.gamma"
WRONG = {
    "no ELMo": (lambda s: {"linear.weight": torch.zeros(2)}, "has no ELMo"),
    "two": (
        lambda s: s | {f"other.{k.removeprefix(PREFIX)}": v for k, v in s.items()},
        "has 2 ELMo models",
    ),
    "transformer": (
        lambda s: {"_forward_transformer.layers.0.weight": torch.zeros(2)},
        "has no ELMo",
    ),
    "no cell": (lambda s: {k: v for k, v in s.items() if k != CELL}, "needs"),
    "another layer": (
        lambda s: s | {CELL.replace("layer_0", "layer_2"): torch.zeros(4, 8)},
        "does not describe",
    ),
    "broken mix": (lambda s: s | {GAMMA: torch.zeros(2)}, "is not a mix of 3 layers"),
    "mix under another name": (
        lambda s: {k.replace("scalar_mix_0.gamma", "scalar_mix_0.gammb"): v for k, v in s.items()},
        "not part of a mix",
    ),
    "a list": (lambda s: [torch.zeros(2)], "holds a list"),
}


@pytest.mark.parametrize("what", WRONG)
def test_state_dicts_that_do_not_fit(what: str, folder: Path) -> None:
    change, message = WRONG[what]
    resave(folder, change)
    with pytest.raises(FormatError) as caught:
        for _ in read_checkpoint(folder).checked_weights():
            pass
    assert message in str(caught.value), str(caught.value)


def test_options_that_do_not_fit(folder: Path) -> None:
    key = "model.text_field_embedder.token_embedders.elmo.options_file"
    options = json.loads((folder / key).read_text())
    options["lstm"]["projection_dim"] = 8
    (folder / key).write_text(json.dumps(options))
    with pytest.raises(FormatError, match="AllenNLP's modules project"):
        read_checkpoint(folder)
    shutil.copy(ARCHIVE, folder / "model.tar.gz")  # an archive beside its own parts does no harm
    options["lstm"]["projection_dim"] = 4
    (folder / key).write_text(json.dumps(options))
    read_checkpoint(folder)
