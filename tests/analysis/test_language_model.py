"""Minimal pairs and lexical substitution, on a small model and on files that we make."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import Slow, load_both
from small_models import TEXT

from elmore import Elmo
from elmore.analysis.blimp import Blimp, Pair
from elmore.analysis.lexical_substitution import LexicalSubstitution, gap
from elmore.analysis.plots import plot_report
from elmore.cli.main import main
from elmore.errors import InputError
from elmore.language_model.scores import score

MODELS = ("skip", "one direction")


@pytest.fixture(scope="module", params=MODELS)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Elmo:
    return load_both(tmp_path_factory.mktemp("lm"), request.param)[0]


def pairs() -> list[Pair]:
    words = [word for word in TEXT if word.isalpha()]
    rng = np.random.default_rng(0)
    found = []
    for k in range(40):
        good = words[k : k + 3 + k % 6]
        bad = list(good)
        bad[rng.integers(len(bad))] = words[rng.integers(len(words))]
        if k % 7 == 0:
            bad.append("the")
        found.append(Pair(" ".join(good), " ".join(bad), f"task {k % 4}", f"kind {k % 2}"))
    return [*found, Pair("the same", "the same", "task 0", "kind 0")]


def test_pairs_are_compared_by_their_log_probabilities(lm: Elmo, tmp_path: Path) -> None:
    probe = Blimp(lm)
    for pair, found in zip(pairs(), probe.differences(pairs()), strict=True):
        good, bad = score(lm, [pair.good, pair.bad])
        expected = [good.forward_total - bad.forward_total]
        if good.backward_total is not None and bad.backward_total is not None:
            expected += [good.backward_total - bad.backward_total]
            expected += [sum(expected)]
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_accuracy_is_the_mean_over_tasks(lm: Elmo, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(pair._asdict()) + "\n" for pair in pairs()) + "\n")
    report = Blimp(lm).run(file)
    right = Blimp(lm).differences(pairs()) > 0
    names = ["forward", "backward", "both"][: right.shape[1]]
    by_task = [
        np.mean(
            [ok for pair, ok in zip(pairs(), right, strict=True) if pair.task == f"task {k}"], 0
        )
        for k in range(4)
    ]
    for column, name in enumerate(names):
        assert report.metrics[name] == pytest.approx(100 * np.mean(by_task, 0)[column], abs=1e-3)
    assert report.measured_on["pairs"] == 41
    assert [row["tasks"] for row in report.tables["by phenomenon"]] == [2, 2, 4]
    assert [row["pairs"] for row in Blimp(lm, limit=3).run(file).tables["by task"]] == [3] * 4


@pytest.mark.parametrize("line", ['{"good": "a"}', '{"good": 1, "bad": "b"}', "[]", "{", "3"])
def test_a_bad_line_is_named(lm: Elmo, tmp_path: Path, line: str) -> None:
    for probe in (Blimp(lm), LexicalSubstitution(lm)):
        file = tmp_path / "bad.jsonl"
        file.write_text(f"\n{line}\n")
        with pytest.raises(InputError, match=r"bad\.jsonl:2"):
            probe.run(file)
        file.write_text("")
        with pytest.raises(InputError, match="is it the right file"):
            probe.run(file)


def test_gap_of_known_rankings() -> None:
    assert gap([3, 1], [1, 3]) == 1
    # Kishida's formula by hand: (0 + 3/2 + 4/3) / (3 + 4/2)
    assert gap([0, 3, 1], [3, 1]) == pytest.approx((3 / 2 + 4 / 3) / (3 + 4 / 2))
    assert gap([0, 0], [2]) == 0


def test_candidates_are_ranked_by_their_probability(tmp_path: Path) -> None:
    elmo, slow = load_both(tmp_path)
    tokens = TEXT[:6]
    forward, backward = Slow.logs(slow, tokens)
    vocabulary = elmo.checkpoint.vocabulary
    words = [word for word in vocabulary.words if word[0] != "<"][3:9]
    ids = [vocabulary.find(word) for word in words]
    value = forward[2][ids] + backward[4][ids] + np.log(np.array(ids) + 1)
    best = words[int(value.argmax())]
    item = {"lemma": "x.n", "tokens": tokens, "index": 2, "candidates": [*words, "nosuch", "a b"]}
    file = tmp_path / "items.jsonl"
    lines = [{**item, "gold": {best: 2, "a b": 3}}, {**item, "gold": {"nosuch": 1}}]
    lines.append({**item, "gold": {"a b": 3}})  # no answer of one word: left out
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = LexicalSubstitution(elmo).run(file)
    assert report.measured_on["items"] == 2
    # The best candidate is first in one item; the unknown word is last of seven in the other.
    assert report.metrics["GAP place"] == pytest.approx(100 * (1 + 1 / 7) / 2, abs=1e-3)
    assert report.metrics["P@1 place"] == 50


def test_the_command_line_prints_the_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elmo, _ = load_both(tmp_path)
    elmo.save(tmp_path / "model")
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(pair._asdict()) + "\n" for pair in pairs()))
    model = ["--model", str(tmp_path / "model"), "-q"]
    assert main(["analyze", "blimp", str(file), "--limit", "2", "--json", *model]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured_on"]["pairs"] == 8
    assert set(found["metrics"]) == {"forward", "backward", "both"}
    item = {
        "lemma": "x.n",
        "tokens": TEXT[:6],
        "index": 2,
        "candidates": ["the"],
        "gold": {"the": 1},
    }
    file.write_text(json.dumps(item) + "\n")
    assert main(["analyze", "substitutes", str(file), *model]) == 0
    assert "place and word  100.00" in capsys.readouterr().out


def test_every_report_has_a_picture(lm: Elmo, tmp_path: Path) -> None:
    pairs_file, items = tmp_path / "pairs.jsonl", tmp_path / "items.jsonl"
    pairs_file.write_text("".join(json.dumps(pair._asdict()) + "\n" for pair in pairs()))
    gold = {"lemma": "x.n", "tokens": TEXT[:6], "index": 2, "candidates": ["the"]}
    items.write_text(json.dumps({**gold, "gold": {"the": 1}}) + "\n")
    for report in (Blimp(lm).run(pairs_file), LexicalSubstitution(lm).run(items)):
        plot_report(report, tmp_path / f"{report.name}.svg")
        assert "<svg" in (tmp_path / f"{report.name}.svg").read_text()
    # Those without columns of their own show their metrics.
    for name in ("wsi", "usage-graph"):
        plot_report(dataclasses.replace(report, name=name), tmp_path / f"{name}.svg")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
