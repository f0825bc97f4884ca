"""A report as text, JSON, HTML and a data frame."""

from __future__ import annotations

import importlib
import json

import pytest

from elmore.errors import ConfigError, MissingExtra
from elmore.report import Report, aligned

REPORT = Report(
    name="pos",
    metrics={"upos mean": 92.0},
    measured_on={"model": "m", "limit": None, "l2": [0.01, 1e-5]},
    tables={
        "upos": [
            {"vectors": "mean", "test": 92.0, "n": 3},
            {"vectors": "x", "test": None, "n": 10},
        ],
        "none": [],
    },
    notes=["in per cent"],
)


def test_text():
    assert str(REPORT).splitlines() == [
        "upos",
        "vectors   test   n",
        "mean     92.00   3",
        "x            -  10",
        "",
        "none",
        "  (nothing)",
        "",
        "model: m",
        "limit: -",
        "l2: 0.01, 1e-05",
        "in per cent",
    ]
    assert str(Report(name="x", metrics={"f1": 1.5})).splitlines() == [
        "metric  value",
        "f1       1.50",
    ]


def test_json_and_files(tmp_path):
    value = json.loads(REPORT.to_json())
    assert value == REPORT.to_dict()
    assert list(value) == ["name", "metrics", "measured_on", "tables", "notes"]
    REPORT.save(tmp_path / "a.json")
    REPORT.save(tmp_path / "a.txt")
    assert json.loads((tmp_path / "a.json").read_text()) == value
    assert (tmp_path / "a.txt").read_text() == f"{REPORT}\n"
    with pytest.raises(ConfigError, match="exists"):
        REPORT.save(tmp_path / "a.json")
    REPORT.save(tmp_path / "a.json", overwrite=True)
    with pytest.raises(ConfigError, match=r"a.xls' in that format; use .html, .json, .txt, .csv"):
        REPORT.save(tmp_path / "a.xls")
    assert not (tmp_path / "a.xls").exists()


def test_tables_for_spreadsheets(tmp_path):
    rows = [{"a": "=1+1", "n": 1.5}, {"a": 'x\x1b,"y"', "m": "é"}, {"a": "-2", "n": None}]
    report = Report(name="x", metrics={}, tables={"first": [{"b": 1}], "t": rows})
    assert report.to_csv("t") == 'a,n,m\n\'=1+1,1.5,\n"x,""y""",,é\n-2,,\n'
    assert report.to_csv() == "b\n1\n"
    report.save(tmp_path / "a.csv")
    report.save(tmp_path / "a.tsv")
    assert (tmp_path / "a.csv").read_bytes() == b"\xef\xbb\xbfb\n1\n"
    assert (tmp_path / "a.tsv").read_bytes() == b"b\n1\n"


def test_a_page_has_bars_and_contexts(tmp_path):
    rows = [{"left": "a", "word": "<b>", "share": 0.25, "other": 0.75}]
    report = Report(name="x", metrics={}, tables={"t": rows}, bars=[["share", "other"], ["none"]])
    report.save(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert 'name="viewport"' in page
    assert '<td class="word">&lt;b&gt;</td>' in page
    assert page.count('<div class="bar">') == 1
    assert 'style="width:25.0%;background:var(--s1)" title="share: 25%"' in page
    assert "bar" not in report._repr_html_()  # a notebook has no styles of ours


def test_shares_of_a_column_have_the_same_decimals_and_one_share_its_bar_beside_it(tmp_path):
    rows = [{"n": 1, "share": 0.0, "p": 1e-5}, {"n": 22, "share": 0.06, "p": 0.5}]
    report = Report(name="x", metrics={}, tables={"t": rows}, bars=[["share"]])
    assert str(report).splitlines()[1:] == [
        " n  share      p",
        " 1  0.000  1e-05",
        "22  0.060  0.500",
    ]
    report.save(tmp_path / "a.html")
    assert '0.060<div class="bar">' in (tmp_path / "a.html").read_text()


def test_a_concordance_meets_at_its_word(tmp_path):
    rows = [
        {"left": "a", "word": "b", "right": "c"},
        {"left": "a longer", "word": "b", "right": ""},
    ]
    report = Report(name="x", metrics={}, tables={"t": rows})
    assert str(report).splitlines()[2].startswith("       a  b")
    report.save(tmp_path / "a.html")
    assert '<table class="lines">' in (tmp_path / "a.html").read_text()


def test_a_short_repr():
    assert repr(REPORT) == "<Report pos: upos mean 92.00>"
    metrics = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0}
    assert repr(Report(name="x", metrics=metrics)) == "<Report x: a 1.000, b 2.00, c 3.00, 2 more>"
    assert repr(Report(name="x", metrics={})) == "<Report x: empty>"
    assert str(Report(name="x", metrics={})) == ""


def test_html_escapes_what_it_shows():
    evil = "<script>alert('&')</script>"
    report = Report(
        name="x",
        metrics={"f1": 1.5},
        measured_on={"data": evil},
        tables={evil: [{evil: evil, "n": 3}], "none": []},
        notes=[evil],
    )
    shown = report._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;alert(&#x27;&amp;&#x27;)") == 5
    assert '<td style="text-align: right">3</td>' in shown
    assert "(nothing)" in shown
    assert "<td>f1</td>" in Report(name="x", metrics={"f1": 1.5})._repr_html_()


def test_data_frames():
    pytest.importorskip("pandas")
    frame = REPORT.to_pandas()
    assert list(frame.columns) == ["vectors", "test", "n"]
    assert frame["n"].tolist() == [3, 10]
    assert len(REPORT.to_pandas("none")) == 0
    with pytest.raises(ConfigError, match="no table 'x'; use one of upos, none"):
        REPORT.to_pandas("x")
    metrics = Report(name="x", metrics={"f1": 1.5}).to_pandas()
    assert metrics.to_dict("records") == [{"metric": "f1", "value": 1.5}]
    assert len(Report(name="x", metrics={}).to_pandas()) == 0


def test_without_pandas_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name="pandas")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"to_pandas needs pandas; install elmore\[sklearn\]"):
        REPORT.to_pandas()


def test_columns_are_aligned():
    lines = [("name", "n"), ("a", "10"), ("long name", "5")]
    assert aligned(lines, right={1}) == "name        n\na          10\nlong name   5"
    assert aligned(lines) == "name       n\na          10\nlong name  5"
