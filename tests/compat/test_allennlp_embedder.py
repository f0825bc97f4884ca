"""`ElmoEmbedder`, and the old `allennlp elmo` command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from small_models import needs_torch

from elmore import Elmo
from elmore.compat.allennlp import ConfigurationError, ElmoEmbedder
from elmore.compat.allennlp.__main__ import main

Pair = tuple[Path, Path]
LINE = "Michael went to the store to buy some eggs ."
FOUR = ["Michael went to the store", "and / or", "Joel rolled down", "Noël ate 鮨"]


def run(pair: Pair, text: Path, out: Path, *flags: str) -> int:
    options, weights = map(str, pair)
    return main(
        ["elmo", str(text), str(out), "--options-file", options, "--weight-file", weights, *flags]
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(LINE + "\n", encoding="utf-8")
    return path


def test_embedding_sentences(pair: Pair) -> None:
    embedder, plain = ElmoEmbedder(*pair), Elmo.load(pair)
    vectors = embedder.embed_sentence(LINE.split())
    assert vectors.shape == (3, 10, 32)
    assert vectors.dtype == np.float32
    [expected] = plain.layers([LINE.split()], tokenized=True)
    np.testing.assert_allclose(vectors, expected.values, atol=1e-5)
    again = embedder.embed_sentence(LINE.split())
    assert np.abs(again - vectors).max() > 1e-3  # the state went on


@needs_torch
def test_batches(pair: Pair) -> None:
    embedder = ElmoEmbedder(*pair)
    values, mask = embedder.batch_to_embeddings([LINE.split(), ["Yes"]])
    assert tuple(values.shape) == (2, 3, 10, 32)
    assert mask.sum(dim=1).tolist() == [10, 1]
    assert values[1, :, 1:].abs().max() == 0
    stream = ElmoEmbedder(*pair)
    state = Elmo.load(pair).stateful()
    sentences = [line.split() for line in FOUR]
    found = list(stream.embed_sentences(iter(sentences), batch_size=3))
    expected = [
        *state.layers(sentences[:3], tokenized=True),
        *state.layers(sentences[3:], tokenized=True),
    ]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs.values, atol=1e-5)


def test_empty_sentences(pair: Pair) -> None:
    embedder = ElmoEmbedder(*pair)
    assert embedder.embed_sentence([]).shape == (3, 0, 1024)  # AllenNLP's constant
    assert embedder._stream.state is None
    shapes = [v.shape for v in embedder.embed_batch([["Here", "is", "one"], []])]
    assert shapes == [(3, 3, 32), (3, 0, 1024)]
    assert [v.shape for v in embedder.embed_batch([[], []])] == [(3, 0, 1024)] * 2


@needs_torch
def test_refusals(small_pair: Pair) -> None:
    embedder = ElmoEmbedder(*small_pair)
    with pytest.raises(ConfigurationError, match="sentence 0 is a string"):
        embedder.embed_batch(["It fell"])
    with pytest.raises(ConfigurationError, match="output_format='none'"):
        embedder.embed_file([], "x", "none")
    with pytest.raises(ConfigurationError, match="device='cuda:0' cannot be used"):
        ElmoEmbedder(*small_pair, cuda_device=0)


def test_all_top_and_average(pair: Pair, text: Path, tmp_path: Path) -> None:
    values = {}
    for kind in ("all", "top", "average"):
        assert run(pair, text, tmp_path / kind, f"--{kind}") == 0
        with h5py.File(tmp_path / kind, "r") as file:
            assert set(file) == {"0", "sentence_to_index"}
            assert json.loads(file["sentence_to_index"][0]) == {LINE: "0"}
            values[kind] = file["0"][...]
    assert values["all"].shape == (3, 10, 32)
    np.testing.assert_allclose(values["top"], values["all"][2], rtol=1e-4)
    np.testing.assert_allclose(values["average"], values["all"].mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        values["all"], Elmo.load(pair).layers([LINE.split()], tokenized=True)[0].values, atol=1e-5
    )


def test_lines_and_their_keys(small_pair: Pair, tmp_path: Path) -> None:
    text, out = tmp_path / "lines.txt", tmp_path / "out"
    text.write_text("\n".join([*FOUR, FOUR[0]]), encoding="utf-8")
    assert run(small_pair, text, out, "--all", "--forget-sentences") == 0
    with h5py.File(out, "r") as file:
        assert set(file) == {"0", "1", "2", "3", "4"}
    assert run(small_pair, text, out, "--all") == 0
    with h5py.File(out, "r") as file:
        index = json.loads(file["sentence_to_index"][0])
        assert index == {FOUR[0]: "4", **{FOUR[k]: str(k) for k in (1, 2, 3)}}
        numbered = [file[str(k)][...] for k in range(4)]
    before = out.read_bytes()
    assert run(small_pair, text, out, "--all", "--use-sentence-keys") == 2  # one occurs twice
    assert out.read_bytes() == before
    text.write_text("\n".join(FOUR), encoding="utf-8")
    assert run(small_pair, text, out, "--all", "--use-sentence-keys") == 0
    with h5py.File(out, "r") as file:
        assert "sentence_to_index" not in file
        for line, expected in zip(FOUR, numbered, strict=True):
            np.testing.assert_allclose(file[line][...], expected, atol=1e-6)


@pytest.mark.parametrize("lines", ["He left /", "and\nand/or"])
def test_a_slash_that_cannot_be_in_a_key(
    lines: str, small_pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HDF5 takes what is before it for a group."""
    text, out = tmp_path / "slash.txt", tmp_path / "out"
    text.write_text(lines, encoding="utf-8")
    assert run(small_pair, text, out, "--all", "--use-sentence-keys") == 2
    last = lines.rpartition("\n")[2]
    problem = f"the line {last!r} has a slash and cannot be the name of a dataset; use numbers"
    assert problem in capsys.readouterr().err
    assert not out.exists()
    assert run(small_pair, text, out, "--all") == 0


def test_blank_lines_stop_it_before_anything_is_written(
    small_pair: Pair, tmp_path: Path, capsys
) -> None:
    text, out = tmp_path / "blank.txt", tmp_path / "out"
    text.write_text(f"{LINE}\n\n{LINE}\n  \n")
    assert run(small_pair, text, out, "--top") == 2
    assert capsys.readouterr().err == (
        "elmore: error: lines [1, 3] (from 0) are blank; remove them\n"
    )
    assert not out.exists()


def test_the_default_model_is_the_original(text: Path, tmp_path: Path, capsys) -> None:
    assert main(["elmo", str(text), str(tmp_path / "x"), "--all"]) == 1
    message = capsys.readouterr().err
    assert "is not on this machine" in message
    assert "2x4096_512_2048cnn_2xhighway" in message


def test_its_text_is_not_replaced(text: Path, capsys) -> None:
    before = text.read_bytes()
    assert main(["elmo", str(text), str(text), "--all"]) == 2
    assert "is both input and output" in capsys.readouterr().err
    assert text.read_bytes() == before


def test_as_a_program(small_pair: Pair, text: Path, tmp_path: Path) -> None:
    options, weights = map(str, small_pair)
    out = tmp_path / "out.hdf5"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "elmore.compat.allennlp", "elmo", text, out, "--average"),
            *("--options-file", options, "--weight-file", weights),
            *("--file-friendly-logging", "--cuda-device", "-1", "--vocab-path", "unused"),
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with h5py.File(out, "r") as file:
        assert file["0"].shape == (10, 32)
