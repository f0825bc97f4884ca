"""Tables in, tables with vectors out; no engine needed."""

from __future__ import annotations

import pickle
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_models import TEXT

from elmore import Elmo
from elmore.embedding.results import value_shape
from elmore.embedding.stream import embed_records
from elmore.embedding.vector_files import Settings, write_vectors
from elmore.errors import ConfigError, InputError
from elmore.integrations import columns
from elmore.integrations.columns import ColumnEmbedder, ColumnJob
from elmore.options import Output
from integrations.engines import EMPTY, NULL, make_table


def embed(table: Any, model: Path, *, fixed: bool = True, **options: Any) -> pa.Table:
    """Embed a table or record batch in one go."""
    job = ColumnJob(model=model, **options)
    pieces = list(ColumnEmbedder(job, Elmo.load(model, threads=1), fixed=fixed)(table))
    assert all(type(piece) is type(table) for piece in pieces)
    if isinstance(table, pa.RecordBatch):
        pieces = [pa.Table.from_batches([piece]) for piece in pieces]
    result = pa.concat_tables(pieces)
    result.validate(full=True)
    return result


@pytest.mark.parametrize("fixed", [True, False])
def test_the_same_rows_with_the_bits_of_encode(tiny_folder: Path, fixed: bool) -> None:
    table = make_table(1500)
    result = embed(table, tiny_folder, pool="max", fixed=fixed)
    assert result.select(table.schema.names) == table
    vectors = result["vector"].to_pylist()
    texts = [text or "" for text in table["text"].to_pylist()]
    expected = Elmo.load(tiny_folder, threads=1).encode(texts, pool="max")
    assert vectors[NULL] is None
    assert vectors[EMPTY] == [0] * 32
    vectors[NULL] = expected[NULL]
    np.testing.assert_array_equal(np.array(vectors, np.float32), expected)


def test_columns_are_those_of_the_parquet_files(tiny_folder: Path, tmp_path: Path) -> None:
    lines = [" ".join(TEXT[:5]), "", " ".join(TEXT[3:30])]
    elmo = Elmo.load(tiny_folder, threads=1)
    for number, options in enumerate(
        ({}, {"pool": "mean"}, {"layers": "all"}, {"layers": "all", "pool": "last"})
    ):
        for dtype in ("float32", "float16"):
            path = tmp_path / f"{number}-{dtype}.parquet"
            shape = value_shape(elmo.config, Output(**options))
            sentences = [(line, elmo.tokenize(line)) for line in lines]
            records = embed_records(elmo.engine, sentences, Output(**options))
            write_vectors("parquet", path, records, Settings(shape=shape, dtype=dtype))
            file = pq.read_table(path)
            result = embed(pa.table({"text": lines}), tiny_folder, dtype=dtype, **options)
            for name in result.schema.names[1:]:
                # Files call the elements "element" where memory calls them "item".
                kind = result.schema.field(name).type
                assert file[name].cast(kind) == result[name], (name, options)
            vectors = {"vector", "vectors", "layer_0"} & set(result.schema.names)
            assert len(vectors) == 1


def test_vectors_of_tokens_tell_their_tokens(tiny_folder: Path) -> None:
    elmo = Elmo.load(tiny_folder, threads=1)
    text = "She  fell, didn't she?"
    row = embed(pa.table({"text": [text]}), tiny_folder).to_pylist()[0]
    assert tuple(row["tokens"]) == elmo.tokenize(text).tokens
    assert [text[a:b] for a, b in row["spans"]][:3] == ["She", "fell", ","]
    np.testing.assert_array_equal(np.array(row["vectors"], np.float32), elmo.embed(text))
    spaced = embed(pa.table({"text": [text]}), tiny_folder, tokenized=True).to_pylist()[0]
    assert spaced["tokens"] == ["She", "fell,", "didn't", "she?"]
    assert spaced["spans"] is None


