"""`elmore tag` and `elmore classify`, and what `elmore task` adds for one's own data."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tasks import CLASSIFY, make, write_data

from elmore import Elmo
from elmore.tasks.folder import ready_models
from elmore.tasks.own.light import classifier, tagger


@pytest.fixture(scope="module")
def trained(tiny_elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    for name in ("tag", "classify"):
        task = make(name, tiny_elmo, schedule__epochs="40")
        task.fit(write_data(name, place))
        task.save(place / name)
    plain = make("tag", tiny_elmo, schedule__epochs="40")
    plain.fit([["Ada", "fell"], ["It", "fell"]] * 4, [["N+X", "V+Y"], ["P+X", "V+Y"]] * 4)
    plain.save(place / "plain")
    return place


def test_spans_and_tags(cli: Any, trained: Path) -> None:
    result = cli("tag", "Bo met Ada", "--trained", trained / "tag")
    assert result.code == 0, result.err
    assert result.out == "[PER Bo] met [PER Ada]\n"
    assert result.err == ""
    result = cli("tag", "--trained", trained / "plain", "-q", stdin=b"Ada fell\n\nIt\n")
    lines = [line.split() for line in result.out.split("\n")]
    assert [line[:3] for line in lines] == [
        *(["Ada", "N", "X"], ["fell", "V", "Y"], [], [], ["It", "P", "X"], [], [])
    ]
    assert result.err == ""


def test_files_and_formats(cli: Any, trained: Path, tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("Bo met Ada\nYes\n", encoding="utf-8")
    wanted = [one.to_json() for one in tagger(trained / "tag").predict(["Bo met Ada", "Yes"])]
    out = tmp_path / "out.jsonl"
    result = cli("tag", text, "--trained", trained / "tag", "-o", out)
    assert result.code == 0
    assert "lines/s" in result.err
    assert [json.loads(line) for line in out.read_text().splitlines()] == wanted
    again = cli("tag", text, "--trained", trained / "tag", "-o", out)
    assert "out.jsonl" in again.err
    assert again.code != 0  # it exists
    result = cli("tag", text, "--trained", trained / "tag", "--format", "conll", "--limit", 1)
    assert result.out == "Bo\tB-PER\nmet\tO\nAda\tB-PER\n\n"


def test_classify(cli: Any, trained: Path, tmp_path: Path) -> None:
    texts = [text for text, _ in CLASSIFY]
    found = classifier(trained / "classify").predict(texts)
    table = tmp_path / "new.csv"
    rows = "".join(f'"{text}",{k}\n' for k, text in enumerate(texts))
    table.write_text(f"review,id\n{rows}", encoding="utf-8")
    result = cli("classify", table, "--trained", trained / "classify", "--format", "jsonl")
    assert result.code == 0, result.err
    assert [r["label"] for r in result.records()] == [one.label for one in found]
    assert [r["text"] for r in result.records()] == texts
    packed = tmp_path / "new.csv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    again = cli("classify", packed, "--trained", trained / "classify", "--format", "jsonl")
    assert again.records() == result.records()
    column = ["--trained", trained / "classify", "--format", "jsonl", "--column", "id"]
    assert [r["text"] for r in cli("classify", table, *column).records()][:2] == ["0", "1"]
    result = cli("classify", "A true joy", "--trained", trained / "classify")
    assert result.out.split() == [
        "good",
        f"{found[0].probabilities['good']:.2f}",
        "A",
        "true",
        "joy",
    ]
    out = tmp_path / "out.tsv"
    plain = "\n".join(texts).encode()
    assert cli("classify", "--trained", trained / "classify", "-o", out, stdin=plain).code == 0
    assert [line.split("\t")[::2] for line in out.read_text().splitlines()] == [
        [one.label, text] for one, text in zip(found, texts, strict=True)
    ]


def test_no_colours_in_a_file(
    cli: Any, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb, text in (("tag", "Bo met Ada"), ("classify", "A true joy")):
        out, words = tmp_path / f"{verb}.txt", [verb, text, "--trained", trained / verb]
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        assert cli(*words, "-o", out).code == 0
        assert "\x1b" not in out.read_text()
        assert "\x1b" in cli(*words).out


def test_the_tokenizer_of_the_command_line(cli: Any, trained: Path) -> None:
    words = ["tag", "Ada,Bo met Ada", "--trained", trained / "plain", "--format", "conll"]
    assert [line.split("\t")[0] for line in cli(*words).out.splitlines()][:3] == ["Ada", ",", "Bo"]
    spaces = cli(*words, "--tokenizer", "spaces").out.splitlines()
    assert [line.split("\t")[0] for line in spaces] == ["Ada,Bo", "met", "Ada", ""]


def test_results_can_be_read_again(
    cli: Any, trained: Path, tiny_elmo: Elmo, tmp_path: Path
) -> None:
    joined = cli("tag", "Ada fell", "--trained", trained / "plain", "--format", "conll")
    assert joined.out == "Ada\tN\tX\nfell\tV\tY\n\n"
    task = make("tag", tiny_elmo, schedule__epochs="20")
    task.fit([["Ada", "fell"]] * 4, [["C++", "D"]] * 4)
    task.save(tmp_path / "own")
    own = cli("tag", "Ada fell", "--trained", tmp_path / "own", "--format", "conll")
    assert own.out == "Ada\tC++\nfell\tD\n\n"
    table, out = tmp_path / "new.csv", tmp_path / "out.tsv"
    table.write_text('text\n"A true\njoy\tor not"\n', encoding="utf-8")
    assert cli("classify", table, "--trained", trained / "classify", "-o", out).code == 0
    (row,) = out.read_text().splitlines()
    assert row.split("\t")[2] == "A true joy or not"
    for verb in ("tag", "classify"):
        words = [verb, "It fell", "--trained", trained / verb, "-o", tmp_path / "out.csv"]
        refused = cli(*words)
        assert (refused.code, "no format has the suffix .csv; use --format" in refused.err) == (
            *(2, True),
        )
        assert cli(*words, "--format", "jsonl").code == 0
        (tmp_path / "out.csv").unlink()


def test_tables_in_predict(cli: Any, trained: Path, tmp_path: Path) -> None:
    table, plain = tmp_path / "new.csv", tmp_path / "new.txt"
    table.write_text("id,text\n1,A true joy\n2,Mess\n", encoding="utf-8")
    plain.write_text("A true joy\nMess\n", encoding="utf-8")
    use = ["task", "predict", "classify", "--trained", trained / "classify", "--json"]
    assert cli(*use, table).records() == cli(*use, plain).records()
    assert len(cli(*use, table, "--text", "id").records()) == 2
    assert "--text is for .csv" in cli(*use, plain, "--text", "id").err


def test_misuse(cli: Any, trained: Path) -> None:
    for words, message in (
        (["tag", "no-such.txt"], "'no-such.txt' does not exist"),
        (["tag", "It fell", "--trained", trained / "classify"], "is a classifier; use"),
        (["tag", "It fell", "--trained", trained / "nothing"], "is not a trained model; use "),
        (["classify", "It", "fell", "--trained", trained / "tag"], "does not exist"),
        (["classify", "--text", "a"], "--text names a column, but stdin is not a .csv, .tsv or"),
        (["classify", "It fell", "--text", "a"], "but 'It fell' is not a .csv"),
        (["task", "train", "ner", "x", "-o", "y", "--text", "z"], "--text is for tag, classify"),
        (
            ["task", "evaluate", "ner", "x", "--trained", "y", "--plot", "z.svg"],
            "--plot is for tag",
        ),
    ):
        result = cli(*words)
        assert result.code != 0
        assert message in result.err
        assert len(result.err.splitlines()) == 1


def test_own_columns_curve_and_picture(cli: Any, tiny_folder: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.tsv", tmp_path / "out"
    rows = "".join(f"{text}\t{label}\n" for text, label in CLASSIFY * 3)
    data.write_text(f"opinion\twhat\n{rows}", encoding="utf-8")
    columns = ["--text", "opinion", "--label", "what"]
    train = ["task", "train", "classify", data, *columns, "-o", out, "--model", tiny_folder]
    result = cli(*train, "--curve", "--set", "schedule.epochs=2", "--json", "--threads", 1)
    assert result.code == 0, result.err
    tables = json.loads(result.out)["tables"]
    assert {"labels", "against a baseline", "learning curve", "classes"} <= set(tables)
    assert tables["learning curve"][-1]["examples"] == 20
    assert tables["labels"][0]["training"] + tables["labels"][0]["held out"] == 12
    seeds = [
        *train,
        "--curve",
        "--seeds",
        2,
        "--set",
        "schedule.epochs=1",
        "--json",
        "--threads",
        1,
    ]
    seeds[seeds.index(out)] = tmp_path / "seeds"
    result = cli(*seeds)
    assert result.code == 0, result.err
    assert json.loads(result.out)["tables"]["learning curve"][-1]["examples"] == 20
    picture = tmp_path / "confusions.svg"
    result = cli(
        "task", "evaluate", "classify", data, *columns, "--trained", out, "--plot", picture
    )
    assert result.code == 0, result.err
    assert "<svg" in picture.read_text()
    assert "accuracy" in result.out


@pytest.mark.parametrize("flag", ["--dev", "--test"])
def test_an_unknown_label_is_found_before_the_training(flag: str, cli: Any, tmp_path: Path) -> None:
    data, other, out = tmp_path / "data.csv", tmp_path / "other.csv", tmp_path / "out"
    data.write_text("text,label\n" + "a,x\nb,y\n" * 6, encoding="utf-8")
    other.write_text("text,label\na,x\nb,zebra\n", encoding="utf-8")
    train = ["task", "train", "classify", data, "--no-elmo", "-o", out]
    result = cli(*train, flag, other)
    assert result.code == 1
    assert "other.csv:3: the label 'zebra' does not occur in the training data" in result.err
    assert not out.exists()


@pytest.mark.parametrize("task", ["tag", "classify"])
def test_the_models_that_ship_fit_the_model_that_ships(task: str) -> None:
    load: Any = tagger if task == "tag" else classifier
    names = ready_models()[:2] if task == "tag" else ready_models()[2:]
    elmo = Elmo.load(threads=1)
    for name in names:
        model = load(name, elmo=elmo)
        (found,) = model.predict(["Ada lives in Rome, and she loves it."])
        assert found.probabilities
        if name == "pos":
            assert found.tags[:5] == ("PROPN+NNP", "VERB+VBZ", "ADP+IN", "PROPN+NNP", "PUNCT+,")
        if name == "chunk":
            assert [span.label for span in found.spans][:4] == ["NP", "VP", "PP", "NP"]
        if name == "sentiment":
            assert found.label == "positive"
    root = Path(elmore_models())
    total = sum(f.stat().st_size for place in root.glob(f"{task}-*") for f in place.iterdir())
    assert total < 4e6
    for place in root.glob(f"{task}-*"):
        assert "licence of the data" in (place / "README.md").read_text()


def elmore_models() -> str:
    import elmore

    return str(Path(elmore.__file__).parent / "models")
