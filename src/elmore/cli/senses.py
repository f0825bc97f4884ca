"""`elmore find`, `elmore senses` and `elmore change`: questions to an index of uses."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmore.base.messages import printable, spreadsheet_safe
from elmore.cli import options
from elmore.cli.console import Console, common, fitted, write_json, write_result
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath
    from elmore.senses.groups import WordSenses

__all__ = ["change", "find", "senses"]

_FIND = """\
  elmore find uses/ "She sat on the [bank] of the river"
  elmore find uses/ "They [ran] a shop" --word run,runs,ran,running -o ran.html
  elmore find uses/ "She sat on the [bank]" --word '*' --unlike "The [bank] lent money"

The word in brackets is the one to look for. --word 'run*' searches all words with that prefix,
--word '/bank(er|s)?/' those that a regular expression matches, and --word '*' all words.
"""
_SENSES = """\
  elmore senses uses/ bank plant play
  elmore senses uses/ "run*" --max-senses 4 --json
  elmore senses uses/ bank --assign news.txt
  elmore senses uses/ bank play spring -o senses.svg

elmore estimates the number of senses. Each sense is named by the substitutes that are typical of
it. --assign tags another text: line, position, word, sense, cosine and sentence, separated by tabs.
"""
_CHANGE = """\
  elmore change novels/ news/
  elmore change uses-1900/ uses-2000/ --words cell,mouse,broadcast
  elmore change old/ new/ --top 1000 -o ranking.json
  elmore change old/ new/ -o change.svg

