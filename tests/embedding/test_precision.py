"""Precision as a word: the same numbers from memory, from a folder, native or not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from small_models import SENTENCES, make_checkpoint, make_options

from elmore import Elmo
from elmore.compute.native import native
from elmore.embedding.certificate import certified, certify
from elmore.embedding.load import read_checkpoint
from elmore.errors import FormatError
from elmore.formats.checkpoint import CERTIFICATE, Checkpoint
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors

needs_native = pytest.mark.skipif(native().module is None, reason="the C extension is not in use")
BUSY = [sentence for sentence in SENTENCES if sentence]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return make_checkpoint(tmp_path / "source", make_options(48, 16))


def layers(elmo: Elmo) -> list[np.ndarray]:
    return [found.values for found in elmo.layers(BUSY, tokenized=True)]


def difference(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


@needs_native
@pytest.mark.parametrize(("precision", "most"), [("float16", 1e-5), ("int8", 0.2)])
def test_without_the_extension_the_same_numbers(
    checkpoint: Checkpoint, precision: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = layers(Elmo(checkpoint, precision=precision))
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    plain = layers(Elmo(checkpoint, precision=precision))
    # int8: a last bit can turn a rounding over. The means show that only few did.
    assert difference(compiled, plain) < most
    mean = np.mean([np.abs(a - b).mean() for a, b in zip(compiled, plain, strict=True)])
    assert mean < most / 50


@needs_native
@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_a_sentence_alone_gives_the_same_bits(checkpoint: Checkpoint, precision: str) -> None:
    elmo = Elmo(checkpoint, precision=precision)
    together = layers(elmo)
    fresh = Elmo(checkpoint, precision=precision, threads=1)
    for sentence, values in zip(BUSY, together, strict=True):
        assert np.array_equal(fresh.layers([sentence], tokenized=True)[0].values, values)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_folder_keeps_the_numbers(checkpoint: Checkpoint, precision: str, tmp_path: Path) -> None:
    elmo = Elmo(checkpoint, precision=precision)
    elmo.save(tmp_path / "whole")
    elmo.save(tmp_path / "cheap", precision=precision)
    again = Elmo.load(tmp_path / "cheap", precision=precision)
    assert again.checkpoint.precision == precision
    assert difference(layers(elmo), layers(again)) == 0
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("cheap", "whole")]
    assert sizes[0] < sizes[1] * 0.6
    # Written once more, not a byte changes.
    again.save(tmp_path / "twice", precision=precision)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("cheap", "twice")]
    assert files[0] == files[1]
    # Nor is it by default, however the copy was loaded.
    Elmo.load(tmp_path / "cheap", precision="float32").save(tmp_path / "copy")
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == files[0]
    assert Elmo.load(tmp_path / "copy", precision=precision).digest == again.digest
    # There and back again neither.
    again.save(tmp_path / "wide", precision="float32")
    Elmo.load(tmp_path / "wide").save(tmp_path / "back", precision=precision)
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == files[0]
    # Asked for in float32, it is computed from the numbers that it stores.
    wide = Elmo.load(tmp_path / "cheap", precision="float32")
    assert wide.precision == "float32"
    assert difference(layers(wide), layers(Elmo(checkpoint))) < 0.5


def test_int8_is_the_default_where_it_is_fast(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Elmo(checkpoint).save(tmp_path / "cheap", precision="int8")
    usual = "int8" if native().vectors else "float32"
    assert Elmo.load(tmp_path / "cheap").precision == usual
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    slow = Elmo.load(tmp_path / "cheap")
    assert slow.precision == "float32"
    # float32 computes the stored model: its int8 weights, and nothing else is rounded.
    exact = dataclasses.replace(checkpoint, weights=dict(slow.checkpoint.checked_weights()))
    assert difference(layers(slow), layers(Elmo(exact, precision="float32"))) == 0


def test_the_certificate(checkpoint: Checkpoint, tmp_path: Path) -> None:
    Elmo(checkpoint).save(tmp_path / "cheap", precision="int8")
    found = read_checkpoint(tmp_path / "cheap")
    certificate = found.notes[CERTIFICATE]
    assert certificate == certify(checkpoint, "int8")
    assert certificate["precision"] == "int8"
    assert certificate["tokens"] > 100
    for key in ("mean_cosine", "min_cosine", "max_error"):
        assert len(certificate[key]) == 3
    assert all(0.99 < value < 1 for value in certificate["mean_cosine"])
    assert all(
        low <= mean
        for low, mean in zip(certificate["min_cosine"], certificate["mean_cosine"], strict=True)
    )
    # It goes with the numbers: kept with them, gone with them.
    assert certified(found, "int8") is found
    assert CERTIFICATE not in certified(found, "float32").notes
    assert CERTIFICATE not in found.with_weights(dict(found.checked_weights())).notes
    assert json.dumps(dict(found.notes))


def change_model(folder: Path, change: object) -> None:
    path = folder / "model.safetensors"
    with read_safetensors(path, what="model") as view:
        tensors = {name: np.array(view.read(name)) for name in view.shapes}
    change(tensors)  # type: ignore[operator]
    write_safetensors(path, tensors, {"format": "elmore"})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.safetensors"]["size"] = path.stat().st_size
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["files"]["model.safetensors"]["sha256"] = digest
    (folder / "manifest.json").write_text(json.dumps(manifest))


NAME, BIAS = "forward_layers.0.state_weight", "forward_layers.0.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(f"{NAME}.scales"), "state_weight.scales is missing"),
        (lambda t: t.update({f"{NAME}.scales": np.ones(3, np.float32)}), "scales has shape"),
        (lambda t: t[NAME].fill(-128), "not a valid int8 matrix"),
        (
            lambda t: t.update({BIAS: t[BIAS].astype(np.int8), f"{BIAS}.scales": t[BIAS]}),
            "bias has shape .* type int8",
        ),
        (lambda t: t[f"{NAME}.scales"].fill(-1), "not a valid int8 matrix"),
        (lambda t: t[f"{NAME}.scales"].fill(np.nan), "not finite|NaN|nan"),
    ],
)
def test_int8_folders_that_lie(
    checkpoint: Checkpoint, tmp_path: Path, change: object, message: str
) -> None:
    Elmo(checkpoint).save(tmp_path / "cheap", precision="int8")
    change_model(tmp_path / "cheap", change)
    for precision in (None, "float32"):
        with pytest.raises(FormatError, match=message):
            Elmo.load(tmp_path / "cheap", precision=precision)  # type: ignore[arg-type]
