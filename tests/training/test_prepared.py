"""elmore.training.prepared: the folder, the counts, the choice of words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore.errors import ConfigError, FormatError
from elmore.text.vocabulary import Vocabulary
from elmore.training.prepare import prepare
from elmore.training.prepared import Prepared, VocabularyChoice, WordCounts, read_counts

SPECIALS = ("<S>", "</S>", "<UNK>")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("prepared")
    text = "\n\n".join(f"the cat saw w{k} .\nthe <UNK> cat sat ." for k in range(30))
    (folder / "in.txt").write_text(text)
    inputs = [folder / "in.txt"]
    options = {"tokenized": True, "heldout": 0.1, "shard_tokens": 50}
    return prepare(inputs, folder / "data", vocabulary=8, **options)


@pytest.fixture
def data(made: Prepared, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.folder, tmp_path / "data"))


def test_counts_are_those_of_the_targets(made: Prepared) -> None:
    counts = dict(zip(made.vocabulary, made.counts.tolist(), strict=True))
    n, sentences = made.n_documents, made.n_sentences
    assert counts["<S>"] == counts["</S>"] == sentences == 2 * n
    assert counts["the"] == counts["."] == 2 * n
    assert counts["saw"] == n
    assert counts["<UNK>"] == 2 * n  # w0 … w29, and what is spelled like it
    assert sum(counts.values()) == made.n_tokens + 2 * sentences
    assert made.oov_rate == pytest.approx(2 / 10)
    assert made.counts.dtype == np.int64


def test_open_gives_what_was_made(made: Prepared) -> None:
    again = Prepared.open(str(made.folder), verify=True)
    assert again.digest == made.digest
    assert (again.training, again.heldout, again.shards) == (
        made.training,
        made.heldout,
        made.shards,
    )
    assert sum(shard.tokens for shard in made.shards) == made.n_tokens
    assert again.vocabulary == made.vocabulary
    assert again.tokenizer == "spaces"
    assert [path.name for path in again.shard_paths[:2]] == [
        "shard-00000.safetensors",
        "shard-00001.safetensors",
    ]


def change(data: Path, **changes: Any) -> None:
    manifest = json.loads((data / "prepared.json").read_text())
    (data / "prepared.json").write_text(json.dumps({**manifest, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "not that of a prepared corpus"),
        ({"version": 99}, "upgrade elmore"),
        ({"version": True}, "version"),
        ({"files": {}}, "lacks|do not agree"),
        ({"files": {"../x": {"size": 1, "sha256": ""}}}, "names the file"),
        ({"files": 5}, "cannot be read"),
        ({"shards": []}, "do not agree"),
        ({"shards": [{}]}, "cannot be read"),
        ({"heldout": None}, "do not agree"),
        ({"training": {"tokens": "many"}}, "cannot be read"),
        ({"tokenizer": "x"}, "tokenizer"),
        ({"notes": None}, "cannot be read"),
    ],
)
def test_a_bad_manifest(data: Path, changes: dict[str, Any], message: str) -> None:
    change(data, **changes)
    with pytest.raises(FormatError, match=message):
        Prepared.open(data)


def test_a_folder_that_is_not_whole(data: Path, tmp_path: Path) -> None:
    (data / "prepared.json").rename(tmp_path / "p")
    with pytest.raises(FormatError, match=r"has no prepared\.json"):
        Prepared.open(data)
    with pytest.raises(FormatError, match=r"has no prepared\.json"):
        Prepared.open(tmp_path / "nothing")


def test_damage_is_found(data: Path) -> None:
    for path in sorted(data.iterdir()):
        if path.name == "prepared.json":
            continue
        original = path.read_bytes()
        path.write_bytes(original + b"x")
        with pytest.raises(FormatError, match="the manifest says"):
            Prepared.open(data)
        path.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        with pytest.raises(FormatError):
            Prepared.open(data, verify=True)
        path.unlink()
        with pytest.raises(FormatError, match="lacks"):
            Prepared.open(data)
        path.write_bytes(original)
    Prepared.open(data, verify=True)


def test_bad_counts(tmp_path: Path) -> None:
    path = tmp_path / "counts.tsv"
    path.write_text("a\tb\t3\nb 4\n")
    counts = read_counts(path)
    assert next(counts) == ("a\tb", 3)
    with pytest.raises(FormatError, match=r"counts\.tsv':2"):
        next(counts)


def counted(**counts: int) -> WordCounts:
    result = WordCounts()
    result.add(counts, counts.values())
    return result


def test_words_by_falling_count_then_code_points() -> None:
    counts = counted(b=2, a=2, Z=2, é=2, c=5, d=1)
    counts.add(["a", "<S>"], [0, 9])
    assert [word for word, _ in counts.ranked()] == ["<S>", "c", "Z", "a", "b", "é", "d"]
    words = VocabularyChoice.of(7, None).make(counts).words
    assert words == (*SPECIALS, "c", "Z", "a", "b")
    words = VocabularyChoice.of(None, 2).make(counts).words
    assert words == (*SPECIALS, "c", "Z", "a", "b", "é")
    assert VocabularyChoice.of(5, 2).make(counts).words == (*SPECIALS, "c", "Z")
    assert len(VocabularyChoice.of(None, None).make(counts)) == 9
    assert counts.covered(Vocabulary([*SPECIALS, "c", "no"])) == 14


def test_words_that_no_file_can_hold_are_left_out(tmp_path: Path) -> None:
    counts = WordCounts()
    odd = ["\x85", "\u3000x", "y\t", "!!!MAXTERMID", "z" * 70_000, "a\tb", "\u200b"]
    counts.add(odd, range(9, 2, -1))
    vocabulary = VocabularyChoice.of(50, None).make(counts)
    assert vocabulary.words == (*SPECIALS, "a\tb", "\u200b")
    (tmp_path / "v").write_bytes(vocabulary.to_bytes())
    assert Vocabulary.read(tmp_path / "v") == vocabulary


def test_rare_words_are_dropped_when_there_are_too_many() -> None:
    counts = WordCounts(most_types=100)
    counts.add((f"often{k}" for k in range(20)), [50] * 20)
    counts.add((f"rare{k}" for k in range(90)), [1] * 90)
    assert counts.pruned == 1
    assert len(counts) == 20
    assert counts["often3"] == 50
    assert counts.n_tokens == 1090


def write_vocabulary(path: Path, *words: str) -> Path:
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


def test_a_file_is_used_as_it_is(tmp_path: Path) -> None:
    counts = counted(a=9, b=5, c=1)
    path = write_vocabulary(tmp_path / "v", "a", "<UNK>", "!!!MAXTERMID", "b", "<S>", "</S>", "q")
    words = VocabularyChoice.of(path, None).make(counts).words  # warnings are errors here
    assert words == ("a", "<UNK>", "b", "<S>", "</S>", "q")


def test_a_file_in_another_order_is_warned_about(tmp_path: Path) -> None:
    letters = "abcdefghijklmnop"
    counts = counted(**{letter: 2 * k + 1 for k, letter in enumerate(letters)})
    alphabet = write_vocabulary(tmp_path / "v", *SPECIALS, *letters)
    with pytest.warns(UserWarning, match="not sorted by falling frequency"):
        VocabularyChoice.of(alphabet, None).make(counts)
    nearly = [*reversed(letters)]
    nearly[3], nearly[5] = nearly[5], nearly[3]
    VocabularyChoice.of(write_vocabulary(tmp_path / "w", *SPECIALS, *nearly), None).make(counts)


@pytest.mark.parametrize(
    ("vocabulary", "min_count", "kind", "message"),
    [
        (3, None, ConfigError, "from 4 to"),
        (None, 0, ConfigError, "min_count=0"),
        ("v", 2, ConfigError, "min_count cannot cut"),
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
        VocabularyChoice.of(vocabulary, min_count)
