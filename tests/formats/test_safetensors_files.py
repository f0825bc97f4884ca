"""formats.containers.safetensors_files: what good files give, against the safetensors library."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from elmore.errors import ConfigError, FormatError
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


def written(tensors: dict[str, Any] = TENSORS) -> bytes:
    stream = io.BytesIO()
    write_safetensors(stream, tensors, {"b": "é", "a": "1"})
    return stream.getvalue()


@pytest.fixture(params=["path", "stream"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = tmp_path / "model.safetensors"
    path.write_bytes(written())
    return path if request.param == "path" else io.BytesIO(path.read_bytes())


@pytest.mark.parametrize("copy", [False, True])
def test_round_trip(source: Any, copy: bool) -> None:
    with read_safetensors(source, what="x") as view:
        assert view.metadata == {"a": "1", "b": "é"}
        assert set(view.names()) == set(TENSORS)
        assert view.names()["lstm.0.weight"].shape == (8, 6)
        arrays = {name: view.read(name, copy=copy) for name in TENSORS}
        with pytest.raises(FormatError, match="no tensor 'nothing'"):
            view.read("nothing")
    for name, array in arrays.items():  # arrays outlive the view
        np.testing.assert_array_equal(array, TENSORS[name])
        assert array.dtype == TENSORS[name].dtype
        assert array.flags.aligned
        assert array.flags.c_contiguous
        assert array.flags.writeable or not copy


def test_the_library_reads_what_we_write() -> None:
    loaded = load(written())
    assert set(loaded) == set(TENSORS)
    for name, array in loaded.items():
        np.testing.assert_array_equal(array, TENSORS[name])


def test_we_read_what_the_library_writes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(save(TENSORS, {"k": "v"}))
    with read_safetensors(path, what="x") as view:
        assert view.metadata == {"k": "v"}
        for name, array in TENSORS.items():
            np.testing.assert_array_equal(view.read(name), array)


def test_bytes_do_not_depend_on_order_or_layout() -> None:
    back = dict(reversed(TENSORS.items()))
    back["lstm.0.weight"] = np.asfortranarray(back["lstm.0.weight"])
    back["double"] = back["double"].astype(">f8")
    assert written(back) == written()
    assert int.from_bytes(written()[:8], "little") % 8 == 0


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


def test_mapped_arrays_are_read_only(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(written())
    with read_safetensors(path, what="x") as view:
        array = view.read("lstm.0.weight")
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_file_that_shrinks_is_noticed(source: Any) -> None:
    with read_safetensors(source, what="x") as view:
        view.read("half")
        if isinstance(source, Path):
            os.truncate(source, 600)
        else:
            source.truncate(600)
        with pytest.raises(FormatError, match="now has 600"):
            view.read("double")
        with pytest.raises(FormatError, match="now has 600"):
            view.read("double", copy=True)


def test_replacing_the_file_does_not_change_a_mapped_array(tmp_path: Path) -> None:
    from elmore.base.atomic import atomic_file

    path = tmp_path / "x"
    path.write_bytes(written())
    with read_safetensors(path, what="x") as view:
        array = view.read("double")
        with atomic_file(path, overwrite=True) as stream:
            write_safetensors(stream, {"double": np.zeros((2, 2))}, {})
        np.testing.assert_array_equal(array, TENSORS["double"])


@pytest.mark.parametrize(
    "tensors", [{"x": np.zeros(2, "c8")}, {"x": np.zeros(2, "?")}, {"__metadata__": np.zeros(2)}]
)
def test_unwritable(tensors: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be written; "):
        write_safetensors(io.BytesIO(), tensors, {})
