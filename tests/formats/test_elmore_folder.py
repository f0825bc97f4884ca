"""elmore's own folder: exact, and either whole or refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import make_checkpoint, make_options

from elmore import Elmo
from elmore.compute.matrix import dequantize, quantize
from elmore.config import (
    BiLmConfig,
    LstmConfig,
    TokenEncoderConfig,
    weight_shapes,
)
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError, ElmoreError, FormatError
from elmore.formats import allennlp_hdf5, elmore_folder
from elmore.formats.checkpoint import Checkpoint, Mix, Softmax, StartState
from elmore.formats.detect import open_source
from elmore.options import StoredType
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary


def make_full(seed: int = 0, *, words: bool = False, **lstm: Any) -> Checkpoint:
    """A small checkpoint that has everything a checkpoint can have."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    config = BiLmConfig(
        tokens=TokenEncoderConfig(
            n_characters=261,
            char_dim=3,
            filters=((1, 4), (2, 5)),
            n_highway=1,
            n_words=4 if words else 0,
            word_dim=2 if words else 0,
        ),
        lstm=LstmConfig(**{"dim": 6, "projection_dim": 4, "n_layers": 2} | lstm),
    )
    n = (len(config.directions), config.lstm.n_layers)
    return Checkpoint(
        config=config,
        weights={name: normal(*shape) for name, shape in weight_shapes(config).items()},
        alphabet=ByteAlphabet(),
        vocabulary=Vocabulary(["<S>", "</S>", "<UNK>", "狐"]),
        softmax=Softmax(normal(4, config.lstm.projection_dim), normal(4)),
        mixes=(Mix((0.1, -0.5, 1e-9), 1.25), Mix((0.0, 0.0, 0.0), 1.0)),
        start_state=StartState(normal(*n, config.lstm.projection_dim), normal(*n, config.lstm.dim)),
        tokenizer="ptb",
        notes={"card": {"licence": "CC0", "words": [1, 2.5, None, True, "é"]}},
    )


def assert_same(a: Checkpoint, b: Checkpoint, cast: type = np.float32) -> None:
    """Everything equal; weights after rounding to `cast`."""

    def rounded(x: np.ndarray) -> np.ndarray:
        return np.asarray(x).astype(cast).astype(np.float32)

    assert a.config == b.config
    for name in weight_shapes(a.config):
        assert b.weights[name].dtype == np.float32
        np.testing.assert_array_equal(rounded(a.weights[name]), b.weights[name])
    for field in ("vocabulary", "mixes", "tokenizer", "notes"):
        assert getattr(a, field) == getattr(b, field), field
    assert (a.softmax is None) == (b.softmax is None)
    if a.softmax is not None and b.softmax is not None:
        np.testing.assert_array_equal(rounded(a.softmax.weight), b.softmax.weight)
        np.testing.assert_array_equal(rounded(a.softmax.bias), b.softmax.bias)
    assert (a.start_state is None) == (b.start_state is None)
    for x, y in zip(a.start_state or (), b.start_state or (), strict=True):
        np.testing.assert_array_equal(x, y)  # the state is always stored in full
    assert (a.alphabet is None) == (b.alphabet is None)
    if a.alphabet is not None:
        assert a.alphabet.max_chars == b.alphabet.max_chars


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    words=st.booleans(),
    lstm=st.fixed_dictionaries(
        {
            "dim": st.integers(4, 9),
            "cell_clip": st.none() | st.floats(1e-3, 1e30),
            "proj_clip": st.none() | st.just(3.0),
            "skip_connections": st.booleans(),
            "bidirectional": st.booleans(),
        }
    ),
    precision=st.sampled_from(["float32", "float16"]),
)
def test_write_and_read_is_exact(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    words: bool,
    lstm: dict[str, Any],
    precision: StoredType,
) -> None:
    checkpoint = make_full(seed, words=words, **lstm)
    path = tmp_path_factory.mktemp("exact") / "model"
    elmore_folder.write(checkpoint, path, precision=precision)
    assert_same(checkpoint, read_checkpoint(path), np.dtype(precision).type)
    shutil.rmtree(path)


