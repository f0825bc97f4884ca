"""`elmore info` and `elmore convert` on every format."""

from __future__ import annotations

import json
import subprocess
import sys
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
WRITABLE = [name for name in MODELS if not name.startswith("manylangs")]


@pytest.mark.parametrize("name", MODELS)
def test_info(cli, name: str) -> None:
    report = json.loads(cli("info", DATA / name, "--json").out)
    assert report["format"] == MODELS[name]
    assert report["parameters"] > 100
    assert report["precision"] == "float32"
    assert report["softmax"] == (name in list(MODELS)[:3])
    assert report["mixes"] == (name in ("tf1_hub", "allennlp_tagger.tar.gz"))
    assert all(len(file["sha256"]) == 64 for file in report["files"])
    assert "languages" in report


def test_info_tells_words_and_languages(cli, tmp_path: Path) -> None:
    report = json.loads(cli("info", DATA / "tf1_words_one_layer", "--json").out)
    assert (report["tokens"]["words"], report["vocabulary"]) == (9, 9)
    names = {file["name"] for file in report["files"]}
    assert {"model.ckpt-7.index", "model.ckpt-7.data-00001-of-00002", "vocab.txt"} <= names
    report = json.loads(cli("info", DATA / "manylangs_both", "--json").out)
    assert (report["tokens"]["characters"], report["tokens"]["words"]) == (25, 10)
    text = cli("info", DATA / "manylangs_lstm_encoder").out
    assert "languages           none" in text


@pytest.mark.parametrize("name", ["tf1_characters", "manylangs_both", "allennlp_tagger.tar.gz"])
def test_info_loads_no_torch(name: str) -> None:
    code = (
        "import sys; from elmore.cli.main import main; "
        f"code = main(['info', {str(DATA / name)!r}]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MODELS)
def test_convert_to_our_folder(cli, name: str, tmp_path: Path) -> None:
    report = json.loads(cli("convert", DATA / name, "-o", tmp_path / "out", "--json").out)
    assert report["max_difference"] <= 1e-6
    before, after = Elmo.load(DATA / name), Elmo.load(tmp_path / "out")
    tokens = [["the", "bank", "速い"]]
    np.testing.assert_array_equal(
        before.embed(tokens, tokenized=True)[0], after.embed(tokens, tokenized=True)[0]
    )
    assert after.checkpoint.mixes == before.checkpoint.mixes
    assert (after.checkpoint.softmax is None) == (before.checkpoint.softmax is None)


@pytest.mark.parametrize("name", WRITABLE)
def test_convert_to_hdf5(cli, name: str, tmp_path: Path) -> None:
    to = ("-o", tmp_path / "out", "--to", "allennlp", "--json")
    report = json.loads(cli("convert", DATA / name, *to).out)
    assert report["max_difference"] <= 1e-6
    assert ("mixes" in report["left_out"]) == (name in ("tf1_hub", "allennlp_tagger.tar.gz"))
    assert (tmp_path / "out/softmax.hdf5").exists() == (name in list(MODELS)[:3])


def test_what_cannot_be_written_is_said(cli, tmp_path: Path) -> None:
    result = cli(
        "convert", DATA / "manylangs_lstm_encoder", "-o", tmp_path / "out", "--to", "allennlp"
    )
    assert result.code == 2
    assert "layers that read both directions" in result.err
    assert not (tmp_path / "out").exists()


def test_options_and_checkpoint_as_arguments(cli, tmp_path: Path) -> None:
    folder = DATA / "tf1_characters"
    text = tmp_path / "text.txt"
    text.write_text("the bank\n")
    files = (folder / "options.json", folder / "model.ckpt-7")
    assert '"softmax": true' in cli("info", *files, "--json").out
    result = cli("embed", "--model", "{},{}".format(*files), text, "--layers", "top")
    assert len(result.out.splitlines()) == 1


def test_every_format_is_shown_here() -> None:
    assert {form.NAME for form in formats()} == {*MODELS.values(), "folder", "allennlp"}
