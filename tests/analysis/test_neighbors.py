"""Nearest uses of a word: the index, exact search, the report."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from elmore.analysis import Neighbors
from elmore.analysis import occurrences as occurrences_module
from elmore.analysis.occurrences import Occurrences
from elmore.embedding.layer_cache import LayerCache
from elmore.errors import ConfigError, FormatError, InputError
from elmore.kernels.workers import Workers

ENDS = "fell grew stood went came stayed slept ran".split()
LINES = [
    *(f"the green river bank {end} there ." for end in ENDS),
    "",
    *(f"my rich money Bank {end} 9 $ ." for end in ENDS),
    "nothing of the kind",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*LINES, LINES[0], ""]), encoding="utf-8")
    return path


def contexts(report) -> list[list[str]]:
    return [
        [row["context"] for row in rows]
        for title, rows in report.tables.items()
        if "nearest to" in title
    ]


def test_the_uses_of_a_word_come_apart(tiny_elmo, text):
    report = Neighbors(tiny_elmo, same_word=True).run(text, query="bank")
    titles = list(report.tables)
    assert len(titles) == 3
    (one, two) = contexts(report)
    sources = ["river" if "river" in title else "money" for title in titles[:2]]
    assert sorted(sources) == ["money", "river"]
    for source, found in zip(sources, (one, two), strict=True):
        assert len(found) == 5
        assert all(source in context for context in found)
        assert all("[bank]" in context.lower() for context in found)
    assert not set(titles[0].partition(": ")[2:]) & {*one, *two}  # not the source itself
    assert len(set(one)) == 5  # a sentence that repeats is shown once
    static = [row["word"] for row in report.tables[titles[2]]]
    assert "bank" not in static
    assert len(static) == 5
    assert report.measured_on["occurrences"] == 17
    assert report.measured_on["text"] == str(text)
    assert report.metrics["cosine of the sources"] < report.metrics["nearest cosine, source 1"]


def test_a_context_of_ones_own(tiny_elmo, text, tmp_path):
    vectors = tmp_path / "glove.txt"
    vectors.write_text("bank 1 0\nshore 0.9 0.1\nloan 0.5 0.5\nfish 0 1\n")
    source = "the green river bank slept again ."
    probe = Neighbors(tiny_elmo, top=3, vectors=vectors)
    report = probe.run(text, query="Bank", contexts=[source])
    (title, *_) = report.tables
    assert title == "1. nearest to: the green river [bank] slept again ."
    (found,) = contexts(report)
    assert all("river" in context for context in found)
    rows = report.tables["static: nearest words in glove.txt"]
    assert [row["word"] for row in rows] == ["shore", "loan", "fish"][: len(rows)]
    assert rows[0]["cosine"] == pytest.approx(0.9939, abs=1e-4)
    # A word that the text lacks may have a context.
    report = probe.run(text, query="shore", contexts=["the green river shore stood there ."])
    assert report.measured_on["occurrences"] == 0
    assert len(contexts(report)[0]) == 3


def test_exactly_what_brute_force_finds(tiny_elmo, text, tmp_path, monkeypatch):
    monkeypatch.setattr(occurrences_module, "_BLOCK_ROWS", 7)
    rows = [tuple(tiny_elmo.tokenize(line).tokens) for line in LINES]
    layers = LayerCache(tiny_elmo, tmp_path / "cache").layers(rows)
    index = Occurrences.write(tmp_path / "index", "key", rows, layers, "mean")
    every = np.concatenate([values.mean(0) for values in layers])
    unit = every / np.linalg.norm(every, axis=1, keepdims=True)
    np.testing.assert_allclose(index.take(np.arange(len(unit))), unit, atol=1e-3)
    for threads in (1, 2):
        workers = Workers(threads)
        for token in (0, 30, len(unit) - 1):
            stored = index.take(np.arange(len(unit)))
            expected = np.argsort(-(stored @ stored[token]), kind="stable")
            cosines = (stored @ stored[token])[expected]
            hits = index.search(stored[token] * 3, 10, workers=workers)
            np.testing.assert_allclose([hit.cosine for hit in hits], cosines[:10], atol=1e-4)
            among = np.array([5, 30, 31, 62])
            hits = index.search(stored[token], 3, workers=workers, among=among)
            assert {hit.token for hit in hits} <= set(among.tolist())
            assert len(index.search(stored[0], 10**6, workers=workers)) == len(unit)
    tokens = [(number, place) for number, row in enumerate(rows) for place in range(len(row))]
    assert [index.sentence_of(k) for k in range(len(tokens))] == tokens
    assert [tuple(index.tokens(k)) for k in range(len(rows))] == rows
    banks = [k for k, (number, place) in enumerate(tokens) if rows[number][place].lower() == "bank"]
    assert index.find("BANK").tolist() == banks
    assert index.find("banker").tolist() == []


def test_an_index_is_kept_and_never_mistaken(tiny_elmo, text, tmp_path):
    cache = tmp_path / "cache"

    def indexes() -> set[str]:
        return {path.name for path in cache.glob("occurrences-*")}

    probe = Neighbors(tiny_elmo, cache=cache)
    first = probe.run(text, query="bank")
    (name,) = indexes()
    stamp = (cache / name / "vectors.f16").stat().st_mtime_ns
    assert probe.run(text, query="bank").to_dict() == first.to_dict()
    assert (cache / name / "vectors.f16").stat().st_mtime_ns == stamp
    Neighbors(tiny_elmo, cache=cache, layers=1).run(text, query="bank")
    Neighbors(tiny_elmo, cache=cache, limit=5).run(text, query="bank")
    assert len(indexes()) == 3
    # A damaged one is written again.
    (cache / name / "vectors.f16").write_bytes(b"short")
    assert probe.run(text, query="bank").to_dict() == first.to_dict()
    with pytest.raises(FormatError, match="index of something else"):
        Occurrences.open(cache / name, "other")
    shutil.rmtree(cache)


def test_sentences_instead_of_a_file(tiny_elmo, text):
    expected = Neighbors(tiny_elmo).run(text, query="bank")
    tokens = [tiny_elmo.tokenize(line).tokens for line in [*LINES, LINES[0]]]
    for data in ([*LINES, LINES[0]], iter([*LINES, LINES[0]]), tokens):
        report = Neighbors(tiny_elmo).run(data, query="bank")
        assert report.tables == expected.tables
        assert report.measured_on["text"] == "sentences"
    odd = [["lone", "\udc80", "bank"], ["two", "bank", "words"]]
    assert Neighbors(tiny_elmo).run(odd, query="bank").metrics["occurrences"] == 2
    single = Neighbors(tiny_elmo).run(["one bank"], query="bank")
    assert contexts(single) == [[]]


def test_errors(tiny_elmo, text, tmp_path):
    with pytest.raises(InputError, match=r"text.txt: the text has no 'play'; give another word"):
        Neighbors(tiny_elmo).run(text, query="play")
    with pytest.raises(ConfigError, match="the context 'It fell' has no 'bank'"):
        Neighbors(tiny_elmo).run(text, query="bank", contexts=["It fell"])
    with pytest.raises(InputError, match="the text has no words"):
        Neighbors(tiny_elmo).run(["", ""], query="bank")
    with pytest.raises(FormatError, match="does not exist"):
        Neighbors(tiny_elmo).run(tmp_path / "none.txt", query="bank")
    with pytest.raises(ConfigError, match="top=0"):
        Neighbors(tiny_elmo, top=0)
    with pytest.raises(ConfigError, match=r"layers 0..2"):
        Neighbors(tiny_elmo, layers=3)
