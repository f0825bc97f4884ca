"""elmore.corpus.prepared: the folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore.corpus.prepare import prepare
from elmore.corpus.prepared import Prepared
from elmore.errors import FormatError

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
    numbers = made.counts_of(made.vocabulary)
    counts = dict(zip(made.vocabulary, numbers.tolist(), strict=True))
    n, sentences = made.training.documents, made.n_sentences
    assert counts["<S>"] == counts["</S>"] == sentences == 2 * n
    assert counts["the"] == counts["."] == 2 * n
    assert counts["saw"] == n
    assert counts["<UNK>"] == 2 * n  # w0 … w29, and what is spelled like it
    assert sum(counts.values()) == made.n_tokens + 2 * sentences
    assert made.training.oov_rate == pytest.approx(2 / 10)
    assert numbers.dtype == np.int64


def change(data: Path, **changes: Any) -> None:
    manifest = json.loads((data / "prepared.json").read_text())
    (data / "prepared.json").write_text(json.dumps({**manifest, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "does not belong to a prepared corpus"),
        ({"version": 99}, "upgrade elmore"),
        ({"version": True}, "version"),
        ({"files": {}}, "lacks|do not agree"),
        ({"files": {"../x": {"size": 1, "sha256": ""}}}, "names the file"),
        ({"files": 5}, "files=5; use an object"),
        ({"shards": []}, "do not agree"),
        ({"shards": [{}]}, r"shards\[0\]\.file is missing"),
        ({"heldout": None}, "do not agree"),
        ({"training": {"oov": 0}}, "shards and counts do not agree"),
        ({"training": {"tokens": "many"}}, "tokens='many'; use a whole number"),
        ({"tokenizer": "x"}, "tokenizer"),
        ({"notes": None}, "notes is missing"),
    ],
)
def test_a_bad_manifest(data: Path, changes: dict[str, Any], message: str) -> None:
    change(data, **changes)
    with pytest.raises(FormatError, match=message):
        Prepared.open(data)


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


def flip_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("name", ["vocab.txt", "counts.tsv"])
def test_damage_of_words_is_found_when_the_folder_is_opened(data: Path, name: str) -> None:
    # A changed word or count would train another model without any error.
    flip_last_byte(data / name)
    with pytest.raises(FormatError, match=f"{name}' differs from its SHA-256"):
        Prepared.open(data)


def test_damage_of_a_shard_is_found_when_it_is_first_read(data: Path) -> None:
    prepared = Prepared.open(data)
    for path in (prepared.shard_paths[0], prepared.heldout_path):
        flip_last_byte(path)
    opened = Prepared.open(data)
    for path in (opened.shard_paths[0], opened.heldout_path):
        with pytest.raises(FormatError, match="differs from its SHA-256"):
            opened.read(path)
    assert opened.read(opened.shard_paths[1]).n_tokens == opened.shards[1].tokens