def test_lists_of_tokens_are_taken_as_they_are(tiny_folder: Path) -> None:
    lists = [["two words", "fell"], None, [], ["."]]
    table = pa.table({"id": [4, 3, 2, 1], "words": lists})
    result = embed(table, tiny_folder, column="words")
    assert result.schema.names == ["id", "words", "vectors"]
    expected = Elmo.load(tiny_folder, threads=1).embed(
        [["two words", "fell"], ["."]], tokenized=True
    )
    vectors = result["vectors"].to_pylist()
    np.testing.assert_array_equal(np.array(vectors[0], np.float32), expected[0])
    assert vectors[1:3] == [None, []]
    np.testing.assert_array_equal(np.array(vectors[3], np.float32), expected[1])
    nothing = pa.table({"words": [["a", None]]})
    with pytest.raises(InputError, match="a list in column 'words' holds a null among its tokens"):
        embed(nothing, tiny_folder, column="words")


def test_nothing_gives_empty_columns(tiny_folder: Path) -> None:
    result = embed(make_table(20).slice(0, 0), tiny_folder)
    assert result.num_rows == 0
    assert result.schema.names == ["id", "text", "name", "tokens", "spans", "vectors"]
    assert result.schema.field("vectors").type == pa.list_(pa.list_(pa.float32(), 32))
    missing = embed(pa.table({"text": pa.nulls(3)}), tiny_folder, pool="mean")
    assert missing["vector"].to_pylist() == [None] * 3


def test_large_results_come_in_pieces(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(200)
    whole = embed(table, tiny_folder)
    monkeypatch.setattr(columns, "_CHUNK_BYTES", 20_000)
    job = ColumnJob(model=tiny_folder)
    pieces = list(ColumnEmbedder(job, Elmo.load(tiny_folder, threads=1))(table))
    assert len(pieces) > 10
    assert pa.concat_tables(pieces) == whole
    sizes = [sum(len(v) for v in p["vectors"].to_pylist() if v is not None) for p in pieces]
    assert max(sizes) * 32 * 4 < 20_000 + 23 * 2 * 32 * 4


def test_what_cannot_be_is_refused(tiny_folder: Path) -> None:
    table = make_table(20)
    wrong: list[tuple[pa.Table, dict[str, Any], str]] = [
        (table, {"column": "x"}, "there is no column 'x'; use one of id, text, name"),
        (table, {"column": "id"}, "column 'id' is of type int64; use one of strings, or of lists"),
        (table.append_column("spans", table["id"]), {}, "there is a column 'spans' already; drop"),
        (table, {"layers": [1, 2]}, r"layers=\[1, 2\] but this model has 3 layers"),
    ]
    for rows, options, message in wrong:
        with pytest.raises(ConfigError, match=message):
            embed(rows, tiny_folder, **options)
    for options, message in (
        ({"precision": "int4"}, "precision='int4'; use one of float32, float16, int8"),
        ({"start": "cold"}, 'start=\'cold\'; use "zeros" or "warm"'),
        ({"threads": 0}, "threads=0; use 1 or more"),
        ({"dtype": "int8"}, "dtype='int8'; use float32 or float16"),
    ):
        with pytest.raises(ConfigError, match=message):
            ColumnJob(**options)


def test_a_job_finds_its_model_from_any_folder(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_folder.parent)
    job = pickle.loads(pickle.dumps(ColumnJob(model="my-model", pool="mean")))
    assert job.model == str(tiny_folder)
    monkeypatch.chdir(tmp_path)
    assert job.added("text") == ["vector"]
    assert ColumnJob().model is None  # that of each worker's own package


def test_a_tokenizer_is_named_so_that_workers_find_it(tiny_folder: Path) -> None:
    job = pickle.loads(pickle.dumps(ColumnJob(model=tiny_folder, tokenizer=shlex.split)))
    assert job.tokenizer == "shlex:split"
    table = pa.table({"text": ["It 'fell down' ."]})
    [made] = ColumnEmbedder(job)(table)
    assert made["tokens"].to_pylist() == [["It", "fell down", "."]]
    with pytest.raises(ConfigError, match="cannot be sent to other processes"):
        ColumnJob(model=tiny_folder, tokenizer=lambda text: text.split())
