"""How raw text is split: chosen by the user, stored with a model, or assumed with a warning."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import DATA, make_options, write_pair

from elmore import Elmo
from elmore.bulk.embed_files import embed_files
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError

CHINESE = {"我喜欢猫。": ["我", "喜欢", "猫", "。"]}
THAI = {"ฉันรักแมวดำ": ["ฉัน", "รัก", "แมว", "ดำ"]}


def no_warnings(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


@pytest.fixture(params=["pair", "tf1_characters", "manylangs_both"])
def published(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A model in each of the published formats."""
    if request.param == "pair":
        return write_pair(tmp_path, make_options())
    return DATA / request.param


@pytest.mark.parametrize("words", [CHINESE, THAI], ids=["Chinese", "Thai"])
def test_languages_that_need_a_segmenter(published: Any, words: dict[str, list[str]]) -> None:
    [(text, tokens)] = words.items()
    elmo = Elmo.load(published, tokenizer=words.__getitem__)
    layers = no_warnings(lambda: elmo.layers(text))
    assert list(layers.tokens) == tokens
    assert [text[a:b] for a, b in layers.spans] == tokens
    assert elmo.embed([text])[0].shape == (len(tokens), elmo.dim)


# Stored -------------------------------------------------------------------------------------------


def test_a_name_is_stored(published: Any, tmp_path: Path) -> None:
    if published == DATA / "manylangs_both":
        pytest.skip("cannot be written")
    Elmo.load(published, tokenizer="spaces").save(tmp_path / "saved")
    again = Elmo.load(tmp_path / "saved")
    assert again.checkpoint.tokenizer == "spaces"
    assert no_warnings(lambda: again.tokenize("It's.")).tokens == ("It's.",)


def test_a_function_is_not_stored_and_its_absence_is_reported(
    tiny_elmo: Elmo, tmp_path: Path
) -> None:
    elmo = Elmo(tiny_elmo.checkpoint, tokenizer="shlex:split")
    assert no_warnings(lambda: elmo.tokenize("a 'b c'")).tokens == ("a", "b c")
    elmo.save(tmp_path / "saved")
    again = Elmo.load(tmp_path / "saved")
    with pytest.warns(UserWarning, match="was split by shlex:split; .* as 'billion-word'"):
        assert again.tokenize("a 'b'").tokens == ("a", "'", "b", "'")
    assert no_warnings(lambda: Elmo.load(tmp_path / "saved", tokenizer="ptb").embed("a b"))[0].size


# Assumed ------------------------------------------------------------------------------------------


def test_one_warning_says_what_was_assumed_and_how_to_choose(tmp_path: Path) -> None:
    elmo = Elmo.load(write_pair(tmp_path, make_options()))
    no_warnings(lambda: elmo.embed([["It", "fell"]], tokenized=True))
    with pytest.warns(UserWarning, match="raw text is split as 'billion-word'") as found:
        elmo.embed(["It fell .", "She fell ."])
    [warning] = found
    message = str(warning.message)
    assert "nobody states how its training text was tokenized" in message
    assert "tokenizer= or --tokenizer" in message
    no_warnings(lambda: elmo.embed("It fell ."))
    no_warnings(
        lambda: Elmo.load(write_pair(tmp_path, make_options()), tokenizer="ptb").embed("a b")
    )


def test_files_with_the_names_of_the_english_models_are_known(tmp_path: Path) -> None:
    options, weights = write_pair(tmp_path, make_options())
    stem = "elmo_2x1024_128_2048cnn_1xhighway"
    options = shutil.move(options, tmp_path / f"{stem}_options.json")
    weights = shutil.move(weights, tmp_path / f"{stem}_weights.hdf5")
    checkpoint = read_checkpoint((options, weights))
    assert checkpoint.tokenizer == "billion-word"
    assert "tokenizer" not in checkpoint.notes
    assert "tokenizer" not in read_checkpoint(weights).notes


@pytest.mark.parametrize(
    ("language", "tokenizer", "warned"),
    [
        ("kor", "unicode", False),
        ("eng", "ptb", False),
        ("zho", "unicode", True),
        (None, "unicode", True),
    ],
)
def test_manylangs_models_say_their_language(
    tmp_path: Path, language: str | None, tokenizer: str, warned: bool
) -> None:
    folder = tmp_path / "161"
    shutil.copytree(DATA / "manylangs_both", folder)
    if language is not None:
        meta = {"corpus": [{"language": language}]}
        (folder / "meta.json").write_text(json.dumps(meta))
    checkpoint = read_checkpoint(folder)
    assert checkpoint.tokenizer == tokenizer
    assert ("words of UDPipe" in checkpoint.notes.get("tokenizer", "")) == warned


# Sent to other processes --------------------------------------------------------------------------


def test_bulk_jobs_take_names_and_functions_that_can_be_imported(
    tiny_folder: Path, tmp_path: Path
) -> None:
    import shlex

    import pyarrow.parquet as pq

    text = tmp_path / "text.txt"
    text.write_text("It 'fell down' .\n")
    embed_files([text], tmp_path / "out", model=tiny_folder, tokenizer=shlex.split)
    [file] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["tokens"].to_pylist() == [["It", "fell down", "."]]
    with pytest.raises(ConfigError, match="cannot be sent to other processes"):
        embed_files([text], tmp_path / "no", model=tiny_folder, tokenizer=lambda t: t.split())


def test_bulk_jobs_warn_once_and_only_for_raw_text(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, make_options())
    text = tmp_path / "text.txt"
    text.write_text("It fell .\n")
    with pytest.warns(UserWarning, match="raw text is split as 'billion-word'") as found:
        embed_files([text], tmp_path / "raw", model=pair)
    assert len(found) == 1
    no_warnings(lambda: embed_files([text], tmp_path / "tokens", model=pair, tokenized=True))


def test_nlpl_models_say_their_language(tmp_path: Path) -> None:
    write_pair(tmp_path, make_options())
    (tmp_path / "meta.json").write_text('{"corpus": {"language": "rus"}}')
    assert read_checkpoint(tmp_path).tokenizer == "unicode"
