"""elmore.corpus.words: counts, and which words the model predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmore.corpus.words import VocabularyChoice, WordCounts, read_counts
from elmore.errors import ConfigError, FormatError
from elmore.text.vocabulary import Vocabulary

SPECIALS = ("<S>", "</S>", "<UNK>")


def counted(**counts: int) -> WordCounts:
    return WordCounts(counts)


def test_bad_counts(tmp_path: Path) -> None:
    path = tmp_path / "counts.tsv"
    path.write_text("a\tb\t3\nb 4\n")
    counts = read_counts(path)
    assert next(counts) == ("a\tb", 3)
    with pytest.raises(FormatError, match=r"counts\.tsv':2"):
        next(counts)


def test_the_most_frequent_words() -> None:
    counts = counted(b=2, a=2, Z=2, é=2, c=5, d=1)
    counts.update({"a": 0, "<S>": 9})
    words = VocabularyChoice(7, None).make(counts).words
    assert words == (*SPECIALS, "c", "Z", "a", "b")
    words = VocabularyChoice(None, 2).make(counts).words
    assert words == (*SPECIALS, "c", "Z", "a", "b", "é")
    assert VocabularyChoice(5, 2).make(counts).words == (*SPECIALS, "c", "Z")
    assert len(VocabularyChoice(None, None).make(counts)) == 8


def test_words_that_no_file_can_hold_are_left_out(tmp_path: Path) -> None:
    odd = ["\x85", "\u3000x", "y\t", "!!!MAXTERMID", "z" * 70_000, "a\tb", "\u200b"]
    counts = WordCounts(dict(zip(odd, range(9, 2, -1), strict=True)))
    vocabulary = VocabularyChoice(50, None).make(counts)
    assert vocabulary.words == (*SPECIALS, "a\tb", "\u200b")
    (tmp_path / "v").write_bytes(vocabulary.to_bytes())
    assert Vocabulary.read(tmp_path / "v") == vocabulary


def write_vocabulary(path: Path, *words: str) -> Path:
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


def test_a_file_is_used_as_it_is(tmp_path: Path) -> None:
    counts = counted(a=9, b=5, c=1)
    path = write_vocabulary(tmp_path / "v", "a", "<UNK>", "!!!MAXTERMID", "b", "<S>", "</S>", "q")
    words = VocabularyChoice(path, None).make(counts).words  # warnings are errors here
    assert words == ("a", "<UNK>", "b", "<S>", "</S>", "q")


def test_a_file_in_another_order_is_warned_about(tmp_path: Path) -> None:
    letters = "abcdefghijklmnop"
    counts = counted(**{letter: 2 * k + 1 for k, letter in enumerate(letters)})
    alphabet = write_vocabulary(tmp_path / "v", *SPECIALS, *letters)
    with pytest.warns(UserWarning, match="not sorted by frequency"):
        VocabularyChoice(alphabet, None).make(counts)
    nearly = [*reversed(letters)]
    nearly[3], nearly[5] = nearly[5], nearly[3]
    VocabularyChoice(write_vocabulary(tmp_path / "w", *SPECIALS, *nearly), None).make(counts)


@pytest.mark.parametrize(
    ("vocabulary", "min_count", "kind", "message"),
    [
        (3, None, ConfigError, "from 4 to"),
        (None, 0, ConfigError, "min_count=0"),
        ("v", 2, ConfigError, "cannot be combined"),
        ("v", None, FormatError, "lacks </S>, <UNK>"),
        ("nothing", None, FormatError, "does not exist"),
    ],
)
def test_bad_choices(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vocabulary: int | str | None,
    min_count: int | None,
    kind: type[Exception],
    message: str,
) -> None:
    write_vocabulary(tmp_path / "v", "<S>", "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        VocabularyChoice(vocabulary, min_count)


def test_some_words_are_left_where_all_occur_once() -> None:
    counts, choice = counted(a=1, b=1), VocabularyChoice(None, None)
    assert choice.make(counts).words == (*SPECIALS, "a", "b")
    assert choice.notes(counts, choice.make(counts)) == []
