"""Each writer by itself: layout, refusals, nothing partial."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmore.embedding.vector_files import (
    VECTOR_FORMATS,
    Record,
    Settings,
    write_vectors,
)
from elmore.errors import ConfigError


def records(n: int, shape: tuple[int, ...] = (2, 4)) -> list[Record]:
    generator = np.random.default_rng(0)
    return [
        Record(f"line {k}", ("a", "b"), None, generator.normal(size=shape).astype(np.float32))
        for k in range(n)
    ]


def write(name: str, path: Path, items: Iterable[Record], **settings) -> Path:
    if name == "npy" and "shape" not in settings:
        settings["shape"] = (4,)
        items = (item._replace(values=item.values[0]) for item in items)
    settings.setdefault("shape", (None, 4))
    write_vectors(name, path, items, Settings(**settings))
    return path


def test_jsonl_float16_is_exact(tmp_path):
    items = records(5)
    lines = write("jsonl", tmp_path / "x", items, dtype="float16").read_text().splitlines()
    for line, record in zip(lines, items, strict=True):
        found = np.asarray(json.loads(line)["vectors"], np.float16)
        np.testing.assert_array_equal(found, record.values.astype(np.float16))


def test_npz_and_hdf5_hold_the_very_values(tmp_path):
    items = records(12, (3, 2, 4))
    archive = np.load(write("npz", tmp_path / "x.npz", items, shape=(3, None, 4)))
    with archive, h5py.File(write("hdf5", tmp_path / "x.hdf5", items, shape=(3, None, 4))) as file:
        assert archive.files == [str(k) for k in range(12)]
        for k, record in enumerate(items):
            np.testing.assert_array_equal(archive[str(k)], record.values)
            np.testing.assert_array_equal(file[str(k)][...], record.values)


@pytest.mark.parametrize("name", VECTOR_FORMATS)
def test_same_input_same_bytes(tmp_path, name):
    first = write(name, tmp_path / "a", records(5)).read_bytes()
    assert write(name, tmp_path / "b", records(5)).read_bytes() == first


def test_hdf5_can_be_read_by_old_libraries(tmp_path):
    data = write("hdf5", tmp_path / "x", records(1)).read_bytes()
    assert data[:8] == b"\x89HDF\r\n\x1a\n"
    assert data[8] == 2  # the superblock of HDF5 1.8


def test_hdf5_index_keeps_the_last_of_equal_lines(tmp_path):
    values = np.zeros((1, 4), np.float32)
    texts = ["a", " a ", "b / c", 'q"\\\0\u2028.', "", "a"]
    items = [Record(text, (), None, values) for text in texts]
    with h5py.File(write("hdf5", tmp_path / "x", items)) as file:
        index = json.loads(file["sentence_to_index"][0])
    assert index == {"b / c": "2", 'q"\\\0\u2028.': "3", "": "4", "a": "5"}


def test_hdf5_index_of_very_many_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("elmore.embedding.hdf5_file._MAX_LINES", 3)
    with h5py.File(write("hdf5", tmp_path / "a", records(3))) as file:
        assert "sentence_to_index" in file
    with pytest.warns(UserWarning, match="use the numbers of the lines"):
        write("hdf5", tmp_path / "b", records(5))
    with h5py.File(tmp_path / "b") as file:
        assert set(file) == set("01234")
    with h5py.File(write("hdf5", tmp_path / "c", records(2), sentence_index=False)) as file:
        assert set(file) == set("01")


@pytest.mark.parametrize("name", VECTOR_FORMATS)
def test_float16_that_overflows_is_refused(tmp_path, name):
    big = Record("big", ("a",), None, np.full((1, 4), 7e4, np.float32))
    with pytest.raises(ConfigError, match="store float32"):
        write(name, tmp_path / "x", [big], dtype="float16")
    write(name, tmp_path / "x", [big])


@pytest.mark.parametrize("name", VECTOR_FORMATS)
def test_an_interrupt_leaves_nothing(tmp_path, name):
    def interrupted():
        yield records(1)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(name, tmp_path / "x", interrupted())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", VECTOR_FORMATS)
def test_an_old_file_stays_unless_asked(tmp_path, name):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(ConfigError, match="--force"):
        write(name, path, records(1))
    assert path.read_text() == "old"
    write(name, path, records(1), overwrite=True)
    assert path.read_bytes() != b"old"


@pytest.mark.parametrize("name", [name for name in VECTOR_FORMATS if name != "jsonl"])
def test_binary_formats_need_a_file(name):
    with pytest.raises(ConfigError, match="pass -o FILE"):
        write_vectors(name, None, [], Settings(shape=(None, 4)))


def test_pooled_npz_is_one_matrix(tmp_path):
    items = records(7, (4,))
    with np.load(write("npz", tmp_path / "x", items, shape=(4,), dtype="float16")) as found:
        assert found.files == ["vectors"]
        expected = np.stack([record.values for record in items]).astype(np.float16)
        np.testing.assert_array_equal(found["vectors"], expected)


def test_jsonl_of_every_shape(tmp_path):
    for k, shape in enumerate([(5, 4), (3, 5, 4), (0, 4), (3, 0, 4), (4,), (3, 4)]):
        [item] = records(1, shape)
        pooled = len(shape) == 1 or shape == (3, 4)
        form = shape if pooled else (*shape[:-2], None, 4)
        [line] = write("jsonl", tmp_path / str(k), [item], shape=form).read_text().splitlines()
        [found] = [value for key, value in json.loads(line).items() if key != "tokens"]
        np.testing.assert_allclose(np.asarray(found).reshape(shape), item.values, rtol=1e-6)
        assert line.count("[") == 1 + sum(
            np.prod(shape[:n], dtype=int) for n in range(len(shape))
        )  # the tokens, and every level of the numbers


def test_records_of_a_later_part_keep_their_numbers(tmp_path):
    with np.load(write("npz", tmp_path / "x", records(2), first=40)) as found:
        assert found.files == ["40", "41"]
    with h5py.File(write("hdf5", tmp_path / "y", records(2), first=40)) as file:
        assert set(file) == {"40", "41", "sentence_to_index"}
        assert json.loads(file["sentence_to_index"][0]) == {"line 0": "40", "line 1": "41"}


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_npy_is_one_matrix_that_can_be_mapped(tmp_path, shape):
    items = records(1200, shape)
    found = np.load(write("npy", tmp_path / "x", items, shape=shape), mmap_mode="r")
    np.testing.assert_array_equal(found, [record.values for record in items])
    assert np.load(write("npy", tmp_path / "y", [], shape=shape)).shape == (0, *shape)


def test_npy_needs_pooling(tmp_path):
    with pytest.raises(ConfigError, match="--pool mean"):
        write("npy", tmp_path / "x", records(1), shape=(None, 4))
    assert list(tmp_path.iterdir()) == []


def test_hdf5_says_the_tokens_and_where_they_are(tmp_path):
    long = tuple(f"token{k}" for k in range(9000))  # more than an attribute of HDF5 1.6 holds
    values = np.zeros((1, 4), np.float32)
    items = [
        Record("It fell", ("It", "fell"), ((0, 2), (3, 7)), values),
        Record("", (), (), values[:0]),
        Record("x", ("a\0b", "\ud800", "ü"), None, values),
        Record("long", long, tuple((k, k + 1) for k in range(9000)), values),
    ]
    with h5py.File(write("hdf5", tmp_path / "x", items)) as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        assert list(file["0"].attrs["tokens"]) == ["It", "fell"]
        np.testing.assert_array_equal(file["0"].attrs["spans"], [[0, 2], [3, 7]])
        assert file["1"].attrs["tokens"].shape == (0,)
        assert list(file["2"].attrs["tokens"]) == ["a\ufffdb", "?", "ü"]
        assert "spans" not in file["2"].attrs
        assert tuple(file["3"].attrs["tokens"]) == long
        assert file["3"].attrs["spans"].shape == (9000, 2)
