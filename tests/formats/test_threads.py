"""A large model is packed in several threads: its weights must be those of the file."""

from __future__ import annotations

import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from small_models import DATA, make_checkpoint, make_options

from elmore.compute.matrix import Stored
from elmore.config import Precision, weight_shapes
from elmore.embedding import engine
from elmore.embedding.load import read_checkpoint
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.sources import Source
from elmore.options import Compute

LOADS = 50


class Slow:
    """A stream that lets other threads run between `seek` and `read`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def seek(self, offset: int, whence: int = 0) -> int:
        result = self._stream.seek(offset, whence)
        time.sleep(0.0001)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Slow:
        return self

    def __exit__(self, *details: object) -> None:
        self._stream.close()


def packed(folder: Path, path: Path) -> Path:
    """The files of a folder in an archive whose kind is that of its name."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in folder.rglob("*.*"):
                archive.write(file, file.name)
    else:
        with tarfile.open(path, "w:gz") as tar:
            for file in folder.rglob("*.*"):
                tar.add(file, file.name)
    return path


def hdf5(folder: Path) -> Path:
    make_checkpoint(folder / "model", make_options())
    return folder / "model"


def ours(precision: Precision) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        checkpoint = make_checkpoint(folder / "pair", make_options())
        elmore_folder.write(checkpoint, folder / "model", precision=precision)
        return folder / "model"

    return make


def copied(name: str) -> Callable[[Path], Path]:
    return lambda folder: shutil.copytree(DATA / name, folder / "model")


def tagger(*, new: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "model" / "weights.th"
        path.parent.mkdir()
        with tarfile.open(DATA / "allennlp_tagger.tar.gz") as archive:
            stream = archive.extractfile("weights.th")
            assert stream is not None
            path.write_bytes(stream.read())
        state = torch.load(path, weights_only=True)
        torch.save(state, path, _use_new_zipfile_serialization=new)
        return path.parent

    return make


MODELS: dict[str, Callable[[Path], Path]] = {
    "hdf5": hdf5,
    "float32": ours("float32"),
    "float16": ours("float16"),
    "int8": ours("int8"),
    "weights.th": tagger(new=True),
    "old weights.th": tagger(new=False),
    "manylangs": copied("manylangs_both"),
    "old manylangs": copied("manylangs_characters_old"),
    "tensorflow": copied("tf1_characters"),
    "tf-hub": copied("tf1_hub"),
}


def digest(numbers: Stored) -> list[bytes]:
    return [np.ascontiguousarray(part).tobytes() for part in numbers if part is not None]


@pytest.mark.parametrize("suffix", ["", ".zip", ".tar.gz"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_file(
    name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[name](tmp_path)
    if suffix:
        model = packed(model, tmp_path / f"model{suffix}")
    original = read_checkpoint(model)
    expected = {
        weight: digest(original.numbers(weight, original.precision))
        for weight in weight_shapes(original.config)
    }
    seen: dict[str, list[bytes]] = {}
    numbers = Checkpoint.numbers

    def recorded(self: Checkpoint, weight: str, precision: Precision) -> Stored:
        found = numbers(self, weight, precision)
        seen[weight] = digest(found)
        return found

    opened = Source.open
    monkeypatch.setattr(Source, "open", lambda *a: Slow(opened(*a)))
    monkeypatch.setattr(Checkpoint, "numbers", recorded)
    monkeypatch.setattr(engine, "_LARGE", 0)
    for _ in range(LOADS):
        seen.clear()
        engine.Engine(read_checkpoint(model), Compute(threads=2))
        assert seen == expected
