"""elmore.formats.containers.hdf5_files: what good files give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmore.errors import FormatError
from elmore.formats.containers.arrays import check_finite
from elmore.formats.containers.hdf5_files import open_hdf5

VALUES = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)


def write(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"] = VALUES
        file["char_embed"] = VALUES.astype(np.float16)
        file["double"] = VALUES.astype(np.float64)
        file["big_endian"] = VALUES.astype(">f4")
        file.create_dataset("packed", data=VALUES, compression=4, shuffle=True, fletcher32=True)
        file.create_dataset("grown", data=VALUES, maxshape=(None, 30))
        file["scalar"] = np.float32(2.5)
        file["zero"] = np.zeros((0, 3), np.float32)
        file["twin"] = file["char_embed"]
        file["ids"] = np.arange(3)
        file["ü"] = VALUES
        file.attrs["note"] = "variable-length text in an attribute is never read"
    return path


def test_names_and_values(tmp_path: Path) -> None:
    path = write(tmp_path / "x.hdf5")
    with open_hdf5(path.open("rb"), what="x") as view:
        assert view.shapes["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"] == (40, 30)
        assert view.types["ids"] == "int64"
        assert len(view.shapes) == 11
        for name in ("RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0", "double", "big_endian",
                     "packed", "grown", "ü"):  # fmt: skip
            values = view.floats(name)
            assert values.dtype == np.dtype("=f4")
            assert values.flags.c_contiguous
            assert values.flags.writeable
            np.testing.assert_array_equal(values, VALUES)
        np.testing.assert_array_equal(view.floats("char_embed"), VALUES.astype("f2").astype("f4"))
        np.testing.assert_array_equal(view.floats("twin"), view.floats("char_embed"))
        assert view.floats("scalar") == 2.5
        assert view.floats("zero").shape == (0, 3)
        with pytest.raises(FormatError, match="'ids' of type int64, expected a float type"):
            view.floats("ids")
        with pytest.raises(FormatError, match="no array 'nothing'"):
            view.floats("nothing")


@pytest.mark.parametrize("layout", ["contiguous", "some chunks"])
def test_a_dataset_that_was_never_written(layout: str, tmp_path: Path) -> None:
    """HDF5 would give zeros, which load as weights."""
    options: dict[str, Any] = {} if layout == "contiguous" else {"chunks": (10, 30)}
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        empty = file.create_dataset("empty", (40, 30), "f4", **options)
        if layout == "some chunks":
            empty[:10] = 1
        file.create_dataset("full", data=VALUES, **options)
    with open_hdf5((tmp_path / "x.hdf5").open("rb"), what="x") as view:
        np.testing.assert_array_equal(view.floats("full"), VALUES)
        with pytest.raises(FormatError, match="has no values in 'empty', or not all"):
            view.floats("empty")


@pytest.mark.parametrize(("place", "bad"), [(0, np.nan), (3_999_999, -np.inf)])
def test_check_finite_names_the_index(place: int, bad: float) -> None:
    values = np.zeros((2000, 2000), np.float32)
    check_finite(values, what="x", name="w")
    values.flat[place] = bad
    index = tuple(int(i) for i in divmod(place, 2000))
    with pytest.raises(FormatError) as caught:
        check_finite(values, what="x", name="w")
    assert f"'w' at index {index}" in str(caught.value)
