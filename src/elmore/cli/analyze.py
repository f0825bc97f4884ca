"""`elmore analyze`: the paper's analyses: probes of layers, studies of tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.cli import options
from elmore.cli.console import Console, check_new, common, fitted, write_json, write_result
from elmore.cli.options import Decorator, Function
from elmore.errors import ConfigError, InputError

if TYPE_CHECKING:
    from elmore.cli.options import ComputeChoice, TextInput
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.options import LayerChoice
    from elmore.report import Report

__all__ = ["analyze"]

# The tasks that a study can train: those whose network has a place for ELMo to choose.
_TASKS = ("ner", "sentiment", "nli", "srl", "qa", "coref")


@click.group(
    no_args_is_help=False,
    epilog=options.examples("""\
  elmore analyze pos train.conllu dev.conllu test.conllu --vectors glove.txt
  elmore analyze neighbors corpus.txt --query play
  elmore analyze layers train.conll dev.conll --task ner
"""),
)
def analyze() -> None:
    """The paper's analyses: probes of layers, studies of tasks."""


def _analysis(name: str, text: str) -> Callable[[Function], click.Command]:
    """Make a command of a function that gives a report; `text` ends its help."""

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def run(
            *,
            output: Path | None,
            force: bool,
            console: Console,
            plot: Path | None = None,
            **given: Any,
        ) -> None:
            _check_output(output, plot, force)
            report = function(console=console, **given)
            if output is not None:
                report.save(output, overwrite=force)
            elif console.json:
                write_json(report.to_dict())
            else:
                write_result(fitted(str(report)))
            if plot is not None:
                from elmore.analysis.plots import plot_report

                plot_report(report, plot, overwrite=force)
                console.say(f"drew {plot}")

        command: Function = options.force_output(
            "Write the report there: JSON if it ends in .json, else text."
        )(common()(run))
        command = click.option(
            "--plot", type=options.PATH, metavar="PICTURE", help="Draw it too: svg, png or pdf."
        )(command)
        made: click.Command = analyze.command(name, epilog=options.examples(text))(command)
        return made

    return decorate


def _check_output(output: Path | None, plot: Path | None, force: bool) -> None:
    """Refuse what would fail after the work is done, before it starts."""
    from elmore.report import check_picture, check_suffix

    check_new(output, force=force)
    check_new(plot, force=force)
    if output is not None:
        check_suffix(output)
    if plot is not None:
        check_picture(plot)


def _elmo(function: Function) -> Function:
    """--model and how it computes; the function gets the loaded model as `elmo`."""

    @functools.wraps(function)
    def run(
        *, model: ModelPath | None, compute: ComputeChoice, console: Console, **given: Any
    ) -> Any:
        text: TextInput | None = given.get("text")
        checkpoint = options.read_model(model)
        elmo = compute.load(checkpoint, None if text is None else text.tokenizer)
        return function(elmo=elmo, console=console, **given)

    return options.model()(options.compute(batches=False)(run))


# --------------------------------------------------------------------------- probes of layers


def _probe(function: Function) -> Function:
    """What pos and wsd share; the function gets it as keywords of the probe."""
    own: tuple[Decorator, ...] = (
        options.seed,
        options.vectors,
        options.limit,
        click.option(
            "--no-random",
            "random",
            is_flag=True,
            flag_value=False,
            default=True,
            help="Leave out the random control.",
        ),
        options.layers("all", "; all for each and their mean"),
        options.caching,
    )
    for option in own:
        function = option(function)
    return _elmo(function)


