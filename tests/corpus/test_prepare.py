"""elmore.corpus.prepare: the same corpus however it is made, and nothing lost."""

from __future__ import annotations

import bz2
import hashlib
import importlib
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from small_models import posix

from elmore.base.journal import JournalFolder
from elmore.corpus.prepare import prepare
from elmore.corpus.prepared import Prepared, read_shard
from elmore.corpus.texts import read_blocks
from elmore.errors import ConfigError, ElmoreError, FormatError, InputError

module = importlib.import_module("elmore.corpus.prepare")


def make_text(n_documents: int, name: str) -> str:
    rng = random.Random(name)
    words = ["the", "cat", "don't", "U.S.", "sat.", '"so"', *(f"w{k}" for k in range(60))]
    documents = (
        "\n".join(" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(1 + k % 7))
        for k in range(n_documents)
    )
    return "\n\n".join(f"{name}{k} {text}" for k, text in enumerate(documents)) + "\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files with documents, one of them compressed, and one without blank lines."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text(make_text(90, "a"))
    (folder / "b.txt.bz2").write_bytes(bz2.compress(make_text(70, "b").encode()))
    (folder / "c.txt").write_text(make_text(60, "c").replace("\n\n", "\n"))
    return [folder / name for name in ("a.txt", "b.txt.bz2", "c.txt")]


def small_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "read_blocks", partial(read_blocks, block_bytes=1500))