def test_int8_is_rounded_once(tmp_path: Path) -> None:
    """Weights and softmax in a byte each, with a scale per row; the rest in float16."""
    checkpoint = make_full(1, words=True)
    elmore_folder.write(checkpoint, tmp_path / "model", precision="int8")
    again = read_checkpoint(tmp_path / "model")
    assert again.softmax is not None
    assert again.softmax.weight.dtype == np.int8
    wanted = quantize(checkpoint.softmax.weight)
    for found, expected in zip(again.softmax.stored, wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again.softmax.floats(), dequantize(wanted))
    assert again.stored_types == {"int8", "float16", "float32"}  # scales and state in float32
    elmore_folder.write(again, tmp_path / "twice", precision="int8")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("model", "twice")]
    assert files[0] == files[1]
    elmore_folder.write(again, tmp_path / "wide")
    wide, matrix = read_checkpoint(tmp_path / "wide"), "forward_layers.0.input_weight"
    assert wide.softmax.scales is None
    np.testing.assert_array_equal(wide.softmax.weight, again.softmax.floats())
    np.testing.assert_array_equal(wide.weights[matrix], again.weights[matrix])


def test_a_lean_checkpoint_round_trips(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    elmore_folder.write(tiny_checkpoint, tmp_path / "model")
    again = read_checkpoint(tmp_path / "model")
    assert_same(tiny_checkpoint, again)
    assert again.softmax is again.start_state is again.vocabulary is None
    elmore_folder.write(again, tmp_path / "twice")
    for name in ("config.json", "model.safetensors", "manifest.json"):
        first, second = (tmp_path / where / name for where in ("model", "twice"))
        assert first.read_bytes() == second.read_bytes()


def test_too_large_for_half_precision(tmp_path: Path) -> None:
    checkpoint = make_full()
    weights = dict(checkpoint.weights)
    weights["tokens.characters"] = weights["tokens.characters"] + np.float32(70000)
    with pytest.raises(
        ConfigError, match=r"tokens\.characters has the value 7e\+04, too large for float16"
    ):
        elmore_folder.write(
            dataclasses.replace(checkpoint, weights=weights),
            tmp_path / "model",
            precision="float16",
        )
    assert not (tmp_path / "model").exists()


# Damage ------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    elmore_folder.write(make_full(), tmp_path / "model")
    return tmp_path / "model"


def refused(path: Path) -> str:
    with pytest.raises(ElmoreError) as caught:
        list(read_checkpoint(path).checked_weights())
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) <= 300, message
    return message


FILES = ("config.json", "model.safetensors", "vocab.txt", "manifest.json")


def test_a_damaged_file_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    assert "model.safetensors' differs from its SHA-256 in the manifest" in refused(model)
    with open_source(model) as source:
        monkeypatch.setattr(elmore_folder, "_HASHED_BYTES", 0)  # as for a very large model
        assert elmore_folder.read(source).config == make_full().config


def test_missing_files(model: Path) -> None:
    for name in FILES:
        data = (model / name).read_bytes()
        (model / name).unlink()
        message = refused(model)
        assert name in message or "no known model" in message
        (model / name).write_bytes(data)
    (model / "manifest.json").unlink()
    assert "has no manifest.json, so it is not complete" in refused(model)


def rewrite(
    path: Path, change: Callable[[dict[str, Any]], object], name: str = "config.json"
) -> None:
    """Change a JSON file and make the manifest fit again, as somebody hostile would."""
    data = json.loads((path / name).read_text(encoding="utf-8"))
    change(data)
    (path / name).write_text(json.dumps(data), encoding="utf-8")
    if name != "manifest.json":
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        content = (path / name).read_bytes()
        manifest["files"][name] = {
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def setter(*keys: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        if to is ...:
            del data[keys[-1]]
        else:
            data[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setter("version", to=3), "format version 3, this elmore reads up to 1; upgrade elmore"),
        (setter("version", to=True), "has version True"),
        (setter("format", to="other"), "does not belong to an elmore folder"),
        (setter("files", to=...), "files is missing"),
        (setter("files", to=[]), r"files=\[\]; use an object"),
        (setter("files", "config.json", to=...), "does not list the model"),
        (setter("files", "model.safetensors", to=...), "does not list the model"),
        (setter("files", "vocab.txt", to=...), "vocab.txt' is not in the manifest"),
        (setter("files", "../x", to={"size": 1, "sha256": ""}), r"has no \.\./x"),
        (setter("files", "config.json", to=7), "the manifest says None"),
        (setter("files", "config.json", "size", to=1), "the manifest says 1"),
        (setter("files", "config.json", "sha256", to="0" * 64), "differs from its SHA-256"),
        (setter("files", "config.json", "sha256", to=None), "differs from its SHA-256"),
    ],
)
def test_a_changed_manifest(
    change: Callable[[dict[str, Any]], None], message: str, model: Path
) -> None:
    (model.parent / "x").write_text("secret")
    rewrite(model, change, "manifest.json")
    with pytest.raises(FormatError, match=message):
        read_checkpoint(model)
    refused(model)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setter("version", to=3), "upgrade elmore"),
        (setter("format", to=...), "does not belong to an elmore folder"),
        (setter("config", to=...), "config is missing"),
        (setter("config", "lstm", "dim", to=7), "has shape .* config.json needs"),
        (setter("config", "lstm", "n_layers", to=3), "layers.2.input_weight is missing"),
        (setter("config", "lstm", "dim", to=2**40), "is out of range"),
        (setter("config", "lstm", LONG, to=1), "unknown key"),
        (setter("config", "tokens", "activation", to=LONG), "is unknown"),
        (setter("config", "tokens", "max_chars", to=40), "reads 40 characters of a token but"),
        (setter("alphabet", to=None), "has no alphabet"),
        (setter("alphabet", "kind", to="runes"), "kind='runes' is unknown"),
        (setter("alphabet", "max_chars", to=2), r"max_chars=2"),
        (setter("alphabet", "max_chars", to=12), "alphabet gives 12"),
        (setter("tokenizer", to="moses"), "tokenizer='moses' is unknown"),
        (setter("mixes", 0, "weights", to=[1.0, 2.0]), "a mix has 2 weights, the model 3 layers"),
        (setter("mixes", to=7), "mixes=7; use a list"),
    ],
)
def test_a_changed_config(
    change: Callable[[dict[str, Any]], None], message: str, model: Path
) -> None:
    rewrite(model, change)
    with pytest.raises((FormatError, ConfigError), match=message):
        read_checkpoint(model)
    refused(model)