@_analysis(
    "pos",
    """\
  elmore analyze pos train.conllu dev.conllu test.conllu --vectors glove.txt
  elmore analyze pos train.conllu dev.conllu test.conllu --tags upos --layers all --json
""",
)
@click.argument("train", type=options.PATH)
@click.argument("dev", type=options.PATH)
@click.argument("test", type=options.PATH)
@click.option("--tags", default="upos,xpos", metavar="KINDS", help="upos, xpos or both.")
@_probe
def pos(
    *, elmo: Elmo, train: Path, dev: Path, test: Path, tags: str, console: Console, **probe: Any
) -> Report:
    """How much of the part of speech a linear probe finds, in three CoNLL-U files."""
    from elmore.analysis.pos import Pos

    with console.progress("sentences") as progress:
        kinds: Any = tags.split(",")
        return Pos(elmo, tags=kinds, progress=progress, **probe).run([train, dev, test])


@_analysis(
    "wsd",
    """\
  elmore analyze wsd wsd-data/ --cache layers/ --plot wsd.svg
  elmore analyze wsd wsd-data/ --no-random --json

The folder holds semcor.jsonl, test sets and *_order.tsv; see docs/analysis.md.
""",
)
@click.argument("folder", type=options.PATH)
@_probe
def wsd(*, elmo: Elmo, folder: Path, console: Console, **probe: Any) -> Report:
    """Which sense of a word is meant, by nearest neighbours."""
    from elmore.analysis.wsd import Wsd

    with console.progress("sentences") as progress:
        return Wsd(elmo, progress=progress, **probe).run(folder)


@_analysis(
    "neighbors",
    """\
  elmore analyze neighbors corpus.txt --query play
  elmore analyze neighbors corpus.txt --query play --context "They saw a play ."

Without --context, elmore splits the word's uses into two clusters and takes the most central use
of each.
""",
)
@options.text_input
@click.option("--query", metavar="WORD", required=True, help="The word to look for.")
@click.option(
    "--context",
    "contexts",
    multiple=True,
    metavar="SENTENCE",
    help="A sentence with the word, by default two from the text; may be repeated.",
)
@click.option("--same-word", is_flag=True, help="Only uses of the word itself.")
@options.top(5)
@options.layers("top")
@options.vectors
@options.caching
@_elmo
def neighbors(
    *,
    elmo: Elmo,
    text: TextInput,
    query: str,
    contexts: tuple[str, ...],
    layers: LayerChoice,
    console: Console,
    **probe: Any,
) -> Report:
    """Similar uses of a word in a text: INPUT are files, or one index of uses."""
    from elmore.analysis.neighbors import Neighbors
    from elmore.text.reading import Counts

    if layers == options.ALL_LAYERS:
        raise ConfigError("neighbors compares by one mix of layers; pass --layers top, mean, ...")
    question: Any = {"query": query, "contexts": contexts}
    with console.progress("sentences") as progress:
        found = Neighbors(elmo, layers=layers, progress=progress, **probe)
        if len(text.inputs) == 1 and Path(text.inputs[0]).is_dir():
            return found.run(text.inputs[0], **question)  # an index
        text.check(console)
        name = ", ".join(text.inputs) if text.inputs else "stdin"
        tokens = (sentence.tokens for _, sentence in text.read(elmo, Counts()))
        try:
            return found.run(tokens, name=name, **question)
        except InputError as error:
            raise error if error.file else InputError(str(error), file=name) from None


# --------------------------------------------------------------------------- the language model


@_analysis(
    "blimp",
    """\
  elmore analyze blimp blimp.jsonl
  elmore analyze blimp blimp.jsonl --limit 100 --json

The file has one JSON object per line with good, bad, and optionally task and phenomenon. --limit
takes the first N pairs of each task.
""",
)
@click.argument("file", type=options.PATH)
@options.limit
@_elmo
def blimp(*, elmo: Elmo, file: Path, limit: int | None, console: Console) -> Report:
    """Grammar: which of two sentences is likelier."""
    from elmore.analysis.blimp import Blimp

    with console.progress("pairs") as progress:
        return Blimp(elmo, limit=limit, progress=progress).run(file)


