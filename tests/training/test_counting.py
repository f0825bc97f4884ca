"""elmore.training.counting: the counts that `prepare` finds too."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest

from elmore.errors import InputError
from elmore.training.counting import count_words
from elmore.training.prepare import prepare


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    """A plain file with documents, and a packed one without blank lines."""
    (tmp_path / "a.txt").write_text("The cat sat .\n\nThe dog don't .\n" * 40)
    (tmp_path / "b.txt.bz2").write_bytes(bz2.compress("é the .\n".encode() * 250))
    return [tmp_path / "a.txt", tmp_path / "b.txt.bz2"]


def test_count_words(corpus: list[Path], tmp_path: Path) -> None:
    one, two = count_words(corpus, workers=1), count_words(corpus, workers=2)
    assert list(one.ranked()) == list(two.ranked())
    made = prepare(corpus, tmp_path / "data", heldout=0)
    assert one.n_tokens == made.n_tokens
    lines = (made.folder / "counts.tsv").read_text().splitlines()
    assert [f"{word}\t{count}" for word, count in one.ranked()] == lines


def test_files_without_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" \n\n")
    with pytest.raises(InputError, match="the input file has no tokens"):
        count_words([tmp_path / "a.txt"])