@pytest.fixture(scope="module")
def made(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The corpus in several pieces and shards, made by this process alone."""
    out = tmp_path_factory.mktemp("made") / "data"
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch)
        return prepare(corpus, out, workers=1, **OPTIONS)


OPTIONS = {"vocabulary": 40, "heldout": 0.1, "shard_tokens": 900, "seed": 5}


def contents(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def documents(*paths: Path) -> list[str]:
    found = []
    for path in paths:
        shard = read_shard(path)
        for start, end in zip(shard.documents[:-1], shard.documents[1:], strict=True):
            found.append("\n".join(" ".join(shard.sentence(k)) for k in range(start, end)))
    return found


def test_every_document_comes_once(made: Prepared, corpus: list[Path]) -> None:
    training, heldout = documents(*made.shard_paths), documents(made.heldout_path)
    names = Counter(text.split(" ")[0] for text in [*training, *heldout])
    lines = (corpus[2]).read_text().splitlines()
    expected = [f"a{k}" for k in range(90)] + [f"b{k}" for k in range(70)]
    expected += [lines[k].split(" ")[0] for k in range(0, len(lines), 100)]
    assert names == Counter(expected)
    assert not set(training) & set(heldout)
    assert len(training) == made.training.documents
    assert len(heldout) == made.heldout.documents
    assert 8 <= len(heldout) <= 30
    assert any("do n't" in text for text in training)
    assert "every 100 lines of them count as a document" in " ".join(made.notes)


def test_documents_are_shuffled_over_the_files(made: Prepared) -> None:
    assert len(made.shard_paths) > 2
    for path in made.shard_paths:
        assert {"a", "b"} <= {text[0] for text in documents(path)}
    numbers = [int(t[1:].split(" ")[0]) for t in documents(*made.shard_paths) if t[0] == "a"]
    rises = sum(a < b for a, b in pairwise(numbers))
    assert 0.25 < rises / len(numbers) < 0.75


def test_the_folder(made: Prepared) -> None:
    manifest = json.loads((made.folder / "prepared.json").read_text())
    assert set(manifest["files"]) == {p.name for p in made.folder.iterdir()} - {"prepared.json"}
    assert manifest["options"]["seed"] == 5
    assert [Path(file["path"]).name for file in manifest["inputs"]["files"]] == [
        "a.txt",
        "b.txt.bz2",
        "c.txt",
    ]
    counts = (made.folder / "counts.tsv").read_text().splitlines()
    numbers = [int(line.split("\t")[1]) for line in counts]
    assert numbers == sorted(numbers, reverse=True)
    assert sum(numbers) == made.n_tokens
    words = [line.split("\t")[0] for line in counts]
    assert made.vocabulary.words == ("<S>", "</S>", "<UNK>", *words[:37])
    assert not made.folder.with_name("data.partial").exists()
    assert [path.name for path in made.folder.parent.iterdir()] == ["data"]


@pytest.mark.parametrize(("workers", "blocks"), [(1, 1 << 20), (2, 1500), (3, 400)])
def test_workers_and_blocks_do_not_matter(
    made: Prepared,
    corpus: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    blocks: int,
) -> None:
    monkeypatch.setattr(module, "read_blocks", partial(read_blocks, block_bytes=blocks))
    other = prepare(corpus, tmp_path / "other", workers=workers, **OPTIONS)
    if blocks == 1500:
        assert contents(other.folder) == contents(made.folder)
    # Types are numbered as they are met, so other blocks give other bytes for the same documents.
    assert [documents(p) for p in other.shard_paths] == [documents(p) for p in made.shard_paths]
    assert (other.vocabulary, other.training) == (made.vocabulary, made.training)


SLOW = """
import sys, time
from functools import partial
from itertools import pairwise
from pathlib import Path
import importlib
from elmore.corpus.texts import read_blocks
module = importlib.import_module("elmore.corpus.prepare")
prepare = module.prepare

def slowly(*arguments, **options):
    for block in read_blocks(*arguments, block_bytes=1500, **options):
        time.sleep(0.03)
        yield block

module.read_blocks = slowly
prepare(sys.argv[3:], sys.argv[1], workers=int(sys.argv[2]), vocabulary=40, heldout=0.1,
        shard_tokens=900, seed=5)
"""


@posix
@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_and_started_again(
    made: Prepared, corpus: list[Path], tmp_path: Path, workers: str
) -> None:
    out = tmp_path / "data"
    journal = tmp_path / "data.partial" / "journal.jsonl"
    command = [sys.executable, "-c", SLOW, str(out), workers, *map(str, corpus)]
    seen = 0
    for _ in range(2):
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and len(journal.read_bytes().splitlines()) > seen + 3:
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        now = len(journal.read_bytes().splitlines())
        assert now > seen + 3
        seen = now
    with journal.open("ab") as stream:
        stream.write(b'{"size": 1, "tok')  # a torn line
    before = {p.name: p.stat().st_mtime_ns for p in journal.parent.glob("piece*")}
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch)
        patch.setattr(JournalFolder, "clear", lambda self: None)
        prepare(corpus, out, workers=1, **OPTIONS)
    assert contents(out) == contents(made.folder)
    after = {p.name: p.stat().st_mtime_ns for p in journal.parent.glob("piece*")}
    reused = [name for name in before if before[name] == after[name]]
    assert len(reused) >= seen - 1  # all that the journal had


def test_pieces_of_other_texts_are_not_used(tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("a b\n\nc d\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_make_shards", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare([text], tmp_path / "data")
    assert (tmp_path / "data.partial" / "journal.jsonl").exists()
    text.write_text("e f\n\nc d\n")
    made = prepare([text], tmp_path / "data", heldout=0)
    assert sorted(documents(*made.shard_paths)) == ["c d", "e f"]


def test_only_one_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    partial = tmp_path / "data.partial"
    with (
        JournalFolder.opened(partial, module._PieceRecord, module._NAMES, busy=""),
        pytest.raises(ElmoreError, match="being prepared by another process; wait"),
    ):
        prepare([tmp_path / "in.txt"], tmp_path / "data")
    prepare([tmp_path / "in.txt"], tmp_path / "data")


def test_heldout_files(corpus: list[Path], tmp_path: Path) -> None:
    made = prepare(corpus, tmp_path / "data", heldout_files=[corpus[1]], heldout=0.5, min_count=1)
    assert {text[0] for text in documents(made.heldout_path)} == {"b"}
    assert made.heldout.documents == 70
    assert {text[0] for text in documents(*made.shard_paths)} == {*"acw"}
    assert {*"ac"} < {word[0] for word in made.vocabulary}


@pytest.mark.parametrize(("n_documents", "heldout", "expected"), [(9, 0.005, 1), (1, 0.5, 0)])
def test_small_corpora(tmp_path: Path, n_documents: int, heldout: float, expected: int) -> None:
    (tmp_path / "in.txt").write_text(make_text(n_documents, "x"))
    made = prepare([tmp_path / "in.txt"], tmp_path / "data", heldout=heldout)
    assert made.heldout.documents == expected
    assert made.training.documents == n_documents - expected
    assert (made.heldout_path is None) == (expected == 0)
    assert ("nothing is held out" in made.notes) == (expected == 0)


def test_unknown_words_have_training_examples(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat sat\nthe dog sat\nthe cow ran\n")
    made = prepare([tmp_path / "in.txt"], tmp_path / "a")
    assert made.vocabulary.words[3:] == ("the", "sat")
    assert made.training.oov_rate == pytest.approx(4 / 9)
    assert "not in the vocabulary: 4, 44.4% of the tokens" in made.notes[0]
    made = prepare([tmp_path / "in.txt"], tmp_path / "b", min_count=1)
    assert made.training.oov_rate == 0


BAD = [
    ({"heldout": 1.0}, ConfigError, "heldout=1.0"),
    ({"seed": -1}, ConfigError, "seed=-1"),
    ({"shard_tokens": 0}, ConfigError, "shard_tokens=0"),
    ({"workers": 0}, ConfigError, "workers=0"),
    ({"tokenizer": "x"}, ConfigError, "tokenizer='x' is unknown"),
    ({"inputs": []}, InputError, "no input files"),
    ({"inputs": ["*.nothing"]}, InputError, "matches no file"),
    ({"inputs": ["empty.txt"]}, InputError, "has no tokens"),
    ({"inputs": ["latin.txt", "good.txt"]}, InputError, r"latin\.txt:2: invalid UTF-8"),
    ({"inputs": ["good.txt"], "heldout_files": ["good.txt"]}, InputError, "no input files"),
    ({"vocabulary": "words.txt"}, FormatError, "lacks <S>, </S>, <UNK>"),
    ({"out": "no/folder"}, ConfigError, "create it first"),
    ({"out": "good.txt"}, ConfigError, "not a folder"),
    ({"out": "full"}, ConfigError, "did not write"),
    ({"out": "full", "overwrite": True}, ConfigError, "did not write"),
    ({"out": "taken"}, ConfigError, r"taken\.partial' holds files that elmore did not write"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), BAD)
def test_bad_input_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes, kind, message
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in (
        ("good.txt", b"a b\n"),
        ("latin.txt", b"good\nb\xe4d\n"),
        ("empty.txt", b" \n\n"),
        ("words.txt", b"a\nb\n"),
        ("full/mine.txt", b"x"),
        ("taken.partial/mine.txt", b"x"),
    ):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    arguments = {"inputs": ["good.txt"], "out": "data", **changes}
    inputs, out = arguments.pop("inputs"), arguments.pop("out")
    with pytest.raises(kind, match=message) as caught:
        prepare(inputs, out, **arguments)
    assert "\n" not in str(caught.value)
    assert Path("full/mine.txt").read_bytes() == b"x"
    assert not list(Path().glob("data*"))


def test_overwriting(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a b\n")
    old = prepare([tmp_path / "in.txt"], tmp_path / "data")
    with pytest.raises(ConfigError, match="--force"):
        prepare([tmp_path / "in.txt"], tmp_path / "data", seed=1)
    (tmp_path / "in.txt").write_text("c d\n")
    new = prepare([tmp_path / "in.txt"], tmp_path / "data", overwrite=True)
    assert old.digest != new.digest
    assert documents(*new.shard_paths) == ["c d"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "in.txt"]


def test_a_function_of_a_module_splits_the_text(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("It 'fell down' .\n" * 50)
    made = prepare([tmp_path / "in.txt"], tmp_path / "out", tokenizer=shlex.split, workers=1)
    assert "fell down" in made.vocabulary
    assert (made.tokenizer, made.segmenter) == ("spaces", "shlex:split")
    with pytest.raises(ConfigError, match="cannot be sent to other processes"):
        prepare([tmp_path / "in.txt"], tmp_path / "no", tokenizer=lambda text: text.split())
