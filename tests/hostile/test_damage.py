"""Every truncation and every damaged byte of small foreign models: an error, or the same model.

What can be told: TensorFlow's arrays and index carry CRC-32C, torch's zips CRC-32, gzip its own.
torch's older files carry none for their numbers, and text files (options, dictionaries) none at
all: of those, only what describes the tensors is held to the rule.

Here some bytes are taken; ELMORE_DAMAGE_STEP=1 takes every byte of every file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_models import DATA

from elmore.embedding.load import read_checkpoint
from elmore.errors import ElmoreError

from .attack import check_message


def contents(model: Path) -> list[Any]:
    """All that a model computes with."""
    checkpoint = read_checkpoint(model)
    found: list[Any] = [checkpoint.config, checkpoint.vocabulary, checkpoint.mixes]
    found += [weight.tobytes() for _, weight in checkpoint.checked_weights()]
    if checkpoint.softmax is not None:
        found += [checkpoint.softmax.weight.tobytes(), checkpoint.softmax.bias.tobytes()]
    return found


def damaged(data: bytes, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """One bit of a byte, all bits of a byte, and cuts."""
    for at in range(0, len(data), step):
        for change in (1 << at % 8, 0xFF):
            yield f"byte {at} ^ {change}", data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]
    for at in range(0, len(data), step):
        yield f"cut at {at}", data[:at]
    for more in (1, 64):
        yield f"{more} more bytes", data + bytes(more)


# Model → its file to damage, and the step between the damaged bytes.
CASES: dict[tuple[str, str], int] = {
    ("tf1_words_one_layer", "model.ckpt-7.index"): 3,
    # Bytes of the optimizer's sums may change: they are not read.
    ("tf1_words_one_layer", "model.ckpt-7.data-00000-of-00002"): 67,
    ("tf1_words_one_layer", "model.ckpt-7.data-00001-of-00002"): 67,
    ("manylangs_words", "token_embedder.pkl"): 29,  # torch's zip
    ("manylangs_characters_old", "token_embedder.pkl"): 29,
    ("allennlp_tagger.tar.gz", ""): 197,
    ("ours", "config.json"): 17,
    ("ours", "model.safetensors"): 997,
    ("ours", "manifest.json"): 7,
}


@pytest.mark.parametrize(("name", "inner"), CASES)
def test_damage_is_refused_or_harmless(
    name: str, inner: str, tiny_folder: Path, tmp_path: Path
) -> None:
    original = tiny_folder if name == "ours" else DATA / name
    copy: Any = shutil.copytree if original.is_dir() else shutil.copy
    model = Path(copy(original, tmp_path / name))
    file = model / inner if inner else model
    before, data = contents(model), file.read_bytes()
    # The older files of torch have no checksum for the numbers after their pickles.
    numbers = range(0)
    if "old" in name:
        numbers = range(data.rindex(b"e.") + 2, len(data))
    refused = same = 0
    step = int(os.environ.get("ELMORE_DAMAGE_STEP", CASES[name, inner]))
    for what, bad in damaged(data, step):
        if what.startswith("byte") and int(what.split()[1]) in numbers:
            continue
        file.unlink()  # never in place: an open model may still read the old one
        file.write_bytes(bad)
        try:
            after = contents(model)
        except ElmoreError as error:
            check_message(error)
            refused += 1
        else:
            assert after == before, f"{file.name}: {what} changed the model silently"
            same += 1
            # The end of a gzip, and the last line end of a JSON text, say nothing.
            ending = file.suffix == ".gz" or what == f"cut at {len(data) - 1}"
            assert not what.startswith("cut") or ending, what
    assert refused > max(same, 10)
