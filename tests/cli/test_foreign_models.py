"""`elmore info` and `elmore convert` on every format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_models import DATA

from elmore import Elmo
from elmore.formats.detect import formats

MODELS = {
    "tf1_characters": "tensorflow",
    "tf1_words_one_layer": "tensorflow",
    "tf1_forward_three_layers": "tensorflow",
    "tf1_hub": "tensorflow",
    "manylangs_both": "manylangs",
    "manylangs_characters_old": "manylangs",
    "manylangs_words": "manylangs",
    "manylangs_lstm_encoder": "manylangs",
    "manylangs_lstm_words": "manylangs",
    "allennlp_tagger.tar.gz": "allennlp-archive",
}


@pytest.mark.parametrize("name", MODELS)
def test_info_and_convert(cli, name: str, tmp_path: Path) -> None:
    about = json.loads(cli("info", DATA / name, "--json").out)
    assert (about["format"], about["precision"]) == (MODELS[name], "float32")
    assert about["softmax"] == (name in list(MODELS)[:3])
    assert about["mixes"] == (name in ("tf1_hub", "allennlp_tagger.tar.gz"))
    assert all(len(file["sha256"]) == 64 for file in about["files"])
    done = json.loads(cli("convert", DATA / name, "-o", tmp_path / "out", "--json").out)
    assert done["max_difference"] <= 1e-6
    before, after = Elmo.load(DATA / name), Elmo.load(tmp_path / "out")
    tokens = [["the", "bank", "速い"]]
    np.testing.assert_array_equal(
        before.embed(tokens, tokenized=True)[0], after.embed(tokens, tokenized=True)[0]
    )
    assert after.checkpoint.mixes == before.checkpoint.mixes
    assert (after.checkpoint.softmax is None) == (before.checkpoint.softmax is None)
    to = ("-o", tmp_path / "old", "--to", "allennlp", "--json")
    if not name.startswith("manylangs"):
        done = json.loads(cli("convert", DATA / name, *to).out)
        assert done["max_difference"] <= 1e-6
        assert ("mixes" in done["left_out"]) == bool(about["mixes"])
        assert "tokenizer" not in done["left_out"]  # nobody knows it, so nothing is lost
        stated = json.loads(cli("convert", DATA / name, *to, "--tokenizer", "ptb", "--force").out)
        assert "tokenizer" in stated["left_out"]
        assert (tmp_path / "old/softmax.hdf5").exists() == about["softmax"]
    elif name == "manylangs_lstm_encoder":
        refused = cli("convert", DATA / name, *to)
        assert (refused.code, (tmp_path / "old").exists()) == (2, False)
        assert "layers that read both directions" in refused.err


def test_info_tells_words_and_languages(cli) -> None:
    report = json.loads(cli("info", DATA / "tf1_words_one_layer", "--json").out)
    assert (report["tokens"]["n_words"], report["vocabulary"]) == (9, 9)
    names = {file["name"] for file in report["files"]}
    assert {"model.ckpt-7.index", "model.ckpt-7.data-00001-of-00002", "vocab.txt"} <= names
    assert "languages           none" in cli("info", DATA / "manylangs_lstm_encoder").out
    assert "languages           en\n" in cli("info", "english").out


def test_options_and_checkpoint_as_arguments(cli) -> None:
    folder = DATA / "tf1_characters"
    files = (folder / "options.json", folder / "model.ckpt-7")
    assert '"softmax": true' in cli("info", *files, "--json").out


def test_every_format_is_shown_here() -> None:
    assert {form.NAME for form in formats()} == {*MODELS.values(), "folder", "allennlp"}
