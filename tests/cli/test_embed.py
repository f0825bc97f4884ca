"""`elmore embed`: every format holds the API's vectors, and nothing is dropped in silence."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmore import Elmo
from elmore.base.messages import SILENT

LINES = ["It fell .", "", 'He said "no".']


def test_stdin_to_stdout(cli, tiny_elmo: Elmo, tiny_folder: Path):
    result = cli("embed", "--model", tiny_folder, stdin=b"It fell .\n")
    assert result.code == 0
    [record] = result.records()
    assert record["tokens"] == ["It", "fell", "."]
    assert record["spans"] == [[0, 2], [3, 7], [8, 9]]
    np.testing.assert_allclose(record["vectors"], tiny_elmo.embed("It fell ."), atol=1e-5)
    assert result.err == "embedded 1 sentence (3 tokens)\n"


def test_jsonl_file_equals_the_api(cli, tiny_elmo, tiny_folder, text, tmp_path):
    out = tmp_path / "out.jsonl"
    result = cli("embed", text, "--model", tiny_folder, "-o", out)
    assert (result.code, result.out) == (0, "")
    assert result.err == "embedded 3 sentences (9 tokens), 1 empty\n"
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    for record, vectors in zip(records, tiny_elmo.embed(LINES), strict=True):
        found = np.asarray(record["vectors"], np.float32).reshape(vectors.shape)
        np.testing.assert_allclose(found, vectors, atol=1e-5)
    assert records[1] == {"tokens": [], "spans": [], "vectors": []}


@pytest.mark.parametrize("layers", ["mean", "top", "2", "0.25,0.5,0.25"])
def test_layers_equal_the_api(cli, tiny_elmo, tiny_folder, text, tmp_path, layers):
    out = tmp_path / "out.npz"
    assert cli("embed", text, "--model", tiny_folder, "-o", out, "--layers", layers).code == 0
    choice = {"2": 2, "0.25,0.5,0.25": [0.25, 0.5, 0.25]}.get(layers, layers)
    expected = tiny_elmo.embed(LINES, layers=choice)
    with np.load(out) as found:
        assert sorted(found.files) == ["0", "1", "2"]
        for k, vectors in enumerate(expected):
            assert found[str(k)].dtype == np.float32
            np.testing.assert_allclose(found[str(k)], vectors, atol=1e-5)


def test_hdf5_has_the_layout_of_the_old_command(cli, tiny_elmo, tiny_folder, text, tmp_path):
    out = tmp_path / "out.hdf5"
    assert cli("embed", text, "--model", tiny_folder, "-o", out, "--layers", "all").code == 0
    with h5py.File(out) as file:
        assert set(file) == {"0", "1", "2", "sentence_to_index"}
        for k, layers in enumerate(tiny_elmo.layers(LINES)):
            assert file[str(k)].dtype == np.float32
            assert file[str(k)].shape == layers.values.shape
            np.testing.assert_allclose(file[str(k)][...], layers.values, atol=1e-5)
        index = file["sentence_to_index"]
        assert index.shape == (1,)
        assert h5py.check_string_dtype(index.dtype).length is None
        assert json.loads(index[0]) == {line: str(k) for k, line in enumerate(LINES)}


def test_hdf5_of_one_layer_in_half_the_size(cli, tiny_folder, text, tmp_path):
    out = tmp_path / "out.h5"
    flags = ["--layers", "top", "--dtype", "float16"]
    assert cli("embed", text, "--model", tiny_folder, "-o", out, *flags).code == 0
    with h5py.File(out) as file:
        assert set(file) == {"0", "1", "2", "sentence_to_index"}
        assert (file["0"].shape, file["0"].dtype) == ((3, 32), np.float16)
        assert file["1"].shape == (0, 32)


def test_pooled_layers(cli, tiny_elmo, tiny_folder, text, tmp_path):
    flags = ["--pool", "mean", "--layers", "all"]
    records = cli("embed", text, "--model", tiny_folder, *flags).records()
    expected = tiny_elmo.layers(LINES[0]).values.mean(axis=1)
    np.testing.assert_allclose(records[0]["layers"], expected, atol=1e-5)
    assert np.asarray(records[1]["layers"]).shape == (3, 32)


def test_split_sentences(cli, tiny_folder):
    text = b"It fell. He said\nno. Dr. Smith left\n\nA new paragraph\n"
    result = cli("embed", "--model", tiny_folder, "--split-sentences", "--pool", "mean", stdin=text)
    texts = [record["text"] for record in result.records()]
    assert texts == ["It fell.", "He said\nno.", "Dr. Smith left", "A new paragraph"]


def test_long_tokens_are_cut_and_counted(cli, tiny_folder):
    line = f"{'x' * 10_000} {'é' * 24} {'é' * 25} <S>\n".encode()
    result = cli("embed", "--model", tiny_folder, "--tokenized", "--pool", "mean", stdin=line)
    assert result.code == 0
    assert result.err == "embedded 1 sentence (4 tokens), 2 tokens cut at 48 bytes\n"


def test_invalid_utf8(cli, tiny_folder, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"One .\nTw\xffo .\nThree .\nF\xffour .\n")
    base = ["embed", path, "--model", tiny_folder, "--pool", "mean"]
    result = cli(*base)
    assert result.code == 1
    assert "bad.txt:2: invalid UTF-8 at byte 2" in result.err
    result = cli(*base, "--errors", "skip")
    assert [record["tokens"] for record in result.records()] == [["One", "."], ["Three", "."]]
    assert result.err.endswith("2 lines with invalid UTF-8 skipped\n")
    result = cli(*base, "--errors", "replace")
    assert len(result.records()) == 4
    assert result.err.endswith("2 lines with invalid UTF-8 replaced\n")


def test_blank_lines_crlf_and_bom(cli, tiny_folder):
    result = cli(
        "embed", "--model", tiny_folder, "--pool", "mean", stdin=b"\xef\xbb\xbfA .\r\n \r\n\r\nB"
    )
    assert [record["tokens"] for record in result.records()] == [["A", "."], [], [], ["B"]]
    assert "2 empty" in result.err


@pytest.mark.parametrize("suffix", ["jsonl", "npz", "hdf5"])
@pytest.mark.parametrize("pool", [[], ["--pool", "mean"]])
def test_empty_input_gives_an_empty_whole_file(cli, tiny_folder, tmp_path, suffix, pool):
    out = tmp_path / f"out.{suffix}"
    assert cli("embed", "--model", tiny_folder, "-o", out, *pool).code == 0
    if suffix == "jsonl":
        assert out.read_bytes() == b""
    elif suffix == "npz":
        with np.load(out) as found:
            assert [found[name].shape for name in found.files] == ([(0, 32)] if pool else [])
    else:
        with h5py.File(out) as file:
            assert json.loads(file["sentence_to_index"][0]) == {}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files(cli, tiny_folder, text, tmp_path, pack):
    packed = tmp_path / "any-name"
    packed.write_bytes(pack(text.read_bytes()))
    result = cli("embed", "--model", tiny_folder, packed)
    assert result.code == 0
    assert result.out == cli("embed", "--model", tiny_folder, text).out
    result = cli("embed", "--model", tiny_folder, packed, "-o", packed, "-f", "jsonl", "--force")
    assert "is both input and output" in result.err
    packed.write_bytes(pack(text.read_bytes() * 99)[:-5])
    result = cli("embed", "--model", tiny_folder, packed, "-o", tmp_path / "out.jsonl")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert f"{packed}: the compressed data is damaged" in result.err
    assert not (tmp_path / "out.jsonl").exists()


def test_inputs_are_joined_and_limited(cli, tiny_folder, text, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("One\nTwo\n")
    base = ["embed", "--pool", "mean", "--model", tiny_folder]
    result = cli(*base, text, "-", other, stdin=b"Three\n")
    assert [len(record["tokens"]) for record in result.records()] == [3, 0, 6, 1, 1, 1]
    assert len(cli(*base, text, "-q", "--limit", 2).records()) == 2
    # After --model the words are inputs; flags and inputs may be mixed.
    assert len(cli("embed", text, *base[1:], other).records()) == 5


def test_two_files_and_one_of_them(cli, tiny_checkpoint, tmp_path, text):
    from elmore.formats import allennlp_hdf5

    folder = tmp_path / "old"
    allennlp_hdf5.write(tiny_checkpoint, folder)
    files = folder / "options.json", folder / "weights.hdf5"
    for model in ("{},{}".format(*files), *files, folder):
        assert len(cli("embed", "--pool", "mean", "--model", model, text).records()) == 3
    result = cli("embed", "--model", "{1},{0}".format(*files), text)
    assert result.code == 2
    assert "pass (options, weights)" in result.err


def test_threads_batches_and_start_change_nothing_or_what_they_should(cli, tiny_folder, text):
    base = ["embed", text, "--model", tiny_folder, "--pool", "mean"]
    plain = cli(*base).records()
    small = cli(*base, "--batch-tokens", 1, "--threads", 2).records()
    warm = cli(*base, "--start", "warm").records()
    for a, b, c in zip(plain, small, warm, strict=True):
        np.testing.assert_allclose(a["vector"], b["vector"], atol=1e-5)
        assert not a["tokens"] or not np.allclose(a["vector"], c["vector"], atol=1e-4)


def test_json_summary(cli, tiny_folder, text, tmp_path):
    result = cli("embed", text, "--model", tiny_folder, "-o", tmp_path / "x.npz", "--json")
    summary = json.loads(result.out)
    assert (summary["sentences"], summary["tokens"], summary["empty"]) == (3, 9, 1)
    assert result.err == ""


def test_failure_leaves_the_old_file(cli, tiny_folder, tmp_path):
    for suffix in ("jsonl", "npz", "hdf5"):
        out = tmp_path / f"out.{suffix}"
        out.write_text("old")
        bad = tmp_path / "bad.txt"
        bad.write_bytes(b"fine\n" * 3000 + b"\xff\n")
        result = cli("embed", bad, "--model", tiny_folder, "-o", out, "--force")
        assert (result.code, out.read_text()) == (1, "old")
        out.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]])
def test_texts_in_records(cli, tiny_elmo, tiny_folder, tmp_path, workers):
    table, treebank = tmp_path / "x.csv", tmp_path / "x.conllu"
    table.write_text('id,review\n7,"It fell, .\nHe left ."\n8,\n', "utf-8")
    words = [f"{k}\t{word}" + "\t_" * 8 for k, word in enumerate(["don't", "a b"], 1)]
    treebank.write_text("# x\n" + "\n".join(words) + "\n", "utf-8")

    def embed(*flags: object) -> list[dict]:
        out = tmp_path / (f"{flags[0]}.out" if workers else f"{flags[0]}.jsonl")
        assert cli("embed", *flags, "-f", "jsonl", "-o", out, *model, *workers).code == 0
        files = sorted(out.glob("*.jsonl")) if workers else [out]
        return [
            json.loads(line) for path in files for line in path.read_text("utf-8").split("\n")[:-1]
        ]

    model = ["--model", tiny_folder]
    reviews = embed(table, "--column", "review")
    assert [record["text"] for record in reviews] == ["It fell, . He left .", ""]
    expected = tiny_elmo.embed("It fell, . He left .")
    np.testing.assert_allclose(reviews[0]["vectors"], expected, atol=1e-5)
    sentences = embed(treebank)
    assert [record["tokens"] for record in sentences] == [["don't", "a b"]]
    expected = tiny_elmo.embed([["don't", "a b"]], tokenized=True)[0]
    np.testing.assert_allclose(sentences[0]["vectors"], expected, atol=1e-5)
    result = cli("embed", table, "--column", "text", "--model", tiny_folder)
    assert (result.code, "no column 'text'; there are 'id', 'review'" in result.err) == (1, True)


def test_the_bar_knows_how_many_sentences_there_are(cli, tiny_folder, text, tmp_path, monkeypatch):
    totals = []
    monkeypatch.setattr(
        "elmore.cli.console.progress_of",
        lambda option, *, unit, total: totals.append(total) or SILENT,
    )
    flags = ["--model", tiny_folder, "-o", tmp_path / "x.npz", "--force"]
    cli("embed", text, text, *flags)  # nobody would see it
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    cli("embed", text, text, *flags)
    cli("embed", text, text, "--limit", "4", *flags)
    cli("embed", *flags, stdin=b"It fell .")
    cli("embed", text, "-q", *flags)
    assert totals == [None, 6, 4, None, None]


def test_sense_vectors_equal_the_api(cli, lm_model: Path, text, tmp_path):
    elmo, out = Elmo.load(lm_model), tmp_path / "out.npz"
    assert cli("embed", text, "--model", lm_model, "--view", "senses", "-o", out).code == 0
    wanted = elmo.senses(LINES)
    with np.load(out) as found:
        for k, one in enumerate(wanted):
            np.testing.assert_allclose(found[str(k)], one.dense(), atol=1e-5)
    result = cli("embed", text, "--model", lm_model, "--view", "substitutes")
    records = result.records()
    assert [len(record["senses"]) for record in records] == [3, 0, 6]
    assert records[0]["spans"] == [[0, 2], [3, 7], [8, 9]]
    assert [word for word, _ in records[0]["senses"][1]] == [w for w, _ in wanted[0].words(1)]
    file = tmp_path / "words.jsonl"
    cli("embed", text, "--model", lm_model, "--view", "substitutes", "-o", file)
    assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == records


def test_verbose_says_where_the_time_goes(cli, tiny_folder, tmp_path):
    flags = ["--model", tiny_folder, "-o", tmp_path / "x.npz", "--force", "-v"]
    result = cli("embed", *flags, stdin=b"It fell .\n")
    assert re.search(r"[\d,]+ tokens per second\n", result.err)
    assert "per second" not in cli("embed", *flags[:-1], stdin=b"It fell .\n").err


def test_a_dry_run(cli, lm_model, text, tmp_path):
    done = cli("embed", text, "--dry-run", "--model", lm_model, "-o", tmp_path / "x.npz")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("3 sentences, 9 tokens; ")
    assert "embedding takes about" in done.out
    assert not (tmp_path / "x.npz").exists()
    line = "It fell .\nA &lt;b&gt; 한국어\n".encode()
    report = json.loads(cli("embed", "--dry-run", "--model", lm_model, "--json", stdin=line).out)
    assert report["unknown"] > 0
    assert report["size_bytes"] > 0
    assert any("HTML" in warning for warning in report["warnings"])
    assert cli("embed", "--dry-run", tmp_path / "none.txt").code == 1
