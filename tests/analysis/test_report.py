"""Reports print as text or JSON alike."""

from __future__ import annotations

import json

import pytest

from elmore.errors import ConfigError
from elmore.tasks.task import Report

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
