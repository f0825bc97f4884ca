"""`elmore explore`: a word in several contexts, compared in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from elmore.base.messages import shown
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result
from elmore.errors import ConfigError, InputError
from elmore.text.reading import read_input

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.elmo import Elmo
    from elmore.language_model.word_uses import WordUses
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
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


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "inputs", nargs="*", metavar="SENTENCE", help="sentences; - or none: lines of stdin"
    )
    flags.add_model(parser)
    parser.add_argument("--word", help="the word (default: the rarest one that is repeated)")
    flags.add(parser, "--layers", help=f"{flags.LAYERS}; all for one table per layer")
    flags.add(parser, "--top", default=8, help="likely words in its place (default: 8)")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours (default: in a terminal, unless NO_COLOR is set)",
    )
    flags.add(parser, "--tokenizer", "--start")
    flags.add_compute(parser, batches=False)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Compare the uses of a word."""
    from elmore.language_model.word_uses import find_uses, shared_word, word_uses

    if args.top < 0:
        raise ConfigError(f"--top {args.top} is not a number of words; use 0 or more")
    texts = _texts(args.inputs)
    checkpoint = flags.read_model(flags.chosen_model(args))
    elmo = flags.make_elmo(args, checkpoint)
    sentences = [elmo.tokenize(text) for text in texts]
    tokens = [sentence.tokens for sentence in sentences]
    word = args.word or shared_word(tokens, checkpoint.vocabulary)
    if word is None:
        raise InputError("no word occurs twice in these sentences; name one with --word")
    places = find_uses(tokens, word)
    if not places:
        raise InputError(f"'{shown(word, 60)}' is in none of the sentences; name another --word")
    uses = word_uses(list(elmo.pipe(sentences, layers="all")), places[:_MAX_USES])
    tables = _tables(uses, args.layers, elmo.n_layers)
    likely = _likely(elmo, sentences, uses, args.top)
    if args.json:
        write_json(_report(word, sentences, uses, tables, likely))
        return 0
    colored = _colored(args.color)
    for title, table in tables:
        write_result(_table(f"{shown(word, 60)}: {title}", table, sentences, uses, colored))
    if len(places) > len(uses.places):
        write_result(f"\n{len(places) - len(uses.places)} more uses are left out")
    if any(likely):
        write_result("\nwords that the language model would put there")
        for number, words in enumerate(likely, 1):
            write_result(f"{number:>4}  {', '.join(shown(name, 40) for name, _ in words)}")
    return 0


def _texts(inputs: Sequence[str]) -> list[str]:
    if inputs and list(inputs) != ["-"]:
        texts = list(inputs)
    else:
        if sys.stdin is not None and sys.stdin.isatty():
            raise ConfigError('no sentence; pass some: elmore explore "One ." "Another one ."')
        texts = [line for _, line in read_input("-")]
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise InputError("there is no sentence; pass one or more")
    return texts


def _tables(uses: WordUses, layers: Any, n_layers: int) -> list[tuple[str, NDArray[np.float32]]]:
    """The tables to show, each with its title."""
    if layers == flags.ALL_LAYERS:
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
    places = [(sentences[use.sentence], use.position) for use in uses.places]
    return substitutes_at(elmo, places, k)


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


def _colored(choice: str) -> bool:
    # NO_COLOR (no-color.org) and TERM=dumb are how users turn colours off everywhere.
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()


def _table(
    title: str,
    table: NDArray[np.float32],
    sentences: Sequence[Sentence],
    uses: WordUses,
    colored: bool,
) -> str:
    bold, plain = (_BOLD, _PLAIN) if colored else ("", "")
    lines = [f"\n{bold}{title}{plain}"]
    lines.append("      " + "".join(f"{k:>5} " for k in range(1, len(table) + 1)))
    # Shades start at the lowest cosine of this table: all may be high, and the difference counts.
    apart = [float(value) for i, row in enumerate(table) for value in row[:i]]
    low = min([_HIGH, *apart])
    for number, (row, use) in enumerate(zip(table, uses.places, strict=True)):
        cells = ""
        for value in row.tolist():
            shade = min(max((value - low) / (1 - low), 0.0), 1.0)
            cells += _cell(f"{value:5.2f} ", shade, colored)
        tokens = sentences[use.sentence].tokens
        context = _context(tokens, use.position, colored)
        lines.append(f"{number + 1:>4}  {cells} {context}")
    return "\n".join(lines)


def _cell(text: str, shade: float, colored: bool) -> str:
    if not colored:
        return text
    color = _RAMP[min(int(shade * len(_RAMP)), len(_RAMP) - 1)]
    return f"\x1b[48;5;{color}m\x1b[38;5;231m{text}{_PLAIN}"


def _context(tokens: Sequence[str], position: int, colored: bool, words: int = 6) -> str:
    """The words around a use, which is marked."""
    before = tokens[max(0, position - words) : position]
    after = tokens[position + 1 : position + 1 + words]
    marked = f"{_BOLD}{{}}{_PLAIN}" if colored else "[{}]"
    parts = ["…"] if position > words else []
    parts += [shown(token, 30) for token in before]
    parts.append(marked.replace("{}", shown(tokens[position], 30)))
    parts += [shown(token, 30) for token in after]
    parts += ["…"] if position + 1 + words < len(tokens) else []
    return " ".join(parts)
