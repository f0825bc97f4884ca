"""`elmore score`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo, score, substitutes
from elmore.language_model.likely_words import next_words, previous_words

LINES = ["It fell .", "", "No, he fell."]
TEXT = "\n".join(LINES).encode()


@pytest.fixture(scope="module")
def elmo(lm_model: Path) -> Elmo:
    return Elmo.load(lm_model)


def table(out: str) -> list[list[str]]:
    return [line.split("\t") for line in out.splitlines()]


def test_sentences(cli, lm_model, elmo):
    result = cli("score", "--model", lm_model, stdin=TEXT)
    assert (result.code, result.err) == (0, "read 3 sentences: 1 empty\n")
    for record, expected in zip(result.records(), score(elmo, LINES), strict=True):
        assert record["tokens"] == list(expected.tokens)
        assert record["log_prob"] == pytest.approx(expected.total, abs=1e-5)
        assert record["forward_log_prob"] == pytest.approx(expected.forward_total, abs=1e-5)
        assert record["backward_log_prob"] == pytest.approx(expected.backward_total, abs=1e-5)
        assert record["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
    assert cli("score", "--model", lm_model, "-q", stdin=TEXT).err == ""


def test_tokens(cli, lm_model, elmo):
    records = cli("score", "--model", lm_model, "--per-token", stdin=TEXT).records()
    for record, expected in zip(records, score(elmo, LINES), strict=True):
        for name in ("forward", "backward", "end", "begin"):
            assert record[name] == pytest.approx(np.asarray(getattr(expected, name)), abs=1e-5)
        assert record["unknown"] == expected.unknown.tolist()
    assert records[2]["unknown"] == [True, True, True, False, False]


def test_tables(cli, lm_model):
    head, *rows = table(cli("score", "--model", lm_model, "-f", "tsv", stdin=TEXT).out)
    assert head == "log_prob forward backward perplexity n_tokens sentence".split()
    assert [row[4:] for row in rows] == [["3", "It fell ."], ["0", ""], ["5", "No , he fell ."]]
    records = cli("score", "--model", lm_model, "--per-token", stdin=TEXT).records()
    head, *rows = table(
        cli("score", "--model", lm_model, "--per-token", "-f", "tsv", stdin=TEXT).out
    )
    assert head == "sentence position token forward backward unknown".split()
    assert len(rows) == 8 + 2 * 3
    assert rows[0] == ["0", "-1", "<S>", "", str(records[0]["begin"]), "0"]
    assert rows[1][:4] == ["0", "0", "It", str(records[0]["forward"][0])]
    assert rows[4] == ["0", "3", "</S>", str(records[0]["end"]), "", "0"]
    [_, first, *_] = table(cli("score", "--model", lm_model, "--next", "-f", "tsv", stdin=TEXT).out)
    assert first[:3] == ["0", "3", "1"]
    # A token may hold what separates columns.
    out = cli("score", "--model", lm_model, "--tokenized", "-f", "tsv", stdin=b"a\tb \\c\n").out
    assert table(out)[1][4:] == ["2", "a\\tb \\\\c"]


def test_likely_words(cli, lm_model, elmo):
    for flag, key, likely in [
        ("--next", "next", next_words),
        ("--previous", "previous", previous_words),
    ]:
        records = cli("score", "--model", lm_model, flag, "--top", 3, stdin=TEXT).records()
        for line, record in zip(LINES, records, strict=True):
            expected = likely(elmo, line, 3)
            assert [word["word"] for word in record[key]] == [word for word, _ in expected]
            values = [word["log_prob"] for word in record[key]]
            assert values == pytest.approx([value for _, value in expected], abs=1e-5)
    assert len(cli("score", "--model", lm_model, "--next", stdin=b"It").records()[0]["next"]) == 5


def test_substitutes(cli, lm_model, elmo):
    result = cli("score", "--model", lm_model, "--substitutes", "--top", 2, stdin=TEXT)
    for line, record in zip(LINES, result.records(), strict=True):
        assert [place["token"] for place in record["substitutes"]] == record["tokens"]
        for k, place in enumerate(record["substitutes"]):
            assert place["position"] == k
            expected = [word for word, _ in substitutes(elmo, line, k, 2)]
            assert [word["word"] for word in place["words"]] == expected
    rows = table(
        cli("score", "--model", lm_model, "--substitutes", "-f", "tsv", "--top", 2, stdin=TEXT).out
    )
    assert len(rows) == 1 + 2 * 8
    assert [row[:3] for row in rows[1:4]] == [["0", "0", "1"], ["0", "0", "2"], ["0", "1", "1"]]
    result = cli("score", "--model", lm_model, "--substitutes", "--position", 4, stdin=TEXT)
    assert [len(record["substitutes"]) for record in result.records()] == [0, 0, 1]
    assert result.err == "read 3 sentences: 1 empty, 2 without a token 4\n"


def test_inputs(cli, lm_model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(TEXT)
    assert (
        cli("score", "--model", lm_model, path).out
        == cli("score", "--model", lm_model, stdin=TEXT).out
    )
    assert len(cli("score", "--model", lm_model, path, path, "--limit", 4).records()) == 4
    assert cli("score", "--model", lm_model).out == ""


def test_text_after_two_dashes_is_text(cli, lm_model):
    found = cli("score", "--model", lm_model, "--", "-5 degrees")
    assert found.records()[0]["tokens"] == ["-5", "degrees"]
