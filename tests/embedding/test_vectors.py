"""`read_vectors`: what `elmore embed` wrote comes back, from every format, when asked for."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmore import read_vectors
from elmore.bulk import embed_files
from elmore.bulk.vectors import holds_vectors
from elmore.embedding.vector_files import WRITERS, Record, Settings, open_writer
from elmore.errors import ConfigError, FormatError

SHAPES: list[tuple[int | None, ...]] = [(None, 4), (3, None, 4), (4,), (3, 4)]
CASES = [
    (name, shape)
    for name, info in WRITERS.items()
    for shape in SHAPES
    if not info.pooled or None not in shape
]
WITH_TOKENS = {"jsonl", "hdf5", "parquet"}


def records(shape: tuple[int | None, ...]) -> list[Record]:
    """Sentences of 2, 0, 3 and 1 tokens, the empty one not first and not last."""
    generator = np.random.default_rng(0)
    result = []
    for text in ['It "fell"', "", "a, b c", "x"]:
        tokens = tuple(text.split())
        starts = [text.index(token) for token in tokens]
        spans = tuple((k, k + len(token)) for k, token in zip(starts, tokens, strict=True))
        size = [len(tokens) if n is None else n for n in shape]
        result.append(Record(text, tokens, spans, generator.normal(size=size).astype(np.float32)))
    return result


def write(name: str, folder: Path, items: list[Record], **settings: Any) -> Path:
    path = folder / f"x{WRITERS[name].suffixes[0]}"
    with open_writer(name, path, Settings(**settings)) as writer:
        for item in items:
            writer.write(item)
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_round_trip(tmp_path, name, shape, dtype):
    items = records(shape)
    path = write(name, tmp_path, items, shape=shape, texts=True, dtype=dtype)
    with read_vectors(path) as vectors:
        assert (vectors.format, vectors.shape, len(vectors)) == (name, shape, 4)
        assert (vectors.dim, vectors.pooled) == (4, None not in shape)
        for found, item in zip(vectors, items, strict=True):
            assert found.values.shape == item.values.shape
            np.testing.assert_allclose(found.values, item.values.astype(dtype), rtol=1e-4)
            if name not in ("jsonl", "csv", "tsv"):  # whose numbers are text
                assert found.values.dtype == dtype
            if name in WITH_TOKENS:
                assert (found.tokens, found.spans) == (item.tokens, item.spans)
            if name in WITH_TOKENS | {"csv", "tsv"}:
                assert found.text == item.text
        np.testing.assert_array_equal(vectors[-1].values, vectors[3].values)
        assert [record.text for record in vectors[1:3]] == [vectors[k].text for k in (1, 2)]
        with pytest.raises(IndexError, match="sentence 4 of 4"):
            vectors[4]
        if None not in shape:
            matrix = vectors.matrix()
            np.testing.assert_allclose(matrix, [r.values for r in items], atol=2e-3)
        else:
            with pytest.raises(ConfigError, match="--pool mean"):
                vectors.matrix()
    assert holds_vectors(path)


def test_hdf5_is_read_again_and_again(tmp_path):
    """What one visit counts of a file must not add up."""
    vectors = read_vectors(write("hdf5", tmp_path, records((None, 4)), shape=(None, 4)))
    for _ in range(1000):
        assert [record.tokens for record in vectors[:3:2]] == [("It", '"fell"'), ("a,", "b", "c")]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_file_without_sentences(tmp_path, name, shape):
    vectors = read_vectors(write(name, tmp_path, [], shape=shape))
    assert len(vectors) == 0
    assert list(vectors) == []


def test_parquet_of_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("elmore.embedding.vector_files.parquet._GROUP_ROWS", 3)
    items = records((None, 4)) * 3
    vectors = read_vectors(write("parquet", tmp_path, items, shape=(None, 4)))
    for k in (11, 0, 5, 6, 2):
        np.testing.assert_array_equal(vectors[k].values, items[k].values)
        assert vectors[k].tokens == items[k].tokens


@pytest.mark.parametrize("name", ["npy", "npz", "safetensors"])
def test_a_pooled_matrix_is_mapped_not_read(tmp_path, name):
    items = records((4,))
    matrix = read_vectors(write(name, tmp_path, items, shape=(4,))).matrix()
    base: Any = matrix
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert not matrix.flags.writeable


def test_hdf5_of_the_old_command(tmp_path):
    path = tmp_path / "old.hdf5"
    with h5py.File(path, "w") as file:
        for k in range(11):  # "10" sorts before "2"
            file.create_dataset(str(k), data=np.full((3, k, 8), k, "float32"), compression="gzip")
        index = file.create_dataset("sentence_to_index", (1,), h5py.string_dtype())
        index[0] = json.dumps({f"line {k}": str(k) for k in range(11)})
    vectors = read_vectors(path)
    assert (len(vectors), vectors.shape) == (11, (3, None, 8))
    assert vectors[10].values.shape == (3, 10, 8)
    assert (vectors[2].text, vectors[2].tokens) == ("line 2", None)


def test_hdf5_named_by_lines(tmp_path):
    items = [item._replace(text=f"line {k}") for k, item in enumerate(records((None, 4)))]
    path = write("hdf5", tmp_path, items, shape=(None, 4), sentence_keys=True, first=3)
    with pytest.raises(FormatError, match="other names than 0, 1"):
        read_vectors(path)


@pytest.mark.parametrize("form", ["npz", "parquet", "jsonl", "npy"])
def test_a_folder_of_shards(tiny_folder, tiny_elmo, tmp_path, form):
    lines = [f"It fell {k} times ." for k in range(30)]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines), "utf-8")
    pool = "mean" if form == "npy" else None
    embed_files([text], tmp_path / "out", model=tiny_folder, format=form, pool=pool, shard_bytes=99)
    assert holds_vectors(tmp_path / "out")
    with read_vectors(tmp_path / "out") as vectors:
        assert (len(vectors), vectors.dim, vectors.pooled) == (30, 32, bool(pool))
        for k in (29, 0, 17):
            expected = tiny_elmo.encode(lines[k]) if pool else tiny_elmo.embed(lines[k])
            np.testing.assert_allclose(vectors[k].values, expected, atol=1e-5)


def test_what_is_refused(tmp_path):
    with pytest.raises(FormatError, match="does not exist"):
        read_vectors(tmp_path / "x.npy")
    (tmp_path / "x.pt").touch()
    with pytest.raises(ConfigError, match="unknown suffix"):
        read_vectors(tmp_path / "x.pt")
    with pytest.raises(FormatError, match=r"has no manifest\.json"):
        read_vectors(tmp_path)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_damage_is_one_line(tmp_path, name, shape):
    """A file that was cut anywhere, or overwritten by noise, gives an error of ours or records."""
    path = write(name, tmp_path, records(shape), shape=shape, texts=True)
    data = path.read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, 64, np.uint8).tobytes()
    cuts = [data[:n] for n in range(0, len(data), max(1, len(data) // 25))]
    marred = [data[:n] + noise + data[n + 64 :] for n in range(0, len(data), len(data) // 12)]
    for case in [*cuts, *marred]:
        path.write_bytes(case)
        with contextlib.suppress(FormatError), read_vectors(path) as vectors:
            list(vectors)


def test_hdf5_that_leads_elsewhere_is_refused(tmp_path):
    """Each dataset is checked when it is read, as weights are when they are opened."""
    secret = tmp_path / "secret.hdf5"
    with h5py.File(secret, "w") as file:
        file["x"] = np.ones((2, 4), np.float32)
        file["text"] = np.array(["secret"], h5py.string_dtype())
    layout, text = h5py.VirtualLayout((2, 4), "f4"), h5py.VirtualLayout((1,), h5py.string_dtype())
    layout[:] = h5py.VirtualSource(secret, "x", (2, 4))
    text[:] = h5py.VirtualSource(secret, "text", (1,), h5py.string_dtype())
    path = tmp_path / "vectors.hdf5"
    with h5py.File(path, "w") as file:
        file["0"] = h5py.ExternalLink(secret, "x")
        file["1"] = h5py.SoftLink("/0")
        file.create_virtual_dataset("2", layout)
        file["3"] = np.ones((2, 4), np.float32)
        file.create_group("4")
        file.create_virtual_dataset("sentence_to_index", text)
    vectors = read_vectors(path)
    for k, problem in enumerate(
        ["external link", "soft link", "virtual", "no text of its", "group"]
    ):
        with pytest.raises(FormatError, match=problem):
            vectors[k]


def test_an_array_of_objects_is_never_unpickled(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    (tmp_path / "x.npy").write_bytes(stream.getvalue())
    with pytest.raises(FormatError):
        read_vectors(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", **{"0": np.array([[{}]], object)}, allow_pickle=True)
    with pytest.raises(FormatError):
        read_vectors(tmp_path / "x.npz")[0]
