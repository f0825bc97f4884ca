"""ELMoForManyLangs folders: what the original program computed, and what may be wrong with them."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from small_models import DATA, GOLDEN

from elmore import Elmo, fine_tune
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError, FormatError
from elmore.formats import allennlp_hdf5
from elmore.text.characters import DictionaryAlphabet

close = {"atol": 1e-6, "rtol": 1e-5}
SENTENCES = json.loads((DATA / "manylangs_sentences.json").read_text(encoding="utf-8"))["first"]
MODELS = [
    "manylangs_both",
    "manylangs_characters_old",
    "manylangs_words",
    "manylangs_lstm_encoder",
    "manylangs_lstm_words",
]


@pytest.mark.parametrize("name", MODELS)
def test_the_vectors_of_the_original(name: str) -> None:
    """Each sentence's own vectors, whatever stands beside it in the batch."""
    elmo = Elmo.load(DATA / name)
    with h5py.File(DATA / f"{name}.hdf5") as file:
        for k, result in enumerate(elmo.layers(SENTENCES, tokenized=True)):
            golden = file[f"alone/{k}"][...].reshape(elmo.n_layers, -1, elmo.dim)
            np.testing.assert_allclose(result.values, golden, **close)


@pytest.mark.parametrize("name", ["base", "charonly", "wordonly"])
def test_golden_models(name: str) -> None:
    folder = GOLDEN / "manylangs" / name
    sentences = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))["sentences"]
    elmo = Elmo.load(folder)
    with h5py.File(folder / "expected.hdf5") as file:
        for k, result in enumerate(elmo.layers(sentences, tokenized=True)):
            np.testing.assert_allclose(result.values, file[f"fresh/-2/{k}"][...], **close)
        for k, vectors in enumerate(elmo.embed(sentences, tokenized=True)):
            np.testing.assert_allclose(vectors, file[f"fresh/-1/{k}"][...], **close)


def test_the_longest_sentence_of_the_golden_lstm_encoder_sees_no_padding() -> None:
    folder = GOLDEN / "manylangs/lstmenc"
    sentences = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))["sentences"]
    longest = max(range(len(sentences)), key=lambda k: len(sentences[k]))
    [vectors] = Elmo.load(folder).embed([sentences[longest]], tokenized=True)
    with h5py.File(folder / "expected.hdf5") as file:
        np.testing.assert_allclose(vectors, file[f"fresh/-2/{longest}"][...], **close)


