"""Texts inside JSON lines, tables and CoNLL-U."""

from __future__ import annotations

import csv
import gzip
import io
from itertools import islice
from pathlib import Path

import pytest

from elmore.errors import ConfigError, InputError
from elmore.text.reading import Counts, Reading
from elmore.text.records import Text, record_texts, table_rows


def read(data: str, name: str = "stdin", **options) -> list[Text]:
    found = Reading(**options).texts(io.BytesIO(data.encode()), name, Counts())
    return [text for _, text in found]


def test_a_field_of_json_lines():
    data = '{"id": 12345678901234567890, "t": "It fell ."}\n\n{"t": null}\n'
    data += '{"t": ["2-(4 x) acid", "."]}\n'
    assert read(data, name="x.ndjson", column="t") == ["It fell .", "", ("2-(4 x) acid", ".")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{}", r"no field 't'; there are $"),
        ('{"a": 1, "b": 2}', "no field 't'; there are 'a', 'b'"),
        ("[1]", "no field 't'"),
        ('{"t": 3}', "'t' is neither a text nor a list of tokens"),
        ('{"t": ["a", 3]}', "'t' is neither"),
        ("It fell", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_line_without_the_field(line, problem):
    with pytest.raises(InputError, match=problem) as error:
        read('{"t": "x"}\n' + line, name="data.jsonl", column="t")
    assert "data.jsonl:2" in str(error.value)


def test_a_column_of_csv():
    data = 'id,text\n1,"He said ""no"", twice.\nThen left."\n\n2,\n3,plain\n'
    expected = ['He said "no", twice. Then left.', "", "plain"]
    assert read(data, name="x.csv", column="text") == expected
    assert read(data, column="text") == expected  # from a pipe too
    assert read(data.partition("\n")[2], name="x.csv.gz", column=2) == expected


def test_semicolons_separate_columns_too():
    assert read("id;text\n1;a, b\n", name="x.csv", column="text") == ["a, b"]


def test_quotes_are_letters_in_tsv():
    data = 'text\tlabel\n"It\' s fine" he said\t1\n5\' 7"\t0\na, b\t1\n'
    assert read(data, name="x.tsv", column="text") == ['"It\' s fine" he said', "5' 7\"", "a, b"]
    assert read(data, column=2)[1:] == ["1", "0", "1"]


@pytest.mark.parametrize(
    ("data", "column", "problem"),
    [
        ("a,b\n1,2\n", "text", r"x\.csv:1.*no column 'text'; there are 'a', 'b'"),
        ("a,b\n1,2\n3\n", "b", r"x\.csv:3.*1 columns, expected 2 at least"),
        ('a,b\n1,"2\n', "b", r"x\.csv:2.*not a table: unexpected end of data"),
    ],
)
def test_a_table_without_the_column(data, column, problem):
    with pytest.raises(InputError, match=problem):
        read(data, name="x.csv", column=column)


def test_an_empty_table_has_no_sentences():
    assert read("", column=1) == []
    with pytest.raises(InputError, match="no column 'a'"):
        read("", column="a")


CONLLU = """\
# text = Je vais au bureau
1\tJe\t_\tPRON\t_\t_\t2\t_\t_\t_
2\tvais\t_\tVERB\t_\t_\t0\t_\t_\t_
3-4\tau\t_\t_\t_\t_\t_\t_\t_\t_
3\tà\t_\tADP\t_\t_\t5\t_\t_\t_
4\tle\t_\tDET\t_\t_\t5\t_\t_\t_
4.1\tnon\t_\tX\t_\t_\t_\t_\t_\t_
5\tbureau neuf\t_\tNOUN\t_\t_\t2\t_\t_\t_

1\tFin\t_\tNOUN\t_\t_\t0\t_\t_\t_
"""


def test_the_words_of_conllu():
    expected = [("Je", "vais", "à", "le", "bureau neuf"), ("Fin",)]
    for name in ("fr.conllu", "fr.conllu.gz"):
        assert read(CONLLU, name=name) == expected
    assert read(CONLLU, conllu=True) == expected
    with pytest.raises(InputError, match=r"x\.conllu:2.*3 columns, expected 10"):
        read("# x\n1\tJe\tPRON\n", name="x.conllu")
    with pytest.raises(InputError, match=r"x\.conllu:9.*word id '1', expected 6; put a blank line"):
        read(CONLLU.replace("\n\n", "\n"), name="x.conllu")


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv.gz", "x.tsv"])
def test_files_of_records_are_not_read_as_lines(name):
    with pytest.raises(InputError, match="name what to read with --"):
        read("a b\n", name=name)


def test_one_place_at_most():
    with pytest.raises(ConfigError, match="exclude each other"):
        Reading(column="a", conllu=True)
    with pytest.raises(ConfigError, match="count from 1"):
        Reading(column=0)


def test_records_are_split_into_sentences_each_by_itself():
    data = '{"t": "It fell. She"}\n{"t": "left\\nearly. Rates\\n\\nrose"}\n'
    found = read(data, name="x.jsonl", split_sentences=True, column="t")
    assert found == ["It fell.", "She", "left\nearly.", "Rates", "rose"]
    with pytest.raises(ConfigError, match="leave out --split-sentences"):
        read(CONLLU, split_sentences=True, conllu=True)


def test_sentences_of_tokens_stay_as_they_are(tmp_path: Path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"t": ["vitamin B 12", "don\'t"]}\n{"t": "don\'t"}\n'))
    reader = Reading(column="t")
    counts = Counts()
    (first, one), (second, two) = reader.read([str(path)], counts)
    assert (first, one.tokens, one.spans) == ("vitamin B 12 don't", ("vitamin B 12", "don't"), None)
    assert (second, two.tokens) == ("don't", ("do", "n't"))
    assert (counts.sentences, counts.tokens) == (2, 4)
    assert reader.count([str(path), str(path)]) == 4
    assert reader.count(["-"]) is None


def test_rows_keep_their_numbers_where_lines_were_left_out() -> None:
    lines = iter([(1, "text,id"), (2, '"a'), (3, 'b",1'), (6, "c,2"), (8, '"d')])
    rows = table_rows(lines, "x.csv")
    assert [number for number, _ in islice(rows, 3)] == [1, 2, 6]
    with pytest.raises(InputError, match=r"x\.csv:8: not a table"):
        next(rows)


def test_a_long_cell_is_read() -> None:
    text = "word " * 40_000
    lines = enumerate(["id,text", f'1,"{text}"'], 1)
    assert list(record_texts(lines, "a.csv", "text")) == [(2, text)]


def test_a_cell_that_is_too_long_is_called_that() -> None:
    before = csv.field_size_limit(100)
    try:
        lines = enumerate(["id,text", f"1,{'x' * 101}"], 1)
        with pytest.raises(InputError, match=r"a.csv:2: not a table: .*limit \(100\)"):
            list(record_texts(lines, "a.csv", "text"))
    finally:
        csv.field_size_limit(before)
