"""elmore.training.worker_processes: order, errors, deaths."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from small_corpus import write

from elmore.errors import ElmoreError, InputError
from elmore.training.worker_processes import Workers


@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_reply_in_order_and_pass_errors_on(tmp_path: Path, n_workers: int) -> None:
    paths = [write(tmp_path / f"{k}", f"{k}\n" * k) for k in range(7)]
    requests = [({"task": "inspect", "paths": [str(path)]}, b"") for path in paths]
    with Workers(n_workers) as pool:
        for (request, reply), path in zip(pool.map(requests), paths, strict=True):
            assert request["paths"] == [reply["files"][0]["path"]] == [str(path)]
        write(tmp_path / "bad", gzip.compress(b"a" * 100)[:-5])
        with pytest.raises(InputError, match="is damaged"):
            list(pool.map([({"task": "inspect", "paths": [str(tmp_path / "bad")]}, b"")]))


def test_a_killed_worker_is_told(tmp_path: Path) -> None:
    request = {"task": "inspect", "paths": [str(write(tmp_path / "a", "a\n"))]}
    with Workers(2) as pool:
        for process in pool._processes:
            process.kill()
            process.wait()
        with pytest.raises(ElmoreError, match="worker process ended with code -9"):
            list(pool.map([(request, b"")]))
