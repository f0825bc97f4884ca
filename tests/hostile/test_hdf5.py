"""HDF5 files that must be refused, when opened or when a dataset is read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmore.errors import FormatError
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


def external_absolute(file: Any) -> None:
    secret = Path(file.filename).with_name("secret.txt")
    file.create_dataset("x", (8,), "f4", external=[(str(secret), 0, 32)])


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


def very_deep(file: Any) -> None:
    file["/".join(["g"] * 3000) + "/w"] = VALUES


def many_groups(file: Any) -> None:
    for i in range(10_001):
        h5py.h5g.create(file.id, b"%d" % i)


def many_spread(file: Any) -> None:
    for i in range(101):
        group = file.create_group(str(i))
        for j in range(100):
            h5py.h5g.create(group.id, b"%d" % j)


def references(file: Any) -> None:
    file.create_dataset("x", (1,), h5py.ref_dtype)[0] = file["weights"].ref


def region_references(file: Any) -> None:
    file.create_dataset("x", (1,), h5py.regionref_dtype)[0] = file["weights"].regionref[:1]


def user_filter(code: int) -> Callable[[Any], None]:
    def fill(file: Any) -> None:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((4,))
        plan.set_filter(code, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_FLOAT, space, plan)

    return fill


def one_rich_chunk(file: Any) -> None:
    """One chunk of noise hides a chunk that unpacks more than a thousandfold."""
    n = 1 << 20
    x = file.create_dataset("x", (2 * n,), "f4", chunks=(n,), compression=9)
    x[:n] = np.random.default_rng(0).random(n, dtype=np.float32)
    # deflate alone reaches 1030:1 at most: cut the packed chunk short to claim more.
    x.id.write_direct_chunk((n,), zlib.compress(b"\0" * (4 * n), 9)[:100])


def wide_chunk(file: Any) -> None:
    file.create_dataset("x", (1,), "f4", maxshape=(None,), chunks=(1 << 28,))


def unallocated(shape: tuple[int, ...]) -> Callable[[Path], None]:
    return dataset(shape=shape, dtype="f4")


def unallocated_chunks(file: Any) -> None:
    file.create_dataset("x", (1 << 40,), "f4", chunks=(1 << 10,))


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


def forged_size(path: Path) -> None:
    """Forge the stored size as well, so that only the size of the file contradicts."""
    claims((7, 5), (7 << 12, 5))(path)
    data = path.read_bytes()
    assert struct.pack("<Q", 140) in data
    path.write_bytes(data.replace(struct.pack("<Q", 140), struct.pack("<Q", 140 << 12)))


def forged_place(path: Path) -> None:
    """Let the values begin just before the end of the file."""
    with h5py.File(path, "w", libver="earliest") as file:
        file["weights"] = VALUES
        place = struct.pack("<QQ", file["weights"].id.get_offset(), VALUES.nbytes)
    data = path.read_bytes()
    assert data.count(place) == 1
    path.write_bytes(data.replace(place, struct.pack("<QQ", len(data) - 10, VALUES.nbytes)))


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


def damaged_gzip(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["weights"] = VALUES
        x = file.create_dataset("x", data=np.arange(999.0), chunks=(999,), compression=9)
        offset = x.id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset : offset + 20] = b"\xff" * 20
    path.write_bytes(data)


COMPOUND = np.zeros(3, [("a", "f4"), ("b", "f4")])

ATTACKS: dict[str, Callable[[Path], None]] = {
    "soft link": set_item("x", h5py.SoftLink("/weights")),
    "dangling soft link": set_item("x", h5py.SoftLink("/nowhere")),
    "soft link to itself": set_item("x", h5py.SoftLink("/x")),
    "soft link below": set_item("CNN/x", h5py.SoftLink("/weights")),
    "external link": set_item("x", h5py.ExternalLink("secret.h5", "/data")),
    "external link below": set_item("a/b/x", h5py.ExternalLink("secret.h5", "/data")),
    "external link to itself": set_item("x", h5py.ExternalLink("model.hdf5", "/weights")),
    "external link to a device": set_item("x", h5py.ExternalLink("/dev/zero", "/")),
    "external storage": hdf5(external_storage),
    "external storage, absolute": hdf5(external_absolute),
    "virtual dataset": hdf5(virtual("secret.h5")),
    "virtual dataset of itself": hdf5(virtual(".")),
    "virtual dataset of nothing": hdf5(virtual("nowhere.h5")),
    "cyclic": hdf5(cycle),
    "cycle to the root": hdf5(cycle_root),
    "deep": hdf5(deep),
    "very deep": hdf5(very_deep),
    "10,001 groups": hdf5(many_groups),
    "10,201 groups in 101": hdf5(many_spread),
    "references": hdf5(references),
    "region references": hdf5(region_references),
    "variable-length text": dataset(data=["a", "b"], dtype=h5py.string_dtype()),
    "variable-length floats": dataset(shape=(2,), dtype=h5py.vlen_dtype("f4")),
    "compound": dataset(data=COMPOUND),
    "array type": dataset(shape=(2,), dtype=np.dtype(("f4", (3,)))),
    "opaque": dataset(data=np.zeros(3, "V8")),
    "complex": dataset(data=np.zeros(3, "c8")),
    "int32": dataset(data=np.zeros(3, "i4")),
    "uint64": dataset(data=np.zeros(3, "u8")),
    "bool": dataset(data=np.zeros(3, "?")),
    "fixed text": dataset(data=np.zeros(3, "S4")),
    "no space": dataset(data=h5py.Empty("f4")),
    "blosc": hdf5(user_filter(32001)),
    "unknown filter": hdf5(user_filter(65_000)),
    "one rich chunk": hdf5(one_rich_chunk),
    "wide chunk": hdf5(wide_chunk),
    "shape 2**62": unallocated((1 << 58, 4)),
    "shape overflow": unallocated((1 << 40, 1 << 20)),
    "shape 1 TB": unallocated((1 << 38,)),
    "shape 4 GB": unallocated((1 << 30,)),
    "unallocated chunks": hdf5(unallocated_chunks),
    "forged shape": claims((7, 5), (7 << 20, 5)),
    "forged shape 2**62": claims((7, 5), (1 << 61, 5)),
    "forged stored size": forged_size,
    "forged place": forged_place,
    "NaN": value(np.nan, (1, 2)),
    "infinite": value(np.inf, (2, 4)),
    "minus infinite": value(-np.inf, (0, 0)),
    "NaN in float16": value(np.nan, (0, 1), "f2"),
    "float64 beyond float32": value(1e300, (2, 0), "f8"),
    "cut in half": cut(0.5),
    "cut by a little": cut(0.99),
    "signature only": raw(b"\x89HDF\r\n\x1a\n"),
    "signature and zeros": raw(b"\x89HDF\r\n\x1a\n" + b"\0" * 4096),
    "signature and noise": raw(b"\x89HDF\r\n\x1a\n" + bytes(range(256)) * 16),
    "text": raw(b"hello\n" * 100),
    "nothing": raw(b""),
    "git-lfs pointer": raw(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
    "wrong checksum": fletcher,
    "damaged gzip": damaged_gzip,
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
    "array type": "not a number",
    "opaque": "not a number",
    "complex": "not a number",
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


@pytest.mark.parametrize(("bad", "index"), [(np.nan, (1, 2)), (-np.inf, (2, 4))])
def test_bad_value_is_named(bad: float, index: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "model.hdf5"
    value(bad, index)(path)
    message = str(refused(lambda: use(path)))
    assert "'x'" in message
    assert str(index) in message


def test_the_maker_can_make_good_files(tmp_path: Path) -> None:
    path = tmp_path / "model.hdf5"
    hdf5(lambda file: None)(path)
    use(path)


def test_cut_and_flipped_files_do_no_harm(tmp_path: Path) -> None:
    """Any single damaged byte of the structure gives values or a FormatError."""
    path = tmp_path / "model.hdf5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["CNN/weights"] = VALUES
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(300):
        data = bytearray(whole)
        data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
        path.write_bytes(data)
        try:
            with open_hdf5(path.open("rb"), what="x") as view:
                for name in view.shapes:
                    view.floats(name)
            outcomes["read"] += 1
        except FormatError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10, outcomes
