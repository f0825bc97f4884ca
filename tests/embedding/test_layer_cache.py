"""Frozen layers on disk: right, whole, bounded, and never of another model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import SENTENCES, make_checkpoint, make_options

from elmore import Elmo
from elmore.embedding import layer_cache
from elmore.embedding.layer_cache import LayerCache, make_room, model_digest
from elmore.errors import ConfigError, ElmoreError

ROWS = [*SENTENCES, *([f"word{k}", "stands", f"here{k % 3}"] for k in range(40)), SENTENCES[0]]


class Count:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.total = 0

    def update(self, n: int) -> None:
        self.total += n

    def close(self) -> None: ...


class Counting(Elmo):
    """Knows how many sentences were computed."""

    computed = 0

    def pipe(self, sentences, **settings):
        for layers in super().pipe(sentences, **settings):
            self.computed += 1
            yield layers


@pytest.fixture
def elmo(tiny_checkpoint) -> Counting:
    return Counting(tiny_checkpoint, threads=1)


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(layer_cache, "_BLOCK_BYTES", 4000)


def assert_close(half: np.ndarray, values: np.ndarray) -> None:
    """As near as float16 is; another batch may round the last bit of float32 otherwise."""
    np.testing.assert_allclose(half, values, rtol=1e-3, atol=1e-5)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@pytest.mark.usefixtures("small_blocks")
def test_the_same_layers_as_without(elmo, tmp_path):
    expected = [layers.values for layers in elmo.layers(ROWS, tokenized=True)]
    for _ in range(2):  # computed, then read
        cached = LayerCache(elmo, tmp_path / "deep" / "cache").layers(ROWS)
        assert len(cached) == len(ROWS)
        assert cached.lengths.tolist() == [len(row) for row in ROWS]
        for k, values in enumerate(expected):
            assert cached[k].dtype == np.float32
            assert_close(cached[k], values)
        assert [a.shape for a in cached[2:4]] == [(3, 0, 32), expected[3].shape]
        assert cached[-1].shape == expected[-1].shape
    # Different sentences with words in them, each once.
    assert elmo.computed == len({tuple(row) for row in ROWS if row})
    assert len(files(tmp_path / "deep" / "cache")) > 3


@pytest.mark.usefixtures("small_blocks")
def test_ways_to_read(elmo, tmp_path, monkeypatch):
    monkeypatch.setattr(layer_cache, "_READ_TOKENS", 20)
    cached = LayerCache(elmo, tmp_path).layers(ROWS)
    every = np.concatenate([values.transpose(1, 0, 2) for values in cached])
    assert cached.n_tokens == len(every)
    for choice, expected in [("top", every[:, 2]), (1, every[:, 1]), ("mean", every.mean(1))]:
        pieces = list(cached.vectors(choice))
        assert len(pieces) > 3
        np.testing.assert_allclose(np.concatenate(pieces), expected, atol=1e-6)
    wanted = [(3, 1), (0, 0), (45, 2), (3, 0)]
    tokens = cached.tokens(*np.array(wanted).T)
    for row, (sentence, place) in zip(tokens, wanted, strict=True):
        np.testing.assert_array_equal(row, cached[sentence][:, place])


def test_a_part_of_a_text_needs_nothing_new(elmo, tmp_path):
    cache, progress = LayerCache(elmo, tmp_path), Count()
    cache.layers(ROWS, progress=progress)
    assert progress.total == len(ROWS)
    before, progress = elmo.computed, Count()
    LayerCache(elmo, tmp_path).layers(ROWS[5:20:2], progress=progress)
    assert (elmo.computed, progress.total) == (before, 8)
    cache.layers([*ROWS, ["something", "new"], ["something", "new"]], progress=progress)
    assert (elmo.computed, progress.total) == (before + 1, 8 + len(ROWS) + 2)
    assert len(LayerCache(elmo, tmp_path / "none").layers([])) == 0
    assert not (tmp_path / "none").exists()


def test_another_model_never_answers(elmo, tiny_checkpoint, tmp_path):
    other = make_checkpoint(tmp_path / "other", make_options(), seed=1)
    models = [
        elmo,
        Counting(tiny_checkpoint, threads=1, start="warm"),
        Counting(other, threads=1),
        Counting(make_checkpoint(tmp_path / "clip", make_options(cell_clip=2)), threads=1),
    ]
    digests = [model_digest(model) for model in models]
    assert len(set(digests)) == len(models)
    assert model_digest(Elmo(tiny_checkpoint, threads=2)) == digests[0]
    for model in models:
        cached = LayerCache(model, tmp_path / "cache").layers(ROWS[:4])
        assert model.computed == 3
        assert_close(cached[0], model.layers(ROWS[:4], tokenized=True)[0].values)
    # A block that says it belongs to this model by its name alone is left out.
    folder = tmp_path / "cache"
    mine, theirs = (next(folder.glob(f"*{digest[:16]}*")) for digest in (digests[0], digests[2]))
    theirs.rename(mine)
    before = elmo.computed
    cached = LayerCache(elmo, folder).layers(ROWS[:4])
    assert elmo.computed == before + 3
    assert_close(cached[0], elmo.layers(ROWS[:1], tokenized=True)[0].values)


@pytest.mark.parametrize("harm", [lambda d: d[:-7], lambda d: b"", lambda d: b"\xff" * 99 + d[99:]])
def test_a_damaged_block_is_computed_anew(elmo, tmp_path, harm):
    LayerCache(elmo, tmp_path).layers(ROWS)
    (block,) = files(tmp_path)
    block.write_bytes(harm(block.read_bytes()))
    before = elmo.computed
    cached = LayerCache(elmo, tmp_path).layers(ROWS)
    assert elmo.computed > before
    assert_close(cached[1], elmo.layers([ROWS[1]], tokenized=True)[0].values)
    assert block not in files(tmp_path)


KILLED = """
import os, signal, sys
from elmore import Elmo
from elmore.embedding import layer_cache
layer_cache._BLOCK_BYTES = 4000
write, written = layer_cache.write_safetensors, []
def half(path, tensors, metadata):
    written.append(1)
    if len(written) == 4:
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, tensors, metadata)
layer_cache.write_safetensors = half
rows = [[f"word{k}", "stands", f"here{k % 3}"] for k in range(40)]
layer_cache.LayerCache(Elmo.load(sys.argv[1], threads=1), sys.argv[2]).layers(rows)
"""


@pytest.mark.usefixtures("small_blocks")
def test_a_killed_writer_loses_the_block_in_hand(tiny_folder, tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, tiny_folder, tmp_path])
    assert done.returncode == -signal.SIGKILL
    whole = [path for path in files(tmp_path) if path.suffix == ".safetensors"]
    assert len(whole) == 3
    assert len(files(tmp_path)) == 4  # and the half
    rows = [[f"word{k}", "stands", f"here{k % 3}"] for k in range(40)]
    elmo = Counting(Elmo.load(tiny_folder).checkpoint, threads=1)
    cached = LayerCache(elmo, tmp_path).layers(rows)
    assert 0 < elmo.computed < 40
    expected = elmo.layers(rows, tokenized=True)
    for values, layers in zip(cached, expected, strict=True):
        assert_close(values, layers.values)
    assert all(path.suffix == ".safetensors" for path in files(tmp_path))


@pytest.mark.usefixtures("small_blocks")
def test_the_folder_is_bounded_and_the_oldest_go(elmo, tmp_path):
    def texts(name: str) -> list[list[str]]:
        return [[f"{name}{k}", "stands", "here"] for k in range(30)]

    size = 30 * 3 * 3 * 32 * 2
    room = int(2.6 * size)
    caches = {}
    for number, name in enumerate("abc"):
        caches[name] = LayerCache(elmo, tmp_path, max_bytes=room).layers(texts(name))
        assert sum(path.stat().st_size for path in files(tmp_path)) <= room
        for path in files(tmp_path):
            if path.stat().st_mtime > 1e6:
                os.utime(path, (number, number))
    # It is gone, but stays readable here.
    assert_close(caches["a"][0], elmo.layers(texts("a"), tokenized=True)[0].values)
    computed = elmo.computed
    LayerCache(elmo, tmp_path, max_bytes=room).layers(texts("c"))
    assert elmo.computed == computed
    LayerCache(elmo, tmp_path, max_bytes=room).layers(texts("a"))
    assert elmo.computed > computed
    assert sum(path.stat().st_size for path in files(tmp_path)) <= room


def test_make_room_touches_nothing_else(elmo, tmp_path):
    LayerCache(elmo, tmp_path).layers(ROWS)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "uses-1").mkdir()
    (tmp_path / "uses-1" / "vectors.npy").write_bytes(b"x" * 100)
    make_room(tmp_path, 0)
    assert [path.name for path in files(tmp_path)] == ["notes.txt"]
    make_room(tmp_path / "nowhere", 0)


def test_errors(elmo, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"need .* GB but the cache may hold .*; raise max_bytes"):
        LayerCache(elmo, tmp_path, max_bytes=1000).layers(ROWS)
    with pytest.raises(ConfigError, match="max_bytes=0 leaves no room"):
        LayerCache(elmo, tmp_path, max_bytes=0)
    with pytest.raises(ConfigError, match="read only once; pass a list"):
        LayerCache(elmo, tmp_path).layers(iter(ROWS))
    with pytest.raises(ConfigError, match="a string where a list of tokens belongs"):
        LayerCache(elmo, tmp_path).layers(["It fell ."])
    with pytest.raises(ElmoreError, match=r"holds 1e\+05, which float16 cannot"):
        layer_cache._half(np.full((1, 1, 1), 1e5, np.float32))
    with pytest.raises(ElmoreError, match="holds nan"):
        layer_cache._half(np.full((1, 1, 1), np.nan, np.float32))
    (tmp_path / "file").write_text("")
    with pytest.raises(ElmoreError, match="file"):
        LayerCache(elmo, tmp_path / "file").layers(ROWS)

    class Changing:
        calls = 0

        def __iter__(self):
            self.calls += 1
            return iter([[f"word{self.calls}"]])

    with pytest.raises(ConfigError, match="changed while they were read"):
        LayerCache(elmo, tmp_path / "changing").layers(Changing())
