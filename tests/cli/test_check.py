"""`elmore check`."""

from __future__ import annotations

import json


def test_a_text(cli, lm_model, text):
    done = cli("check", text, "--model", lm_model)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("3 sentences, 9 tokens")
    assert any(line.startswith("unknown words: ") for line in lines)
    assert any(line.startswith("embed as") for line in lines)
    assert any(line.startswith("hdf5") for line in lines)


def test_json_of_stdin(cli, lm_model):
    line = "It fell .\nA &lt;b&gt; 한국어\n".encode()
    report = json.loads(cli("check", "--model", lm_model, "--json", stdin=line).out)
    found = {finding["name"]: finding["count"] for finding in report["findings"]}
    assert found["HTML escapes"] == 2
    assert found["tokens in unseen scripts"] == 1
    assert {cost["format"] for cost in report["embed"]} >= {"jsonl", "hdf5"}
    assert all(cost["size_bytes"] > 0 for cost in report["embed"])


def test_misuse(cli, tmp_path):
    assert cli("check", tmp_path / "none.txt").code == 1
