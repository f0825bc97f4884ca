"""HDF5 files that must be refused, when opened or when a dataset is read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmore.formats.containers.hdf5_files import open_hdf5

from .attack import SECRET, check_reason, refused, table

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def use(path: Path) -> None:
    """Read everything, as a reader with the right options would."""
    with open_hdf5(path.open("rb"), what=path.name) as view:
        assert "weights" in view.shapes
        for name in view.shapes:
            assert SECRET not in view.floats(name).tobytes()


def hdf5(fill: Callable[[Any], None]) -> Callable[[Path], None]:
    """Make a file with one good dataset and whatever `fill` adds."""

    def make(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file["weights"] = VALUES
            fill(file)

    return make


def set_item(name: str, value: Any) -> Callable[[Path], None]:
    return hdf5(lambda file: file.__setitem__(name, value))


def dataset(**options: Any) -> Callable[[Path], None]:
    return hdf5(lambda file: file.create_dataset("x", **options))


def external_storage(file: Any) -> None:
    file.create_dataset("x", (8,), "f4", external=[("secret.txt", 0, 32)])


def virtual(source: str, shape: tuple[int, ...] = (8,)) -> Callable[[Any], None]:
    def fill(file: Any) -> None:
        layout = h5py.VirtualLayout(shape=shape, dtype="f4")
        layout[:] = h5py.VirtualSource(source, "data", shape=shape)
        file.create_virtual_dataset("x", layout)

    return fill


def cycle(file: Any) -> None:
    group = file.create_group("a/b")
    group["back"] = file["a"]


def cycle_root(file: Any) -> None:
    file["root"] = file["/"]


def deep(file: Any) -> None:
    file["/".join("abcdefghij") + "/w"] = VALUES


def many_groups(file: Any) -> None:
    for i in range(10_001):
        h5py.h5g.create(file.id, b"%d" % i)


def references(file: Any) -> None:
    file.create_dataset("x", (1,), h5py.ref_dtype)[0] = file["weights"].ref


def user_filter(code: int) -> Callable[[Any], None]:
    def fill(file: Any) -> None:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((4,))
        plan.set_filter(code, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_FLOAT, space, plan)

    return fill


def unallocated(shape: tuple[int, ...]) -> Callable[[Path], None]:
    return dataset(shape=shape, dtype="f4")


def claims(old: tuple[int, ...], new: tuple[int, ...]) -> Callable[[Path], None]:
    """Write a contiguous dataset, then forge its shape in the header."""

    def make(path: Path) -> None:
        with h5py.File(path, "w", libver="earliest") as file:
            file["weights"] = VALUES
            file["x"] = np.ones(old, np.float32)
        data = path.read_bytes()
        before = struct.pack(f"<{len(old)}Q", *old)
        assert before in data
        path.write_bytes(data.replace(before, struct.pack(f"<{len(new)}Q", *new)))

    return make


def value(bad: float, index: tuple[int, ...], dtype: str = "f4") -> Callable[[Path], None]:
    def fill(file: Any) -> None:
        values = np.ones((3, 5), dtype)
        values[index] = bad
        file["x"] = values

    return hdf5(fill)


def cut(keep: float) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        set_item("x", np.ones(2000, np.float32))(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])

    return make


def raw(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


def fletcher(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["weights"] = VALUES
        x = file.create_dataset("x", data=np.arange(99.0), chunks=(99,), fletcher32=True)
        offset = x.id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset + 5] ^= 1
    path.write_bytes(data)


COMPOUND = np.zeros(3, [("a", "f4"), ("b", "f4")])

ATTACKS: dict[str, Callable[[Path], None]] = {
    "soft link": set_item("x", h5py.SoftLink("/weights")),
    "external link": set_item("x", h5py.ExternalLink("secret.h5", "/data")),
    "external link to a device": set_item("x", h5py.ExternalLink("/dev/zero", "/")),
    "external storage": hdf5(external_storage),
    "virtual dataset": hdf5(virtual("secret.h5")),
    "cyclic": hdf5(cycle),
    "cycle to the root": hdf5(cycle_root),
    "deep": hdf5(deep),
    "10,001 groups": hdf5(many_groups),
    "references": hdf5(references),
    "variable-length text": dataset(data=["a", "b"], dtype=h5py.string_dtype()),
    "compound": dataset(data=COMPOUND),
    "int32": dataset(data=np.zeros(3, "i4")),
    "no space": dataset(data=h5py.Empty("f4")),
    "blosc": hdf5(user_filter(32001)),
    "shape 2**62": unallocated((1 << 58, 4)),
    "shape 1 TB": unallocated((1 << 38,)),
    "forged shape": claims((7, 5), (7 << 20, 5)),
    "infinite": value(np.inf, (2, 4)),
    "float64 beyond float32": value(1e300, (2, 0), "f8"),
    "cut in half": cut(0.5),
    "signature only": raw(b"\x89HDF\r\n\x1a\n"),
    "signature and noise": raw(b"\x89HDF\r\n\x1a\n" + bytes(range(256)) * 16),
    "nothing": raw(b""),
    "wrong checksum": fletcher,
}


# Part of the attack's name → part of the message.
REASONS = {
    "link": "the link",
    "external storage": "in another file",
    "virtual": "in another file",
    "cyclic": "too deeply",
    "root": "too deeply",
    "deep": "too deeply",
    "groups": "objects",
    "references": "not a number",
    "variable-length": "not a number",
    "compound": "not a number",
    "[shape": "has no values",
    "unallocated": "has no values",
    "forged shape": "broken HDF5 file",
    "cut": "broken HDF5 file",
}


@table(ATTACKS)
def test_refused(
    maker: Callable[[Path], None], tmp_path: Path, capfd: Any, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "secret.txt").write_bytes(SECRET)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = np.frombuffer((SECRET * 8)[:32], np.float32)
    path = tmp_path / "model.hdf5"
    maker(path)
    assert path.stat().st_size < 64 << 20
    error = refused(lambda: use(path))
    check_reason(error, request.node.name, REASONS)
    assert "model.hdf5" in str(error)
    assert capfd.readouterr() == ("", "")  # the library prints its error stack if we let it


def test_the_maker_can_make_good_files(tmp_path: Path) -> None:
    path = tmp_path / "model.hdf5"
    hdf5(lambda file: None)(path)
    use(path)
