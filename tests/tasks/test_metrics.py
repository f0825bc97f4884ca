"""Scores: worked values, and independent implementations over random data."""

from __future__ import annotations

import random
from typing import Any

import pytest

from elmore.tasks.data.tags import Span, split_tags
from elmore.tasks.paper.coref import cluster_scores
from elmore.tasks.paper.qa import answer_scores, exact_match, normalise, word_f1
from elmore.tasks.paper.srl import join_continuations, role_scores
from elmore.tasks.scores import span_scores


def test_neighbours_of_one_label_stay_apart() -> None:
    two, one = [[Span("A", 0, 0), Span("A", 1, 1)]], [[Span("A", 0, 1)]]
    assert span_scores(two, two, [2])[0]["f1"] == 100
    assert span_scores(two, one, [2])[0]["f1"] == 0


def naive_f1(gold: list[set[Any]], found: list[set[Any]]) -> float:
    hits = sum(len(a & b) for a, b in zip(gold, found, strict=True))
    total = sum(map(len, gold)) + sum(map(len, found))
    return 200 * hits / total if total else 0.0


def random_spans(generator: random.Random, length: int) -> list[Span]:
    spans, place = [], 0
    while place < length:
        size = generator.randint(1, 3)
        if generator.random() < 0.5 and place + size <= length:
            spans.append(Span(generator.choice("ABC"), place, place + size - 1))
        place += size
    return spans


def test_span_f1_is_that_of_sets() -> None:
    generator = random.Random(0)
    lengths = [generator.randint(0, 12) for _ in range(200)]
    gold = [random_spans(generator, n) for n in lengths]
    found = [
        s if generator.random() < 0.5 else random_spans(generator, n)
        for s, n in zip(gold, lengths, strict=True)
    ]
    expected = naive_f1([set(s) for s in gold], [set(s) for s in found])
    assert 40 < expected < 90
    metrics, rows = span_scores(gold, found, lengths)
    assert metrics["f1"] == pytest.approx(expected)
    assert {row["label"]: row["spans"] for row in rows} == {
        name: sum(span.label == name for spans in gold for span in spans) for name in "ABC"
    }
    assert span_scores([[], []], [[], []], [3, 0])[0]["f1"] == 0.0


def test_the_predicate_does_not_count() -> None:
    gold = [[Span("V", 1, 1), Span("ARG0", 0, 0)]]
    assert role_scores(gold, [[Span("V", 1, 1)]], [2])[0]["f1"] == 0
    assert role_scores(gold, [[Span("ARG0", 0, 0)]], [2])[0]["f1"] == 100


def test_continuations_join_what_comes_before() -> None:
    gold = [[Span("ARG1", 0, 0), Span("V", 1, 1), Span("C-ARG1", 2, 3)]]
    assert join_continuations(gold[0]) == [("ARG1", ((0, 0), (2, 3))), ("V", ((1, 1),))]
    half = [[Span("ARG1", 0, 0)]]
    metrics, _ = role_scores(gold, half, [4])
    assert metrics["f1"] == pytest.approx(200 / 3)  # one of two simple spans
    assert metrics["joined f1"] == 0  # the whole argument is not there
    assert role_scores(gold, gold, [4])[0]["joined f1"] == 100
    assert join_continuations([Span("C-ARG1", 2, 3)]) == [("ARG1", ((2, 3),))]
    assert join_continuations([Span("R-ARG1", 2, 3)]) == [("R-ARG1", ((2, 3),))]


def test_squad_examples() -> None:
    """Normalised as in the official SQuAD 1.1 script."""
    assert exact_match("the Eiffel Tower.", "Eiffel tower") == 1
    assert exact_match("in Paris, France", "Paris") == 0
    assert word_f1("in Paris, France", "Paris") == pytest.approx(0.5)
    assert normalise("The  a an B.C.") == "bc"


def test_squad_takes_the_best_answer_and_counts_nothing_as_wrong() -> None:
    scores = answer_scores(["Paris", "", "x"], [["London", "in Paris"], ["Rome"], []])
    assert scores["exact match"] == 0
    assert scores["f1"] == pytest.approx(100 * (2 / 3) / 3)