@_analysis(
    "substitutes",
    """\
  elmore analyze substitutes lexsub07.test.jsonl
  elmore analyze substitutes lexsub07.test.jsonl -o report.json

The file has one JSON object per line with lemma, tokens, index, gold and candidates.
""",
)
@click.argument("file", type=options.PATH)
@options.limit
@_elmo
def substitutes(*, elmo: Elmo, file: Path, limit: int | None, console: Console) -> Report:
    """Which words could replace a word in its sentence."""
    from elmore.analysis.lexical_substitution import LexicalSubstitution

    with console.progress("sentences") as progress:
        return LexicalSubstitution(elmo, limit=limit, progress=progress).run(file)


# --------------------------------------------------------------------------- studies of tasks


def _study(function: Function) -> Function:
    """What the studies share; the function gets it as keywords of the study."""

    @functools.wraps(function)
    def run(*, settings: tuple[str, ...], console: Console, **given: Any) -> Any:
        with console.progress("sentences") as progress:
            return function(
                settings=options.overrides(settings),
                progress=progress,
                # A study trains for a long time, so each run is reported when it is done.
                report=console.say,
                **given,
            )

    own: tuple[Decorator, ...] = (
        options.caching,
        options.vectors,
        options.seed,
        click.option(
            "--runs",
            "out",
            type=options.PATH,
            metavar="FOLDER",
            help="Keep the runs, to resume them.",
        ),
        options.seeds,
        options.recipe("laptop"),
        click.option("--task", type=click.Choice(_TASKS), default="ner", help="What to train."),
        click.argument("dev", type=options.PATH),
        click.argument("train", type=options.PATH),
    )
    made: Function = run
    for option in own:
        made = option(made)
    return _elmo(made)


@_analysis(
    "layers",
    """\
  elmore analyze layers train.conll dev.conll --task ner --vectors glove.txt
  elmore analyze layers train.conll dev.conll --seeds 3 --runs runs/
""",
)
@_study
def layers(*, elmo: Elmo, train: Path, dev: Path, **study: Any) -> Report:
    """A task with the last layer, an equal mix, a learned one."""
    from elmore.analysis.ablations import LayerWeighting

    return LayerWeighting(elmo, **study).run([train, dev])


@_analysis(
    "placement",
    """\
  elmore analyze placement train.conll dev.conll --task ner
  elmore analyze placement train.conll dev.conll --runs runs/ --json
""",
)
@_study
def placement(*, elmo: Elmo, train: Path, dev: Path, **study: Any) -> Report:
    """A task with ELMo below, above, both."""
    from elmore.analysis.ablations import Placement

    return Placement(elmo, **study).run([train, dev])


@_analysis(
    "sample-size",
    """\
  elmore analyze sample-size train.conll dev.conll --task ner
  elmore analyze sample-size train.conll dev.conll --shares 0.01,0.1,1 --plot sizes.svg
""",
)
@click.option("--shares", metavar="LIST", help="Parts of the data, such as 0.01,0.1,1.")
@_study
def sample_size(*, elmo: Elmo, train: Path, dev: Path, shares: str | None, **study: Any) -> Report:
    """How much data ELMo saves."""
    from elmore.analysis.ablations import SampleSize

    if shares is not None:
        try:
            study["shares"] = [float(part) for part in shares.split(",")]
        except ValueError:
            raise ConfigError(f"--shares '{shares}'; use numbers such as 0.1,1") from None
    return SampleSize(elmo, **study).run([train, dev])


@_analysis(
    "mix",
    """\
  elmore analyze mix runs/ner runs/srl --plot mixes.svg
  elmore analyze mix runs/ner --json
""",
)
@click.argument("folders", nargs=-1, required=True, type=options.PATH, metavar="FOLDER...")
def mix(*, folders: tuple[Path, ...], console: Console) -> Report:
    """The layers that trained tasks chose."""
    from elmore.analysis.mixes import Mixes

    return Mixes().run(folders)