@pytest.mark.parametrize("name", ["tokens.characters", "softmax.bias"])
def test_integers_are_no_weights(name: str, model: Path) -> None:
    """The manifest does not help: whoever writes integers writes their checksum too."""
    path = model / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header[name]["dtype"] = "I32"
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    assert len(text) == length
    path.write_bytes(data[:8] + text + data[8 + length :])
    manifest = json.loads((model / "manifest.json").read_text("utf-8"))
    manifest["files"][path.name]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (model / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert name in refused(model)


@pytest.mark.parametrize("write", [elmore_folder.write, allennlp_hdf5.write])
def test_weights_that_are_not_finite_are_not_written(
    write: Callable[[Checkpoint, Path], None], tmp_path: Path
) -> None:
    """Because no reader would take them back."""
    checkpoint = make_full()
    weights = dict(checkpoint.weights)
    weights["tokens.characters"] = np.full((261, 3), np.nan, np.float32)
    with pytest.raises(FormatError, match=r"nan in 'tokens\.characters' at index \(0, 0\)"):
        write(dataclasses.replace(checkpoint, weights=weights), tmp_path / "nan")
    assert list(tmp_path.iterdir()) == []


def test_a_model_survives_being_saved_over_its_own_folder(tiny_elmo: Elmo, tmp_path: Path) -> None:
    tiny_elmo.save(tmp_path / "model")
    loaded = Elmo.load(tmp_path / "model")
    expected = loaded.embed("It fell .")
    loaded.save(tmp_path / "model", overwrite=True)
    np.testing.assert_array_equal(loaded.embed("It fell ."), expected)
    np.testing.assert_allclose(
        Elmo.load(tmp_path / "model").embed("It fell ."), expected, atol=2e-6
    )


def foreign_extension(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps({"manifest_version": 3, "name": "mine"}))
    (folder / "config.json").write_text("{}")
    (folder / "content.js").write_text("mine")


def model_with_notes(folder: Path) -> None:
    elmore_folder.write(make_full(), folder)
    (folder / "notes.md").write_text("mine")


def pair_with_notes(folder: Path) -> None:
    allennlp_hdf5.write(make_pair(folder.parent), folder)
    (folder / "notes.md").write_text("mine")


def foreign_options(folder: Path) -> None:
    (folder / "options.json").write_text("{}")
    (folder / "weights.hdf5").write_text("mine")


def make_pair(folder: Path) -> Checkpoint:
    return make_checkpoint(folder / "pair", make_options())


@pytest.mark.parametrize(
    "fill",
    [
        foreign_extension,
        model_with_notes,
        pair_with_notes,
        foreign_options,
    ],
)
def test_only_models_that_hold_nothing_else_are_replaced(
    fill: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    fill(folder)
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    with pytest.raises(ConfigError, match="did not write"):
        elmore_folder.write(make_full(), folder, overwrite=True)
    with pytest.raises(ConfigError, match="did not write"):
        allennlp_hdf5.write(make_pair(tmp_path), folder, overwrite=True)
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before


def test_models_are_replaced(tmp_path: Path) -> None:
    for module in (elmore_folder, allennlp_hdf5):
        for _ in range(2):
            module.write(make_pair(tmp_path), tmp_path / module.NAME, overwrite=True)
        assert module.is_folder(tmp_path / module.NAME)
