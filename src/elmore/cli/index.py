"""`elmore index`: the uses of words in a corpus, computed once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.cli import options
from elmore.cli.console import Console, common, several, write_json
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.cli.options import ComputeChoice, TextInput
    from elmore.embedding.load import ModelPath
    from elmore.options import LayerChoice

__all__ = ["index"]

_EXAMPLES = """\
  elmore index corpus/*.txt -o uses/
  elmore index news.txt.gz --words bank,play,spring -o uses/
  elmore index wiki.txt --split-sentences --min-count 500 --max-uses 300 --workers 4 -o uses/

Then ask it: `elmore find`, `elmore senses`, `elmore change`. An interrupted run resumes when it is
started again.
"""


@click.command(epilog=options.examples(_EXAMPLES))
@options.text_input
@options.model()
@options.force_output("Folder to create.")
@click.option(
    "--words",
    metavar="LIST",
    help="Words, separated by commas, or a file with one per line.",
)
@click.option(
    "--min-count",
    type=options.COUNT,
    default=100,
    metavar="N",
    help="Without --words: index the words that occur so often.",
)
@click.option(
    "--max-uses",
    type=options.COUNT,
    default=1000,
    metavar="N",
    help="Keep about N uses of a frequent word, a random sample.",
)
@click.option(
    "--substitutes",
    type=click.IntRange(0),
    default=64,
    metavar="K",
    help="Keep the K likeliest substitutes of each use; 0: compare by layers.",
)
@options.layers(None, ": also keep these layers of each use")
@click.option("--workers", type=options.CPUS, default=1, metavar="N", help="Processes.")
@options.compute(starts=False)
@common()
def index(
    *,
    text: TextInput,
    model: ModelPath | None,
    output: Path | None,
    force: bool,
    words: str | None,
    min_count: int,
    max_uses: int,
    substitutes: int,
    layers: LayerChoice | None,
    workers: int,
    compute: ComputeChoice,
    console: Console,
) -> None:
    """Index the uses of words in a corpus, with their sense vectors.

    INPUT are UTF-8 text files with one sentence per line (plain, gz, bz2, xz or zst).
    """
    from elmore.senses.indexing import build_index
    from elmore.text.reading import check_rereadable

    if output is None:
        raise ConfigError("an index is a folder; pass -o FOLDER")
    check_rereadable(text.inputs)
    chosen: dict[str, Any] = {**text.options(), **compute.options()}
    del chosen["start"]
    chosen["threads"] = compute.threads or (None if workers == 1 else 1)
    if layers is not None:
        chosen["layers"] = layers
    with console.progress("sentences") as progress:
        made = build_index(
            text.inputs,
            output,
            model=model,
            words=None if words is None else _words(words),
            min_count=min_count,
            max_uses=max_uses,
            k=substitutes,
            workers=workers,
            overwrite=force,
            progress=progress,
            report=console.say,
            **chosen,
        )
    if console.json:
        write_json({"output": str(made.path), "words": len(made.words), "uses": len(made)})
    else:
        done = f"{several(len(made), 'use')} of {several(len(made.words), 'word')}"
        console.say(f"indexed {done} in '{made.path}'")


def _words(text: str) -> list[str]:
    from elmore.text.reading import read_input

    # A misspelt name of a file must not be taken for a word.
    if Path(text).is_file() or text.endswith(".txt"):
        return [line for _, line in read_input(text)]
    return options.word_list(text)
