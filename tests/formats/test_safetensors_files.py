"""formats.containers.safetensors_files: what good files give."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore.errors import FormatError
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors

RNG = np.random.default_rng(0)
TENSORS: dict[str, Any] = {
    "lstm.0.weight": RNG.standard_normal((8, 6)).astype(np.float32),
    "half": RNG.standard_normal(5).astype(np.float16),
    "double": RNG.standard_normal((2, 2)),
    "int8": RNG.integers(-128, 127, (3, 3)).astype(np.int8),
    "ids": np.arange(7, dtype=np.int32),
    "long": np.arange(7),
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
    "ü": np.ones(1, np.float32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "model.safetensors", TENSORS, {"b": "é"})
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("kind", ["path", "stream"])
def test_round_trip(path: Path, kind: str) -> None:
    source: Any = path if kind == "path" else io.BytesIO(path.read_bytes())
    with read_safetensors(source, what="x") as view:
        assert set(view.shapes) == set(TENSORS)
        assert view.shapes["lstm.0.weight"] == (8, 6)
        arrays = {name: view.read(name) for name in TENSORS}
        with pytest.raises(FormatError, match="no array 'nothing'"):
            view.read("nothing")
    for name, array in arrays.items():  # arrays outlive the view
        np.testing.assert_array_equal(array, TENSORS[name])
        assert array.dtype == TENSORS[name].dtype
        assert array.flags.aligned
        assert array.flags.c_contiguous
        assert not array.flags.writeable


def test_bytes_do_not_depend_on_order_or_layout(path: Path, tmp_path: Path) -> None:
    back = dict(reversed(TENSORS.items()))
    back["lstm.0.weight"] = np.asfortranarray(back["lstm.0.weight"])
    write_safetensors(tmp_path / "back", back, {"b": "é"})
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_others_may_read_what_the_umask_allows(path: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_unaligned_tensors_are_copied(tmp_path: Path) -> None:
    header = (
        b'{"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},'
        b'"b":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}}'
    )
    values = np.array([1.5, 2.5], "<f4")
    path = tmp_path / "x"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"abc" + values.tobytes())
    with read_safetensors(path, what="x") as view:
        array = view.read("b")
    assert array.flags.aligned
    np.testing.assert_array_equal(array, values)


def test_file_that_shrinks_is_noticed(path: Path) -> None:
    with read_safetensors(path, what="x") as view:
        view.read("half")
        os.truncate(path, 600)
        with pytest.raises(FormatError, match="now has another size"):
            view.read("double")


def test_replacing_the_file_does_not_change_a_mapped_array(path: Path) -> None:
    with read_safetensors(path, what="x") as view:
        array = view.read("double")
        write_safetensors(path, {"double": np.zeros((2, 2))}, {})
        np.testing.assert_array_equal(array, TENSORS["double"])
