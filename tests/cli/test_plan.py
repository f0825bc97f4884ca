"""`elmore plan`, and the same line at the start of `pretrain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_training import SMALL, small_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_data(tmp_path_factory.mktemp("corpus")).folder


SETTINGS = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]


def test_a_plan(cli, data):
    done = cli("plan", data, "--recipe", "tiny", *SETTINGS, "--threads", "1")
    assert (done.code, done.err) == (0, "")
    names = [line.split()[0] for line in done.out.splitlines()]
    assert names[:9] == "recipe data model run speed time memory disk perplexity".split()
    report = json.loads(cli("plan", data, "--threads", "1", *SETTINGS, "--json").out)
    assert report["total_tokens"] == 900
    assert report["tokens_per_second"] > 0
    assert "little text" in report["advice"][0]


def test_pretrain_starts_with_the_plan(cli, data, tmp_path):
    done = cli("pretrain", data, "-o", tmp_path / "run", "--recipe", "tiny", *SETTINGS)
    assert done.code == 0
    assert done.err.startswith("plan: 900 tokens at ")
    assert done.err.count("plan:") == 1
    assert "perplexity not predicted (known are runs on" in done.err.splitlines()[0]


def test_misuse(cli, data, tmp_path):
    assert "elmore prepare" in cli("plan", tmp_path).err
    assert "did you mean 'tiny'" in cli("plan", data, "--recipe", "tinny").err