def test_squad_against_torchmetrics() -> None:
    torchmetrics = pytest.importorskip("torchmetrics.functional.text")
    generator = random.Random(1)
    words = ["the", "a", "Paris", "tower.", "of", "U.S.", "1,000", "an", "é", "-", "old"]

    def phrase() -> str:
        """Some words; not articles alone, where torchmetrics follows SQuAD 2.0."""
        text = ""
        while not normalise(text):
            text = " ".join(generator.choice(words) for _ in range(generator.randint(1, 4)))
        return text

    found = [phrase() for _ in range(150)]
    gold = [[phrase(), phrase()] if generator.random() < 0.7 else [f] for f in found]
    theirs = torchmetrics.squad(
        [{"prediction_text": text, "id": str(k)} for k, text in enumerate(found)],
        [
            {"id": str(k), "answers": {"text": texts, "answer_start": [0] * len(texts)}}
            for k, texts in enumerate(gold)
        ],
    )
    ours = answer_scores(found, gold)
    assert ours["f1"] == pytest.approx(float(theirs["f1"]), abs=1e-4)
    assert ours["exact match"] == pytest.approx(float(theirs["exact_match"]), abs=1e-4)


# Coreference -------------------------------------------------------------------------------------

GOLD = [["abc", "defg"]]
RESPONSE = [["ab", "cd", "fghi"]]


def test_clusters_worked_case() -> None:
    """A case that is worked out by hand."""
    metrics, rows = cluster_scores(GOLD, RESPONSE)
    values = {row["measure"]: (row["precision"], row["recall"], row["f1"]) for row in rows}
    assert values["muc"] == pytest.approx((40.0, 40.0, 40.0), abs=0.005)
    assert values["b3"] == pytest.approx((50.0, 41.67, 45.45), abs=0.005)
    assert values["ceaf"] == pytest.approx((43.33, 65.0, 52.0), abs=0.005)
    assert metrics["f1"] == pytest.approx(45.82, abs=0.005)


def test_clusters_at_the_ends() -> None:
    assert cluster_scores(GOLD, GOLD)[0]["f1"] == pytest.approx(100)
    assert cluster_scores(GOLD, [[]])[0]["f1"] == 0
    assert cluster_scores([[]], RESPONSE)[0]["f1"] == 0
    assert cluster_scores([[]], [[]])[0]["f1"] == 0
    # Predicted clusters of one mention are dropped first.
    assert cluster_scores(GOLD, [["abc", "defg", "x"]])[0]["f1"] == pytest.approx(100)


def test_sums_run_over_documents_before_dividing() -> None:
    one = cluster_scores([["ab"], ["abcd"]], [["ab"], ["ab", "cd"]])[0]
    assert one["muc"] == pytest.approx(200 * 1.0 * 0.75 / 1.75)


def random_clusters(generator: random.Random, mentions: list[int]) -> list[list[int]]:
    chosen = [m for m in mentions if generator.random() < 0.8]
    clusters: dict[int, list[int]] = {}
    for mention in chosen:
        clusters.setdefault(generator.randint(0, 5), []).append(mention)
    return [cluster for cluster in clusters.values() if len(cluster) > 1]


def test_clusters_against_scorch() -> None:
    scorch = pytest.importorskip("scorch.scores")
    generator = random.Random(2)
    for _ in range(40):
        gold = random_clusters(generator, list(range(20)))
        found = random_clusters(generator, list(range(2, 24)))
        _, rows = cluster_scores([gold], [found])
        ours = {row["measure"]: (row["recall"], row["precision"]) for row in rows}
        sets = [[set(c) for c in gold], [set(c) for c in found]]
        for name, theirs in (("muc", scorch.muc), ("b3", scorch.b_cubed), ("ceaf", scorch.ceaf_e)):
            recall, precision, _ = theirs(*sets)
            assert ours[name] == pytest.approx((100 * recall, 100 * precision), abs=1e-6), name


def test_tags_are_split_only_if_all_are_joined() -> None:
    assert split_tags(["NOUN+NN", "X+GW"]) == {"NOUN+NN": ("NOUN", "NN"), "X+GW": ("X", "GW")}
    for whole in (["C++", "Java"], ["C++", "a+b+c"], ["A+B", "O"], ["A", "B"], []):
        assert split_tags(whole) == {tag: (tag,) for tag in whole}
