"""Nearest uses of a word: the index of a text, exact search, the report."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import load_both

from elmore.analysis import Neighbors
from elmore.analysis import neighbors as neighbors_module
from elmore.analysis.probe import random_model
from elmore.errors import ConfigError, FormatError, InputError
from elmore.senses import Index, build_index

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


@pytest.mark.parametrize("layers", ["mean", 1])
def test_exactly_what_brute_force_finds(tiny_elmo, text, monkeypatch, layers):
    monkeypatch.setattr(neighbors_module, "_BLOCK", 7)
    source = "the green river bank slept again ."
    report = Neighbors(tiny_elmo, layers=layers, top=9).run(text, query="bank", contexts=[source])
    query = tiny_elmo.embed([source.split()], layers=layers, tokenized=True)[0][3]
    best = {}
    for number, line in enumerate(LINES, 1):
        tokens = tiny_elmo.tokenize(line).tokens
        vectors = tiny_elmo.embed([tokens], layers=layers, tokenized=True)[0]
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
        words = [k for k, token in enumerate(tokens) if token[0].isalnum()]
        if words:
            cosines = (vectors @ query / lengths)[words]
            best[number] = float(cosines.max()), tokens[words[int(cosines.argmax())]]
    expected = sorted(best.items(), key=lambda item: -item[1][0])[:9]
    rows = report.tables[f"1. nearest to: {source.replace('bank', '[bank]')}"]
    # Stored as int8: near neighbours may change places.
    np.testing.assert_allclose(
        [row["cosine"] for row in rows], [cosine for _, (cosine, _) in expected], atol=5e-3
    )
    assert {row["sentence"] for row in rows[:3]} <= {number for number, _ in expected[:6]}
    assert all(row["word"] == best[row["sentence"]][1] for row in rows[:3])


def test_an_index_is_kept_and_never_mistaken(tiny_elmo, text, tmp_path):
    cache = tmp_path / "cache"

    def indexes() -> set[str]:
        return {path.name for path in cache.glob("uses-*")}

    probe = Neighbors(tiny_elmo, cache=cache)
    first = probe.run(text, query="bank")
    (name,) = indexes()
    stamp = (cache / name / "vectors.npy").stat().st_mtime_ns
    assert probe.run(text, query="bank").to_dict() == first.to_dict()
    assert (cache / name / "vectors.npy").stat().st_mtime_ns == stamp
    Neighbors(tiny_elmo, cache=cache, layers=1).run(text, query="bank")
    assert len(indexes()) == 2
    # A damaged one is written again.
    (cache / name / "vectors.npy").write_bytes(b"short")
    assert probe.run(text, query="bank").to_dict() == first.to_dict()
    shutil.rmtree(cache)


def test_an_index_instead_of_a_text(tiny_elmo, text, tmp_path):
    expected = Neighbors(tiny_elmo, layers=1).run(text, query="bank")
    uses = tmp_path / "uses"
    settings = {"min_count": 1, "k": 0, "layers": 1}
    index = build_index([text], uses, model=tiny_elmo, **settings)
    assert not index.substitutes(index.rows("bank")).ids.size
    for data in (uses, Index.open(uses, elmo=tiny_elmo)):
        report = Neighbors(tiny_elmo).run(data, query="bank")  # the index has the layers
        assert report.tables == expected.tables
        assert report.measured_on["layers"] == "1"
    with pytest.raises(ConfigError, match="was made with another model"):
        Neighbors(random_model(tiny_elmo)).run(uses, query="bank")
    with pytest.raises(ConfigError, match="several workers load the model themselves"):
        build_index([text], tmp_path / "other", model=tiny_elmo, workers=2)


def test_an_index_of_sense_vectors_needs_layers(text, tmp_path):
    elmo, _ = load_both(tmp_path)
    settings = {"min_count": 1, "model": elmo}
    plain = build_index([text], tmp_path / "plain", **settings)
    with pytest.raises(ConfigError, match=r"has no layers; make it with --layers"):
        Neighbors(elmo).run(plain.path, query="bank", contexts=["the bank"])
    both = build_index([text], tmp_path / "both", layers="top", **settings)
    alone = Neighbors(elmo).run(text, query="bank")
    for rows, others in zip(
        Neighbors(elmo).run(both.path, query="bank").tables.values(),
        alone.tables.values(),
        strict=True,
    ):
        np.testing.assert_allclose(
            [row["cosine"] for row in rows], [row["cosine"] for row in others], atol=0.01
        )


def test_sentences_instead_of_a_file(tiny_elmo, text):
    expected = Neighbors(tiny_elmo).run(text, query="bank")
    tokens = [tiny_elmo.tokenize(line).tokens for line in [*LINES, LINES[0]]]
    for data in ([*LINES, LINES[0]], iter([*LINES, LINES[0]]), tokens):
        report = Neighbors(tiny_elmo).run(data, query="bank")
        assert report.tables == expected.tables
        assert report.measured_on["text"] == "sentences"
    odd = [["lone", "\udc80", "two\nlines", "bank"], ["two", "bank", "words"]]
    report = Neighbors(tiny_elmo).run(odd, query="bank")
    assert report.metrics["occurrences"] == 2
    assert sorted(contexts(report)) == [["lone ? two lines [bank]"], ["two [bank] words"]]
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
