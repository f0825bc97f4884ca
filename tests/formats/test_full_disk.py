"""HDF5 files on a full disk: an error, not a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_models import posix

# The library's crash comes when the process ends, hence another process. The limit counts for
# every file, as a full disk does.
CHILD = """
import resource, sys
from pathlib import Path
import numpy as np
from elmore.errors import ElmoreError
from elmore.formats import allennlp_hdf5
from elmore.embedding.load import read_checkpoint
from elmore.embedding.vector_files import Record, Settings, write_vectors
model, folder, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
checkpoint = read_checkpoint(model)
rows = np.ones((512, 64), np.float32)
records = [Record("a", ("a",) * 512, None, rows) for _ in range(10)]
settings = Settings(shape=(None, 64), overwrite=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for write in (
    lambda: write_vectors("hdf5", folder / "vectors.hdf5", records, settings),
    lambda: allennlp_hdf5.write(checkpoint, folder / "model", overwrite=True),
):
    try:
        write()
    except ElmoreError as error:
        print(error)
"""


@posix
@pytest.mark.parametrize("limit", [0, 20_000])
def test_file_size_limit(limit: int, tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "vectors.hdf5").write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tiny_folder), str(tmp_path), str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    for message, name in ((first, "vectors.hdf5'"), (second, "model/weights.hdf5'")):
        assert name in message
        assert "file too large" in message
        assert ".partial" not in message
    assert (tmp_path / "vectors.hdf5").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.hdf5"]
