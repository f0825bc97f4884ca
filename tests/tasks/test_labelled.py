"""Labelled data of every form, and what is said about data that is broken."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_tasks import make

from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.tasks import ClassifyExample, TagExample
from elmore.tasks.data.labelled import is_span_scheme, label_names, read_texts, read_tokens
from elmore.tasks.fitting import split_held_out

ROWS = [("It is good.", "pos"), ("It, however, fell.", "neg")]
SENTENCES = [(("Ada", "fell"), ("B-PER", "O")), (("Yes",), ("O",))]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "a.csv": ('text,label\nIt is good.,pos\n"It, however, fell.",neg\n', {}),
    "b.csv": ("label;Text\npos;It is good.\nneg;It, however, fell.\n", {}),
    "c.tsv": ("id\tsentence\tclass\n1\tIt is good.\tpos\n2\tIt, however, fell.\tneg\n", {}),
    "d.csv": (
        'stars,review text\r\npos,"It is good."\r\nneg,"It, however, fell."\r\n',
        {"text": "review text", "label": "stars"},
    ),
    "e.jsonl": ("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in ROWS), {}),
    "f.csv": ('\ufefftext,label\n\nIt is good.,pos\n"It, however, fell.",neg\n', {}),
    "g.csv": ('text,whatever\nIt is good.,pos\n"It, however, fell.",neg\n', {}),
}


@pytest.mark.parametrize("name", TABLES)
def test_texts(name: str, tmp_path: Path) -> None:
    text, columns = TABLES[name]
    found = read_texts(write(tmp_path / name, text), **columns)
    assert [(row.text, row.label) for row in found] == ROWS
    assert name in found[0].where
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert [row.text for row in read_texts(packed, **columns)] == [t for t, _ in ROWS]


def test_a_folder_per_label(tmp_path: Path) -> None:
    for k, (text, label) in enumerate(ROWS):
        (tmp_path / label).mkdir()
        write(tmp_path / label / f"{k}.txt", f"{text}\nMore.\n")
    (tmp_path / ".git").mkdir()  # hidden files are not texts
    for hidden in (tmp_path / ".git" / "1.txt", tmp_path / "pos" / ".DS_Store"):
        hidden.write_bytes(b"\x00\xff")
    found = read_texts(tmp_path)
    assert [(row.text, row.label) for row in found] == [
        (f"{text}\nMore.", label) for text, label in reversed(ROWS)
    ]


TAGGED: dict[str, tuple[str, str | None] | tuple[str, str | None, str]] = {
    "a.conll": ("-DOCSTART- O\n\nAda B-PER\nfell O\n\nYes O\n", None),
    "b.txt": ("# a comment of its own\nAda\tX\tB-PER\nfell\tX\tO\n\n\nYes\tX\tO", None),
    "c.conll": ("Ada B-PER X\nfell O X\n\nYes O X\n", "2"),
    "d.jsonl": ("".join(json.dumps({"tokens": t, "tags": y}) + "\n" for t, y in SENTENCES), None),
    "e.csv": ("Sentence #,Word,Tag\n1,Ada,B-PER\n,fell,O\n2,Yes,O\n", None),
    "f.csv": ("word,tag\nAda,B-PER\nfell,O\n\nYes,O\n", None),
    "g.tsv": ("sent_id\ttoken\tner\ns1\tAda\tB-PER\ns1\tfell\tO\ns2\tYes\tO\n", None),
    "h.csv": ("sentence,Word,tag\n0,Ada,B-PER\n0,fell,O\n1,Yes,O\n", "tag", "Word"),
    "i.csv": ("sent,form,lemma\n1,Ada,B-PER\n,fell,O\n2,Yes,O\n", "lemma", "form"),
    "j.csv": ("tokens,tags\nAda,B-PER\nfell,O\n\nYes,O\n", None),
}


@pytest.mark.parametrize("name", TAGGED)
def test_tokens(name: str, tmp_path: Path) -> None:
    content, label, *token = TAGGED[name]
    path = write(tmp_path / name, str(content))
    found = read_tokens(path, label=label, text=token[0] if token else None)
    assert [(row.tokens, row.tags) for row in found] == SENTENCES


@pytest.mark.parametrize("name", ["a.conll", "b.conllu"])
def test_words_of_columns_cannot_be_chosen(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, "1 Ada B-PER\n2 fell O\n")
    with pytest.raises(ConfigError, match=r"is not a table.*leave out text= \(--column\)"):
        read_tokens(path, text="2")


def test_comments_and_words_that_look_like_them(tmp_path: Path) -> None:
    comments = "# of the file, in its first line\n", "# sent_id = 4\n"
    for k, space in enumerate("\t "):
        rows = "a X P O\n# X P O\n\n", "# Y Q O\nb X P O\n"
        text = "".join(
            comment + row.replace(" ", space) for comment, row in zip(comments, rows, strict=True)
        )
        found = read_tokens(write(tmp_path / f"{k}.conll", text))
        assert [row.tokens for row in found] == [("a", "#"), ("#", "b")]
        assert [row.where[-2:] for row in found] == [":2", ":6"]
    tabs = write(tmp_path / "t.conll", "a\tX\tO\n\n# three words\nb\tX\tO\n")
    assert [row.tokens for row in read_tokens(tabs)] == [("a",), ("b",)]


def test_conllu(tmp_path: Path) -> None:
    rows = (
        "1\tAda\t_\tPROPN\tNNP\tNumber=Sing\t_\t_\t_\t_\n2\tfell\t_\tVERB\tVBD\t_\t_\t_\t_\t_\n\n"
    )
    path = write(tmp_path / "x.conllu", rows)
    for label, tags in (
        (None, ("PROPN", "VERB")),
        ("xpos", ("NNP", "VBD")),
        ("feats", ("Number=Sing", "_")),
        ("upos+xpos", ("PROPN+NNP", "VERB+VBD")),
    ):
        (found,) = read_tokens(path, label=label)
        assert found.tags == tags
        assert found.where == f"{path}:1"
    with pytest.raises(ElmoreError, match="upos, xpos, feats"):
        read_tokens(path, label="head")


def test_frames_and_datasets() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["text", "label"])
    assert [(r.text, r.label) for r in read_texts(frame)] == ROWS
    datasets = pytest.importorskip("datasets")
    classes = datasets.ClassLabel(names=["O", "B-PER"])
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(classes),
        }
    )
    data = datasets.Dataset.from_dict(
        {"tokens": [["Ada", "fell"], ["Yes"]], "ner_tags": [[1, 0], [0]]}, features=features
    )
    assert [(r.tokens, r.tags) for r in read_tokens(data)] == SENTENCES
    with pytest.raises(ConfigError, match=r"several splits; pass one, such as data\['x'\]"):
        make("classify").fit(datasets.DatasetDict({"x": data}))


def test_frames_of_one_token_per_row() -> None:
    pandas = pytest.importorskip("pandas")
    words = {"word": ["Ada", "fell", "Yes"], "tag": ["B-PER", "O", "O"]}
    for ids in (
        [0, 0, 1],
        [0, None, 1],  # NaN, and numbers with a fraction
        pandas.array([0, None, 1], dtype="Int64"),  # pandas.NA
        ["s0", "", "s1"],
    ):
        found = read_tokens(pandas.DataFrame({"sentence": ids, **words}))
        assert [(row.tokens, row.tags) for row in found] == SENTENCES
    with pytest.raises(InputError, match="no column says of which sentence; add a column called"):
        read_tokens(pandas.DataFrame(words))


def test_what_is_missing_in_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    for missing in (None, float("nan"), pandas.NA, pandas.NaT):
        frame = pandas.DataFrame({"text": ["a", "b"], "label": ["x", missing]}, dtype=object)
        with pytest.raises(InputError, match="row:1: column 'label' has no label"):
            read_texts(frame)
        frame = pandas.DataFrame({"text": ["a", missing], "label": ["x", "y"]}, dtype=object)
        with pytest.raises(InputError, match="row:1: column 'text' holds nothing, not a text"):
            read_texts(frame)


def test_lists() -> None:
    tokens = make("classify").examples([("It", "fell.")], [{"up"}])
    assert tokens == [ClassifyExample((("It", "fell."),), ("up",))]
    found = make("classify").examples(["It fell. I saw it."], ["up"])
    assert found == [ClassifyExample((("It", "fell", "."), ("I", "saw", "it", ".")), "up")]
    assert make("tag").examples(["It fell"], [["P", "V"]]) == [
        TagExample(("It", "fell"), ("P", "V"))
    ]


def test_kinds_of_labels() -> None:
    assert label_names(["b", "a", "b"], None) == ("label", ["a", "b"])
    assert label_names(["10", "2", "1"], None) == ("label", ["1", "2", "10"])
    assert label_names([0.5, 1.0], None)[0] == "number"
    assert label_names([str(k) for k in range(30)], None)[0] == "number"
    assert label_names([("a", "b"), ()], None) == ("labels", ["a", "b"])
    assert label_names(["a|b", "b"], "|") == ("labels", ["a", "b"])
    assert is_span_scheme(["O", "I-PER", "B-PER"])
    assert not is_span_scheme(["O", "NOUN"])
    assert not is_span_scheme(["O"])


def test_the_held_out_part_is_stratified_and_seeded() -> None:
    items = [("a", k) for k in range(800)] + [("b", k) for k in range(200)] + [("c", 0)]
    train, held = split_held_out(items, lambda item: item[0], seed=0)
    counts = {name: sum(item[0] == name for item in held) for name in "abc"}
    assert counts == {"a": 80, "b": 20, "c": 0}
    assert sorted(train + held) == sorted(items)
    assert split_held_out(items, lambda item: item[0], seed=0)[1] == held
    assert split_held_out(items, lambda item: item[0], seed=1)[1] != held
    sizes = [len(split_held_out(range(n), lambda _: 0, seed=0)[1]) for n in (9, 12, 60, 100)]
    assert sizes == [0, 2, 10, 10]


def held_out(task: Any, x: Any, y: Any) -> tuple[Any, Any, str]:
    split = task.divide(task.examples(x, y), None)
    return split.train, split.dev, split.notes[0]


def test_what_is_held_out() -> None:
    task = make("classify")
    stars = ["1"] * 60 + ["2"] * 30 + ["3"] * 9 + ["4"]
    held, how = held_out(task, ["It fell."] * 100, stars)[1:]
    assert "(stratified, seed 0)" in how
    assert [sum(e.label == star for e in held) for star in "1234"] == [6, 3, 1, 0]
    # Twenty labels, each set of them once, and a label that only one text has.
    sets = [(f"l{k % 20}", f"m{k}") if k % 25 == 7 else (f"l{k % 20}",) for k in range(100)]
    some, held, how = held_out(task, ["It fell."] * 100, sets)
    assert "(at random, seed 0)" in how
    assert len(some) + len(held) == 100
    assert 5 <= len(held) <= 10
    assert {name for e in held for name in e.label} <= {name for e in some for name in e.label}
    for numbers in ([k / 8 for k in range(100)], list(range(100))):
        assert "(at random, " in held_out(task, ["It fell."] * 100, numbers)[2]
    tagged = held_out(make("tag"), [["It", "fell"]] * 20, [["A", "B"]] * 20)
    assert "(stratified by length, " in tagged[2]


def test_the_kind_of_labels_is_that_of_all_examples() -> None:
    """A part of them may have no fraction, or no span."""
    task = make("classify", schedule__steps="1")
    numbers = [float(k % 4) for k in range(39)] + [0.5]
    lines: list[dict[str, Any]] = []
    texts = [f"It fell {k % 4} times" for k in range(40)]
    rows = task.curve(texts, numbers, progress=lines.append)
    assert [set(row) for row in rows] == [{"examples", "correlation", "baseline"}] * 5
    assert sum("heldout" in line for line in lines) >= 5
    spans = [["B-PER", "I-PER"]] * 38 + [["O", "B-PER"], ["O", "O"]]
    rows = make("tag", schedule__steps="1").curve([["Ada", "fell"]] * 40, spans)
    assert all("f1" in row for row in rows)
    assert task.fit(["a", "b"], ["x", "y"]).name == "classify"  # the next data may be others


# What is broken, the task, and what must be said.
BROKEN: list[tuple[str, str, str | bytes, str]] = [
    ("classify", ".csv", "", ": the file is empty; the first row must name the columns"),
    ("classify", ".csv", "text,label\n", ": there is no row below the header"),
    ("classify", ".csv", "good film,pos\nbad film,neg\n", ":2: no column is called text; the"),
    ("classify", ".csv", "a,b,c\n1,2,3\n", "name the one of the text (text=, --column)"),
    ("classify", ".csv", "text,b,c\n1,2,3\n", "name the one of the label (label=, --label)"),
    ("classify", ".csv", "text,text\na,b\n", ":1: the header has the column 'text' twice"),
    ("classify", ".csv", "text,label\na,x\nb\n", ":3: 1 columns, the header has 2"),
    ("classify", ".csv", "text,label\na,x\nb,\n", ":3: column 'label' has no label; fill it"),
    ("classify", ".csv", 'text,label\n"a,x\nb,y\n', ":2: not a table"),
    ("classify", ".csv", b"text,label\ngood,x\ncaf\xe9,y\n", ":3: invalid UTF-8"),
    ("classify", ".csv", "text,label\na,x\nb,x\n", "there is only one label, 'x' everywhere"),
    ("classify", ".jsonl", '{"text": "a", "label"\n', ":1: not JSON"),
    ("classify", ".jsonl", '["a", "x"]\n', ":1: a list, not an object"),
    ("classify", ".jsonl", '{"text": "a", "label": {}}\n', ":1: column 'label' holds an obj"),
    ("classify", ".jsonl", '{"text": null, "label": "x"}\n', ":1: column 'text' holds nothing"),
    ("tag", ".conll", "", ": there is no example; is this a file of columns"),
    ("tag", ".conll", "Ada B-PER\nfell\n", ":2: 1 columns, expected 2; write a word"),
    ("tag", ".conll", "Ada X\nfell X\n", "there is only one tag, 'X' everywhere"),
    ("tag", ".conllu", "1\tAda\tPROPN\n", ":1: 3 columns, expected 10; separate CoNLL-U"),
    ("tag", ".jsonl", '{"tokens": ["a", "b"], "tags": ["X"]}\n', ":1: 2 tokens but 1 tags"),
    ("tag", ".jsonl", '{"tokens": ["a"], "tags": [""]}\n', ":1: token 0 has no text or no tag"),
    ("tag", ".csv", "word,tag\nAda,X\nfell,\n", ":3: column 'tag' is empty; fill it"),
    ("ner", ".conll", "a O\n\nb B\n", ":3: this tagger finds spans, and 'B' does not mark one"),
    ("tag", ".jsonl", '{"tokens": ["a"], "x": 1, "y": 2}\n', ":1: no column is called tags"),
]


@pytest.mark.parametrize(("task", "suffix", "text", "message"), BROKEN)
def test_broken_data(
    task: str, suffix: str, text: str | bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ElmoreError) as caught:
        make(task, schedule__steps="1").fit(path)
    said = str(caught.value)
    assert message in said
    assert "\n" not in said


Break = Callable[[Any], object]


@pytest.mark.parametrize(
    ("task", "action", "message"),
    [
        ("classify", lambda t: t.fit(["a", "b"], ["x"]), "2 items but 1 labels"),
        ("classify", lambda t: t.fit(["a", ""], ["x", "y"]), "item:1: column 'text' is empty"),
        ("classify", lambda t: t.fit(["a", []], ["x", "y"]), "item:1: column 'text' holds a list"),
        ("classify", lambda t: t.fit("nowhere.csv"), "does not exist"),
        ("tag", lambda t: t.fit([["a", "b"]], [["X"]]), "item:0: 2 tokens but 1 tags"),
        ("tag", lambda t: t.fit([["a"]], ["X"]), "item:0: column 'tags' holds a text, not a"),
    ],
)
def test_broken_lists(task: str, action: Break, message: str) -> None:
    with pytest.raises(ElmoreError, match=message):
        action(make(task, schedule__steps="1"))


def test_a_label_that_was_not_trained(tmp_path: Path) -> None:
    task = make("classify", schedule__steps="1")
    task.fit(["a", "b"], ["x", "y"])
    path = write(tmp_path / "test.csv", "text,label\na,x\nb,zebra\n")
    with pytest.raises(InputError, match=r"test.csv:3: the label 'zebra' does not occur in the"):
        task.evaluate(path)
    task.save(tmp_path / "model")
    several = write(tmp_path / "several.csv", "what,which\na,x|y\n")
    with pytest.raises(InputError, match=r"the label 'x\|y' does not occur"):
        type(task).load(tmp_path / "model", text="what", label="which").evaluate(several)
    spans = make("tag", schedule__steps="1")
    spans.fit([["a", "b"]], [["B-X", "O"]])
    with pytest.raises(InputError, match="item:0: this tagger finds spans, and 'NOUN' does not"):
        spans.evaluate([["a", "b"]], [["NOUN", "VERB"]])
    tagger = make("tag", schedule__steps="1")
    tagger.fit([["a", "b"]], [["X", "Y"]])
    report = tagger.evaluate([["a", "b"]], [["X", "Z"]])
    assert "1 tokens have tags that never occur in training (Z)" in report.notes[0]


def test_a_model_knows_the_separator_of_its_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", "text,label\na,x|y\nb,x\nc,y\n")
    task = make("classify", schedule__steps="1")
    task.separator = "|"
    task.fit(path)
    assert task.labels["classes"] == ["x", "y"]
    task.save(tmp_path / "model")
    assert type(task).load(tmp_path / "model").evaluate(path).metrics == task.evaluate(path).metrics


def test_a_label_that_only_the_development_data_has(tmp_path: Path) -> None:
    """Nothing is trained, and the next try finds no run in the folder."""
    texts, out = ["a", "b"] * 6, tmp_path / "out"
    task = make("classify", schedule__steps="1")
    with pytest.raises(InputError, match="item:1: the label 'z' does not occur in the training"):
        task.fit(texts, ["x", "y"] * 6, dev=(["a", "b"], ["x", "z"]), out=out)
    with pytest.raises(InputError, match="'nine' is not a number"):
        task.fit(texts, [0.5, 1.5] * 6, dev=(["a"], ["nine"]), out=out)
    assert not out.exists()
    with pytest.raises(ConfigError, match="not trained yet"):
        make("classify").evaluate(["a"], ["x"])


def test_tables_are_fitted_but_not_predicted_on() -> None:
    pandas = pytest.importorskip("pandas")
    task = make("classify", schedule__steps="1")
    columns = {"text": ["a", "b"], "label": ["x", "y"]}
    for table in (columns, pandas.DataFrame(columns)):
        task.fit(table)
        assert task.evaluate(table).measured_on["examples"] == 2
        with pytest.raises(ConfigError, match="where texts belong; pass"):
            task.predict(table)  # Python lists the names of the columns
    for odd in ({"text": ["a", "b"], "label": ["x"]}, {"text": "data.csv", "label": ["x"]}):
        with pytest.raises(InputError, match="different lengths; give one label per item"):
            task.fit(odd)
