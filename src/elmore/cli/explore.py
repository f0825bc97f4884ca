"""`elmore explore`: a word in several contexts, compared in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import click

from elmore.base.messages import printable, shown, wants_colour
from elmore.cli import options
from elmore.cli.console import Console
from elmore.errors import ConfigError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.elmo import Elmo
    from elmore.language_model.word_uses import Use
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


@options.verb(_EXAMPLES)
def explore(
    *,
    inputs: Sequence[str] = options.argument("[SENTENCE]...", nargs=-1),
    word: str | None = options.option("The word, by default the rarest one that is repeated."),
    layers: LayerChoice | Literal["all"] = options.layers(every="one table per layer"),
    top: int = options.count(
        8, "How many words that fit its position.", "K", type=click.IntRange(0)
    ),
    tokenizer: str | None = options.tokenizer(),
    model: options.ModelChoice = options.model("batch_tokens"),
    console: Console,
) -> None:
    """SENTENCE is a sentence in quotes, or a text file with one per line; - or none reads stdin."""
    from elmore.language_model.explore import choose_uses
    from elmore.language_model.word_uses import use_layers

    texts = [text for text in _texts(inputs) if text.strip()]
    if not texts:
        raise InputError("there is no sentence; pass one or more")
    elmo = model.load(tokenizer)
    sentences = [elmo.tokenize(text) for text in texts]
    chosen = choose_uses(sentences, word, elmo.checkpoint.vocabulary, _MAX_USES)
    if chosen.word is None:
        raise InputError("no word occurs twice in these sentences; name one with --word")
    name = shown(chosen.word, 60)
    if not chosen.uses:
        raise InputError(f"'{name}' is in none of the sentences; name another --word")
    found = use_layers(list(elmo.pipe(sentences, layers="all")), chosen.uses)
    tables = _tables(found, layers)
    likely = _likely(elmo, sentences, chosen.uses, top)
    colour = wants_colour(sys.stdout)
    contexts = [
        _context(sentences[use.sentence].tokens, use.position, colour) for use in chosen.uses
    ]
    lines = [_table(f"{name}: {title}", table, contexts) for title, table in tables.items()]
    if chosen.left_out:
        lines.append(f"\n{chosen.left_out} more uses are left out")
    if any(likely):
        lines.append("\nwords that the language model would put there")
        for number, words in enumerate(likely, 1):
            lines.append(f"{number:>4}  {', '.join(shown(name, 40) for name, _ in words)}")
    report = {
        "word": chosen.word,
        "uses": [
            {
                **use._asdict(),
                "tokens": sentences[use.sentence].tokens,
                "substitutes": [{"word": w, "log_prob": round(value, 6)} for w, value in words],
            }
            for use, words in zip(chosen.uses, likely, strict=True)
        ],
        "similarity": [
            {"layers": title, "cosine": table.astype(float).round(6).tolist()}
            for title, table in tables.items()
        ],
    }
    text = "\n".join(lines)
    console.result(report, text if colour else click.unstyle(text))


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
    found: NDArray[np.float32], layers: LayerChoice | Literal["all"]
) -> dict[str, NDArray[np.float32]]:
    """The tables to show, by their titles."""
    from elmore.language_model.word_uses import similarity

    if layers == "all":
        names = ["layer 0, without context", *(f"layer {k}" for k in range(1, found.shape[1]))]
        return {name: similarity(found, k) for k, name in enumerate(names)}
    title = {"mean": "mean of all layers", "top": "the top layer"}.get(str(layers))
    if title is None:
        title = f"layer {layers}" if isinstance(layers, int) else f"layers weighted {layers}"
    return {title: similarity(found, layers)}


def _likely(
    elmo: Elmo, sentences: Sequence[Sentence], uses: Sequence[Use], k: int
) -> list[list[tuple[str, float]]]:
    """The words that fit each use; none without a softmax, which published HDF5 weights lack."""
    from elmore.language_model.likely_words import substitutes_at

    if not k or elmo.checkpoint.softmax is None or elmo.checkpoint.vocabulary is None:
        return [[] for _ in uses]
    return substitutes_at(elmo, [(sentences[use.sentence], use.position) for use in uses], k)


def _table(title: str, table: NDArray[np.float32], contexts: Sequence[str]) -> str:
    """Cosines on shades from different to similar."""
    lines = [f"\n{click.style(title, bold=True)}"]
    lines.append("      " + "".join(f"{k:>5} " for k in range(1, len(table) + 1)))
    # Shades start at the lowest cosine of this table: all may be high, and the difference counts.
    low = min(_HIGH, float(table.min()))
    for number, (row, context) in enumerate(zip(table.tolist(), contexts, strict=True), 1):
        cells = ""
        for value in row:
            shade = min(max((value - low) / (1 - low), 0.0), 1.0)
            colour = _RAMP[min(int(shade * len(_RAMP)), len(_RAMP) - 1)]
            cells += click.style(f"{value:5.2f} ", fg=231, bg=colour)
        lines.append(f"{number:>4}  {cells} {context}")
    return "\n".join(lines)


def _context(tokens: Sequence[str], position: int, colour: bool, words: int = 6) -> str:
    """The words around a use, which is marked."""
    before = [printable(token) for token in tokens[max(0, position - words) : position]]
    after = [printable(token) for token in tokens[position + 1 : position + 1 + words]]
    word = printable(tokens[position])
    marked = click.style(word, bold=True) if colour else f"[{word}]"
    start = ["…"] if position > words else []
    end = ["…"] if position + 1 + words < len(tokens) else []
    return " ".join([*start, *before, marked, *after, *end])
