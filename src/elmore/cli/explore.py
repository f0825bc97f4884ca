"""`elmore explore`: a word in several contexts, compared in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from elmore.base.messages import printable, shown, wants_colour
from elmore.cli import options
from elmore.cli.console import Console
from elmore.errors import ConfigError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.cli.options import ModelChoice
    from elmore.elmo import Elmo
    from elmore.language_model.word_uses import WordUses
    from elmore.options import LayerChoice
    from elmore.text.tokenizer import Sentence

_EXAMPLES = """\
  elmore explore "I sat on the bank ." "The bank lent money ."
  elmore explore "They play chess ." "The play was long ." "We play ." --word play --layers all
  head -n 20 sentences.txt | elmore explore --json

Each number is the cosine of two uses of the word: green is similar, red is not.
"""
_MAX_USES = 40
# Background colours of the 256, from different to similar.
_RAMP = (88, 130, 136, 100, 64, 28)
_HIGH = 0.8  # the scale spans at least from here to 1, so that tiny differences stay pale
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


@options.verb(_EXAMPLES)
def explore(
    *,
    inputs: Sequence[str] = options.argument("[SENTENCE]...", nargs=-1),
    word: str | None = options.option("The word, by default the rarest one that is repeated."),
    layers: LayerChoice = options.layers(every="one table per layer"),
    top: int = options.count(
        8, "How many words that fit its position.", "K", type=click.IntRange(0)
    ),
    tokenizer: str | None = options.tokenizer(),
    model: ModelChoice = options.model("batch_tokens"),
    console: Console,
) -> None:
    """SENTENCE is a sentence in quotes, or a text file with one per line; - or none reads stdin."""
    from elmore.language_model.word_uses import find_uses, shared_word, word_uses

    texts = [text for text in _texts(inputs) if text.strip()]
    if not texts:
        raise InputError("there is no sentence; pass one or more")
    elmo = model.load(tokenizer)
    sentences = [elmo.tokenize(text) for text in texts]
    tokens = [sentence.tokens for sentence in sentences]
    word = word or shared_word(tokens, elmo.checkpoint.vocabulary)
    if word is None:
        raise InputError("no word occurs twice in these sentences; name one with --word")
    found = find_uses(tokens, word)
    if not found:
        raise InputError(f"'{shown(word, 60)}' is in none of the sentences; name another --word")
    uses = word_uses(list(elmo.pipe(sentences, layers="all")), found[:_MAX_USES])
    tables = _tables(uses, layers, elmo.n_layers)
    likely = _likely(elmo, sentences, uses, top)
    colour = wants_colour(sys.stdout)
    lines = [
        _table(f"{shown(word, 60)}: {title}", table, sentences, uses, colour)
        for title, table in tables
    ]
    if len(found) > len(uses.places):
        lines.append(f"\n{len(found) - len(uses.places)} more uses are left out")
    if any(likely):
        lines.append("\nwords that the language model would put there")
        for number, words in enumerate(likely, 1):
            lines.append(f"{number:>4}  {', '.join(shown(name, 40) for name, _ in words)}")
    console.result(_report(word, sentences, uses, tables, likely), "\n".join(lines))


def _texts(inputs: Sequence[str]) -> Iterator[str]:
    from elmore.text.reading import check_inputs, read_input

    if not inputs and sys.stdin is not None and sys.stdin.isatty():
        raise ConfigError('no sentence; pass some: elmore explore "One ." "Another one ."')
    for word in inputs or ["-"]:
        if options.is_sentence(word) or not word:
            yield word
        else:
            check_inputs([word], None)
            yield from (line for _, line in read_input(word))


def _tables(
    uses: WordUses, layers: LayerChoice, n_layers: int
) -> list[tuple[str, NDArray[np.float32]]]:
    """The tables to show, each with its title."""
    if layers == "all":
        names = ["layer 0, without context", *(f"layer {k}" for k in range(1, n_layers))]
        return [(name, uses.similarity(k)) for k, name in enumerate(names)]
    title = {"mean": "mean of all layers", "top": "the top layer"}.get(str(layers))
    if title is None:
        title = f"layer {layers}" if isinstance(layers, int) else f"layers weighted {layers}"
    return [(title, uses.similarity(layers))]


def _likely(
    elmo: Elmo, sentences: Sequence[Sentence], uses: WordUses, k: int
) -> list[list[tuple[str, float]]]:
    from elmore.language_model.likely_words import substitutes_at

    # Published HDF5 weights have no softmax; the comparison works without it.
    if not k or elmo.checkpoint.softmax is None or elmo.checkpoint.vocabulary is None:
        return [[] for _ in uses.places]
    positions = [(sentences[use.sentence], use.position) for use in uses.places]
    return substitutes_at(elmo, positions, k)


def _report(
    word: str,
    sentences: Sequence[Sentence],
    uses: WordUses,
    tables: Sequence[tuple[str, NDArray[np.float32]]],
    likely: Sequence[Sequence[tuple[str, float]]],
) -> dict[str, Any]:
    return {
        "word": word,
        "uses": [
            {
                "sentence": use.sentence,
                "position": use.position,
                "tokens": sentences[use.sentence].tokens,
                "substitutes": [
                    {"word": name, "log_prob": round(value, 6)} for name, value in words
                ],
            }
            for use, words in zip(uses.places, likely, strict=True)
        ],
        "similarity": [
            {"layers": title, "cosine": table.astype(float).round(6).tolist()}
            for title, table in tables
        ],
    }


def _table(
    title: str,
    table: NDArray[np.float32],
    sentences: Sequence[Sentence],
    uses: WordUses,
    colour: bool,
) -> str:
    bold, plain = (_BOLD, _PLAIN) if colour else ("", "")
    lines = [f"\n{bold}{title}{plain}"]
    lines.append("      " + "".join(f"{k:>5} " for k in range(1, len(table) + 1)))
    # Shades start at the lowest cosine of this table: all may be high, and the difference counts.
    apart = [float(value) for i, row in enumerate(table) for value in row[:i]]
    low = min([_HIGH, *apart])
    for number, (row, use) in enumerate(zip(table, uses.places, strict=True)):
        cells = ""
        for value in row.tolist():
            shade = min(max((value - low) / (1 - low), 0.0), 1.0)
            cells += _cell(f"{value:5.2f} ", shade, colour)
        tokens = sentences[use.sentence].tokens
        context = _context(tokens, use.position, colour)
        lines.append(f"{number + 1:>4}  {cells} {context}")
    return "\n".join(lines)


def _cell(text: str, shade: float, colour: bool) -> str:
    if not colour:
        return text
    color = _RAMP[min(int(shade * len(_RAMP)), len(_RAMP) - 1)]
    return f"\x1b[48;5;{color}m\x1b[38;5;231m{text}{_PLAIN}"


def _context(tokens: Sequence[str], position: int, colour: bool, words: int = 6) -> str:
    """The words around a use, which is marked."""
    before = tokens[max(0, position - words) : position]
    after = tokens[position + 1 : position + 1 + words]
    word = printable(tokens[position])
    parts = ["…"] if position > words else []
    parts += [printable(token) for token in before]
    parts.append(f"{_BOLD}{word}{_PLAIN}" if colour else f"[{word}]")
    parts += [printable(token) for token in after]
    parts += ["…"] if position + 1 + words < len(tokens) else []
    return " ".join(parts)
