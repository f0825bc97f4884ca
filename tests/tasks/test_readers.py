"""Data files, compressed or plain, and the errors for broken ones."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from small_models import FIXTURES, needs_originals
from small_tasks import NAMES, task_class, write_data

from elmore.errors import InputError
from elmore.tasks.data.columns import read_documents
from elmore.tasks.data.labelled import read_columns
from elmore.tasks.data.tags import Span, may_follow, spans_from_tags, tag_names, tags_from_spans
from elmore.tasks.own.classify import ClassifyExample
from elmore.tasks.paper.qa import split_paragraph
from elmore.tasks.paper.sentiment import read_trees

DATA = FIXTURES.parent


@pytest.mark.parametrize("name", NAMES)
def test_compressed_files_read_the_same(name: str, tmp_path: Path) -> None:
    plain = write_data(name, tmp_path)
    task = task_class(name)(None)
    expected = task.examples(plain)
    assert len(expected) == 8
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        compressed = tmp_path / "compressed"
        compressed.write_bytes(pack(plain.read_bytes()))
        assert task.examples(compressed) == expected
    assert task.examples([plain, plain]) == [*expected, *expected]


SPANS = [Span("A", 0, 2), Span("A", 3, 3), Span("B", 5, 6)]


@pytest.mark.parametrize(
    "tags",
    [
        "I-A I-A I-A B-A O I-B I-B",  # IOB1
        "B-A I-A I-A B-A O B-B I-B",  # IOB2
        "B-A I-A E-A S-A O B-B E-B",  # BIOES
        "B-A I-A L-A U-A O B-B L-B",  # BIOUL
    ],
)
def test_all_schemes_say_the_same(tags: str) -> None:
    assert spans_from_tags(tags.split()) == tuple(SPANS)


@pytest.mark.parametrize("scheme", ["IOB2", "BIOUL"])
def test_tags_and_back(scheme: Any) -> None:
    tags = tags_from_spans(SPANS, 8, scheme)
    assert spans_from_tags(tags) == tuple(SPANS)
    names = tag_names(["A", "B"], scheme)
    assert set(tags) <= set(names)
    assert all(may_follow(b, a, scheme) for a, b in itertools.pairwise(["O", *tags, "O"]))


def test_what_bioul_forbids() -> None:
    names = tag_names(["A", "B"], "BIOUL")

    def may(a: str, b: str) -> bool:
        return may_follow(b, a, "BIOUL")

    for after in ("O", "L-A", "U-B"):
        assert [may(after, name) for name in names] == [name[0] in "OBU" for name in names]
    for after in ("B-A", "I-A"):
        assert {name for name in names if may(after, name)} == {"I-A", "L-A"}
    assert [may(name, "O") for name in names] == [name[0] in "OLU" for name in names]


def test_trees_give_all_phrases_with_their_escapes_undone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("(3 (2 -LRB-) (4 (2 either\\/or) (4 joy)))\n\n(2 Film)\n")
    first, second = read_trees(path)
    assert first == [
        (("(", "either/or", "joy"), 3),
        (("(",), 2),
        (("either/or", "joy"), 4),
        (("either/or",), 2),
        (("joy",), 4),
    ]
    assert second == [(("Film",), 2)]


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u3000", "\x1f"])
def test_only_spaces_and_tabs_split(space: str, tmp_path: Path) -> None:
    """SST and SNLI have words such as "8 1/2" with a space that does not break."""
    path, word = tmp_path / "x", f"8{space}1/2"
    path.write_text(f"{word}\tO\nb O\n")
    assert read_columns(path)[0].tokens == (word, "b")
    path.write_text(row(word, "-"))
    assert next(read_documents(path))[0].tokens == (word,)
    path.write_text(f"(3 (2 8{space}1\\/2) (4 joys))\n")
    assert next(read_trees(path))[0] == ((word, "joys"), 3)
    pair = {"sentence1": "x", "sentence2": "x", "gold_label": "neutral"}
    path.write_text(json.dumps({**pair, "sentence1_binary_parse": f"( {word} joys )"}))
    assert task_class("nli")(None).examples(path)[0].sentences[0] == (word, "joys")


def test_a_document_ends_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("a O\n-DOCSTART- O\nb O\n")
    assert [sentence.tokens for sentence in read_columns(path)] == [("a",), ("b",)]


def test_pairs_from_json_parse_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    line = {"sentence1": "It isn't so.", "sentence2": "No", "gold_label": "neutral"}
    unsure = {**line, "gold_label": "-"}
    parsed = {**line, "sentence1_binary_parse": "( ( It ( is n't ) ) -LRB- )"}
    path.write_text("".join(json.dumps(x) + "\n" for x in (line, unsure, parsed)))
    read = task_class("nli")(None).examples
    first, second = read(path)
    assert first == ClassifyExample((("It", "is", "n't", "so", "."), ("No",)), "neutral")
    assert second.sentences[0] == ("It", "is", "n't", "(")
    path = tmp_path / "p.tsv"
    path.write_text("gold_label\tsentence1\tx\tsentence2\nneutral\tA b\t1\tC\n")
    assert read(path) == [ClassifyExample((("A", "b"), ("C",)), "neutral")]


def test_paragraphs_keep_their_places() -> None:
    text = "It's in Paris, France.  It is tall (1,000 m)."
    paragraph = split_paragraph(text)
    assert [text[a:b] for a, b in paragraph.places] == list(paragraph.tokens)
    assert paragraph.tokens[:6] == ("It", "'s", "in", "Paris", ",", "France")
    assert paragraph.tokens[6] == "."  # of a sentence inside the paragraph
    start = text.index("aris")
    assert paragraph.tokens_of(start, start + 2) == (3, 3)  # inside a token: the whole of it
    assert paragraph.tokens_of(text.index("  It"), text.index("  It") + 1) is None


def test_answers_that_are_not_there_are_not_learned_but_scored(tmp_path: Path) -> None:
    answers = [{"text": "Rome", "answer_start": 3}]
    qas = [
        {"id": "1", "question": "Where?", "answers": answers},
        {"id": "2", "question": "Where?", "answers": []},
        {"id": "3", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 3}]},
    ]
    path = tmp_path / "q.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "In Paris.", "qas": qas}]}]}))
    task = task_class("qa")(None)
    examples = task.examples(path)
    assert [example.span for example in examples] == [None, None, (1, 1)]
    assert [example.id for example in task.for_training(examples)] == ["3"]
    metrics = task.measure(examples, ["Paris"] * 3).metrics
    assert metrics["exact match"] == pytest.approx(100 / 3)


def test_documents_nest_mentions(tmp_path: Path) -> None:
    rows = [("Bo", "(1|(2)"), ("'s", "-"), ("dog", "1)|(3)")]
    body = "".join(
        "\t".join(["d", "0", str(k), word, *["-"] * 6, "*", cell]) + "\n"
        for k, (word, cell) in enumerate(rows)
    )
    path = tmp_path / "d"
    path.write_text(body)  # no marks: one document
    (document,) = read_documents(path)
    mentions = {Span("2", 0, 0), Span("1", 0, 2), Span("3", 2, 2)}
    assert set(document[0].mentions) == mentions


def row(word: str, *cells: str) -> str:
    return "\t".join(["d", "0", "0", word, *["-"] * 6, "*", *cells]) + "\n"


SQUAD = '{"data": [{"paragraphs": [{"context": "A", "qas": [%s]}]}]}'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ner", "a O\n\nb X O\n", ":3: 3 columns, expected 2"),
        ("ner", "\n\n", "there is no example"),
        ("sentiment", "(3 (2 a) (2 b)\n", ":1: a bracket does not close"),
        ("sentiment", "(3 a)\n(5 b)\n", ":2: the label '5'"),
        ("sentiment", "(3 a) (2 b)\n", ":1: there is a second tree"),
        ("sentiment", "a\n", ":1: 'a' is outside"),
        ("sentiment", "(3 )\n", ":1: a node has no word"),
        ("sentiment", "(", ":1: the label ''"),
        ("nli", "a b\nc d\n", ":2: there is no column 'gold_label'; the columns are 'a b'"),
        ("nli", "sentence1\tsentence2\tgold_label\na\tb\tyes\n", ":2: the label 'yes'"),
        ("srl", "a b c\n", ":1: 3 columns, expected 12 or more"),
        ("srl", row("a", "(V*)", "-") + row("b", "-"), ":2: 12 columns, expected 13"),
        ("srl", row("a", "(V*", "-") + row("b", "*", "-"), ":1: (V does not close"),
        ("srl", row("a", "*)", "-"), ":1: a bracket closes"),
        ("srl", row("a", "(A*", "-") + row("b", "(B*))", "-"), ":2: '(B*))' is not a bracket"),
        ("srl", row("a", "(A*", "-") + row("b", "(B*)", "-"), ":2: (B opens inside (A"),
        ("srl", row("a", "(A*)", "-"), ":1: predicate 1 has neither"),
        ("srl", "", "there is no example; is this CoNLL-2012?"),
        ("coref", row("a", "(1"), ":1: (1 does not close"),
        ("coref", row("a", "1)"), ":1: 1) closes but"),
        ("coref", row("a", "x"), ":1: 'x' is not a cluster"),
        ("coref", row("a", f"({'9' * 5000})"), "999)' is not a cluster"),
        ("coref", "", "there is no example; is this CoNLL-2012?"),
        ("qa", "{", "not valid JSON"),
        ("qa", "{}", "Object missing required field `data`"),
        ("qa", '{"data": [{}]}', "missing required field `paragraphs` - at `$.data[0]`"),
        ("qa", SQUAD % "{}", "field `id` - at `$.data[0].paragraphs[0].qas[0]`"),
        (
            "qa",
            SQUAD % '{"id": 1}',
            "got `int` - at `$.data[0].paragraphs[0].qas[0].id`",
        ),
        ("qa", SQUAD % "", "there is no example"),
    ],
)
def test_broken_files_say_where(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        task_class(name)(None).examples(path)
    assert message in str(caught.value)
    assert "broken" in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_originals
@pytest.mark.parametrize(
    ("name", "file", "n_examples", "count"),
    [
        ("ner", "ner/eng.testb.xz", 3453, lambda e: len(spans_from_tags(e.tags))),
        ("sentiment", "sst/dev.txt.xz", 1101, lambda e: 1 + len(e.phrases)),
        ("nli", "snli/dev.jsonl.xz", 9842, lambda e: 1),
        ("srl", "srl/ewt.dev.gold_conll.xz", 1965, lambda e: len(e.predicates)),
        ("qa", "squad/train-44articles.json.xz", 11_877, lambda e: e.span is not None),
        ("coref", "coref/ontogum.dev.gold_conll.xz", 30, lambda e: sum(map(len, e.clusters))),
    ],
)
def test_published_counts(name: str, file: str, n_examples: int, count: Any) -> None:
    """Those of the data's own README."""
    totals = {
        "ner": 5648,
        "sentiment": 41447,
        "nli": 9842,
        "srl": 4946,
        "qa": 11_877,
        "coref": 3818,
    }
    examples = task_class(name)(None).examples(DATA / file)
    assert len(examples) == n_examples
    assert sum(count(example) for example in examples) == totals[name]
