"""TensorFlow checkpoints with an index or shards that lie."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from small_models import DATA

from elmore.embedding.load import read_checkpoint
from elmore.formats.containers.tf_bundles import _entry, crc32c, masked_crc32c, read_table

from .attack import SECRET, check_reason, refused

MODEL = DATA / "tf1_words_one_layer"
PREFIX = "model.ckpt-7"
INDEX = (MODEL / f"{PREFIX}.index").read_bytes()
Entries = dict[bytes, bytes]
KERNEL = b"lm/RNN_0/rnn/lstm_cell/kernel"
ENTRIES = read_table(INDEX, what="index")
TRUE = _entry(ENTRIES[KERNEL])


# --------------------------------------------------------------------------- a writer of such files


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Every entry a restart, none shares its key."""
    body, restarts = b"", []
    for key, value in pairs:
        restarts.append(len(body))
        body += varint(0) + varint(len(key)) + varint(len(value)) + key + value
    restarts = restarts or [0]
    return body + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def sealed(raw: bytes, kind: int = 0) -> bytes:
    return raw + bytes([kind]) + struct.pack("<I", masked_crc32c(raw + bytes([kind])))


def table(entries: Entries, *, kind: int = 0, raw: bytes | None = None) -> bytes:
    data = sealed(block(list(entries.items())) if raw is None else raw, kind)
    meta = sealed(block([]))
    handle = varint(0) + varint(len(data) - 5)
    index = sealed(block([(b"\xff", handle)]))
    footer = varint(len(data)) + varint(len(meta) - 5)
    footer += varint(len(data) + len(meta)) + varint(len(index) - 5)
    return data + meta + index + footer.ljust(40, b"\0") + INDEX[-8:]


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def entry(
    shape: tuple[int, ...] = TRUE.shape,
    kind: int = 1,
    shard: int = TRUE.shard,
    offset: int = TRUE.offset,
    size: int = TRUE.size,
) -> bytes:
    dims = b"".join(field(2, field(1, n)) for n in shape)
    numbers = field(1, kind) + field(2, dims) + field(3, shard) + field(4, offset) + field(5, size)
    return numbers + varint(6 << 3 | 5) + bytes(4)


def changed(**values: object) -> Callable[[], bytes]:
    """The true index with another entry for one kernel."""
    return lambda: table({**ENTRIES, KERNEL: entry(**values)})  # type: ignore[arg-type]


def replaced(key: bytes, value: bytes) -> Callable[[], bytes]:
    return lambda: table(dict(sorted({**ENTRIES, key: value}.items())))


def patched(at: int, data: bytes) -> Callable[[], bytes]:
    def make() -> bytes:
        start = at % len(INDEX)
        return INDEX[:start] + data + INDEX[start + len(data) :]

    return make


ATTACKS: dict[str, Callable[[], bytes]] = {
    "only a footer": lambda: INDEX[-48:],
    "no magic": lambda: INDEX[:-1] + b"\0",
    "bytes behind": lambda: INDEX + b"x",
    "a sparse gigabyte": lambda: bytes(17 << 20) + INDEX[-48:],
    "a wrong checksum": patched(20, b"\xaa"),
    "a compressed block": lambda: table(ENTRIES, kind=1),
    "footer: blocks out of the file": lambda: (
        INDEX[:-48] + (varint(1 << 40) * 4).ljust(40, b"\0") + INDEX[-8:]
    ),
    "footer: numbers without end": lambda: INDEX[:-48] + b"\xff" * 40 + INDEX[-8:],
    "block: 2^32 restarts": lambda: table({}, raw=b"\xff" * 8),
    "block: shared key at the start": lambda: table(
        {}, raw=b"\x05\x01\x00x" + struct.pack("<2I", 0, 1)
    ),
    "block: a value over the end": lambda: table(
        {}, raw=b"\x00\x01\xff\x7fx" + struct.pack("<2I", 0, 1)
    ),
    "no header": lambda: table({k: v for k, v in ENTRIES.items() if k}),
    "header: a million shards": replaced(b"", field(1, 1_000_000)),
    "header: a shard too many": replaced(b"", field(1, 3)),
    "header: big-endian": replaced(b"", field(1, 2) + field(2, 1)),
    "entry: a group": replaced(KERNEL, b"\x0b"),
    "entry: a shape that is no message": replaced(KERNEL, field(1, 1) + field(2, 7)),
    "entry: two offsets": replaced(KERNEL, entry() + field(4, 0)),
    "shape: 2^62": changed(shape=(1 << 62,)),
    "shape: negative": changed(shape=((1 << 64) - 1, 40)),
    "shape: turned": changed(shape=(40, 10)),
    "type: integers": changed(kind=3),
    "size: a terabyte": changed(shape=(1 << 38,), size=1 << 40),
    "offset: over the end": changed(offset=1 << 20),
    "shard: 2": changed(shard=2),
    "overlap": changed(offset=TRUE.offset + 4),
    "two names for a weight": replaced(b"lm/RNN_0/rnn/LSTMCell/W_0", entry((0,), size=0, offset=0)),
    "a layer too many": replaced(
        b"lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/kernel", entry((0,), size=0, offset=0)
    ),
    "peepholes": replaced(b"lm/RNN_0/rnn/lstm_cell/w_f_diag", entry((0,), size=0, offset=0)),
    "a name that is a path": lambda: table(
        {b"": ENTRIES[b""], b"../../secret.txt": entry((1,), size=4)}
    ),
}
REASONS = {
    "sparse": "allowed are",
    "wrong checksum": "wrong checksum",
    "a compressed block": "compressed by method 1",
    "big-endian": "big-endian",
    "overlap": "differs from its checksum",
    "two names": "for one weight",
    "integers": "type 3",
    "peepholes": "does not describe",
}


