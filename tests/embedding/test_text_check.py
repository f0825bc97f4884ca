"""Whether a text fits a model, and what embedding it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest

from elmore import Elmo
from elmore.embedding.embed_cost import predict_cost
from elmore.embedding.stream import embed_records
from elmore.embedding.text_check import TextCheck, check_text
from elmore.embedding.vector_files import WRITERS, Settings, open_writer
from elmore.formats.checkpoint import Checkpoint
from elmore.options import Output
from elmore.text.sentence import Sentence
from elmore.text.tokenizer import tokenize
from elmore.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "She", "fell", "the", "window", ".", "and", "don't"]


@pytest.fixture(scope="module")
def checkpoint(tiny_elmo: Elmo) -> Checkpoint:
    return dataclasses.replace(
        tiny_elmo.checkpoint,
        vocabulary=Vocabulary(WORDS),
        tokenizer="ptb",
        notes={"training": {"longest": 6}},
    )


def raw(checkpoint: Checkpoint, *texts: str) -> TextCheck:
    return check_text(checkpoint, ((text, tokenize(text)) for text in texts))


def given(checkpoint: Checkpoint, *lines: Iterable[str]) -> TextCheck:
    pairs = ((" ".join(line), Sentence(tuple(line))) for line in lines)
    return check_text(checkpoint, pairs, tokenized=True)


def names(check: TextCheck) -> dict[str, int]:
    return {finding.name: finding.count for finding in check.findings}


def test_a_text_that_fits(checkpoint: Checkpoint) -> None:
    check = raw(checkpoint, "She fell.", "the window fell.")
    assert (check.sentences, check.tokens, check.longest) == (2, 7, 4)
    assert check.findings == ()
    assert str(check).endswith("it fits")
    assert check.scripts == {"LATIN": 5}


@pytest.mark.parametrize(
    ("text", "finding", "example"),
    [
        ("She opened the window.", "unknown words", "opened"),
        ("She fell & quot; &quot; &#39;", "HTML escapes", "&quot;"),
        ("She <PAD> fell.", "special tokens", "<PAD>"),
        ("한국어 fell.", "tokens in unseen scripts", "한국어"),
        ("She fell\u00e9.", "tokens with unseen characters", "fell\u00e9"),
        ("w" * 60, "tokens that are cut", "w" * 60),
        ("She fell and the window fell and fell.", "sentences longer than in training", "9 tokens"),
        ("She fell and the window .", "sentences that are tokenized already", None),
        ("ฉันเปิดหน้าต่างแล้ว", "tokens that look like sentences", "ฉันเปิดหน้าต่างแล้ว"),
        ("", "empty sentences", ""),
    ],
)
def test_findings_of_raw_text(
    checkpoint: Checkpoint, text: str, finding: str, example: str | None
) -> None:
    check = raw(checkpoint, text)
    [found] = [entry for entry in check.findings if entry.name == finding]
    assert (found.examples[0] == example) or example is None
    assert found.name in str(check)


def test_findings_of_tokens(checkpoint: Checkpoint) -> None:
    found = names(given(checkpoint, ["She", "the\u00a0window", "<S>"], ["fell.", "and", "fell."]))
    assert found["tokens with spaces"] == 1
    assert found["special tokens"] == 1
    assert found["tokens that its tokenizer would split"] == 3
    assert "tokens that its tokenizer would split" not in names(
        given(dataclasses.replace(checkpoint, tokenizer="spaces"), ["fell.", "and", "fell."])
    )


def test_what_is_not_known_is_not_found(tiny_elmo: Elmo) -> None:
    """A model without words or notes, as published HDF5 weights are."""
    bare = dataclasses.replace(tiny_elmo.checkpoint, vocabulary=None, notes={})
    assert names(raw(bare, "Ein langes 한국어 Wort, und noch viele andere mehr")) == {}


def test_costs_are_those_of_the_complete_text(tiny_elmo: Elmo, tmp_path: Path) -> None:
    text = [(f"w{k} fell .", Sentence((f"w{k}", "fell", "."))) for k in range(400)]
    output = Output()
    costs = predict_cost(tiny_elmo.engine, text[:100], 1200, output)
    assert {cost.format for cost in costs} <= set(WRITERS)
    assert {"jsonl", "npz", "hdf5"} <= {cost.format for cost in costs}
    for cost in costs:
        path = tmp_path / f"all.{cost.format}"
        with open_writer(cost.format, path, Settings(shape=(None, tiny_elmo.dim))) as writer:
            for record in embed_records(tiny_elmo.engine, text, output):
                writer.write(record)
        assert cost.size_bytes == pytest.approx(path.stat().st_size, rel=0.1)
        assert cost.seconds > 0
    assert predict_cost(tiny_elmo.engine, [("", Sentence(()))], 0) == []
