"""Frozen layers on disk: right, whole, bounded, and never of another model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import SENTENCES, make_checkpoint, make_options

from elmore import Elmo
from elmore.embedding import layer_cache
from elmore.embedding.layer_cache import LayerCache
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


def assert_close(half: np.ndarray, values: np.ndarray) -> None:
    """As near as float16 is; another batch may round the last bit of float32 otherwise."""
    np.testing.assert_allclose(half, values, rtol=1e-3, atol=1e-5)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_the_same_layers_as_without(elmo, tmp_path):
    expected = [layers.values for layers in elmo.layers(ROWS, tokenized=True)]
    for _ in range(2):  # computed, then read
        progress = Count()
        cached = LayerCache(elmo, tmp_path / "deep" / "cache").layers(ROWS, progress=progress)
        assert progress.total == len(cached) == len(ROWS)
        assert cached.lengths.tolist() == [len(row) for row in ROWS]
        for k, values in enumerate(expected):
            assert cached[k].dtype == np.float32
            assert_close(cached[k], values)
        assert [cached[k].shape for k in (2, 3)] == [(3, 0, 32), expected[3].shape]
        assert cached[-1].shape == expected[-1].shape
    assert elmo.computed == len(ROWS)
    assert len(files(tmp_path / "deep" / "cache")) == 1


def test_ways_to_read(elmo, tmp_path, monkeypatch):
    monkeypatch.setattr(layer_cache, "_READ_TOKENS", 20)
    cached = LayerCache(elmo, tmp_path).layers(ROWS)
    every = np.concatenate([values.transpose(1, 0, 2) for values in cached])
    assert cached.n_tokens == len(every)
    for choice, expected in [("top", every[:, 2]), (1, every[:, 1]), ("mean", every.mean(1))]:
        parts = list(cached.vectors(choice))
        assert len(parts) > 3
        np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-6)
    wanted = [(3, 1), (0, 0), (45, 2), (3, 0)]
    tokens = cached.tokens(*np.array(wanted).T)
    for row, (sentence, position) in zip(tokens, wanted, strict=True):
        np.testing.assert_array_equal(row, cached[sentence][:, position])


def test_a_file_belongs_to_one_model_and_one_text(elmo, tiny_checkpoint, tmp_path):
    models = [
        elmo,
        Counting(tiny_checkpoint, threads=1, start="warm"),
        Counting(make_checkpoint(tmp_path / "other", make_options(), seed=1), threads=1),
        Counting(make_checkpoint(tmp_path / "clip", make_options(cell_clip=2)), threads=1),
    ]
    assert len({model.digest for model in models}) == len(models)
    assert Elmo(tiny_checkpoint, threads=2).digest == elmo.digest
    folder = tmp_path / "cache"
    for model in models:
        for rows in (ROWS[:4], [[" ".join(ROWS[0])], *ROWS[1:4]]):
            cached = LayerCache(model, folder).layers(rows)
            assert_close(cached[0], model.layers(rows[:1], tokenized=True)[0].values)
    assert len(files(folder)) == 2 * len(models)
    assert len(LayerCache(elmo, tmp_path / "none").layers([[], []])) == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("harm", [lambda d: d[:-7], lambda d: b"", lambda d: b"\xff" * 99 + d[99:]])
def test_a_damaged_file_is_computed_again(elmo, tmp_path, harm):
    LayerCache(elmo, tmp_path).layers(ROWS)
    (path,) = files(tmp_path)
    path.write_bytes(harm(path.read_bytes()))
    before = elmo.computed
    cached = LayerCache(elmo, tmp_path).layers(ROWS)
    assert elmo.computed > before
    assert_close(cached[1], elmo.layers([ROWS[1]], tokenized=True)[0].values)


def test_nothing_is_left_of_a_text_that_fails(elmo, tmp_path):
    weights = dict(elmo.checkpoint.weights)
    for name in weights:
        weights[name] = np.full_like(weights[name], np.nan)
    broken = Elmo(elmo.checkpoint.with_weights(weights), threads=1)
    with pytest.raises(ElmoreError):
        LayerCache(broken, tmp_path).layers(ROWS)
    with pytest.raises(ElmoreError, match=r"holds 1e\+05, which float16 cannot"):
        layer_cache._half(np.full((1, 1, 1), 1e5, np.float32))
    assert files(tmp_path) == []


def test_errors(elmo, tmp_path):
    with pytest.raises(ConfigError, match="is a string, not a list of tokens"):
        LayerCache(elmo, tmp_path).layers(["It fell ."])
    (tmp_path / "file").write_text("")
    with pytest.raises(ElmoreError, match="file"):
        LayerCache(elmo, tmp_path / "file").layers(ROWS)