@pytest.mark.parametrize("inside", ["", "166/"], ids=["root", "sub-folder"])
def test_a_zip_as_nlpl_publishes_it(inside: str, tmp_path: Path) -> None:
    path = tmp_path / "166.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (DATA / "manylangs_both").iterdir():
            archive.write(file, inside + file.name)
        meta = {"id": 166, "corpus": [{"language": "deu", "tokens": 12}]}
        archive.writestr(f"{inside}meta.json", json.dumps(meta))
    elmo = Elmo.load(path)
    assert elmo.checkpoint.notes["languages"] == ["deu"]
    expected = Elmo.load(DATA / "manylangs_both").embed(SENTENCES, tokenized=True)
    for ours, theirs in zip(elmo.embed(SENTENCES, tokenized=True), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_through_our_own_folder(name: str, tmp_path: Path) -> None:
    before = Elmo.load(DATA / name)
    before.save(tmp_path / "saved")
    after = Elmo.load(tmp_path / "saved")
    assert after.config == before.config
    assert after.checkpoint.vocabulary == before.checkpoint.vocabulary
    for a, b in zip(
        before.layers(SENTENCES, tokenized=True),
        after.layers(SENTENCES, tokenized=True),
        strict=True,
    ):
        np.testing.assert_array_equal(a.values, b.values)
    alphabet = after.checkpoint.alphabet
    if isinstance(alphabet, DictionaryAlphabet):
        (tmp_path / "saved/characters.dic").write_text("a\t0\n")
        with pytest.raises(FormatError, match=r"characters\.dic"):
            read_checkpoint(tmp_path / "saved")


def test_words_are_cut_before_they_are_looked_up() -> None:
    vocabulary = read_checkpoint(DATA / "manylangs_both").vocabulary
    assert vocabulary is not None
    cut, known = vocabulary.encode(["antidisestablishmentarianism", "antidisest"])
    assert cut == known != vocabulary.unknown
    uncut = read_checkpoint(DATA / "manylangs_lstm_words").vocabulary
    assert uncut is not None
    assert uncut.encode(["antidisestablishmentarianism"]) == uncut.unknown


def test_models_that_cannot_be_written_or_trained(tmp_path: Path) -> None:
    for name, reason in {
        "manylangs_both": "words and characters together",
        "manylangs_characters_old": "its own alphabet",
        "manylangs_words": "projects its word vectors",
        "manylangs_lstm_encoder": "read both directions",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            allennlp_hdf5.write(read_checkpoint(DATA / name), tmp_path / "out")
    with pytest.raises(ConfigError, match="only models with separate directions can be trained"):
        fine_tune(DATA / "manylangs_lstm_encoder", ["x.txt"], tmp_path / "run")
    with pytest.raises(ConfigError, match="carries no state"):
        Elmo.load(DATA / "manylangs_lstm_encoder", start="warm")


def edit_json(name: str, **changes: Any) -> Callable[[Path], None]:
    """Change keys of a JSON file; dotted keys reach inside."""

    def edit(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        for key, value in changes.items():
            *path, last = key.split("__")
            target = data
            for part in path:
                target = target[part]
            if value is None:
                del target[last]
            else:
                target[last] = value
        (folder / name).write_text(json.dumps(data))

    return edit


def rewrite(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")

    return edit


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (remove("config.json"), "no config.json"),
    "no path": (edit_json("config.json", config_path=None), "names no config_path"),
    "architecture gone": (remove("tiny.json"), "put that JSON file into the folder"),
    "path leaves the folder": (edit_json("config.json", config_path="../../x.json"), "x.json"),
    "unknown encoder": (edit_json("tiny.json", encoder__name="gru"), "use one of 'elmo', 'lstm'"),
    "lstm over characters": (edit_json("tiny.json", token_embedder__name="lstm"), "itself cannot"),
    "unknown activation": (
        edit_json("tiny.json", token_embedder__activation="elu"),
        "'relu', 'tanh'",
    ),
    "negative size": (edit_json("tiny.json", encoder__dim=-1), "dim=-1"),
    "huge size": (edit_json("tiny.json", encoder__dim=1 << 40), "out of range"),
    "no projection": (edit_json("tiny.json", encoder__dim=4), "not supported"),
    "clip of text": (edit_json("tiny.json", encoder__cell_clip="x"), "use a number"),
    "other size": (edit_json("tiny.json", encoder__dim=8), "needs (32, 4)"),
    "more layers": (edit_json("tiny.json", encoder__n_layers=3), "is missing"),
    "too few columns": (
        edit_json("tiny.json", token_embedder__max_characters_per_token=6),
        "leaves no room",
    ),
    "characters gone": (remove("char.dic"), "char.dic"),
    "ids out of order": (rewrite("word.dic", lambda t: t.replace("bank\t5", "bank\t7")), ":6"),
    "word twice": (rewrite("word.dic", lambda t: t.replace("bank", "the")), "repeats 'the'"),
    "no unknown word": (rewrite("word.dic", lambda t: t.replace("<oov>", "x")), "no <oov>"),
    "a word too few": (rewrite("word.dic", lambda t: t[: t.rindex("antidi")]), "(10, 3)"),
    "empty dictionary": (rewrite("char.dic", lambda t: ""), "is empty"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_folders(what: str, tmp_path: Path) -> None:
    edit, message = BROKEN[what]
    folder = shutil.copytree(DATA / "manylangs_both", tmp_path / "model")
    edit(folder)
    with pytest.raises(FormatError) as caught:
        read_checkpoint(folder)
    text = str(caught.value)
    assert message in text, text
    assert "\n" not in text
    assert len(text) <= 300


def test_names_of_layers_in_upper_case(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "manylangs_both", tmp_path / "model")
    edit_json("tiny.json", encoder__name="ELMo", token_embedder__name="CNN")(folder)
    assert read_checkpoint(folder).config == read_checkpoint(DATA / "manylangs_both").config


def test_a_symbol_of_white_space_is_the_ideographic_space(tmp_path: Path) -> None:
    """The original strips it away and takes the line for that of U+3000."""
    folder = shutil.copytree(DATA / "manylangs_both", tmp_path / "model")
    rewrite("char.dic", lambda text: text.replace("\u3000\t", "\t"))(folder)
    alphabet = read_checkpoint(folder).alphabet
    assert isinstance(alphabet, DictionaryAlphabet)
    assert "\u3000" in alphabet.symbols
