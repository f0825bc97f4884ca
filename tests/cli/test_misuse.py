"""Wrong use: exit code, one line that helps, nothing on stdout, no file left."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
from small_models import HAS_TORCH

from cli.conftest import as_new_click

# {m} the model, {l} one with a softmax, {t} a text, {d} an empty folder, {v} a vocabulary, {e} an
# empty file. Code, arguments, part of the message.
CASES = [
    (2, "embd", "did you mean embed?"),
    (2, "--vresion", "Did you mean --version?; see `elmore --help`"),
    (2, "embed {t} --model {m} --formt npz", "--format?"),
    (2, "embed --text {t}", "no such option --text; see `elmore embed --help`"),
    (1, "embed {t} --model no-such-model", "`elmore models` lists the names"),
    (1, "embed {t} --model orginal", "did you mean original"),
    (1, "embed {t} --model {d}/nothing", "does not exist"),
    (1, "embed {t} --model {d}", "is not a known model"),
    (1, "embed {t} --model {t}", "text.txt"),
    (1, "embed {d}/none.txt --model {m}", "does not exist"),
    (1, "embed {d} --model {m}", "is a folder"),
    (2, "embed {t} --model {m} -f hdf5", "pass -o FILE"),
    (2, "embed {t} --model {m} -f npz -o -", "pass -o FILE"),
    (2, "embed {t} --model {m} -o {d}/x.npy", "npy holds one vector per sentence; pass --pool"),
    (2, "embed {t} --model {m} -o {d}/x.pt", "pass -f"),
    (2, "embed {t} --model {m} --workers 2", "pass -o FOLDER"),
    (2, "embed --model {m} --workers 2 -o {d}/x", "save it to a file first"),
    (2, "embed {t} --model {m} --workers 2 -o {t}", "is not a folder"),
    (2, "embed {t} --model {m} --shard-bytes 9 -o {d}/x.npz", "for --workers"),
    (1, "embed {d}/no.txt --model {m} --workers 2 -o {d}/x", "does not exist"),
    (2, "embed {t} --model {m} -o {d}", "is a folder"),
    (1, "embed {t} --model {m} -o {d}/no/x.npz", "its folder does not exist"),
    (1, "embed {t} --model {m} -o {d}/no/x.hdf5", "no/x.hdf5': its folder does not exist"),
    (2, "embed {t} --model {m} -o {t}/x.hdf5", "text.txt' is a file, not a folder"),
    (2, "embed {t} --model {m} -o {t}/no/x.npz", "text.txt' is a file, not a folder"),
    (2, "embed {t} --model {m} -o {t} -f jsonl --force", "both input and output"),
    (2, "embed {t} --model {m} -o {v} -f jsonl", "--force"),
    (2, "embed {t} --model {m} -o /dev/null -f jsonl --force", "not a regular file"),
    (2, "embed {t} --model {m} --layers 3", "layers 0..2"),
    (2, "embed {t} --model {m} --layers bottom", "mean, top, all"),
    (2, "embed {t} --model {m} --layers 0.5,0.5", "3 layers"),
    (2, "embed {t} --model {m} --threads 99999999999999999999", "range"),
    (2, "embed {t} --model {m} --tokenized --split-sentences", "cannot be combined"),
    (2, "embed {t} --model {m} --json", "pass -o FILE"),
    (1, "info {d}", "is not a known model"),
    (2, "info a b c d e", "5 files"),
    (2, "convert {m}", "missing option '-o'"),
    (2, "convert {m} -o {d}/x --to allennlp --precision float16", "use --to folder"),
    (2, "convert {m} -o {d}/x --to allennlp --start warm", "use --to folder"),
    (2, "convert {m} -o {m} --force", "is the model itself"),
    (2, "convert {m} -o {t}", "is not a folder"),
    (1, "models --language xx", "use one of ar"),
    (2, "words --model {m} -o {d}/x.vec", "name the words with --words"),
    (1, "words --model {m} --words {d}/none.txt -o {d}/x.vec", "does not exist"),
    (1, "words --model {m} --words {e} -o {d}/x.vec", "is empty"),
    (2, "embed {t} --model {m} --tokenizer moses", "tokenizer='moses' is unknown"),
    (2, "embed {t} --model {m} --tokenizer no_such:split", "cannot import no_such"),
    (2, "embed {t} --model {m} --tokenizer shlex:cut", "shlex has no function cut"),
    (2, "score {t} --model {m}", "this model has no softmax"),
    (2, "score {t} --model {m} --total", "this model has no softmax"),
    (2, "score {t} --model {l} --top 3", "--top lists words"),
    (2, "score {t} --model {l} --next --previous", "exclude each other"),
    (2, "score {t} --model {l} --position 1", "--position is for --substitutes"),
    (2, "score {t} --model {l} --json", "--json is for --total"),
    (1, "score {e} --model {l} --total", "empty.txt: there is no sentence"),
    (1, "score --model {l} --total", "stdin: there is no sentence"),
    (1, "score {t} {d}/none.txt.gz --model {l} --total", "does not exist"),
    (1, "explore {v} --model {m}", "no word occurs twice"),
    (1, "explore {t} --model {m} --word river", "'river' is in none of the sentences"),
    (1, "explore {e} --model {m}", "there is no sentence"),
    (2, "explore {t} --model {m} --word It --layers 7", "layers=7"),
    (2, "explore {t} --model {m} --word It --layers 1,2", "one number for each"),
    (2, "models --dry-run", "needs --prune"),
    (2, "models --prune small --language en", "leave --language"),
    (1, "models --prune smal", "did you mean small"),
    (2, "words {t} --model {m} -o -", "pass -o FILE"),
    (2, "words {t} --model {m} -o {d}/x --words {v} --layers all", "'all' is not one of mean, top"),
    (2, "words {t} --model {m} -o {d}/x --words {v} --layers 7", "layers 0..2"),
    (2, "embed {t} --model {m} --view substitutes --layers top", "neither layers nor pooling"),
    (2, "embed {t} --model {m} --view senses --workers 2 -o {d}/x", "use `elmore index`"),
    (2, "embed {t} --model {m} --view substitutes -o {d}/x.npz", "pass -f jsonl"),
    (2, "embed {t} --model {m} --view senses -o {d}/x.npz", "no softmax"),
    (2, "pretrain", "name the DATA"),
    (2, "pretrain --show-recipe lapto", "did you mean 'laptop'"),
    (2, "fine-tune -o {d}/x", "name the text"),
]

if HAS_TORCH:
    CASES += [
        (2, "embed {t} --model {m} --device tpu9", "device='tpu9'"),
        (2, "pretrain {d}", "pass -o FOLDER"),
        (1, "pretrain {d} -o {d}/x", "elmore prepare"),
        (1, "predict pos {d}/none.txt", "does not exist"),
        (1, "predict {d} {t}", "is not a trained model; use "),
        (2, "predict sentiment --column a", "--column is for .csv, .tsv and .jsonl files"),
        (2, "predict pos {t} -o {d}/x.xls", "unknown suffix; pass -f text, "),
        (2, "predict pos {t} --precision int8", "--precision needs --model"),
        (2, "train ner {t} -o {d}/x --column z", "--column: only for tag and classify"),
        (2, "train ner {t} -o {d}/x --no-elmo --model {m}", "leave one out"),
    ]


@pytest.mark.parametrize(("code", "line", "part"), CASES)
def test_misuse(cli, tiny_folder: Path, lm_model: Path, text, tmp_path, code, line, part):
    empty, folder, words = tmp_path / "empty.txt", tmp_path / "folder", tmp_path / "vocab.txt"
    empty.touch()
    folder.mkdir()
    words.write_text("It\n")
    before = {path: path.read_bytes() for path in (empty, text, words)}
    names = {"m": tiny_folder, "l": lm_model, "t": text, "d": folder, "v": words, "e": empty}
    result = cli(*(word.format(**names) for word in line.split()))
    assert result.code == code
    assert result.out == ""
    assert result.err.startswith("elmore: error: ")
    assert part in as_new_click(result.err)
    assert result.err.count("\n") == 1
    assert len(result.err) <= 400
    assert "Traceback" not in result.err
    assert list(folder.iterdir()) == []
    assert {path: path.read_bytes() for path in before} == before


def test_a_softmax_file_in_place_of_weights(cli, tiny_checkpoint, text, tmp_path):
    from elmore.formats import allennlp_hdf5

    allennlp_hdf5.write(tiny_checkpoint, tmp_path / "old")
    wrong = tmp_path / "wrong.hdf5"
    with h5py.File(wrong, "w") as file:
        file["softmax/W"], file["softmax/b"] = [[1.0]], [1.0]
    result = cli("embed", text, "--model", f"{tmp_path}/old/options.json,{wrong}")
    assert result.code == 1
    assert "has no LSTM" in result.err


def test_a_bad_value_in_a_file_is_a_failure_not_a_wrong_use(cli, tiny_checkpoint, text, tmp_path):
    from elmore.formats import allennlp_hdf5

    allennlp_hdf5.write(tiny_checkpoint, tmp_path / "old")
    options = tmp_path / "old" / "options.json"
    options.write_text(options.read_text().replace('"n_layers": 2', '"n_layers": -2'))
    assert cli("info", tmp_path / "old").code == 1


def test_debug_shows_the_traceback(cli, tiny_folder):
    result = cli("embed", "none.txt", "--model", tiny_folder, "--debug")
    assert result.code == 1
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("elmore: error: ")


def test_names_that_do_not_print(cli, tiny_folder):
    result = cli("embed", "--model", tiny_folder, "a\nb\udcff.txt")
    assert result.code == 1
    assert result.err.count("\n") == 1


def test_an_unexpected_error_is_one_line_too(cli, tiny_folder, text, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("elmore.cli.options.ModelChoice.load", broken)
    result = cli("embed", text, "--model", tiny_folder)
    assert result.code == 1
    assert "unexpected KeyError" in result.err
    assert result.err.count("\n") == 1
