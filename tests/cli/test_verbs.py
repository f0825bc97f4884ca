"""`info` and `convert`."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_tasks import quick_recipe, task_class, write_data

from elmore import Elmo
from elmore.formats import allennlp_hdf5


def test_info_describes_a_folder(cli, tiny_folder: Path, tiny_elmo: Elmo):
    result = cli("info", tiny_folder)
    assert (result.code, result.err) == (0, "")
    for part in ("folder", "parameters", "skip connections", "sha256", "float32"):
        assert part in result.out
    report = json.loads(cli("info", tiny_folder, "--json").out)
    assert (report["format"], report["dim"], report["layers"]) == ("folder", 32, 3)
    weights = sum(array.size for array in tiny_elmo.checkpoint.weights.values())
    assert report["parameters"] == weights
    assert report["lstm"]["cell_clip"] == 3
    assert report["alphabet"] == "bytes"
    for file in report["files"]:
        data = (tiny_folder / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert report["bytes"] == sum(path.stat().st_size for path in tiny_folder.iterdir())


def test_info_of_two_files_and_a_zip(cli, tiny_checkpoint, tmp_path):
    folder = tmp_path / "old"
    allennlp_hdf5.write(tiny_checkpoint, folder)
    report = json.loads(cli("info", folder / "options.json", folder / "weights.hdf5", "--json").out)
    assert (report["format"], report["tokenizer"]) == ("allennlp", "billion-word")
    assert "nobody states" in report["notes"]["tokenizer"]
    shutil.make_archive(str(tmp_path / "model"), "zip", folder)
    packed = json.loads(cli("info", tmp_path / "model.zip", "--json").out)
    assert [file["sha256"] for file in packed["files"]] == [
        file["sha256"] for file in report["files"]
    ]


def test_info_of_a_task(cli, tiny_elmo, tmp_path):
    data, run = write_data("ner", tmp_path), tmp_path / "run"
    task = task_class("ner")(tiny_elmo, recipe=quick_recipe("ner", schedule__epochs="2"))
    report = task.fit(data, dev=data, out=run)
    found = json.loads(cli("info", run, "--json").out)
    assert found == json.loads(cli("info", run / "checkpoint", "--json").out)
    assert (found["task"], found["recipe"]) == ("ner", "laptop")
    assert found["scores"]["f1"] == round(report.metrics["f1"], 2)
    assert found["network"]["lstm"] == [12]
    assert (found["elmo"]["dim"], found["elmo"]["layers"]) == (tiny_elmo.dim, tiny_elmo.n_layers)
    assert "  at                input" in cli("info", run).out
    facts = run / "checkpoint" / "task.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "recipe": {}}))
    assert "is not the folder of a trained task" in cli("info", run).err
    shutil.rmtree(run / "checkpoint")
    assert "run without a checkpoint yet" in cli("info", run).err


def test_info_of_a_run(cli, tiny_folder, tmp_path):
    (tmp_path / "recipe.json").write_text("{}")
    for name in ("checkpoint", "best"):
        shutil.copytree(tiny_folder, tmp_path / name)
    found = json.loads(cli("info", tmp_path, "--json").out)
    assert (found["model"], found["dim"]) == (str(tmp_path / "best"), 32)


@pytest.mark.parametrize("flags", [["--to", "allennlp"], []])
def test_convert_keeps_the_vectors(cli, tiny_elmo, tiny_folder, tmp_path, flags):
    out = tmp_path / "new"
    result = cli("convert", tiny_folder, "-o", out, *flags)
    assert (result.code, result.out) == (0, "")
    assert "vectors differ by 0 at most" in result.err
    sentence = ["It", "fell"]
    [found] = Elmo.load(out).embed([sentence], tokenized=True)
    [expected] = tiny_elmo.embed([sentence], tokenized=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_convert_to_float16_and_warm(cli, tiny_folder, tmp_path):
    out = tmp_path / "half"
    flags = ["--precision", "float16", "--start", "warm", "--json"]
    report = json.loads(cli("convert", tiny_folder, "-o", out, *flags).out)
    assert 0 < report["max_difference"] < 0.05
    info = json.loads(cli("info", out, "--json").out)
    assert info["warm_start"]
    assert "float16" in info["precision"]


def test_int8_from_convert_to_info_and_embed(cli, tiny_folder, text, tmp_path):
    out = tmp_path / "quarter"
    result = cli("convert", tiny_folder, "-o", out, "--precision", "int8")
    assert result.code == 0
    assert "vectors differ by 0 at most; mean cosine to float32 by layer 0.99" in result.err
    info = json.loads(cli("info", out, "--json").out)
    assert info["certificate"]["precision"] == "int8"
    assert "certificate" not in info["notes"]
    assert "mean cosine" in cli("info", out).out
    quick = cli("embed", "--model", out, text).records()
    same = cli("embed", "--model", tiny_folder, "--precision", "int8", text).records()
    exact = cli("embed", "--model", tiny_folder, text).records()
    assert quick == same != exact
    # A copy stays as it is, unless another type of weights is asked for.
    again = cli("convert", out, "-o", tmp_path / "copy")
    assert "wrote" in again.err
    assert "(folder, int8)" in again.err
    models = [folder / "model.safetensors" for folder in (out, tmp_path / "copy")]
    assert models[0].read_bytes() == models[1].read_bytes()
    old = cli("convert", out, "-o", tmp_path / "old", "--to", "allennlp")
    assert "(allennlp, float32); verified: vectors differ by 0 at most" in old.err


def test_convert_that_does_not_verify_leaves_nothing(cli, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("elmore.cli.models._TOLERANCE", {"float32": -1})
    result = cli("convert", tiny_folder, "-o", tmp_path / "new")
    assert result.code == 1
    assert "verification failed" in result.err
    assert list(tmp_path.iterdir()) == []


def test_info_of_prepared_text(cli, tmp_path):
    words = " ".join(f"w{k} " * (k + 1) for k in range(200))
    (tmp_path / "many.txt").write_text(words + "\n")
    assert cli("prepare", tmp_path / "many.txt", "-o", tmp_path / "data", "-q").code == 0
    report = json.loads(cli("info", tmp_path / "data", "--json").out)
    assert report["training"]["tokens"] == 20_100
    assert list(report["coverage"]) == ["100 words", "200 words", "203 words"]
    assert report["coverage"]["203 words"].startswith("100.00% of the tokens")


def test_info_of_an_index(cli, lm_model, text, tmp_path):
    out = tmp_path / "uses"
    assert cli("index", text, "--model", lm_model, "--min-count", 1, "-o", out).code == 0
    report = json.loads(cli("info", out, "--json").out)["index"]
    assert report["uses"] > 3
