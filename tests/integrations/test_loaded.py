"""A model is loaded once in a process, and again when its files or the process change."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import make_checkpoint, make_options, posix

from elmore import Elmo
from elmore.embedding.load import ModelPath
from elmore.errors import ConfigError, ModelNotFound
from elmore.formats.checkpoint import Checkpoint
from elmore.integrations import loaded
from elmore.integrations.loaded import load_once


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was really loaded, in a process that has loaded nothing yet."""
    calls: list[object] = []
    read = loaded.read_checkpoint

    def counted(model: ModelPath) -> Checkpoint:
        calls.append(model)
        return read(model)

    monkeypatch.setattr(loaded, "read_checkpoint", counted)
    loaded._model.cache_clear()
    return calls


def test_the_same_model_is_loaded_once(loads: list[object], tiny_folder: Path) -> None:
    first = load_once(tiny_folder, threads=1)
    assert load_once(str(tiny_folder), threads=1) is first
    assert loads == [str(tiny_folder)]
    assert load_once(tiny_folder, threads=1, precision="int8") is not first
    assert len(loads) == 2


def test_changed_files_are_another_model(
    loads: list[object], tiny_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    shutil.copytree(tiny_folder, path)
    before = load_once(path, threads=1)
    other = make_checkpoint(tmp_path / "other", make_options(), seed=8)
    Elmo(other).save(path, overwrite=True)
    after = load_once(path, threads=1)
    assert after is not before
    sentence = [["It", "fell"]]
    expected = Elmo(other).embed(sentence, tokenized=True)[0]
    np.testing.assert_allclose(after.embed(sentence, tokenized=True)[0], expected, atol=1e-5)


def test_few_models_are_kept(loads: list[object], tiny_folder: Path, tmp_path: Path) -> None:
    folders = [tmp_path / str(k) for k in range(4)]
    for folder in folders:
        shutil.copytree(tiny_folder, folder)
        load_once(folder, threads=1)
    load_once(folders[3], threads=1)
    assert len(loads) == 4
    load_once(folders[0], threads=1)  # the one that was used longest ago
    assert len(loads) == 5


def test_what_cannot_be_named_is_refused(tiny_elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match="name it by a path"):
        load_once(tiny_elmo)  # type: ignore[arg-type]
    with pytest.raises(ModelNotFound, match="no-such-model"):
        load_once("no-such-model")


def _in_child(folder: Path, sender: multiprocessing.connection.Connection) -> None:
    elmo = load_once(folder, threads=2)
    vectors = [load_once(folder, threads=2).embed([["It", "fell"] * 2000], tokenized=True)[0]]
    sender.send((elmo is load_once(folder, threads=2), vectors[0]))
    sender.close()


@posix
def test_a_forked_process_loads_its_own_and_does_not_wait_for_dead_threads(
    tiny_folder: Path,
) -> None:
    elmo = load_once(tiny_folder, threads=2)
    [expected] = elmo.embed([["It", "fell"] * 2000], tokenized=True)  # its threads have started
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_in_child, args=(tiny_folder, sender)
    )
    child.start()
    try:
        assert receiver.poll(60), "the forked process hangs"
        once, vectors = receiver.recv()
    finally:
        child.kill()
        child.join()
    assert once
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
