"""elmore.text.reading: options, sentences and tokens, files that cannot be used."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from small_models import posix

from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.text import reading as module
from elmore.text.characters import ByteAlphabet
from elmore.text.reading import (
    Counts,
    Reading,
    check_inputs,
    check_rereadable,
    json_records,
    numbered_lines,
    read_input,
)
from elmore.text.records import split_columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenized": True, "split_sentences": True}, "cannot be combined"),
        ({"tokenizer": "x"}, "tokenizer='x' is unknown; use ptb"),
        ({"errors": "ignore"}, "errors='ignore' is unknown; use strict, replace or skip"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Reading(**options)  # type: ignore[arg-type] # that is the point


def test_tokens_are_separated_by_spaces_alone() -> None:
    reading = Reading(tokenized=True)
    assert reading.sentence("a\u00a0b  c\td ").tokens == ("a\u00a0b", "c\td")
    assert [list(s) for s in reading.document("a  b\n\nc\u2003d")] == [["a", "b"], [], ["c\u2003d"]]
    assert split_columns(" a\u00a0b\tc \r") == ["a\u00a0b", "c"]


def test_the_convention_of_the_tokens() -> None:
    text = "Don't stop. Go on."
    assert Reading().sentence(text).tokens[:2] == ("Do", "n't")
    assert Reading(tokenizer="billion-word").sentence(text).tokens[:2] == ("Don", "'t")
    split = Reading(split_sentences=True)
    assert [" ".join(s) for s in split.document(text)] == ["Do n't stop .", "Go on ."]
    assert (split.convention, Reading(tokenized=True).convention) == ("ptb", "spaces")


@pytest.mark.parametrize(
    ("errors", "texts", "replaced", "skipped"),
    [("replace", ["a", "b\ufffd", "c"], 1, 0), ("skip", ["a", "c"], 0, 1)],
)
def test_lines_that_are_not_utf8(
    errors: module.Errors, texts: list[str], replaced: int, skipped: int
) -> None:
    counts = Counts()
    data = b"a\nb\xff\r\nc"
    assert [t for _, t in Reading(errors=errors).texts(io.BytesIO(data), "x", counts)] == texts
    assert counts == Counts(replaced=replaced, skipped=skipped)
    with pytest.raises(InputError, match=r"^x:2: invalid UTF-8 at byte 1 of the line.*--errors"):
        list(Reading().texts(io.BytesIO(data), "x", counts))


def test_sentences_cross_lines_but_not_blank_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"One is\nhere. Two\n\nis there. It\nends"
    expected = ["One is\nhere.", "Two", "is there.", "It\nends"]
    for paragraph in (1 << 16, 5):  # however early a paragraph is searched
        monkeypatch.setattr(module, "_PARAGRAPH", paragraph)
        found = Reading(split_sentences=True).texts(io.BytesIO(text), "x", Counts())
        assert list(found) == list(enumerate(expected, 1))


def test_files_are_read_for_a_model_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"It fell.\n\n"))
    (tmp_path / "b").write_text("incomprehensibilities x\n")
    counts = Counts()
    inputs = [str(tmp_path / name) for name in "ab"]
    found = list(Reading().read(inputs, counts, ByteAlphabet(12)))
    assert [(text, sentence.tokens) for text, sentence in found] == [
        ("It fell.", ("It", "fell", ".")),
        ("", ()),
        ("incomprehensibilities x", ("incomprehensibilities", "x")),
    ]
    assert counts == Counts(sentences=3, tokens=5, empty=1, cut=1)
    list(Reading().read(inputs, words := Counts()))
    assert words.cut == 0


def test_lines_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip.compress("\ufeffé\r\n\nb".encode()))
    assert list(numbered_lines(path)) == [(1, "é"), (2, ""), (3, "b")]
    assert list(read_input(str(path))) == [(1, "é"), (2, ""), (3, "b")]
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(InputError, match=r"a:2: invalid UTF-8.*to UTF-8$"):  # no --errors
        list(numbered_lines(path))
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ElmoreError, match="stdin is closed"):
        list(read_input("-"))


@posix
def test_inputs_are_checked_before_any_work(tmp_path: Path) -> None:
    path, pipe = tmp_path / "a", tmp_path / "pipe"
    path.write_text("a\n")
    os.mkfifo(pipe)
    check_inputs([str(path), str(pipe)], tmp_path / "out")
    check_rereadable([str(path)])
    with pytest.raises(ConfigError, match=r"'.*a' is both input and output"):
        check_inputs([str(path)], path)
    with pytest.raises(ElmoreError, match="does not exist"):
        check_inputs([str(tmp_path / "no")], None)
    with pytest.raises(ConfigError, match="an input is empty; name a file, or - for stdin"):
        check_inputs([""], None)
    for inputs, what in (([], "stdin"), (["-"], "stdin"), ([str(pipe)], "pipe")):
        with pytest.raises(ConfigError, match=f"{what}'? can be read only once.*save it"):
            check_rereadable(inputs)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[]", "TypeError"),
        ("{}", "KeyError"),
        ('{"word": 3}', "AttributeError"),
    ],
)
def test_records_report_the_line_that_is_not_one(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(f'{{"word": "A"}}\n\n{line}\n', encoding="utf-8")
    records = json_records(
        path, lambda record: record["word"].lower(), "no word ({reason}); add it"
    )
    assert next(records) == (1, "a")
    with pytest.raises(InputError, match=rf"records\.jsonl:3: no word \({reason}: .*\); add it"):
        next(records)
