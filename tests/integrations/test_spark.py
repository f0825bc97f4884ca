"""A local Spark with two workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.integrations import spark as door
from elmore.integrations.columns import ColumnJob
from integrations.engines import (
    EMPTY,
    NULL,
    at_most,
    check_pooled,
    make_table,
    needs_java,
)

pytest.importorskip("pyspark", reason="pyspark is not installed: elmore[spark]")
pytestmark = [
    pytest.mark.integration,
    needs_java,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # A short life: half the work of starting Java is for speed that would come too late.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers; a task may fail four times, as on a cluster (`local[2]` allows none)."""
    from pyspark.sql import SparkSession

    place = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch, at_most(180):
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2, 4]").appName("elmore tests")
        builder = builder.config("spark.local.dir", str(place))
        builder = builder.config("spark.sql.warehouse.dir", str(place / "warehouse"))
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    with at_most(240):
        yield


def test_vectors_of_tokens(spark: Any, tiny_folder: Path) -> None:
    table = make_table(40)
    df = door.embed_dataframe(spark.createDataFrame(table), model=tiny_folder, layers="all")
    assert df.columns == [
        *("id", "text", "name", "tokens", "spans"),
        *("layer_0", "layer_1", "layer_2"),
    ]
    rows = df.collect()
    elmo = Elmo.load(tiny_folder, threads=1)
    for row, text in zip(rows, table["text"].to_pylist(), strict=True):
        if text is None:
            assert row["tokens"] is row["spans"] is row["layer_1"] is None
            continue
        expected = elmo.layers(text)
        assert tuple(row["tokens"]) == expected.tokens
        assert [tuple(span) for span in row["spans"]] == list(expected.spans or ())
        found = [np.array(row[f"layer_{k}"]).reshape(-1, 32) for k in range(3)]
        np.testing.assert_allclose(found, expected.values, rtol=0, atol=1e-5)
    assert rows[NULL]["text"] is None
    assert rows[EMPTY]["layer_0"] == []


def test_as_an_expression(spark: Any, tiny_folder: Path) -> None:
    table = make_table(60)
    df = spark.createDataFrame(table)
    function = door.embed_udf(model=tiny_folder, pool="mean")
    rows = df.select("*", function("text").alias("vector")).collect()
    check_pooled([row.asDict() for row in rows], table, tiny_folder)
    tokens = spark.createDataFrame([(["a", "b c"],), (None,), ([],)], "tokens array<string>")
    rows = tokens.select(door.embed_udf(model=tiny_folder)("tokens").alias("v")).collect()
    [expected] = Elmo.load(tiny_folder, threads=1).embed([["a", "b c"]], tokenized=True)
    np.testing.assert_allclose(rows[0]["v"], expected, rtol=0, atol=1e-5)
    assert [rows[1]["v"], rows[2]["v"]] == [None, []]


def test_what_cannot_work_is_refused_before_a_worker_starts(spark: Any, tiny_folder: Path) -> None:
    df = spark.createDataFrame(make_table(20))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"column": "txt"}, "there is no column 'txt'; use one of id, text, name"),
        ({"column": "id"}, "column 'id' is of type int64; use one of strings, or of lists"),
        ({"layers": 7}, r"layers=7 but this model has layers 0\.\.2"),
        ({"pool": "sum"}, "pool='sum'; use one of mean, max, first, last"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigError, match=message) as caught:
            door.embed_dataframe(df, model=tiny_folder, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="there is a column 'tokens' already"):
        door.embed_dataframe(df.withColumnRenamed("name", "tokens"), model=tiny_folder)
    with pytest.raises(ConfigError, match="the column is the argument of the UDF"):
        door.embed_udf(column="text")
    with pytest.raises(ConfigError, match='layers="all" needs several columns'):
        door.embed_udf(layers="all")
    with pytest.raises(ConfigError, match="dtype='float16' but Spark has no such type"):
        door.arrow_function(ColumnJob(dtype="float16"))
    with pytest.raises(ConfigError, match="dtype='float16' but Spark has no such type"):
        door.embed_udf(dtype="float16")
