"""Read TensorFlow checkpoints of bilm-tf, apart from the package's own reader."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from small_models import GOLDEN

from elmore.config import BiLmConfig
from elmore.formats.bilm_options import config_from_options
from elmore.formats.bilm_weights import bilm_layout, canonical_name, read_weights
from elmore.formats.checkpoint import Checkpoint, Softmax
from elmore.formats.containers.arrays import Arrays
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary


def read_bundle(prefix: Path) -> dict[str, np.ndarray]:
    """The variables of a TensorFlow checkpoint: an SSTable of protocol buffers and raw arrays."""
    index = Path(f"{prefix}.index").read_bytes()
    data = Path(f"{prefix}.data-00000-of-00001").read_bytes()

    def varint(raw: bytes, at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (raw[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if raw[at - 1] < 128:
                return value, at

    def block(handle: bytes) -> list[tuple[bytes, bytes]]:
        offset, at = varint(handle, 0)
        size, _ = varint(handle, at)
        raw, entries, key, at = index[offset : offset + size], [], b"", 0
        [n_restarts] = struct.unpack("<I", raw[-4:])
        while at < size - 4 * (n_restarts + 1):
            shared, at = varint(raw, at)
            rest, at = varint(raw, at)
            length, at = varint(raw, at)
            key = key[:shared] + raw[at : at + rest]
            entries.append((key, raw[at + rest : at + rest + length]))
            at += rest + length
        return entries

    def fields(raw: bytes) -> list[tuple[int, Any]]:
        found, at = [], 0
        while at < len(raw):
            tag, at = varint(raw, at)
            if tag & 7 == 0:
                value, at = varint(raw, at)
            else:
                size, at = (4, at) if tag & 7 == 5 else varint(raw, at)
                value, at = raw[at : at + size], at + size
            found.append((tag >> 3, value))
        return found

    footer = index[-48:]
    _, at = varint(footer, 0)
    _, at = varint(footer, at)
    variables = {}
    for _, handle in block(footer[at:]):
        for key, value in block(handle):
            entry = dict(fields(value))
            if key and entry[1] == 1:  # float32; the empty key is the header
                shape = [dict(fields(dim)).get(1, 0) for n, dim in fields(entry[2]) if n == 2]
                array = np.frombuffer(data, "<f4", entry[5] // 4, entry.get(4, 0))
                variables[key.decode()] = array.reshape(shape)
    return variables


def our_arrays(config: BiLmConfig, variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays under bilm-tf's names (without `lm/`) -> under ours; gradients and sums too."""
    plain = {canonical_name(name): np.asarray(array) for name, array in variables.items()}
    shapes = {name: array.shape for name, array in plain.items()}
    arrays = Arrays("variables", shapes, dict.fromkeys(plain, "float32"), plain.__getitem__)
    layout = dataclasses.replace(bilm_layout(config), complete=())
    return dict(read_weights(config, layout, arrays, "options.json")[0])


def load_bundle(prefix: Path) -> Checkpoint:
    """A checkpoint of bilm-tf with its softmax; options.json lies beside it."""
    options = json.loads((prefix.parent / "options.json").read_text())
    variables = read_bundle(prefix)
    vocabulary = Vocabulary.read(GOLDEN / "bilm-tf/train/vocab.txt")
    config = config_from_options(
        options,
        bidirectional=options["bidirectional"],
        n_words=len(vocabulary),
        what="options.json",
    )
    plain = {name.removeprefix("lm/"): array for name, array in variables.items()}
    return Checkpoint(
        config=config,
        weights=our_arrays(config, plain),
        alphabet=ByteAlphabet(config.tokens.max_chars) if config.tokens.n_characters else None,
        vocabulary=vocabulary,
        softmax=Softmax(variables["lm/softmax/W"], variables["lm/softmax/b"]),
    )


def toy_corpus() -> list[list[str]]:
    """bilm-tf's toy corpus, five sentences."""
    text = (GOLDEN / "bilm-tf/train/data.txt").read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines()]
