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
    inputs: tuple[str, ...] = options.argument(
        "INPUT...", nargs=-1, required=True, type=click.Path()
    ),
    settings: dict[str, Any] = options.keywords(
        tokenized=options.tokenized,
        split_sentences=options.split_sentences,
        errors=options.errors,
        tokenizer=options.tokenizer("ptb"),
        workers=options.count(None, "Processes, by default one per CPU.", type=options.CPUS),
        vocabulary=options.option(
            "Number of words, with <S> </S> <UNK>, or a vocabulary file; by default 50000 words, "
            "without those that occur once.",
            "N|FILE",
            type=options.number_or_name,
        ),
        min_count=options.count(None, "Leave out words that occur less often.", type=int),
        heldout=options.heldout(0.005),
        heldout_files=options.option(
            "Hold out this file or pattern instead; may be repeated.", "FILE", multiple=True
        ),
        seed=options.seed,
        shard_tokens=options.count(1_000_000, "Approximate tokens per shard."),
    ),
    output: Path = options.output(
        "Folder to create, or NAME.txt for a vocabulary alone.", required=True
    ),
    force: bool = options.force,
    console: Console,
) -> None:
    """INPUT are UTF-8 text files or patterns (plain, gz, bz2, xz or zst)."""
    from elmore.corpus.prepare import prepare as prepare_corpus

    folder = output
    if words_only := output.suffix == ".txt":
        if isinstance(settings["vocabulary"], str):
            raise ConfigError("--vocabulary FILE is a vocabulary already; pass a number of words")
        check_new(output, force=force)
        settings |= {"heldout": 0, "heldout_files": ()}
        # Under a name of its own, so that an interrupted run can resume.
        folder = output.with_name(f"{output.name}.corpus")
    start = time.perf_counter()
    with console.progress("tokens") as progress:
        prepared = prepare_corpus(
            inputs, folder, overwrite=force or words_only, progress=progress, **settings
        )
    if words_only:
        _keep_vocabulary(prepared, output, force, console)
        return
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


def _keep_vocabulary(prepared: Prepared, output: Path, force: bool, console: Console) -> None:
    """Write the vocabulary of prepared text, and remove the rest."""
    from elmore.base.atomic import atomic_file
    from elmore.corpus.prepared import COUNTS
    from elmore.corpus.words import read_counts

    facts = {
        "output": str(output),
        "words": len(prepared.vocabulary),
        "types": sum(1 for _ in read_counts(prepared.folder / COUNTS)),
        "tokens": prepared.n_tokens,
        "oov_rate": prepared.oov_rate,
        "notes": list(prepared.notes[:-1]),  # the last: nothing is held out
    }
    with atomic_file(output, overwrite=force) as stream:
        stream.write(prepared.vocabulary.to_bytes())
    shutil.rmtree(prepared.folder)
    console.done(facts, described(facts))
