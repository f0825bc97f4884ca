"""elmore analyze wsi and usage-graph: measures by definition, and small folders in each format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import v_measure_score

from elmore import Elmo
from elmore.analysis import SenseInduction, UsageGraph
from elmore.analysis.usage_graph import spearman
from elmore.analysis.wsi import fuzzy_scores, hard_scores, read_key, read_uses
from elmore.errors import InputError

XML_2010 = """<?xml version="1.0"?><bank.n.test><bank.n.1>Before .
<TargetSentence>The banks lent money .</TargetSentence> After .</bank.n.1><bank.n.2>
<TargetSentence>By the bank of a river .</TargetSentence></bank.n.2></bank.n.test>"""
XML_2013 = """<instances lemma="bank" partOfSpeech="n"><instance id="bank.n.1" lemma="bank"
partOfSpeech="n" token="banks" tokenStart="8" tokenEnd="13">Don't, &amp;banks lend.</instance>
</instances>"""


def test_hard_measures() -> None:
    draws = np.random.default_rng(0)
    gold, groups = draws.integers(0, 3, 40), draws.integers(0, 4, 40)
    v, f = hard_scores(gold, groups)
    assert v == pytest.approx(v_measure_score(gold, groups))
    same = [(gold[a] == gold[b], groups[a] == groups[b]) for a in range(40) for b in range(a)]
    both = sum(one and two for one, two in same)
    assert f == pytest.approx(2 * both / (sum(a for a, _ in same) + sum(b for _, b in same)))
    assert hard_scores(gold, gold) == (1, 1)
    assert hard_scores(gold, 0 * gold)[0] == 0


def test_fuzzy_measures() -> None:
    """Equal divisions agree fully; four uses by hand."""
    gold = np.array([[1, 0], [1, 0], [0, 1], [0, 1.0]])
    assert fuzzy_scores(gold, gold) == pytest.approx((1, 1, 1))
    one = np.ones((4, 1))
    information, precision, recall = fuzzy_scores(gold, one)
    assert information == 0
    assert (precision, recall) == pytest.approx((1, 1 / 3))
    soft = np.array([[1, 0], [0.5, 1], [0, 1], [0, 1.0]])
    # Agreement of uses 1 and 2 is 0.5 instead of 1, of 2 and 3 or 4 is 1 instead of 0.
    assert fuzzy_scores(gold, soft)[1:] == pytest.approx((0.75, (1 + 1 / 3 + 0.5 + 0.5) / 4))


def test_both_formats_and_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "bank.n.xml").write_text(XML_2010, "utf-8")
    uses = read_uses(tmp_path)["bank.n"]
    assert [sentence.tokens[k] for sentence, k in uses.values()] == ["banks", "bank"]
    (tmp_path / "all.key").write_text("bank.n bank.n.1 money\nbank.n bank.n.2 a/1 b/4\n", "utf-8")
    assert read_key(tmp_path / "all.key")["bank.n"]["bank.n.2"] == {"a": 0.25, "b": 1}
    report = SenseInduction(Elmo.load(), n_senses=2).run(tmp_path)
    assert report.tables["wsi"][0]["V"] == 100
    (tmp_path / "mine.key").write_text("bank.n bank.n.1 x\nbank.n bank.n.2 x\n", "utf-8")
    scored = SenseInduction(answers=tmp_path / "mine.key").run(tmp_path)
    assert scored.tables["wsi"][0] == {**scored.tables["wsi"][1], "system": "induced"}
    (tmp_path / "bank.n.xml").write_text(XML_2013, "utf-8")
    ((sentence, k),) = read_uses(tmp_path)["bank.n"].values()
    assert sentence.tokens == ("Do", "n't", ",", "&", "banks", "lend", ".")
    assert k == 4
    for text in ("<a", "<!DOCTYPE a [<!ENTITY b 'c'>]><a.n.test/>", "<a.n><a.n.1/></a.n>"):
        (tmp_path / "bank.n.xml").write_text(text, "utf-8")
        with pytest.raises(InputError, match="not a word of SemEval"):
            read_uses(tmp_path)
    (tmp_path / "all.key").write_text("bank.n bank.n.1 money/x\n", "utf-8")
    with pytest.raises(InputError, match="expected a word"):
        read_key(tmp_path / "all.key")


def test_usage_graph(tmp_path: Path) -> None:
    lm = Elmo.load()
    data, clusters = tmp_path / "data/bank", tmp_path / "clusters/opt"
    data.mkdir(parents=True), clusters.mkdir(parents=True)
    uses = [("a", 1, "the bank fell"), ("b", 1, "a bank fell"), ("c", 2, "by the bank")]
    lines = ["identifier\tgrouping\tcontext_tokenized\tindexes_target_token_tokenized"]
    lines += [f"{name}\t{when}\t{text}\t{text.split().index('bank')}" for name, when, text in uses]
    (data / "uses.csv").write_text("\n".join(lines), "utf-8")
    judged = "identifier1\tidentifier2\tjudgment\na\tb\t4\nb\ta\t3\na\tc\t0\nb\tc\t1\n"
    (data / "judgments.csv").write_text(judged, "utf-8")
    (clusters / "bank.csv").write_text("identifier\tcluster\na\t0\nb\t0\nc\t1\n", "utf-8")
    report = UsageGraph(lm, n_senses=2).run(tmp_path)
    assert report.measured_on["judged pairs"] == 2
    assert report.tables["by word"][0]["graded change"] == 1
    (data / "uses.csv").write_text("identifier\n1\n", "utf-8")
    with pytest.raises(InputError, match="not a file of a usage graph"):
        UsageGraph(lm).run(tmp_path)


def test_spearman_with_ties() -> None:
    assert spearman([1, 2, 2, 4], [1, 3, 3, 9]) == pytest.approx(1)
    assert spearman([1, 2, 3], [5, 5, 5]) == 0
