"""What `embed` would do with a text: sizes, what does not fit the model, time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pytest

from elmore import Elmo
from elmore.embedding.dry_run import DryRun, dry_run
from elmore.options import Output
from elmore.text.tokenizer import Sentence
from elmore.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "She", "fell", "the", "window", ".", "and", "don't"]


@pytest.fixture(scope="module")
def elmo(tiny_elmo: Elmo) -> Elmo:
    notes = {"training": {"longest": 6}}
    checkpoint = dataclasses.replace(
        tiny_elmo.checkpoint, vocabulary=Vocabulary(WORDS), tokenizer="ptb", notes=notes
    )
    return Elmo(checkpoint, threads=1)


def raw(elmo: Elmo, *texts: str) -> DryRun:
    return dry_run(elmo, ((text, elmo.tokenize(text)) for text in texts), Output())


def given(elmo: Elmo, *lines: Iterable[str]) -> DryRun:
    pairs = ((" ".join(line), Sentence(tuple(line))) for line in lines)
    return dry_run(elmo, pairs, Output(), tokenized=True)


def test_a_text_that_fits(elmo: Elmo) -> None:
    found = raw(elmo, "She fell.", "the window fell.")
    assert (found.sentences, found.tokens, found.longest) == (2, 7, 4)
    assert (found.unknown, found.cut, found.warnings) == (0, 0, ())
    assert found.size_bytes == 7 * elmo.dim * 4
    assert found.seconds > 0
    assert raw(elmo).tokens == 0


@pytest.mark.parametrize(
    "output",
    [Output(pool="mean"), Output(layers="all", dtype="float16"), Output(layers="all", pool="max")],
)
def test_the_size_is_that_of_the_numbers(elmo: Elmo, output: Output) -> None:
    texts = ["She fell.", "", "the window fell."]
    found = dry_run(elmo, [(text, elmo.tokenize(text)) for text in texts], output)
    rows = 3 if output.pool else 7
    layers = elmo.n_layers if output.all_layers else 1
    assert found.size_bytes == rows * layers * elmo.dim * np.dtype(output.dtype).itemsize


def test_words_that_are_unknown_or_cut(elmo: Elmo) -> None:
    found = raw(elmo, "She opened the window.", "w" * 60)
    assert (found.unknown, found.cut) == (2, 1)


@pytest.mark.parametrize(
    ("text", "warning", "example"),
    [
        ("She fell & quot; &quot; &#39;", "HTML escapes", "&quot;"),
        ("한국어 fell.", "tokens in unseen scripts", "한국어"),
        ("She fell and the window fell and fell.", "sentences longer than in training", "9 tokens"),
        ("She fell and the window .", "sentences that are tokenized already", "She fell"),
        ("ฉันเปิดหน้าต่างแล้ว", "tokens that look like sentences", "ฉันเปิดหน้าต่างแล้ว"),
        ("", "empty sentences", ""),
    ],
)
def test_warnings_about_raw_text(elmo: Elmo, text: str, warning: str, example: str) -> None:
    [found] = [line for line in raw(elmo, text).warnings if line.startswith(warning)]
    assert example in found


def test_warnings_about_tokens(elmo: Elmo) -> None:
    found = given(elmo, ["She", "the\u00a0window", "<S>"], ["fell.", "and", "fell."])
    lines = [line.partition(",")[0] for line in found.warnings]
    assert "tokens with spaces: 1" in lines
    assert "special tokens: 1" in lines
    assert "tokens that its tokenizer would split: 3" in lines


def test_what_is_not_known_is_not_found(tiny_elmo: Elmo) -> None:
    """A model without words or notes, as published HDF5 weights are."""
    checkpoint = dataclasses.replace(tiny_elmo.checkpoint, vocabulary=None, notes={})
    bare = Elmo(checkpoint, threads=1)
    assert raw(bare, "Ein langes 한국어 Wort, und noch viele andere mehr").warnings == ()
