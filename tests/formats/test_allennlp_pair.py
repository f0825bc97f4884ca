"""options.json + weights.hdf5: read, write, and refuse what does not fit."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from reference import random_weights, write_hdf5
from small_models import make_checkpoint, make_options, write_pair

from elmore import Elmo
from elmore.config import weight_shapes
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError, ElmoreError, FormatError, ModelNotFound
from elmore.formats import allennlp_hdf5
from elmore.formats.checkpoint import Checkpoint
from elmore.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "the", "."]
SHAPES: dict[str, dict[str, Any]] = {
    "usual": make_options(),
    "no projection": make_options(16, 16, filters=[[1, 4], [2, 12]], n_highway=0),
    "one layer": make_options(n_layers=1),
    "three layers": make_options(n_layers=3, n_highway=2),
    "one direction": make_options(bidirectional=False),
    "one direction, one layer": make_options(n_layers=1, bidirectional=False),
    "words": make_options(n_words=5),
    "no clips": make_options(cell_clip=None, proj_clip=None, activation="tanh"),
    "odd clips": make_options(cell_clip=2.5, proj_clip=0.125, max_characters_per_token=12),
}


def same_weights(a: Checkpoint, b: Checkpoint) -> bool:
    assert a.config == b.config
    return all(np.array_equal(a.weights[name], b.weights[name]) for name in weight_shapes(a.config))


def one_line(error: BaseException) -> str:
    message = str(error)
    assert "\n" not in message
    assert len(message) <= 300, message
    return message


# Round trips -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_write_and_read(name: str, tmp_path: Path) -> None:
    words = WORDS if name == "words" else None
    checkpoint = make_checkpoint(tmp_path / "files", SHAPES[name], words)
    allennlp_hdf5.write(checkpoint, tmp_path / "written")
    again = read_checkpoint(tmp_path / "written")
    assert same_weights(checkpoint, again)
    assert again.vocabulary == checkpoint.vocabulary
    # The arrays themselves are those of the first file, whatever names one-layer models have.
    if "one layer" not in name:
        with (
            h5py.File(tmp_path / "files/weights.hdf5") as a,
            h5py.File(tmp_path / "written/weights.hdf5") as b,
        ):
            names: list[str] = []
            a.visititems(lambda n, x: names.append(n) if isinstance(x, h5py.Dataset) else None)
            assert all(np.array_equal(a[n][...], b[n][...]) for n in names)
            assert all(b[n].dtype == np.float32 for n in names)


# Edge cases --------------------------------------------------------------------------------------


def changed(options: dict[str, Any], section: str, **changes: Any) -> dict[str, Any]:
    """Options with other values; `...` takes a key away."""
    copy = json.loads(json.dumps(options))
    for key, value in changes.items():
        if value is ...:
            del copy[section][key]
        else:
            copy[section][key] = value
    return copy


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("char_cnn", {"n_characters": 261}),
        ("char_cnn", {"n_characters": 262}),
        ("char_cnn", {"n_characters": ...}),
        ("char_cnn", {"n_characters": None}),
        ("char_cnn", {"max_characters_per_token": ...}),
        ("char_cnn", {"activation": ...}),
        ("char_cnn", {"some_future_key": [1, 2], "max_characters_per_token": 50}),
        ("lstm", {"dim": 32.0}),
    ],
)
def test_options_that_say_the_same(section: str, changes: dict[str, Any], tmp_path: Path) -> None:
    options = make_options()
    write_pair(tmp_path, options)
    expected = read_checkpoint(tmp_path)
    (tmp_path / "options.json").write_text(json.dumps(changed(options, section, **changes)))
    assert same_weights(expected, read_checkpoint(tmp_path))


@pytest.mark.parametrize("value", [..., None, 0, 0.0])
def test_missing_null_and_zero_clips_are_none(value: Any, tmp_path: Path) -> None:
    options = changed(make_options(), "lstm", cell_clip=value, proj_clip=value)
    write_pair(tmp_path, options, random_weights(make_options(), 0))
    lstm = read_checkpoint(tmp_path).config.lstm
    assert lstm.cell_clip is None
    assert lstm.proj_clip is None


@pytest.mark.parametrize("kind", ["<f8", "<f2", ">f4"])
def test_other_float_types_are_cast(kind: str, tmp_path: Path) -> None:
    options = make_options()
    weights = {k: w.astype(kind) for k, w in random_weights(options, 0).items()}
    checkpoint = read_checkpoint(write_pair(tmp_path, options, weights))
    characters = checkpoint.weights["tokens.characters"]
    assert characters.dtype == np.float32
    np.testing.assert_array_equal(characters, weights["char_embed"].astype(np.float32))


@pytest.mark.parametrize(
    ("section", "changes", "extra"),
    [
        ("char_cnn", {"n_highway": 1}, "CNN_high_1"),
        ("char_cnn", {"filters": [[1, 4], [2, 8], [3, 16]]}, "CNN"),
        ("lstm", {"n_layers": 1}, "Cell1"),
    ],
)
def test_a_layer_that_the_options_do_not_name_is_refused(
    section: str, changes: dict[str, Any], extra: str, tmp_path: Path
) -> None:
    """It would silently be left out of the computation."""
    options = make_options(n_highway=2, filters=[[1, 4], [2, 8], [3, 16], [4, 4]])
    less = changed(options, section, **changes)
    write_pair(tmp_path, less, random_weights(options, 0))
    with pytest.raises(FormatError, match=extra) as caught:
        read_checkpoint(tmp_path)
    assert "pass the options that belong to these weights" in one_line(caught.value)


# Files that do not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "first"),
    [
        (make_options(48), "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"),
        (make_options(projection_dim=8), "CNN_proj/W_proj"),
        (make_options(filters=[[1, 4], [2, 8], [3, 8]]), "CNN/W_cnn_2"),
        (make_options(embedding={"dim": 5}), "char_embed"),
    ],
    ids=["dim", "projection_dim", "filters", "char_dim"],
)
def test_wrong_options_name_the_first_tensor_that_differs(
    weights: dict[str, Any], first: str, tmp_path: Path
) -> None:
    write_pair(tmp_path, make_options(), random_weights(weights, 0))
    with pytest.raises(FormatError) as caught:
        read_checkpoint(tmp_path)
    message = one_line(caught.value)
    assert f"{first} has shape" in message


def test_swapped_files(tmp_path: Path) -> None:
    options, weights = write_pair(tmp_path, make_options())
    with pytest.raises(ConfigError, match=r"pass \(options, weights\)") as caught:
        Elmo.load((weights, options))
    one_line(caught.value)
    hidden = weights.rename(tmp_path / "weights.json")
    with pytest.raises(FormatError, match="is not UTF-8"):
        Elmo.load((hidden, hidden))
    with pytest.raises(FormatError, match="not an HDF5 file"):
        Elmo.load((options, options))


@pytest.mark.parametrize(
    "shapes", [{}, {"softmax/W": (5, 16), "softmax/b": (5,)}, {"0": (3, 4, 32), "1": (3, 2, 32)}]
)
def test_other_hdf5_files_in_place_of_weights(
    shapes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    pair = write_pair(tmp_path, make_options(), weights)
    with pytest.raises(FormatError, match="has no LSTM") as caught:
        Elmo.load(pair)
    assert "pass the" in one_line(caught.value)


def test_a_word_model_needs_its_vocabulary(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, make_options(n_words=5))
    with pytest.raises(FormatError, match="word table of 5 words but no vocabulary") as caught:
        Elmo.load(pair)
    assert "(options, weights, vocabulary)" in str(caught.value)
    (tmp_path / "few.txt").write_text("a\nb\n")
    with pytest.raises(FormatError, match="word table of 5 words but a vocabulary of 2"):
        Elmo.load((*pair, tmp_path / "few.txt"))


def test_a_softmax_that_does_not_fit_its_vocabulary(tmp_path: Path) -> None:
    write_pair(tmp_path, make_options())
    (tmp_path / "vocab.txt").write_bytes(Vocabulary(WORDS).to_bytes())
    zeros = np.zeros
    for softmax in (
        {"softmax/W": zeros((4, 16), np.float32), "softmax/b": zeros(4, np.float32)},
        {"softmax/W": zeros((5, 8), np.float32), "softmax/b": zeros(5, np.float32)},
        {"softmax/W": zeros((5, 16), np.float32)},
        {"softmax/W": zeros((5, 16), np.float32), "softmax/b": np.float32(0)},
    ):
        write_hdf5(tmp_path / "softmax.hdf5", softmax)
        with pytest.raises(FormatError, match=r"softmax/[Wb] has shape"):
            read_checkpoint(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FormatError, match="no vocabulary"):
        read_checkpoint(tmp_path)


# Tampered numbers --------------------------------------------------------------------------------

NUMBERS = [
    ("lstm", "dim"),
    ("lstm", "projection_dim"),
    ("lstm", "n_layers"),
    ("lstm", "cell_clip"),
    ("char_cnn", "n_characters"),
    ("char_cnn", "max_characters_per_token"),
    ("char_cnn", "n_highway"),
    ("char_cnn", "filters"),
]
VALUES = [0, -1, 2**31, 2**63, 1e308, "12", None, True, 1.5, [], {}]


def fits(name: str, value: Any) -> bool:
    """Which of the values are no mistake."""
    if name == "cell_clip":
        return value in (0, None, 2**31, 1.5) and value is not True
    return value is None and name in ("n_characters", "max_characters_per_token")


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize(("section", "name"), NUMBERS)
def test_tampered_options(section: str, name: str, value: Any, tmp_path: Path) -> None:
    options = changed(make_options(), section, **{name: value})
    if name == "filters":
        options = changed(make_options(), section, filters=[[1, 4], [2, value], [3, 16]])
    pair = write_pair(tmp_path, options, random_weights(make_options(), 0))
    if fits(name, value):
        assert np.isfinite(Elmo.load(pair).embed("It fell .")).all()
        return
    tracemalloc.start()
    try:
        with pytest.raises((FormatError, ConfigError)) as caught:
            Elmo.load(pair)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # 4 MiB of them are the buffer for any JSON
    message = one_line(caught.value)
    if value == 2**63:
        return  # the JSON reader refuses the number itself
    aliases = {
        "filters": ("filter",),
        "max_characters_per_token": ("max_chars", "max_characters_per_token"),
        "n_layers": ("n_layers", "Cell"),
        "n_highway": ("n_highway", "CNN_high"),
    }
    assert any(alias in message for alias in aliases.get(name, (name,))), message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lstm is missing; pass the right"),
        ({"lstm": {}}, "lstm.dim is missing"),
        ({"lstm": []}, r"lstm=\[\]; use an object"),
        ({"lstm": {"dim": 32, "projection_dim": 16}, "char_cnn": None}, "char_cnn is missing"),
        (changed(make_options(), "char_cnn", activation="selu"), "activation='selu' is unknown"),
        (changed(make_options(), "char_cnn", filters=...), "0 filters, allowed"),
        (changed(make_options(), "char_cnn", embedding=...), "char_cnn.embedding is missing"),
        (changed(make_options(), "char_cnn", n_characters=300), "261 .training. or 262"),
        (changed(make_options(), "lstm", projection_dim=33), "larger than dim"),
        (changed(make_options(), "lstm", use_skip_connections="yes"), "true or false"),
        ({"lstm": make_options()["lstm"]}, "has no char_cnn"),
    ],
)
def test_broken_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    pair = write_pair(tmp_path, options, random_weights(make_options(), 0))
    with pytest.raises(FormatError, match=message) as caught:
        Elmo.load(pair)
    assert "options.json" in one_line(caught.value)


# NLPL and simple_elmo ----------------------------------------------------------------------------


def nlpl_folder(path: Path, *, packed: bool = False) -> Path:
    write_pair(path, make_options(n_words=5))
    (path / "weights.hdf5").rename(path / "model.hdf5")
    data = Vocabulary(WORDS).to_bytes()
    if packed:
        (path / "vocab.txt.gz").write_bytes(gzip.compress(data))
    else:
        (path / "vocab.txt").write_bytes(data)
    (path / "meta.json").write_text('{"language": "en"}')
    (path / "README").write_text("a model")
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_of_nlpl(packed: bool, tmp_path: Path) -> None:
    folder = nlpl_folder(tmp_path / "model", packed=packed)
    elmo = Elmo.load(folder)
    assert elmo.checkpoint.vocabulary == Vocabulary(WORDS)
    assert elmo.embed("the . other").shape == (3, 32)


@pytest.mark.parametrize("where", ["", "a/b/"])
def test_a_zip_of_nlpl(where: str, tmp_path: Path) -> None:
    folder = nlpl_folder(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "144.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, where + file.name)
    elmo, plain = Elmo.load(tmp_path / "144.zip"), Elmo.load(folder)
    assert same_weights(elmo.checkpoint, plain.checkpoint)
    np.testing.assert_array_equal(elmo.embed("the ."), plain.embed("the ."))


@pytest.mark.parametrize("damage", ["truncated", "broken"])
def test_a_damaged_packed_vocabulary(damage: str, tmp_path: Path) -> None:
    folder = nlpl_folder(tmp_path / "model", packed=True)
    path = folder / "vocab.txt.gz"
    data = path.read_bytes()
    path.write_bytes(
        {
            "truncated": data[:-9],
            "broken": data[:12] + bytes(255 - b for b in data[12:20]) + data[20:],
        }[damage]
    )
    with pytest.raises(ElmoreError) as caught:
        Elmo.load(folder)
    assert "vocab.txt.gz" in one_line(caught.value)


# Ways to name a model ----------------------------------------------------------------------------


def test_any_of_the_two_files_leads_to_the_other(tmp_path: Path) -> None:
    write_pair(tmp_path, make_options())
    (tmp_path / "options.json").rename(tmp_path / "elmo_small_options.json")
    (tmp_path / "weights.hdf5").rename(tmp_path / "elmo_small_weights.hdf5")
    for path in (
        tmp_path / "elmo_small_weights.hdf5",
        str(tmp_path / "elmo_small_options.json"),
        tmp_path,
    ):
        assert Elmo.load(path).dim == 32
    (tmp_path / "elmo_small_options.json").unlink()
    with pytest.raises(ModelNotFound, match="one of two files and the other is missing"):
        Elmo.load(tmp_path / "elmo_small_weights.hdf5")


def test_a_folder_with_other_hdf5_files(tmp_path: Path) -> None:
    """People keep the vectors they made beside the model that made them."""
    options, weights = write_pair(tmp_path, make_options(), seed=3)
    expected = read_checkpoint((options, weights))
    weights.rename(tmp_path / "elmo_model.hdf5")
    with h5py.File(tmp_path / "corpus.hdf5", "w") as file:
        file["0"] = np.ones((3, 4, 32), np.float32)
    (tmp_path / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert same_weights(read_checkpoint(tmp_path), expected)


def test_a_folder_with_the_weights_of_two_models(tmp_path: Path) -> None:
    _, weights = write_pair(tmp_path, make_options(), seed=3)
    (tmp_path / "b.hdf5").write_bytes(weights.read_bytes())
    weights.rename(tmp_path / "a.hdf5")
    with pytest.raises(FormatError, match=r"weights of 2 models \(a\.hdf5, b\.hdf5\); pass"):
        read_checkpoint(tmp_path)
