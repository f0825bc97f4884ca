"""elmore.training.word_counts: counts in memory and in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmore.errors import FormatError
from elmore.text.vocabulary import Vocabulary
from elmore.training.word_counts import WordCounts, read_counts


def test_bad_counts(tmp_path: Path) -> None:
    path = tmp_path / "counts.tsv"
    path.write_text("a\tb\t3\nb 4\n")
    counts = read_counts(path)
    assert next(counts) == ("a\tb", 3)
    with pytest.raises(FormatError, match=r"counts\.tsv':2"):
        next(counts)


def test_words_by_falling_count_then_code_points() -> None:
    counts = WordCounts()
    counts.add(["b", "a", "Z", "é", "c", "d"], [2, 2, 2, 2, 5, 1])
    counts.add(["a", "<S>"], [0, 9])
    assert [word for word, _ in counts.ranked()] == ["<S>", "c", "Z", "a", "b", "é", "d"]
    assert counts.covered(Vocabulary(["<S>", "</S>", "<UNK>", "c", "no"])) == 14


def test_rare_words_are_dropped_when_there_are_too_many() -> None:
    counts = WordCounts(most_types=100)
    counts.add((f"often{k}" for k in range(20)), [50] * 20)
    counts.add((f"rare{k}" for k in range(90)), [1] * 90)
    assert counts.pruned == 1
    assert len(counts) == 20
    assert counts["often3"] == 50
    assert counts.n_tokens == 1090
