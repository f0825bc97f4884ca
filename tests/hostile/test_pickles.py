"""Pickles that try to run code, to read elsewhere, or to fill the memory; all as `encoder.pkl`."""

from __future__ import annotations

import io
import pickle
import shutil
import struct
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import DATA

from elmore.embedding.load import read_checkpoint
from elmore.errors import FormatError
from elmore.formats.containers import torch_files
from elmore.formats.containers.sources import folder_source

from .attack import SECRET, check_reason, refused

MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
MACHINE = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, 2)
HEAD = MAGIC + MACHINE
STOP = b"."
TRACE = "elmore_was_here"  # a file that only executed code would make


class Evil:
    """Reduces to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def row(body: bytes, keys: list[str] | None = None, numbers: bytes = b"") -> bytes:
    """torch's older container around a pickle."""
    return HEAD + body + pickle.dumps(keys or [], 2) + numbers


def call(function: Any, *arguments: Any) -> Callable[[], bytes]:
    return lambda: row(pickle.dumps({"x": Evil(function, *arguments)}, 2))


def zipped(body: bytes, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", body)
        archive.writestr("archive/version", b"3\n")
        for name, data in members.items():
            archive.writestr(f"archive/data/{name.removeprefix('_')}", data)
    return buffer.getvalue()


def name_of(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def storage(count: int, kind: str = "FloatStorage", key: str = "0") -> bytes:
    """A persistent id."""
    inner = text("storage") + name_of("torch", kind) + text(key) + text("cpu") + number(count)
    return b"(" + inner + b"tQ"


def tensor(count: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    sizes = b"".join(b"(" + b"".join(map(number, part)) + b"t" for part in (shape, strides))
    arguments = (
        storage(count) + number(offset) + sizes + b"\x89" + name_of("collections", "OrderedDict")
    )
    return name_of("torch._utils", "_rebuild_tensor_v2") + b"(" + arguments + b")RtR"


def state(value: bytes) -> bytes:
    return b"\x80\x02}" + text("x") + value + b"s" + STOP


def numbers(count: int) -> bytes:
    return struct.pack("<q", count) + bytes(4 * count)


def array_state(shape: bytes, kind: bytes, data: bytes) -> bytes:
    """A numpy array set up by BUILD."""
    start = name_of("numpy.core.multiarray", "_reconstruct")
    start += b"(" + name_of("numpy", "ndarray") + b"(K\x00tC\x01btR"
    return b"\x80\x02" + start + b"(K\x01" + shape + kind + b"\x89" + data + b"tb" + STOP


def laughs(depth: int) -> bytes:
    """A tuple of tuples of tuples ...: short here, endless in print or hash."""
    return b"(K\x01t" + b"".join(
        b"q" + bytes([k]) + b"h" + bytes([k]) + b"\x86" for k in range(depth)
    )


def again_and_again(made: bytes, name: bytes, step: bytes) -> bytes:
    """Make a large value once, and hand it to a name some thousand times."""
    return b"\x80\x02" + made + b"q\x00" + name + b"q\x01" + step * 20_000 + b"t."


def colliding(count: int) -> bytes:
    """A dictionary of numbers that all have the hash 0."""
    keys = (b"\x8a\x0c" + (k * (2**61 - 1)).to_bytes(12, "little") + b"N" for k in range(count))
    return b"\x80\x02}(" + b"".join(keys) + b"u."


ATTACKS: dict[str, Callable[[], bytes]] = {
    "a dictionary copied again and again": lambda: row(
        again_and_again(
            b"](" + b"".join(text(f"{k}") + b"N\x86" for k in range(20_000)) + b"e",
            name_of("collections", "OrderedDict"),
            b"h\x01h\x00\x85R",
        )
    ),
    "a string encoded again and again": lambda: row(
        again_and_again(text("x" * 1_000_000), name_of("_codecs", "encode"), b"h\x01h\x00\x85R")
    ),
    "an array filled again and again": lambda: row(
        again_and_again(
            b"(K\x01M\x10'\x85"
            + (name_of("numpy", "dtype") + b"(" + text("f8") + b"tR")
            + (b"\x89" + text("x" * 80_000) + b"t"),
            name_of("numpy", "ndarray"),
            b"h\x01)Rh\x00b",
        )
    ),
    "keys of one hash": lambda: row(colliding(100_000)),
    "os.system": call(__import__("os").system, f"touch {TRACE}"),
    "eval": call(eval, f"open({TRACE!r}, 'w')"),
    "subprocess": call(subprocess.Popen, ["touch", TRACE]),
    "getattr": call(getattr, 1, "real"),
    "torch.load": call(torch.load, TRACE),
    "numpy file": call(np.fromfile, "../secret.txt", "u1"),
    "a function of torch._utils": lambda: row(
        state(name_of("torch._utils", "_rebuild_wrapper_subclass") + b")R")
    ),
    "an attribute by dots": lambda: row(
        state(text("collections") + text("OrderedDict.fromkeys") + b"\x93)R")
    ),
    "a name from a tuple": lambda: row(state(laughs(30) + text("x") + b"\x93)R")),
    "an instance by INST": lambda: row(b"(ios\nsystem\n."),
    "an object by OBJ": lambda: row(b"(" + name_of("os", "system") + b"o."),
    "NEWOBJ": lambda: row(state(name_of("collections", "OrderedDict") + b")\x81")),
    "a name as a value": lambda: row(b"\x80\x02" + name_of("torch", "FloatStorage") + STOP),
    "a call of a string": lambda: row(state(text("print") + b")R")),
    "state for a tensor": lambda: row(state(tensor(4, (4,), (1,)) + b"}b"), ["0"], numbers(4)),
    "a storage that is built": lambda: row(state(name_of("torch", "FloatStorage") + b")R")),
    "a persistent id that is a string": lambda: row(state(text("../secret.txt") + b"Q")),
    "a persistent id in the header": lambda: text("x") + b"Q.",
    "a storage of a view": lambda: row(
        state(b"(" + storage(4)[1:-2] + b"(" + text("v") + b"K\x00K\x01ttQ")
    ),
    "a negative storage": lambda: row(state(tensor(-4, (1,), (1,))), ["0"], numbers(0)),
    "a storage described twice": lambda: row(
        b"\x80\x02}" + text("x") + storage(4) + b"s" + text("y") + storage(5) + b"s.", ["0"]
    ),
    "strides of zero": lambda: row(state(tensor(1, (1 << 40,), (0,))), ["0"], numbers(1)),
    "strides that overlap": lambda: row(state(tensor(6, (2, 3), (2, 1))), ["0"], numbers(6)),
    "strides over the end": lambda: row(state(tensor(4, (2,), (4,))), ["0"], numbers(4)),
    "many dimensions": lambda: row(state(tensor(4, (1,) * 9, (1,) * 9)), ["0"], numbers(4)),
    "a huge memo index": lambda: row(b"\x80\x02Nr\xff\xff\xff\xffj\xff\xff\xff\xfe."),
    "a dictionary of nested keys": lambda: row(b"\x80\x02}" + laughs(40) + b"K\x01s" + STOP),
    "opcodes without end": lambda: row(b"\x80\x02" + b"N" * 2_000_000),
    "containers that never end": lambda: row(b"\x80\x02" + b"(" * 200_000),
    "a key of many levels": lambda: row(b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s."),
    "a set of nested tuples": lambda: row(b"\x80\x04\x8f(" + laughs(40) + b"\x90."),
    "a bytearray of 4 GB": lambda: row(b"\x80\x05\x96" + struct.pack("<Q", 1 << 32) + b"abc"),
    "defaults of our function": lambda: row(
        state(
            name_of("_codecs", "encode")
            + (b"N}" + text("__defaults__") + text("utf-16") + b"\x85s\x86b")
        )
    ),
    "state for a type of numbers": lambda: row(
        state(name_of("torch", "FloatStorage") + b"]" + text("<f8") + b"ab")
    ),
    "a string longer than the file": lambda: row(b"\x80\x02X\xff\xff\xff\x7fabc"),
    "a number of a megabyte": lambda: row(b"\x80\x02\x8b\x00\x00\x10\x00" + bytes(1 << 20) + b"."),
    "a key without a value": lambda: row(b"\x80\x02}(" + text("x") + b"u."),
    "two values": lambda: row(b"\x80\x02NN."),
    "another magic number": lambda: pickle.dumps(5, 2) + HEAD,
    "a big-endian machine": lambda: MAGIC + pickle.dumps({"little_endian": False}, 2),
    "keys that are not used": lambda: row(state(tensor(4, (4,), (1,))), ["1"], numbers(4)),
    "another count in the data": lambda: row(state(tensor(4, (4,), (1,))), ["0"], numbers(5)),
    "data cut off": lambda: row(state(tensor(4, (4,), (1,))), ["0"], numbers(4)[:-1]),
    "data after the end": lambda: row(state(tensor(4, (4,), (1,))), ["0"], numbers(4) + b"\0"),
    "nothing": lambda: b"",
    "zip: os.system": lambda: zipped(pickle.dumps(Evil(__import__("os").system, f"touch {TRACE}"))),
    "zip: a storage that is missing": lambda: zipped(state(tensor(4, (4,), (1,)))),
    "zip: a storage by a path": lambda: zipped(
        state(b"(" + storage(4, key="../../secret.txt")[1:]), _0=bytes(16)
    ),
    "zip: a big-endian machine": lambda: _with_member(zipped(state(b"N")), "byteorder", b"big"),
    "zip: bytes after the pickle": lambda: zipped(
        state(tensor(4, (4,), (1,))) + b"x", _0=bytes(16)
    ),
}
REASONS = {
    "os.system": "which is not allowed",
    "eval": "which is not allowed",
    "torch.load": "which is not allowed",
    "numpy file": "which is not allowed",
    "by dots": "which is not allowed",
    "a name from a tuple": "STACK_GLOBAL requires str",
    "by INST": "opcode 0x69",
    "NEWOBJ": "opcode 0x81",
    "strides of zero": "over 1 numbers",
    "strides that overlap": "elements overlap",
    "strides over the end": "reaches beyond its storage",
    "many dimensions": "do not fit",
    "a negative storage": "not a storage",
    "a storage of": "not a storage",
    "described twice": "in two ways",
    "state for": "state of a value that has none",
    "two values": "more than one value",
    "a call of": "calls something that is not a name",
    "in the header": "outside the file",
    "defaults of": "state of a value that has none",
    "a key of many levels": "key of type tuple",
    "a set of nested": "opcode 0x8f",
    "a bytearray": "opcode 0x96",
    "that is built": "calls something that is not a name",
    "a name as a value": "holds a StorageType",
    "another count": "has another size",
    "data cut off": "its tensors need",
    "keys that are not used": "lists other storages",
    "big-endian": "big-endian",
    "is missing": "no file '0'",
    "bytes after the pickle": "bytes after its pickle",
    "a dictionary of nested": "key of type tuple",
    "keys of one hash": "key of type int",
    "again and again": "greater length than allowed",
    "data after the end": "its tensors need",
    "zip: a storage by a path": "no file",
}


def _with_member(data: bytes, name: str, content: bytes) -> bytes:
    buffer = io.BytesIO(data)
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        warnings.simplefilter("ignore")  # a name that is there twice
        archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks(attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_bytes(SECRET)
    folder = shutil.copytree(DATA / "manylangs_both", tmp_path / "model")
    (folder / "encoder.pkl").write_bytes(ATTACKS[attack]())
    modules = set(sys.modules)
    error = refused(lambda: read_checkpoint(folder))
    check_reason(error, attack, REASONS)
    assert "encoder.pkl" in str(error)
    assert not (tmp_path / TRACE).exists()
    assert not {
        m for m in set(sys.modules) - modules if not m.startswith(("elmore", "encodings.", "_"))
    }


def test_what_is_allowed(tmp_path: Path) -> None:
    """The very builders of the attacks make a file that is read, so that they fail for cause."""
    (tmp_path / "good.pkl").write_bytes(row(state(tensor(4, (2, 2), (2, 1))), ["0"], numbers(4)))
    (tmp_path / "zip.pkl").write_bytes(zipped(state(tensor(4, (4,), (1,))), _0=bytes(16)))
    for name, shape in (("good.pkl", (2, 2)), ("zip.pkl", (4,))):
        found = torch_files.read_state_dict(folder_source(tmp_path), name)
        assert found.shapes == {"x": shape}
        np.testing.assert_array_equal(found.floats("x"), np.zeros(shape))


def test_tensors_of_every_kind(tmp_path: Path) -> None:
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    tensors = OrderedDict(
        plain=base,
        turned=base.transpose(0, 2),
        part=base[1:, ::2, 1],
        half=base.half(),
        double=base.double(),
        brain=base.bfloat16(),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(base + 1),
        whole=torch.arange(3),
    )
    for new in (True, False):
        torch.save(tensors, tmp_path / "t.pkl", _use_new_zipfile_serialization=new)
        found = torch_files.read_state_dict(folder_source(tmp_path), "t.pkl")
        for name, value in tensors.items():
            assert found.shapes[name] == tuple(value.shape)
            if name != "whole":
                expected = value.detach().float().numpy()
                np.testing.assert_array_equal(found.floats(name), expected)
        with pytest.raises(FormatError, match="expected a float type"):
            found.floats("whole")
        assert found.types["brain"] == "bfloat16"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_numpy_arrays(order: Any, protocol: int, tmp_path: Path) -> None:
    """Alignment matrices of multilingual models are pickled arrays."""
    values = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    torch.save(values, tmp_path / "a.pth", pickle_protocol=protocol)
    np.testing.assert_array_equal(torch_files.read_array(folder_source(tmp_path), "a.pth"), values)
    torch.save(torch.ones(2), tmp_path / "a.pth")
    np.testing.assert_array_equal(torch_files.read_array(folder_source(tmp_path), "a.pth"), [1, 1])
    for wrong in ({"x": values}, np.array(["text"]), np.array([None]), np.ones(2) * np.nan):
        torch.save(wrong, tmp_path / "a.pth", pickle_protocol=protocol)
        with pytest.raises(FormatError):
            torch_files.read_array(folder_source(tmp_path), "a.pth")


ARRAYS = {
    "values that do not fit": array_state(b"K\x04\x85", b"", b"C\x04abcd"),
    "no type": array_state(b"K\x01\x85", b"N", b"C\x04abcd"),
    "a shape of many": array_state(b"(" + b"K\x01" * 9 + b"t", b"N", b"C\x01a"),
    "a shape of text": array_state(text("12"), b"N", b"C\x01a"),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_hostile_arrays(what: str, tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(row(ARRAYS[what]))
    refused(lambda: torch_files.read_array(folder_source(tmp_path), "a.pth"))