def use(folder: Path) -> None:
    for _ in read_checkpoint(folder).checked_weights():
        pass


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_on_the_index(attack: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(SECRET)
    folder = shutil.copytree(MODEL, tmp_path / "model")
    (folder / f"{PREFIX}.index").write_bytes(ATTACKS[attack]())
    check_reason(refused(lambda: use(folder)), attack, REASONS)


SHARD = f"{PREFIX}.data-00000-of-00002"


def sparse(folder: Path) -> None:
    with (folder / SHARD).open("r+b") as stream:
        stream.truncate(1 << 40)


def linked(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to("../secret.txt")


def edited_options(**lstm: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        options = json.loads((folder / "options.json").read_text())
        options["lstm"] |= lstm
        (folder / "options.json").write_text(json.dumps(options))

    return edit


FILES: dict[str, Callable[[Path], object]] = {
    "shard gone": lambda folder: (folder / SHARD).unlink(),
    "shard of a terabyte": sparse,
    "shard that leads out": linked,
    "shard that is a folder": lambda folder: ((folder / SHARD).unlink(), (folder / SHARD).mkdir()),
    "index gone": lambda folder: (folder / f"{PREFIX}.index").unlink(),
    "index that leads out": lambda folder: (
        (folder / f"{PREFIX}.index").unlink(),
        (folder / f"{PREFIX}.index").symlink_to("../secret.txt"),
    ),
    "options of 2^31 units": edited_options(dim=1 << 31),
    "a vocabulary of one word": lambda folder: (folder / "vocab.txt").write_text("<S>\n"),
}


@pytest.mark.parametrize("attack", FILES)
def test_attacks_on_the_files(attack: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(SECRET)
    folder = shutil.copytree(MODEL, tmp_path / "model")
    FILES[attack](folder)
    refused(lambda: use(folder))


def test_the_writer_of_the_attacks_makes_good_files_too(tmp_path: Path) -> None:
    folder = shutil.copytree(MODEL, tmp_path / "model")
    (folder / f"{PREFIX}.index").write_bytes(table(ENTRIES))
    use(folder)


def test_checksums() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of its definition
    assert crc32c(bytes(32)) == 0x8A9136AA  # of RFC 3720
    data = bytes(range(256)) * 8  # lanes, parts of lanes and single bytes
    state = 0xFFFFFFFF
    for n, byte in enumerate(data):
        assert crc32c(data[:n]) == state ^ 0xFFFFFFFF
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    assert crc32c(data * 2500) == 0x8EE5DBFD  # several blocks


def renamed(folder: Path, names: dict[bytes, bytes]) -> Path:
    """Give variables other names; an empty one removes the variable."""
    entries = {names.get(key, key): value for key, value in ENTRIES.items()}
    kept = {key: value for key, value in entries.items() if key or value == ENTRIES[b""]}
    kept[b""] = ENTRIES[b""]
    (folder / f"{PREFIX}.index").write_bytes(table(dict(sorted(kept.items()))))
    return folder


@pytest.mark.parametrize(
    "leaves",
    [
        (b"weights", b"biases", b"projection/weights"),  # TensorFlow before 1.2
        (b"W_0", b"B", b"W_P_0"),
    ],
)
def test_older_spellings(leaves: tuple[bytes, bytes, bytes], tmp_path: Path) -> None:
    folder = shutil.copytree(MODEL, tmp_path / "model")
    before = dict(read_checkpoint(folder).checked_weights())
    names = {}
    for direction in (b"RNN_0", b"RNN_1"):
        cell = b"lm/" + direction + b"/rnn/lstm_cell/"
        new = b"lm/" + direction + b"/RNN/MultiRNNCell/Cell0/LSTMCell/"
        old = (b"kernel", b"bias", b"projection/kernel")
        names |= {cell + a: new + b for a, b in zip(old, leaves, strict=True)}
        names |= {
            cell + a + b"/Adagrad": new + b + b"/Adagrad" for a, b in zip(old, leaves, strict=True)
        }
    after = dict(read_checkpoint(renamed(folder, names)).checked_weights())
    assert after.keys() == before.keys()
    assert all((after[name] == before[name]).all() for name in before)


def test_a_softmax_that_shares_the_word_table(tmp_path: Path) -> None:
    """share_embedding_softmax: there is a bias and no weight of its own."""
    folder = shutil.copytree(MODEL, tmp_path / "model")
    checkpoint = read_checkpoint(renamed(folder, {b"lm/softmax/W": b""}))
    assert checkpoint.softmax is not None
    assert (checkpoint.softmax.weight == checkpoint.weights["tokens.words"]).all()
