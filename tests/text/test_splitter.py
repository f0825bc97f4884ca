from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.text.splitter import sentence_spans, split_sentences

# (sentences; the text is their join by one space)
JOINED = [
    ["One here.", "Two there!", "Three?", "Four"],
    ["She met Mr. Smith, Dr. Jones and Prof. J. R. Lee.", "They spoke."],
    ["He lives in the U.S. Army base.", "It is large."],
    ["He moved to the U.S.", "The move took a day."],
    ["Use tools, e.g. Saws or i.e. Axes, etc.", "Then rest."],
    ["See Fig. 3 and No. 5 on p. 7.", "No.", "The end."],
    ["Pi is 3.14 or so.", "In 1990.", "Then 2.5 more."],
    ["Flintco, Inc. the partner, left.", "Acme Inc. Paris stayed."],
    ["On Jan. 3 it rained.", "At 5 p.m. it did not."],
    ["Well... maybe.", "I waited...", "He came."],
    ["She said [...] Paris is far.", "Yes (!) Paris."],
    ['"Why?" he asked.', '"Because."', "She left."],
    ["(He knew it.)", "She did not.", "«Oui.»", "Bon."],
    ["“Stop!”", "“No.”", "‘So be it.’", "End."],
    ['"But I—"', '"Be quiet!"'],
    ["What?!", "Never!!!", "Fine…", "Good."],
    ["1. First point.", "2. Second point."],
    ["It was I.", "You knew Elizabeth I.", "She reigned."],
    ["Visit example.com today.", "Read main.py now."],
    ["Он пришёл.", "Она ушла!", "Да?"],
    ["यह एक है।", "वह दो है।"],
    ["أين هو؟", "هنا."],
    ["یہ ایک ہے۔", "وہ دو ہے۔"],
    ["Բարև։", "Լավ։"],
    ["ሰላም ነው።", "አዎ።"],
    ["나는 간다.", "너는 온다."],
    ["Τι κάνεις\u037e", "Καλά."],
]


@pytest.mark.parametrize("sentences", JOINED)
def test_split(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize("sentences", JOINED)
def test_single_line_breaks_are_white_space(sentences: list[str]) -> None:
    assert split_sentences("\n".join(sentences)) == sentences


def test_no_space_needed_in_chinese_and_japanese() -> None:
    sentences = ["你好。", "你呢？", "「好！」", "他说。"]
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize("blank", ["\n\n", "\n \t\n", "\r\n\r\n", "\r\r", "\n\n\n\n", "\u2029"])
def test_blank_lines_always_end_a_sentence(blank: str) -> None:
    assert split_sentences(f"A title{blank}and text") == ["A title", "and text"]


def test_one_crlf_is_no_blank_line() -> None:
    assert split_sentences("a line\r\nand more") == ["a line\r\nand more"]


@pytest.mark.parametrize("text", ["", " ", "\n\n \n"])
def test_nothing_in_nothing_out(text: str) -> None:
    assert sentence_spans(text) == []


@given(
    st.text()
    | st.text(st.characters())
    | st.lists(st.sampled_from([*"aB1.!?…。।\"'”)]( \n\r\u2029—„", "Mr.", "U.S.", "The"])).map(
        "".join
    )
)
def test_spans_cover_all_but_white_space(text: str) -> None:
    at = 0
    for start, end in sentence_spans(text):
        assert at <= start < end
        assert text[at:start].strip() == ""
        assert text[start:end] == text[start:end].strip()
        at = end
    assert text[at:].strip() == ""


@pytest.mark.parametrize("unit", ["a.", ".", "(", "—", "\n", "Mr. ", ". (", '?" '])
def test_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    sentence_spans(text)
    assert time.process_time() - start < 10  # measured under 1 s; quadratic time would be hours
