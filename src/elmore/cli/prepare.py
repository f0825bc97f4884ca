"""`elmore prepare`: turn text files into a corpus to train on, or only into a vocabulary."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.cli import options
from elmore.cli.console import Console, check_new, described
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.cli.options import TextInput
    from elmore.corpus.prepared import Prepared

_EXAMPLES = """\
  elmore prepare corpus/*.txt.gz -o data/
  elmore prepare books/*.txt --split-sentences --vocabulary 100000 -o data/
  elmore prepare train/* --tokenized --heldout-files 'heldout/*' --vocabulary vocab.txt -o data/
  elmore prepare corpus/*.txt.gz --vocabulary 50000 -o vocab.txt

Blank lines separate documents. If -o ends in .txt, only a vocabulary is written. An interrupted run
resumes when it is started again. `elmore info data/` shows what vocabularies of other sizes cover.
"""


@options.verb(_EXAMPLES)
def prepare(
    *,
    text: TextInput = options.group(
        options.TextInput,
        without=("column", "conllu", "limit"),
        inputs=options.argument("INPUT...", nargs=-1, required=True, type=click.Path()),
        tokenizer=options.tokenizer("ptb"),
    ),
    workers: int | None = options.count(
        None, "Processes, by default one per CPU.", type=options.CPUS
    ),
    output: Path = options.output(
        "Folder to create, or NAME.txt for a vocabulary alone.", required=True
    ),
    force: bool = options.force,
    vocabulary: str | None = options.option(
        "Number of words, with <S> </S> <UNK>, or a vocabulary file; by default 50000 words, "
        "without those that occur once.",
        "N|FILE",
    ),
    min_count: int | None = options.count(None, "Leave out words that occur less often.", type=int),
    heldout: float = options.heldout(0.005),
    heldout_files: tuple[str, ...] = options.option(
        "Hold out this file or pattern instead; may be repeated.", "FILE", multiple=True
    ),
    seed: int = options.seed,
    shard_tokens: int = options.count(1_000_000, "Approximate tokens per shard."),
    console: Console,
) -> None:
    """INPUT are UTF-8 text files or patterns (plain, gz, bz2, xz or zst)."""
    from elmore.corpus.prepare import prepare as prepare_corpus

    # A file whose name is a number can be written as ./50000.
    words = int(vocabulary) if vocabulary is not None and vocabulary.isdecimal() else vocabulary
    reading: dict[str, Any] = {
        "tokenized": text.tokenized,
        "split_sentences": text.split_sentences,
        "tokenizer": text.tokenizer,
        "errors": text.errors,
        "workers": workers,
    }
    if output.suffix == ".txt":
        if isinstance(words, str):
            raise ConfigError("--vocabulary FILE is a vocabulary already; pass a number of words")
        _write_vocabulary(text.inputs, output, force, words, min_count, console, reading)
        return
    start = time.perf_counter()
    with console.progress("tokens") as progress:
        prepared = prepare_corpus(
            text.inputs,
            output,
            vocabulary=words,
            min_count=min_count,
            heldout=heldout,
            heldout_files=heldout_files,
            seed=seed,
            shard_tokens=shard_tokens,
            overwrite=force,
            progress=progress,
            **reading,
        )
    seconds = time.perf_counter() - start
    speed = (prepared.training.tokens + prepared.heldout.tokens) / max(seconds, 0.01)
    facts = describe_prepared(prepared)
    console.done(
        {**facts, "seconds": round(seconds, 2)},
        f"{described(facts)}\nwrote '{prepared.folder}', {speed:,.0f} tokens per second",
    )


def describe_prepared(prepared: Prepared) -> dict[str, Any]:
    """What `elmore prepare` reports, and `elmore info` later."""
    return {
        "prepared": str(prepared.folder),
        "training": asdict(prepared.training),
        "heldout": asdict(prepared.heldout),
        "shards": len(prepared.shards),
        "vocabulary": len(prepared.vocabulary),
        "oov_rate": prepared.oov_rate,
        "heldout_oov_rate": prepared.heldout_oov_rate,
        "tokenizer": prepared.tokenizer,
        "notes": list(prepared.notes),
        "digest": prepared.digest,
    }


def _write_vocabulary(
    inputs: tuple[str, ...],
    output: Path,
    force: bool,
    size: int | None,
    min_count: int | None,
    console: Console,
    reading: dict[str, Any],
) -> None:
    """Prepare the text in a folder that is removed, but for its vocabulary."""
    from elmore.base.atomic import atomic_file
    from elmore.corpus.prepare import prepare as prepare_corpus
    from elmore.corpus.prepared import COUNTS
    from elmore.corpus.words import read_counts

    check_new(output, force=force)
    # Under a name of its own, so that an interrupted run can resume.
    corpus = output.with_name(f"{output.name}.corpus")
    with console.progress("tokens") as progress:
        made = prepare_corpus(
            inputs,
            corpus,
            vocabulary=size,
            min_count=min_count,
            heldout=0,
            overwrite=True,
            progress=progress,
            **reading,
        )
    facts = {
        "output": str(output),
        "words": len(made.vocabulary),
        "types": sum(1 for _ in read_counts(corpus / COUNTS)),
        "tokens": made.n_tokens,
        "oov_rate": made.oov_rate,
        "notes": list(made.notes[:-1]),  # the last: nothing is held out
    }
    with atomic_file(output, overwrite=force) as stream:
        stream.write(made.vocabulary.to_bytes())
    shutil.rmtree(corpus)
    console.done(facts, described(facts))
