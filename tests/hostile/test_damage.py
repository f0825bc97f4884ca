"""Every truncation and every damaged byte of small foreign models: an error, or the same model.

What can be told: TensorFlow's arrays and index carry CRC-32C, torch's zips CRC-32, gzip its own.
torch's older files carry none for their numbers, and text files (options, dictionaries) none at
all: of those, only what describes the tensors is held to the rule.

Here some bytes are taken; ELMORE_DAMAGE_STEP=1 takes every byte of every file.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_models import DATA

from elmore.embedding.load import read_checkpoint
from elmore.errors import ElmoreError

from .attack import check_message


def contents(model: Path) -> list[Any]:
    """All that a model computes with."""
    checkpoint = read_checkpoint(model)
    found: list[Any] = [checkpoint.config, checkpoint.vocabulary, checkpoint.mixes]
    found += [weight.tobytes() for _, weight in checkpoint.checked_weights()]
    if checkpoint.softmax is not None:
        found += [checkpoint.softmax.weight.tobytes(), checkpoint.softmax.bias.tobytes()]
    return found


def damaged(data: bytes, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """One bit of a byte, all bits of a byte, and cuts."""
    for at in range(0, len(data), step):
        for change in (1 << at % 8, 0xFF):
            yield f"byte {at} ^ {change}", data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]
    for at in range(0, len(data), step):
        yield f"cut at {at}", data[:at]
    for more in (1, 64):
        yield f"{more} more bytes", data + bytes(more)


def check(model: Path, file: Path, step: int = 1, numbers: range = range(0)) -> tuple[int, int]:
    """Damage a file; -> how often it was refused, and how often it made no difference."""
    step = int(os.environ.get("ELMORE_DAMAGE_STEP", step))
    before, data = contents(model), file.read_bytes()
    refused = same = 0
    for what, bad in damaged(data, step):
        file.unlink()  # never in place: an open model may still read the old one
        file.write_bytes(bad)
        if what.startswith("byte") and int(what.split()[1]) in numbers:
            continue
        try:
            after = contents(model)
        except ElmoreError as error:
            check_message(error)
            refused += 1
        else:
            assert after == before, f"{file.name}: {what} changed the model silently"
            same += 1
            assert not what.startswith("cut") or file.suffix == ".gz", what
    return refused, same


def test_the_index_of_a_tensorflow_checkpoint(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "tf1_words_one_layer", tmp_path / "model")
    refused, same = check(folder, folder / "model.ckpt-7.index", step=3)
    assert refused > 10 * same  # zeros before the end of the file may change
    assert refused > 100


@pytest.mark.parametrize("shard", [0, 1])
def test_the_data_of_a_tensorflow_checkpoint(shard: int, tmp_path: Path) -> None:
    """Bytes of the optimiser's sums may change: they are not read."""
    folder = shutil.copytree(DATA / "tf1_words_one_layer", tmp_path / "model")
    refused, same = check(folder, folder / f"model.ckpt-7.data-0000{shard}-of-00002", step=67)
    assert refused > 5
    assert same < refused


def test_the_zips_of_torch(tmp_path: Path) -> None:
    """Only dates, alignment and the like may change without a word."""
    folder = shutil.copytree(DATA / "manylangs_words", tmp_path / "model")
    refused, same = check(folder, folder / "token_embedder.pkl", step=29)
    assert refused > same


def test_the_older_files_of_torch(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "manylangs_characters_old", tmp_path / "model")
    file = folder / "token_embedder.pkl"
    data = file.read_bytes()
    first = data.rindex(b"e.") + 2  # the list of storages ends the pickles
    refused, _ = check(folder, file, step=13, numbers=range(first, len(data)))
    assert refused > 100


def test_an_archive_of_allennlp(tmp_path: Path) -> None:
    """Unpacked it is a tar without checksums for its files; packed, gzip has one."""
    path = tmp_path / "model.tar.gz"
    shutil.copy(DATA / "allennlp_tagger.tar.gz", path)
    refused, same = check(path, path, step=197)
    assert refused > same


def test_a_tar_inside_out(tmp_path: Path) -> None:
    with tarfile.open(DATA / "allennlp_tagger.tar.gz") as archive:
        stream = archive.extractfile("weights.th")
        assert stream is not None
        data = stream.read()
    path = tmp_path / "weights.th"
    path.write_bytes(data)
    first = data.rindex(b"e.") + 2
    check(path, path, step=151, numbers=range(first, len(data)))
