"""`elmore index`, and the verbs that ask it."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    from elmore.report import Report, Reported
    from elmore.senses.corrections import Step
    from elmore.senses.groups import WordSenses
    from elmore.senses.index import Index

_INDEX = """\
  elmore index corpus/*.txt -o uses/
  elmore index news.txt.gz --words bank,play,spring -o uses/
  elmore index novels/ news/ --metadata documents.tsv -o uses/
  elmore index articles.jsonl --column text --fields date,author --split-sentences -o uses/
  elmore index more/ --add uses/ -o more-uses/
  elmore index wiki.txt --split-sentences --min-count 500 --max-uses 300 --workers 4 -o uses/

Then ask it: `elmore find`, `elmore senses`, `elmore change`. An interrupted run resumes when it is
started again.
"""
_FIND = """\
  elmore find uses/ "She sat on the [bank] of the river"
  elmore find uses/ "They [ran] a shop" --word run,runs,ran,running -o ran.html
  elmore find uses/ "She sat on the [bank]" --word '*' --unlike "The [bank] lent money"

  elmore find uses/ bank --sort right --top 50 -o bank.csv
  elmore find uses/ bank --where genre=news --by date --period 10

The word in brackets is the one to look for; a word without brackets lists its uses. --word 'run*'
searches all words with that prefix, --word '/bank(er|s)?/' those that a regular expression
matches, and --word '*' all words.
"""
_SENSES = """\
  elmore senses uses/ bank plant play
  elmore senses uses/ "run*" --senses 4 --json
  elmore senses uses/ bank --like "river=the [bank] of it" --like "money=a [bank] lends it"
  elmore senses uses/ bank --assign news.txt
  elmore senses uses/ bank play spring -o senses.svg
  elmore senses uses/ bank --by date --period 20
  elmore senses uses/ bank --merge 2,4 --rename 1="river bank"

There are up to seven senses, or one if all uses are very much alike; --senses fixes the number.
Each sense is named by the substitutes that distinguish it. With --like each use joins the sense
whose examples are most similar. Corrections are kept in INDEX.senses.json and apply wherever senses
are shown. --assign tags another text: line, position, word, sense, similarity and sentence,
separated by tabs.
"""
_CHANGE = """\
  elmore change novels/ news/
  elmore change uses-1900/ uses-2000/ --words cell,mouse,broadcast
  elmore change old/ new/ --top 1000 -o ranking.json
  elmore change old/ new/ -o change.svg
  elmore change 1850/ 1900/ 1950/ 2000/ --words cell,mouse -o change.html
  elmore change uses/ --by date --period 20 --words cell,bank -o change.svg

The folders are from `elmore index`, with the same model. Words are ranked by the mean
distance of an old and a new use (pairwise), of the mean uses (prototype), or by the divergence of
shares of senses; among several corpora by the first and the last. p is from a permutation test of
the pairwise distance; q corrects it for the number of words. English function words are left out.
"""
_FREQUENCIES = """\
  elmore frequencies uses/ bank "run*" lemma:play
  elmore frequencies uses/ bank river --by genre
  elmore frequencies uses/ bank --by date --period 10 -o bank.csv

All occurrences are counted, also of words of which the index keeps a sample. dispersion is Gries'
DP: 0 for a word that is spread evenly over the documents, 1 for one that is in a single place.
"""
_COLLOCATES = """\
  elmore collocates uses/ bank
  elmore collocates uses/ bank --sense 2 --window 3
  elmore collocates uses/ bank --where date<1900 --sort log_dice -o bank.tsv

log_likelihood (Dunning) is about evidence and favours frequent words; 10.8 is p < 0.001. log_dice
(at most 14) favours words that are rarely elsewhere.
"""
_stored_model = options.model(
    *("device", "precision", "batch_tokens", "start"),
    help="The model of the index, if it is not where it was.",
)
_words = options.argument("WORD...", nargs=-1, required=True)
_n_senses = options.option(
    "Divide into so many senses.", "N", names="--senses", type=click.IntRange(1)
)
_table = options.output("Write it to a file instead: .html, .csv, .tsv, .json or .txt.")
_picture = options.output(
    "Write it to a file instead: .html, .csv, .tsv, .json, .txt, or a picture: .svg, .png, .pdf."
)


@dataclass(frozen=True, kw_only=True)
class DocumentChoice:
    """An index, which documents of it, and how they are grouped."""

    index: Path = options.argument(type=options.PATH)
    where: Sequence[str] = options.repeated(
        "Only documents with this: genre=news, genre!=news, date>=1900", "CONDITION"
    )
    by: str | None = options.option("Group by this field of the documents.", "FIELD")
    period: int | None = options.count(None, "With --by: join N years.")

    def __post_init__(self) -> None:
        if self.period is not None and self.by is None:
            raise ConfigError("--period groups the years of a field; add --by, such as --by date")

    def open(self, **how: Any) -> Index:
        """The documents of the index that are meant; see `Index.open`."""
        from elmore.senses.index import Index

        return Index.open(self.index, **how).where(*self.where)


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
    fields: str | None = options.option(
        "JSON lines, CSV or TSV: the keys or columns that describe a record.", "LIST"
    ),
    tags: bool = options.flag("Keep the part of speech of each use, for bank/NOUN; slower."),
    layers: LayerChoice | None = options.layers(None, ": also keep these layers of each use"),
    how: dict[str, Any] = options.keywords(
        metadata=options.path(
            "Table with a header: a file in the first column, then its date, author, ..."
        ),
        add=options.path("Take over the uses of this index and its words.", "INDEX"),
        min_count=options.count(100, "Without --words: index the words that occur so often."),
        max_uses=options.count(
            1000, "Keep about N uses of a frequent word, a random sample; 64 or more."
        ),
        k=options.count(
            64,
            "Keep the K likeliest substitutes of each use; 0: compare by layers.",
            "K",
            names="--substitutes",
            type=click.IntRange(0),
        ),
        workers=options.count(1, "Processes.", type=options.CPUS),
    ),
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
    how |= {**text.options(), **model.options()}
    del how["start"]
    if model.threads is None:
        del how["threads"]
    if layers is not None:
        how["layers"] = layers
    with console.progress("sentences") as progress:
        made = build_index(
            text.inputs,
            output,
            model=model.model,
            words=None if words is None else _listed(words),
            fields=[] if fields is None else _parts(fields),
            tagger=_tagged_words if tags else None,
            overwrite=force,
            progress=progress,
            report=console.say,
            **how,
        )
    done = f"{several(len(made), 'use')} of {several(len(made.words), 'word')}"
    console.done(
        {"output": str(made.path), "words": len(made.words), "uses": len(made)},
        f"indexed {done} in '{made.path}'",
    )


@functools.cache
def _tagger() -> Any:
    """The included tagger, loaded where it is needed: a worker process may be another one."""
    from elmore.tasks.own.light import tagger

    return tagger("pos", threads=1)


def _tagged_words(sentences: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    return (found.tags for found in _tagger().pipe(sentences))


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
    documents: DocumentChoice = options.group(DocumentChoice),
    text: str = options.argument(),
    word: str | None = options.option("Words to search, by default the same.", "PATTERN"),
    how: dict[str, Any] = options.keywords(
        like=options.repeated("Further example", "TEXT"),
        unlike=options.repeated("Counterexample", "TEXT"),
        sort=options.choice(
            ["similarity", "left", "right", "text"],
            None,
            "Order: by similarity, by the words before or after, or as in the text. A sentence is "
            "compared first, and its K hits are sorted.",
        ),
        k=options.count(10, "How many to list, in each group.", "K", names="--top"),
    ),
    csv: bool = options.flag("Print CSV."),
    output: Path | None = _table,
    force: bool = options.force,
    tokenizer: str | None = options.tokenizer(),
    model: ModelChoice = _stored_model,
    console: Console,
) -> None:
    """INDEX is a folder that `elmore index` wrote, TEXT a sentence with one word in [brackets], or
    a word or pattern for a plain concordance.
    """
    check_report(output, force=force)
    how["word"] = word and _pattern(word)
    opened = documents.open(model=model.model, tokenizer=tokenizer, threads=model.threads)
    found = opened.find(text, by=documents.by, period=documents.period, **how)
    width = shutil.get_terminal_size((110, 24)).columns
    shown = found.to_csv().rstrip("\n") if csv else "\n".join(found.lines(width))
    _show(found, shown, output, force, console)


@options.verb(_SENSES)
def senses(
    *,
    documents: DocumentChoice = options.group(DocumentChoice),
    words: Sequence[str] = _words,
    how: dict[str, Any] = options.keywords(n_senses=_n_senses, seed=options.seed),
    like: Sequence[str] = options.repeated(
        "A sense and an example of it, its word in brackets, for each sense and example",
        "NAME=TEXT",
    ),
    assign: str | None = options.option("Tag the words in this text instead.", "FILE"),
    examples: bool = options.flag("All examples, and shares by file."),
    merge: Sequence[str] = options.repeated(
        "Keep a correction: senses to make one of, such as 1,3", "NUMBERS"
    ),
    split: Sequence[int] = options.repeated(
        "Keep a correction: a sense to divide in two", "N", type=int
    ),
    rename: Sequence[str] = options.repeated(
        'Keep a correction: a name for a sense, such as 2="river bank"', "N=NAME"
    ),
    forget: bool = options.flag("Forget the corrections of the words."),
    output: Path | None = options.output(
        "Write it to a file instead: .html, .json or .txt; each use with its sense: .csv, .tsv; a "
        "picture: .svg, .png, .pdf; vectors of senses: .vec, .bin."
    ),
    force: bool = options.force,
    tokenizer: str | None = options.tokenizer(),
    model: ModelChoice = _stored_model,
    console: Console,
) -> None:
    """INDEX is a folder that `elmore index` wrote. Each WORD is a word, a list such as
    run,runs,ran, or a pattern.
    """
    from elmore.senses.change import sense_shares
    from elmore.senses.corrections import corrected
    from elmore.senses.groups import save_senses
    from elmore.text.reading import check_inputs

    if assign:
        if console.json or output:
            raise ConfigError("--assign prints a table; leave out --json and -o")
        check_inputs([assign], None)
    check_report(output, *PICTURES, ".vec", ".bin", force=force)
    opened = documents.open(model=model.model, tokenizer=tokenizer, threads=model.threads)
    examples_of: dict[str, list[str]] = {}
    for one in like:
        name, equals, sentence = one.partition("=")
        if not (name.strip() and equals):
            raise ConfigError(f"--like '{one}'; write NAME=TEXT, as in 'river=the [bank] of'")
        examples_of.setdefault(name.strip(), []).append(sentence)
    how["like"] = examples_of
    if (steps := _steps(merge, split, rename)) or forget:
        if len(words) > 1 and steps:
            raise ConfigError("--merge, --split and --rename are for one word; name one")
        if steps and (documents.where or like):
            raise ConfigError(
                "--merge, --split and --rename count the senses that elmore finds in all "
                "documents; leave out --where and --like"
            )
        for word in words:
            plain = opened.whole.senses(_pattern(word), corrected=False, **how)
            corrected(plain, steps, forget=forget)
    found = [opened.senses(_pattern(word), **how) for word in words]
    if documents.by is not None:
        report = sense_shares(found, opened.groups(documents.by, documents.period))
        _show(report, str(report), output, force, console)
    elif output is not None:
        save_senses(found, output, overwrite=force)
        console.say(f"wrote '{output}'")
    elif assign:
        for line in _tagged(assign, found):
            write_result(line)
    else:
        shown = (str(one.report) if examples else repr(one) for one in found)
        console.result([one.to_dict() for one in found], fitted("\n\n".join(shown)))


def _steps(merge: Sequence[str], split: Sequence[int], rename: Sequence[str]) -> list[Step]:
    """Corrections of senses: first those that are joined, then divided, then named."""
    from elmore.senses.corrections import Step

    try:
        steps = [Step(merge=[int(number) for number in one.split(",")]) for one in merge]
        steps += [Step(split=number) for number in split]
        for number, _, name in (one.partition("=") for one in rename):
            if not name.strip():
                raise ValueError
            steps.append(Step(rename=int(number), name=name.strip()))
        return steps
    except ValueError:
        raise ConfigError("write --merge 1,3 and --rename 2=name, with numbers of senses") from None


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
    indexes: Sequence[Path] = options.argument(
        "INDEX...", nargs=-1, required=True, type=options.PATH
    ),
    documents: DocumentChoice = options.group(DocumentChoice, without=("index",)),
    words: str | None = options.option(
        "Words, separated by commas, by default all that both have.", "LIST"
    ),
    how: dict[str, Any] = options.keywords(
        min_uses=options.count(20, "Leave out words with fewer uses in one of them."),
        permutations=options.count(999, "Random divisions of the permutation test."),
        top=options.count(20, "How many to list.", "K"),
        sort=options.choice(
            ("pairwise", "prototype", "divergence"), "pairwise", "Rank by this measure."
        ),
        n_senses=_n_senses,
        seed=options.seed,
    ),
    stop_words: str = options.option(
        "Words to leave out without --words, or a file with them; none: rank all.",
        "LIST",
        default="english",
    ),
    output: Path | None = _picture,
    force: bool = options.force,
    console: Console,
) -> None:
    """Each INDEX is a folder that `elmore index` wrote: two or more to compare in this order, or
    one with --by.
    """
    from elmore.senses.change import compare
    from elmore.text.stop_words import FUNCTION_WORDS

    check_report(output, *PICTURES, force=force)
    groups = [replace(documents, index=path).open() for path in indexes]
    labels = [str(path) for path in indexes]
    if documents.by is not None and len(groups) == 1:
        divided = groups[0].groups(documents.by, documents.period)
        labels, groups = list(divided), list(divided.values())
    elif documents.by is not None or len(groups) < 2:
        raise ConfigError("name two or more indexes, or one and --by FIELD")
    listed = None if words is None else _listed(words)
    known = {"english": FUNCTION_WORDS, "none": frozenset[str]()}
    how["stop_words"] = known[stop_words] if stop_words in known else {*_listed(stop_words)}
    found = compare(*groups, words=listed, labels=labels, **how)
    _show(found, repr(found), output, force, console)


@options.verb(_FREQUENCIES)
def frequencies(
    *,
    documents: DocumentChoice = options.group(DocumentChoice),
    words: Sequence[str] = _words,
    output: Path | None = _table,
    force: bool = options.force,
    console: Console,
) -> None:
    """INDEX is a folder that `elmore index` wrote. Each WORD is a word, a list such as
    run,runs,ran, or a pattern.
    """
    from elmore.senses.counting import frequencies as count

    check_report(output, force=force)
    asked, by, period = [_pattern(word) for word in words], documents.by, documents.period
    found = count(documents.open(), asked, by=by, period=period)
    _show(found, str(found), output, force, console)


@options.verb(_COLLOCATES)
def collocates(
    *,
    documents: DocumentChoice = options.group(DocumentChoice, without=("by", "period")),
    word: str = options.argument(),
    sense: int | None = options.count(None, "Only uses in this sense of `elmore senses`."),
    how: dict[str, Any] = options.keywords(
        window=options.count(5, "How many tokens on each side are near."),
        min_count=options.count(3, "Leave out words that are near less often."),
        sort=options.choice(
            ["log_likelihood", "log_dice"], "log_likelihood", "Measure of association."
        ),
        top=options.count(20, "How many to list.", "K"),
    ),
    output: Path | None = _table,
    force: bool = options.force,
    console: Console,
) -> None:
    """INDEX is a folder that `elmore index` wrote."""
    from elmore.senses.counting import collocates as near

    check_report(output, force=force)
    opened, rows = documents.open(), None
    if sense is not None:
        found = opened.senses(_pattern(word))
        if sense > len(found):
            raise ConfigError(f"--sense {sense}: '{word}' has {several(len(found), 'sense')}")
        rows = found[sense - 1].rows
    report = near(opened, _pattern(word), rows=rows, **how)
    _show(report, str(report), output, force, console)


def _show(
    result: Report | Reported, text: str, output: Path | None, force: bool, console: Console
) -> None:
    """Write a result to the file of -o, or print it."""
    if output is None:
        console.result(result.to_dict(), fitted(text))
    else:
        result.save(output, overwrite=force)
        console.say(f"wrote '{output}'")


def _pattern(text: str) -> str | list[str]:
    """A word or pattern, or several words with commas between them."""
    return _listed(text) if "," in text and not text.startswith("/") else text
