"""formats.files.hdf5_writing: a full disk is an error, not a crash, in all that uses it."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmore.errors import ElmoreError
from elmore.formats.containers.hdf5_writing import create_hdf5

VALUES = np.arange(3000, dtype=np.float32).reshape(30, 100)


def test_a_file_as_h5py_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    with path.open("w+b") as stream, create_hdf5(stream, path) as (file, patient):
        with patient.checked():
            file.create_dataset("a/b", data=VALUES)
        file["a/b"][3] = 7  # and read and written again
        assert file["a/b"][3, 5] == 7
    with h5py.File(path) as file:
        assert (file["a/b"][4:] == VALUES[4:]).all()
    with path.open("w+b") as stream, create_hdf5(stream, path, versions=("v108", "v108")):
        pass
    assert path.read_bytes()[8] == 2  # the superblock of 1.8


class Full(io.BytesIO):
    """A disk with little room."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + memoryview(data).nbytes > 5000:
            raise OSError(28, "No space left on device")
        return super().write(data)


def write(stream: io.BytesIO, path: Path, *names: str, checked: bool = True) -> list[str]:
    """Write small and large datasets; give those that seemed to be written."""
    done = []
    with create_hdf5(stream, path) as (file, patient):
        for name in names:
            with patient.checked() if checked else nullcontext():
                file.create_dataset(name, data=VALUES if "large" in name else VALUES[:2])
                file.flush()
            done.append(name)
            if name == "stop":
                raise ZeroDivisionError(done)
    return done


def test_a_failed_write_is_raised_where_it_is_checked(tmp_path: Path) -> None:
    message = r"cannot write '.*out': no space left.*bytes free"
    path = tmp_path / "out"
    assert write(io.BytesIO(), path, "small", "large") == ["small", "large"]
    with pytest.raises(ElmoreError, match=message):
        write(Full(), path, "small", "large", "stop")
    with pytest.raises(ElmoreError, match=message):  # at the latest when the block ends
        write(Full(), path, "small", "large", checked=False)


def test_other_errors_pass_and_the_stream_is_left_alone(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with pytest.raises(ZeroDivisionError, match=r"\['large', 'stop'\]"):
        write(stream, tmp_path / "out", "large", "stop", "never")
    stream.close()  # nobody writes to it any more
    with pytest.raises(ValueError, match="name already exists"):
        write(io.BytesIO(), tmp_path / "out", "twice", "twice")


# The library's crash comes when the process ends, hence another process. The limit counts for
# every file, as a full disk does.
CHILD = """
import resource, sys
from pathlib import Path
import numpy as np
from elmore.embedding.word_cache import write_token_vectors
from elmore.errors import ElmoreError
from elmore.formats import allennlp_hdf5
from elmore.embedding.load import read_checkpoint
model, folder, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
checkpoint = read_checkpoint(model)
rows = np.ones((512, 64), np.float32)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for write in (
    lambda: write_token_vectors(folder / "tokens.hdf5", lambda row: rows, 5120, overwrite=True),
    lambda: allennlp_hdf5.write(
        checkpoint, folder / "model", overwrite=True
    ),
):
    try:
        write()
    except ElmoreError as error:
        print(error)
"""


@pytest.mark.parametrize("limit", [0, 1000, 20_000, 60_000])
def test_file_size_limit(limit: int, tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens.hdf5").write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tiny_folder), str(tmp_path), str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    for message, name in ((first, "tokens.hdf5'"), (second, "model/weights.hdf5'")):
        assert name in message
        assert "file too large" in message
        assert ".partial" not in message
    assert (tmp_path / "tokens.hdf5").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.hdf5"]