Both folders are from `elmore index`, with the same model. Words are ranked by the distance of their
mean uses beyond chance. p is from a permutation test; q corrects it for the number of words.
"""
_MODEL = "The model of the index, if it is not where it was."


@click.command(epilog=options.examples(_FIND))
@click.argument("index", type=options.PATH)
@click.argument("text")
@click.option("--word", metavar="PATTERN", help="Words to search, by default the same.")
@click.option("--like", multiple=True, metavar="TEXT", help="Further example; may be repeated.")
@click.option("--unlike", multiple=True, metavar="TEXT", help="Counterexample; may be repeated.")
@options.top(10)
@options.model(_MODEL)
@options.tokenizer()
@options.threads
@click.option("--csv", is_flag=True, help="Print CSV.")
@options.force_output(
    "Write it to a file instead: .html, .csv, .json, .txt, or a picture: .svg, .png, .pdf."
)
@common()
def find(
    *,
    index: Path,
    text: str,
    word: str | None,
    like: Sequence[str],
    unlike: Sequence[str],
    top: int,
    model: ModelPath | None,
    tokenizer: str | None,
    threads: int | None,
    csv: bool,
    output: Path | None,
    force: bool,
    console: Console,
) -> None:
    """The uses of a word in an INDEX that are most similar to its use in TEXT.

    INDEX is a folder that `elmore index` wrote, TEXT a sentence with one word in [brackets].
    """
    from elmore.senses.index import Index

    _check_output(output, force, ".csv")
    found = Index.open(index, model=model, tokenizer=tokenizer, threads=threads).find(
        text, word=None if word is None else _pattern(word), k=top, like=like, unlike=unlike
    )
    if output is not None:
        _save(output, force, console, found.save)
    elif console.json:
        write_json(found.to_dict())
    elif csv:
        write_result(found.to_csv().rstrip("\n"))
    else:
        write_result("\n".join(found.lines(shutil.get_terminal_size((110, 24)).columns)))


@click.command(epilog=options.examples(_SENSES))
@click.argument("index", type=options.PATH)
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option(
    "--max-senses",
    type=options.COUNT,
    default=8,
    metavar="N",
    help="The largest number of senses to try.",
)
@click.option("--assign", metavar="FILE", help="Tag the words in this text instead.")
@click.option("--examples", is_flag=True, help="All examples, and shares by file.")
@options.force_output(
    "Write it to a file instead: .html, .json or .txt; a picture: .svg, .png, .pdf; vectors of "
    "senses: .vec, .bin."
)
@options.seed
@options.model(_MODEL)
@options.tokenizer()
@options.threads
@common()
def senses(
    *,
    index: Path,
    words: Sequence[str],
    max_senses: int,
    assign: str | None,
    examples: bool,
    output: Path | None,
    force: bool,
    seed: int,
    model: ModelPath | None,
    tokenizer: str | None,
    threads: int | None,
    console: Console,
) -> None:
    """The uses of words, grouped by sense.

    INDEX is a folder that `elmore index` wrote. Each WORD is a word, a list such as run,runs,ran,
    or a pattern.
    """
    from elmore.senses.groups import save_senses
    from elmore.senses.index import Index
    from elmore.text.reading import check_inputs

    if assign and (console.json or output):
        raise ConfigError("--assign prints a table; leave out --json and -o")
    _check_output(output, force, ".vec", ".bin")
    if assign:
        check_inputs([assign], None)
    opened = Index.open(index, model=model, tokenizer=tokenizer, threads=threads)
    found = [opened.senses(_pattern(word), max_senses=max_senses, seed=seed) for word in words]
    if output is not None:
        _save(output, force, console, partial(save_senses, found))
    elif assign:
        for line in _tagged(assign, found):
            write_result(line)
    elif console.json:
        write_json([one.to_dict() for one in found])
    else:
        shown = (str(one.report) if examples else repr(one) for one in found)
        write_result(fitted("\n\n".join(shown)))


def _tagged(file: str, found: Sequence[WordSenses]) -> Iterator[str]:
    from elmore.text.reading import read_input

    for number, line in read_input(file):
        sentence = found[0].index.tokenize(line)
        for one in found:
            for position, sense, cosine in one.assign_text(sentence):
                cells = (number, position, one.word, sense, f"{cosine:.3f}", line)
                yield "\t".join(spreadsheet_safe(printable(str(cell))) for cell in cells)


@click.command(epilog=options.examples(_CHANGE))
@click.argument("old", type=options.PATH)
@click.argument("new", type=options.PATH)
@click.option(
    "--words", metavar="LIST", help="Words, separated by commas, by default all that both have."
)
@click.option(
    "--min-uses",
    type=options.COUNT,
    default=20,
    metavar="N",
    help="Leave out words with fewer uses in one of them.",
)
@click.option(
    "--permutations",
    type=options.COUNT,
    default=999,
    metavar="N",
    help="Random divisions of the permutation test.",
)
@options.top(20)
@options.force_output(
    "Write it to a file instead: .html, .json, .txt, or a picture: .svg, .png, .pdf."
)
@options.seed
@common()
def change(
    *,
    old: Path,
    new: Path,
    words: str | None,
    min_uses: int,
    permutations: int,
    top: int,
    output: Path | None,
    force: bool,
    seed: int,
    console: Console,
) -> None:
    """Words that two corpora use differently.

    OLD and NEW are folders that `elmore index` wrote.
    """
    from elmore.senses.change import compare
    from elmore.senses.index import Index

    _check_output(output, force)
    found = compare(
        Index.open(old),
        Index.open(new),
        None if words is None else options.word_list(words),
        min_uses=min_uses,
        permutations=permutations,
        seed=seed,
    )
    found = dataclasses.replace(found, words=found.words[:top])
    if output is not None:
        _save(output, force, console, found.save)
    elif console.json:
        write_json(found.report.to_dict())
    else:
        write_result(fitted(str(found.report)))


def _pattern(text: str) -> str | list[str]:
    """A word or pattern, or several words with commas between them."""
    return options.word_list(text) if "," in text and not text.startswith("/") else text


def _check_output(output: Path | None, force: bool, *more: str) -> None:
    """Refuse a file of -o before the work; `more` are suffixes of this verb alone."""
    from elmore.cli.console import check_new
    from elmore.report import PICTURES, check_picture, check_suffix

    if output is None:
        return
    check_suffix(output, *PICTURES, *more)
    check_new(output, force=force)
    if output.suffix.lower() in PICTURES:
        check_picture(output)  # matplotlib may be missing


def _save(output: Path, force: bool, console: Console, write: Callable[..., None]) -> None:
    """Write a result to the file of -o."""
    write(output, overwrite=force)
    console.say(f"wrote '{output}'")
