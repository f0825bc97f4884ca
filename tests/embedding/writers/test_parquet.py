"""Parquet: a row a sentence, in row groups of a bounded size."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from elmore.embedding.vector_files import Record, Settings, write_vectors
from elmore.errors import MissingExtra

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SENTENCES = [("It", "fell", "."), (), ("Ναί",), ("a",) * 5]


def write(path, shape, sentences=SENTENCES, *, spans=True, **settings):
    generator = np.random.default_rng(0)
    arrays = []

    def records():
        for tokens in sentences:
            form = tuple(len(tokens) if size is None else size for size in shape)
            arrays.append(generator.normal(size=form).astype(np.float32))
            places = tuple((k, k + 1) for k in range(len(tokens))) if spans else None
            yield Record(" ".join(tokens), tokens, places, arrays[-1])

    write_vectors("parquet", path, records(), Settings(shape=shape, **settings))
    return arrays


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_row_a_sentence(tmp_path, dtype):
    arrays = write(tmp_path / "x", (None, 4), dtype=dtype)
    table = parquet.read_table(tmp_path / "x")
    number = arrow.float16() if dtype == "float16" else arrow.float32()
    assert table.schema.names == ["number", "tokens", "spans", "vectors"]
    assert table.schema.field("vectors").type == arrow.list_(arrow.list_(number, 4))
    rows = table.to_pylist()
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    assert [tuple(row["tokens"]) for row in rows] == SENTENCES
    assert rows[0]["spans"] == [[0, 1], [1, 2], [2, 3]]
    for row, array in zip(rows, arrays, strict=True):
        found = np.asarray(row["vectors"], dtype).reshape(-1, 4)
        np.testing.assert_array_equal(found, array.astype(dtype))


def test_the_text_where_sentences_were_split(tmp_path):
    write(tmp_path / "x", (None, 4), texts=True)
    texts = parquet.read_table(tmp_path / "x")["text"].to_pylist()
    assert texts == [" ".join(tokens) for tokens in SENTENCES]


def test_a_layer_can_be_read_alone(tmp_path):
    arrays = write(tmp_path / "x", (3, None, 4))
    table = parquet.read_table(tmp_path / "x", columns=["layer_1"])
    assert table.schema.names == ["layer_1"]
    for row, array in zip(table["layer_1"].to_pylist(), arrays, strict=True):
        np.testing.assert_array_equal(np.asarray(row, np.float32).reshape(-1, 4), array[1])


def test_pooled_vectors(tmp_path):
    arrays = write(tmp_path / "x", (4,))
    table = parquet.read_table(tmp_path / "x")
    assert table.schema.field("vector").type == arrow.list_(arrow.float32(), 4)
    np.testing.assert_array_equal(np.asarray(table["vector"].to_pylist()), np.stack(arrays))
    layered = write(tmp_path / "y", (2, 4))
    table = parquet.read_table(tmp_path / "y")
    found = np.asarray(table["layer_1"].to_pylist())
    np.testing.assert_array_equal(found, np.stack(layered)[:, 1])


def test_row_groups_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("elmore.embedding.parquet_file._GROUP_BYTES", 300)
    arrays = write(tmp_path / "x", (None, 4), SENTENCES * 20, first=1000)
    file = parquet.ParquetFile(tmp_path / "x")
    tokens = sum(map(len, SENTENCES)) * 20
    assert file.num_row_groups == pytest.approx(tokens * 16 / 300, rel=0.3)
    column = file.metadata.row_group(0).column(file.metadata.num_columns - 1)
    assert column.compression == "ZSTD"
    rows = [row for k in range(file.num_row_groups) for row in file.read_row_group(k).to_pylist()]
    assert [row["number"] for row in rows] == list(range(1000, 1080))
    for row, array in zip(rows, arrays, strict=True):
        found = np.asarray(row["vectors"], np.float32).reshape(-1, 4)
        np.testing.assert_array_equal(found, array)


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"install elmore\[parquet\]"):
        write(tmp_path / "x", (None, 4))
    assert list(tmp_path.iterdir()) == []
