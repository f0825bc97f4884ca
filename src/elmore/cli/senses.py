"""`elmore index`, and `find`, `senses` and `change`, which ask it."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.base.messages import printable, spreadsheet_safe
from elmore.cli import options
from elmore.cli.console import Console, check_report, fitted, several, write_result
from elmore.errors import ConfigError
from elmore.report import PICTURES

if TYPE_CHECKING:
    from elmore.cli.options import ModelChoice, TextInput
    from elmore.options import LayerChoice
    from elmore.senses.groups import WordSenses

_INDEX = """\
  elmore index corpus/*.txt -o uses/
  elmore index news.txt.gz --words bank,play,spring -o uses/
  elmore index novels/ news/ --metadata documents.tsv -o uses/
  elmore index articles.jsonl --column text --fields date,author --split-sentences -o uses/
  elmore index more/ --add -o uses/
  elmore index wiki.txt --split-sentences --min-count 500 --max-uses 300 --workers 4 -o uses/

Then ask it: `elmore find`, `elmore senses`, `elmore change`. An interrupted run resumes when it is
started again.
"""
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
_stored_model = options.model(
    *("device", "precision", "batch_tokens", "start"),
    help="The model of the index, if it is not where it was.",
)


@options.verb(_INDEX)
def index(
    *,
    text: TextInput = options.text_input,
    output: Path | None = options.output("Folder to create."),
    force: bool = options.force,
    words: str | None = options.option(
        "Words, phrases and patterns (run*, lemma:run), separated by commas, or a file with one "
        "per line.",
        "LIST",
    ),
    metadata: Path | None = options.option(
        "Table with a header: a file in the first column, then its date, author, ...",
        "FILE",
        type=options.PATH,
    ),
    fields: str | None = options.option(
        "JSON lines, CSV or TSV: the keys or columns that describe a record.", "LIST"
    ),
    tags: bool = options.flag("Keep the part of speech of each use, for bank/NOUN; slower."),
    add: bool = options.flag("Add to the index in -o, which keeps its words."),
    min_count: int = options.count(100, "Without --words: index the words that occur so often."),
    max_uses: int = options.count(1000, "Keep about N uses of a frequent word, a random sample."),
    substitutes: int = options.count(
        64,
        "Keep the K likeliest substitutes of each use; 0: compare by layers.",
        "K",
        type=click.IntRange(0),
    ),
    layers: LayerChoice | None = options.layers(None, ": also keep these layers of each use"),
    workers: int = options.count(1, "Processes.", type=options.CPUS),
    model: ModelChoice = options.model("start"),
    console: Console,
) -> None:
    """INPUT are UTF-8 text files with one sentence per line (plain, gz, bz2, xz or zst), or folders
    of them.
    """
    from elmore.senses.indexing import build_index
    from elmore.text.reading import check_rereadable

    if output is None:
        raise ConfigError("an index is a folder; pass -o FOLDER")
    files = [name for name in text.inputs or ("-",) if not Path(name).is_dir()]
    if files:
        check_rereadable(files)
    chosen: dict[str, Any] = {**text.options(), **model.options()}
    del chosen["start"]
    chosen["threads"] = model.threads or (None if workers == 1 else 1)
    if layers is not None:
        chosen["layers"] = layers
    with console.progress("sentences") as progress:
        made = build_index(
            text.inputs,
            output,
            model=model.model,
            words=None if words is None else _listed(words),
            min_count=min_count,
            max_uses=max_uses,
            k=substitutes,
            metadata=metadata,
            fields=[] if fields is None else _parts(fields),
            tagger=_Tagger() if tags else None,
            add=add,
            workers=workers,
            overwrite=force,
            progress=progress,
            report=console.say,
            **chosen,
        )
    done = f"{several(len(made), 'use')} of {several(len(made.words), 'word')}"
    console.done(
        {"output": str(made.path), "words": len(made.words), "uses": len(made)},
        f"indexed {done} in '{made.path}'",
    )


class _Tagger:
    """The included tagger, loaded where it is needed: a worker process may be another one."""

    @functools.cached_property
    def _loaded(self) -> Any:
        from elmore.tasks.own.light import tagger

        return tagger("pos", threads=1)

    def __call__(self, sentences: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
        return (found.tags for found in self._loaded.pipe(sentences))


def _parts(text: str) -> list[str]:
    return [part for one in text.split(",") if (part := one.strip())]


def _listed(text: str) -> list[str]:
    """Words with commas between them, or the lines of a file."""
    from elmore.text.reading import read_input

    # A misspelt name of a file must not be taken for a word.
    if Path(text).is_file() or text.endswith(".txt"):
        return [line for _, line in read_input(text)]
    return _parts(text)


@options.verb(_FIND)
def find(
    *,
    index: Path = options.argument(type=options.PATH),
    text: str = options.argument(),
    word: str | None = options.option("Words to search, by default the same.", "PATTERN"),
    like: Sequence[str] = options.option(
        "Further example; may be repeated.", "TEXT", multiple=True
    ),
    unlike: Sequence[str] = options.option(
        "Counterexample; may be repeated.", "TEXT", multiple=True
    ),
    top: int = options.count(10, "How many to list.", "K"),
    csv: bool = options.flag("Print CSV."),
    output: Path | None = options.output(
        "Write it to a file instead: .html, .csv, .json, .txt, or a picture: .svg, .png, .pdf."
    ),
    force: bool = options.force,
    tokenizer: str | None = options.tokenizer(),
    model: ModelChoice = _stored_model,
    console: Console,
) -> None:
    """INDEX is a folder that `elmore index` wrote, TEXT a sentence with one word in [brackets]."""
    from elmore.senses.index import Index

    check_report(output, *PICTURES, ".csv", force=force)
    opened = Index.open(index, model=model.model, tokenizer=tokenizer, threads=model.threads)
    pattern = None if word is None else _pattern(word)
    found = opened.find(text, word=pattern, k=top, like=like, unlike=unlike)
    if output is not None:
        _save(output, force, console, found.save)
    elif csv and not console.json:
        write_result(found.to_csv().rstrip("\n"))
    else:
        width = shutil.get_terminal_size((110, 24)).columns
        console.result(found.to_dict(), "\n".join(found.lines(width)))


@options.verb(_SENSES)
def senses(
    *,
    index: Path = options.argument(type=options.PATH),
    words: Sequence[str] = options.argument("WORD...", nargs=-1, required=True),
    max_senses: int = options.count(8, "The largest number of senses to try."),
    assign: str | None = options.option("Tag the words in this text instead.", "FILE"),
    examples: bool = options.flag("All examples, and shares by file."),
    output: Path | None = options.output(
        "Write it to a file instead: .html, .json or .txt; a picture: .svg, .png, .pdf; vectors of "
        "senses: .vec, .bin."
    ),
    force: bool = options.force,
    seed: int = options.seed,
    tokenizer: str | None = options.tokenizer(),
    model: ModelChoice = _stored_model,
    console: Console,
) -> None:
    """INDEX is a folder that `elmore index` wrote. Each WORD is a word, a list such as
    run,runs,ran, or a pattern.
    """
    from elmore.senses.groups import save_senses
    from elmore.senses.index import Index
    from elmore.text.reading import check_inputs

    if assign and (console.json or output):
        raise ConfigError("--assign prints a table; leave out --json and -o")
    check_report(output, *PICTURES, ".vec", ".bin", force=force)
    if assign:
        check_inputs([assign], None)
    opened = Index.open(index, model=model.model, tokenizer=tokenizer, threads=model.threads)
    found = [opened.senses(_pattern(word), max_senses=max_senses, seed=seed) for word in words]
    if output is not None:
        _save(output, force, console, partial(save_senses, found))
    elif assign:
        for line in _tagged(assign, found):
            write_result(line)
    else:
        shown = (str(one.report) if examples else repr(one) for one in found)
        console.result([one.to_dict() for one in found], fitted("\n\n".join(shown)))


def _tagged(file: str, found: Sequence[WordSenses]) -> Iterator[str]:
    from elmore.text.reading import read_input

    for number, line in read_input(file):
        sentence = found[0].index.tokenize(line)
        for one in found:
            for position, sense, cosine in one.assign_text(sentence):
                cells = (number, position, one.word, sense, f"{cosine:.3f}", line)
                yield "\t".join(spreadsheet_safe(printable(str(cell))) for cell in cells)


@options.verb(_CHANGE)
def change(
    *,
    old: Path = options.argument(type=options.PATH),
    new: Path = options.argument(type=options.PATH),
    words: str | None = options.option(
        "Words, separated by commas, by default all that both have.", "LIST"
    ),
    min_uses: int = options.count(20, "Leave out words with fewer uses in one of them."),
    permutations: int = options.count(999, "Random divisions of the permutation test."),
    top: int = options.count(20, "How many to list.", "K"),
    output: Path | None = options.output(
        "Write it to a file instead: .html, .json, .txt, or a picture: .svg, .png, .pdf."
    ),
    force: bool = options.force,
    seed: int = options.seed,
    console: Console,
) -> None:
    """OLD and NEW are folders that `elmore index` wrote."""
    from elmore.senses.change import compare
    from elmore.senses.index import Index

    check_report(output, *PICTURES, force=force)
    found = compare(
        Index.open(old),
        Index.open(new),
        None if words is None else _listed(words),
        min_uses=min_uses,
        permutations=permutations,
        seed=seed,
    )
    found = dataclasses.replace(found, words=found.words[:top])
    if output is not None:
        _save(output, force, console, found.save)
    else:
        console.result(found.report.to_dict(), fitted(str(found.report)))


def _pattern(text: str) -> str | list[str]:
    """A word or pattern, or several words with commas between them."""
    return _listed(text) if "," in text and not text.startswith("/") else text


def _save(output: Path, force: bool, console: Console, write: Callable[..., None]) -> None:
    """Write a result to the file of -o."""
    write(output, overwrite=force)
    console.say(f"wrote '{output}'")
