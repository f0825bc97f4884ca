"""A local Ray cluster with two workers."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from elmore.errors import ConfigError
from elmore.integrations import ray as door
from integrations.engines import (
    at_most,
    check_pooled,
    make_table,
    read_files,
)

ray: Any = pytest.importorskip("ray", reason="ray is not installed: elmore[ray]")
pytest.importorskip("ray.data", reason="Ray Data is not installed: elmore[ray]")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),  # of its own settings
]
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",  # it would keep a token in the home folder
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_memory_monitor_refresh_ms": "0",  # others may use this machine's memory
    "RAY_worker_niceness": "0",  # and its processors, which would leave none to polite ones
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One processor more than workers: Ray wants one for the tasks that read and write."""
    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # the path of a socket must be short
    with pytest.MonkeyPatch.context() as patch, at_most(180):
        for name, value in QUIET.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        ray.init(
            num_cpus=3,
            include_dashboard=False,
            object_store_memory=128 << 20,
            log_to_driver=False,
            logging_level="error",
            _temp_dir=place,
            _node_ip_address="127.0.0.1",
        )
        yield
        ray.shutdown()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    with at_most(240):
        yield


def test_parquet_in_parquet_out(tiny_folder: Path, tmp_path: Path) -> None:
    table = make_table(2500)
    files = tmp_path / "in"
    files.mkdir()
    for k, (first, last) in enumerate([(0, 20), (20, 2000), (2000, 2001), (2001, 2500)]):
        part = table.slice(first, last - first)
        pq.write_table(part, files / f"part-{k}.parquet", row_group_size=500)
    ds = door.embed_dataset(
        ray.data.read_parquet(str(files)), model=tiny_folder, pool="mean", workers=2
    )
    ds.write_parquet(str(tmp_path / "out"))
    result = read_files(tmp_path / "out").sort_by("id")  # Ray reads files in any order
    assert result.schema.field("vector").type.list_size == 32
    check_pooled(result.to_pylist(), table, tiny_folder)


def test_what_cannot_work_is_refused_before_a_worker_starts(tiny_folder: Path) -> None:
    ds = ray.data.from_arrow(make_table(20))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"column": "txt"}, "there is no column 'txt'; use one of id, text, name"),
        ({"column": "id"}, "column 'id' is of type int64; use one of strings"),
        ({"layers": 7}, r"layers=7 but this model has layers 0\.\.2"),
        ({"workers": 0}, "workers=0; use 1 or more"),
        ({"threads": 3}, "Ray has 3 processors, and a worker of threads=3 leaves none to read"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigError, match=message) as caught:
            door.embed_dataset(ds, model=tiny_folder, **options)
        assert "\n" not in str(caught.value)


def test_rows_of_pandas_too(tiny_folder: Path) -> None:
    table = make_table(30)
    ds = ray.data.from_pandas(table.to_pandas())
    rows = door.embed_dataset(ds, model=tiny_folder, pool="mean", workers=1).take_all()
    check_pooled(rows, table, tiny_folder)
