"""elmore.senses.find, against a search over everything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_models import TEXT

from elmore import Elmo
from elmore.errors import ConfigError, InputError
from elmore.senses import Index, build_index, sense_vectors
from elmore.text.tokenizer import Sentence

LINES = [" ".join(TEXT[k % 37 : k % 37 + 4 + k % 9]) for k in range(80)]


@pytest.fixture(scope="module")
def index(lm: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("find")
    lm.save(folder / "model")
    (folder / "text.txt").write_text("\n".join(LINES), "utf-8")
    files = [folder / "text.txt"]
    return build_index(files, folder / "uses", model=folder / "model", min_count=1, tokenized=True)


def everything(index: Index, lm: Elmo, rows: np.ndarray, query: tuple[Sentence, int]) -> np.ndarray:
    places = [(Sentence(use.tokens), use.position) for use in map(index.use, rows)]
    return sense_vectors(lm, places, k=64).similarity(sense_vectors(lm, [query], k=64))[:, 0]


def test_the_most_similar_uses_come_first(index: Index, lm: Elmo) -> None:
    query = (Sentence(tuple(LINES[3].split())), 2)
    word = query[0].tokens[2]
    found = index.find(query, k=5)
    scores = everything(index, lm, index.rows(word), query)
    np.testing.assert_allclose(
        [hit.score for hit in found.hits], np.sort(scores)[::-1][:5], atol=0.02
    )
    assert found[0].use.tokens == query[0].tokens
    assert found[0].score == pytest.approx(1, abs=0.01)
    assert all(hit.use.tokens[hit.use.position].lower() == word.lower() for hit in found.hits)


def test_other_words_and_counterexamples(index: Index, lm: Elmo) -> None:
    query, other = ((Sentence(tuple(LINES[k].split())), 1) for k in (3, 20))
    assert len({hit.use.tokens[hit.use.position] for hit in index.find(query, word="*").hits}) > 1
    rows = index.rows("*")
    wanted = everything(index, lm, rows, query) - everything(index, lm, rows, other)
    found = index.find(query, word="*", unlike=[other], k=3)
    assert found[0].score == pytest.approx(wanted.max(), abs=0.03)
    both = index.find(query, word="*", like=[other], k=3)
    mean = (everything(index, lm, rows, query) + everything(index, lm, rows, other)) / 2
    assert both[0].score == pytest.approx(mean.max(), abs=0.03)


def test_a_concordance_is_aligned_and_converts(index: Index) -> None:
    found = index.find(f"{LINES[0].rsplit(' ', 1)[0]} [{LINES[0].split()[-1]}]", k=4, word="*")
    lines = found.lines(90)
    columns = {
        line.index(f"  {hit.use.tokens[hit.use.position]}  ")
        for line, hit in zip(lines, found.hits, strict=True)
    }
    assert len(columns) == 1
    assert repr(found).splitlines()[0] == f'"{found.query}" in {index.path.name}'
    assert found.to_csv().count("\n") == 5
    assert "<table" in found._repr_html_()
    frame = found.to_pandas()
    assert list(frame.columns)[:4] == ["cosine", "left", "word", "right"]
    assert found.to_dict()["hits"][0]["tokens"] == list(found[0].use.tokens)


def test_a_regular_expression_may_have_brackets(index: Index) -> None:
    found = index.find("/s[cy].*/", k=100)
    assert len(found) == len(index.rows("/s[cy].*/")) > 2
    assert {hit.use.word[:2].lower() for hit in found} == {"sc", "sy"}


def test_the_order_of_words_beside_it_ignores_punctuation(lm: Elmo, tmp_path: Path) -> None:
    lm.save(tmp_path / "model")
    lines = ["the school ( b", "the school a", "the school , c"]
    (tmp_path / "text.txt").write_text("\n".join(lines), "utf-8")
    index = build_index(
        [tmp_path / "text.txt"],
        tmp_path / "uses",
        model=tmp_path / "model",
        words="school",
        tokenized=True,
    )
    found = index.find("school", sort="right")
    assert [hit.use.tokens[-1] for hit in found.hits] == ["a", "b", "c"]


def test_bad_questions(index: Index) -> None:
    with pytest.raises(InputError, match="'no mark' is not in the index"):
        index.find("no mark")
    with pytest.raises(InputError, match="mark one word"):
        index.find("two [marks] [here]")
    with pytest.raises(ConfigError, match="k=0"):
        index.find("a [school]", k=0)
    with pytest.raises(InputError, match="not in the index"):
        index.find("the [xyzzy]")
    # What is marked is a word, not a pattern.
    for mark in ("*", "?", "s*", "/s.*/"):
        with pytest.raises(InputError, match="is not in the index"):
            index.find(f"the [{mark}]")


def test_files_have_all_that_is_known(index: Index, tmp_path: Path) -> None:
    found = index.find(f"[{LINES[0].split()[0]}] {LINES[0].split()[1]}", k=2)
    found.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == json.loads(
        json.dumps(found.to_dict())
    )
    with pytest.raises(ConfigError, match="no picture of this"):
        found.save(tmp_path / "a.svg")
    for name in ("a.xlsx", "a.ods"):
        with pytest.raises(ConfigError, match=r"use \.html, \.json, \.txt"):
            found.save(tmp_path / name)
        assert not (tmp_path / name).exists()
