"""What people pass by mistake: one line that says what to do, or the obvious meaning."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.formats.checkpoint import Checkpoint
from elmore.language_model.likely_words import next_words
from elmore.language_model.perplexity import perplexity
from elmore.language_model.scores import score
from elmore.options import Compute

TOKENS = ["She", "fell", "."]


# One token list where sentences belong ------------------------------------------------------------


def test_tokens_as_sentences_warn_once_with_the_fix(tiny_checkpoint: Checkpoint) -> None:
    for name in ("embed", "encode", "layers"):
        elmo = Elmo(tiny_checkpoint, threads=1)
        fix = r"got 3 sentences of one token each; .* pass tokenized=True"
        with pytest.warns(UserWarning, match=fix) as found:
            assert len(getattr(elmo, name)(TOKENS)) == 3
        assert len(found) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            getattr(elmo, name)(TOKENS)


@pytest.mark.parametrize("texts", [["Yes"], ["She fell", "."], ["Yes!", "No."], [], ["", ""]])
def test_sentences_do_not_warn(tiny_checkpoint: Checkpoint, texts: list[str]) -> None:
    elmo = Elmo(tiny_checkpoint, threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        elmo.embed(texts)
        elmo.embed([elmo.tokenize("Yes"), elmo.tokenize("No")])  # no text to misunderstand


@pytest.mark.parametrize("tokens", [TOKENS, tuple(TOKENS), np.array(TOKENS), ["She"]])
def test_one_token_list_gives_one_result(tiny_elmo: Elmo, tokens: Any) -> None:
    [expected] = tiny_elmo.embed([list(tokens)], tokenized=True)
    np.testing.assert_array_equal(tiny_elmo.embed(tokens, tokenized=True), expected)
    layers = tiny_elmo.layers(tokens, tokenized=True)
    assert layers.tokens == tuple(tokens)
    [encoded] = tiny_elmo.encode([list(tokens)], tokenized=True)
    np.testing.assert_array_equal(tiny_elmo.encode(tokens, tokenized=True), encoded)


def test_texts_are_not_a_token_list(tiny_elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match=r"'She fell \.' with a space; leave out tokenized"):
        tiny_elmo.embed(["She fell ."], tokenized=True)
    with pytest.raises(ConfigError, match="sentence 0 is a string, not a list of tokens"):
        tiny_elmo.embed(["She", ["fell"]], tokenized=True)  # type: ignore[list-item]


# Wrong types --------------------------------------------------------------------------------------


class Table:
    """A data frame, as far as it matters: Python lists its columns."""

    columns = ("text", "label")

    def __iter__(self) -> Any:
        return iter(self.columns)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "got an int where sentences belong"),
        ({"a": "She fell"}, "got a dict where sentences belong"),
        ({"She fell", "It rose"}, "got a set where"),
        (Table(), r"got a table where sentences belong; pass one column, such as df\['text'\]"),
        ([None], "item 0 is None, not a string"),
        (["She fell", b"x"], "item 1 is a bytes"),
    ],
)
def test_what_is_not_text(tiny_elmo: Elmo, value: Any, message: str) -> None:
    for call in (tiny_elmo.embed, tiny_elmo.encode, tiny_elmo.layers):
        with pytest.raises(ConfigError, match=message) as error:
            call(value)
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=message):
        list(tiny_elmo.pipe(value))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([None], "got None where the tokens of sentence 0 belong"),
        ([["a"], 3], "got an int where the tokens of sentence 1 belong"),
        ([[b"x"]], "sentence 0 has a token of type bytes"),
        ([{"a": 1}], "got a dict where the tokens of sentence 0 belong"),
        ("She fell", "got a string where lists of tokens belong"),
    ],
)
def test_what_is_not_tokens(tiny_elmo: Elmo, value: Any, message: str) -> None:
    for call in (tiny_elmo.embed, tiny_elmo.encode, tiny_elmo.layers):
        with pytest.raises(ConfigError, match=message):
            call(value, tokenized=True)


@pytest.mark.parametrize("value", [None, 3, b"x", ["She"]])
def test_tokenize_takes_a_string(tiny_elmo: Elmo, value: Any) -> None:
    with pytest.raises(ConfigError, match="where a text belongs; pass a string"):
        tiny_elmo.tokenize(value)


@pytest.mark.parametrize("value", ["2", True, 2.0, 0])
def test_counts_are_whole_numbers(value: Any) -> None:
    with pytest.raises(ConfigError, match=f"threads={value!r}.*; use 1 or more"):
        Compute(threads=value)


def test_a_name_where_a_model_belongs() -> None:
    with pytest.raises(ConfigError, match=r"Elmo\('english'\) is not a model .* Elmo.load"):
        Elmo("english")  # type: ignore[arg-type]
    for call in (perplexity, score, next_words):
        with pytest.raises(ConfigError, match="elmo='english' is not a loaded model"):
            call("english", ["It fell ."])  # type: ignore[operator]


def test_what_is_not_the_name_of_a_model(tiny_elmo: Elmo) -> None:
    for value in (["options.json", "weights.hdf5"], tiny_elmo, 5):
        with pytest.raises(ConfigError, match="pass a name, a path, or files as a tuple"):
            Elmo.load(value)  # type: ignore[arg-type]


def test_encode_gives_one_vector_per_sentence(tiny_elmo: Elmo) -> None:
    for texts in (["She fell .", "Yes"], "She fell ."):
        with pytest.raises(ConfigError, match="pool=None gives one vector per token; use `embed`"):
            tiny_elmo.encode(texts, pool=None)  # type: ignore[arg-type]


# Pickles and copies -------------------------------------------------------------------------------


def test_a_pickle_names_the_model_and_its_options(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_folder.parent)
    elmo = Elmo.load(tiny_folder.name, threads=1, precision="int8", tokenizer="spaces")
    data = pickle.dumps(elmo)
    assert len(data) < 1000
    monkeypatch.chdir("/")  # the other process is somewhere else
    again = pickle.loads(data)
    assert again.precision == "int8"
    assert again.engine.workers.threads == 1
    assert again.tokenize("It's.").tokens == ("It's.",)
    np.testing.assert_array_equal(again.embed("It fell ."), elmo.embed("It fell ."))
    assert pickle.loads(pickle.dumps(again)).dim == elmo.dim


def test_a_pickle_of_the_english_model_works_wherever_it_is_installed() -> None:
    data = pickle.dumps(Elmo.load(threads=1))
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).dim > 0)"
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout.strip() == b"True"
    assert b"/models/" not in data


def test_what_cannot_be_pickled_says_what_to_do(tiny_elmo: Elmo, tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"was not loaded from files, .* Elmo.load\(path\)"):
        pickle.dumps(tiny_elmo)
    with pytest.raises(ConfigError, match="cannot be sent to other processes"):
        pickle.dumps(Elmo.load(tiny_folder, tokenizer=lambda text: text.split()))
    assert copy.copy(tiny_elmo) is copy.deepcopy(tiny_elmo) is tiny_elmo  # it never changes
