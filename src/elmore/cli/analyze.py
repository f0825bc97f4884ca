"""`elmore analyze`: the paper's analyses: probes of layers, studies of tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.cli import options
from elmore.cli.console import Console, check_picture, check_report, fitted
from elmore.errors import ConfigError, InputError

if TYPE_CHECKING:
    from elmore.cli.options import ModelChoice, TextInput
    from elmore.options import LayerChoice
    from elmore.report import Report

# The tasks that a study can train: those whose network has a place for ELMo to choose.
_TASKS = ("ner", "sentiment", "nli", "srl", "qa", "coref")


@click.group(
    no_args_is_help=False,
    epilog=options.epilog("""\
  elmore analyze pos train.conllu dev.conllu test.conllu --vectors glove.txt
  elmore analyze neighbors corpus.txt --query play
  elmore analyze layers train.conll dev.conll --task ner
"""),
)
def analyze() -> None:
    """The paper's analyses: probes of layers, studies of tasks."""


def _add(
    name: str, examples: str, run: Callable[..., Report], help: str, *own: options.Decorator
) -> None:
    """Add a command whose function returns a report."""

    def command(
        *, output: Path | None, force: bool, plot: Path | None, console: Console, **given: Any
    ) -> None:
        check_report(output, force=force)
        check_picture(plot, force=force)
        report = run(console=console, **given)
        if output is None:
            console.result(report.to_dict(), fitted(str(report)))
        else:
            report.save(output, overwrite=force)
        if plot is not None:
            from elmore.analysis.plots import plot_report

            plot_report(report, plot, overwrite=force)
            console.say(f"drew {plot}")

    command.__doc__, command.__name__ = help, name
    where = options.output("Write the report there: JSON if it ends in .json, else text.")
    add = options.all_of(*own, options.plot, where)
    analyze.add_command(options.verb(examples)(add(command)))


_model = options.model(without=("batch_tokens",))


def _add_class(
    name: str, kind: str, data: str, examples: str, help: str, *own: options.Decorator
) -> None:
    """Add an analysis whose class takes all options by their names.

    Args:
        name: of the command.
        kind: of the class.
        data: arguments that name its files.
        examples: of the help.
        help: what it does.
        own: its options, besides the model.
    """
    names = data.split()

    def run(*, model: ModelChoice, console: Console, **given: Any) -> Report:
        import elmore.analysis

        files = [given.pop(name) for name in names]
        if "task" in given:  # it trains for a long time, so each run is reported when it is done
            given["report"] = console.say
        with console.progress("pairs" if name == "blimp" else "sentences") as progress:
            made = getattr(elmore.analysis, kind)(model.load(), progress=progress, **given)
            report: Report = made.run(files if len(files) > 1 else files[0])
            return report

    arguments = (click.argument(name, type=options.PATH) for name in names)
    _add(name, examples, run, help, *arguments, *own, _model)


# --------------------------------------------------------------------------- probes of layers

_PROBE = (
    options.caching,
    options.layers("all", "; all for each and their mean"),
    options.flag(
        "--no-random",
        "random",
        flag_value=False,
        default=True,
        help="Leave out the random control.",
    ),
    options.limit,
    options.vectors,
    options.seed,
)
_add_class(
    "pos",
    "Pos",
    "train dev test",
    """\
  elmore analyze pos train.conllu dev.conllu test.conllu --vectors glove.txt
  elmore analyze pos train.conllu dev.conllu test.conllu --tags upos --layers all --json
""",
    "How much of the part of speech a linear probe finds, in three CoNLL-U files.",
    click.option(
        "--tags",
        type=lambda value: value.split(","),
        default="upos,xpos",
        metavar="KINDS",
        help="upos, xpos or both.",
    ),
    *_PROBE,
)
_add_class(
    "wsd",
    "Wsd",
    "folder",
    """\
  elmore analyze wsd wsd-data/ --cache layers/ --plot wsd.svg
  elmore analyze wsd wsd-data/ --no-random --json

The folder holds semcor.jsonl, test sets and *_order.tsv; see docs/analysis.md.
""",
    "Which sense of a word is meant, by nearest neighbours.",
    *_PROBE,
)


def _neighbors(
    *,
    text: TextInput,
    query: str,
    contexts: tuple[str, ...],
    layers: LayerChoice,
    model: ModelChoice,
    console: Console,
    **probe: Any,
) -> Report:
    from elmore.analysis import Neighbors

    if layers == options.ALL_LAYERS:
        raise ConfigError("neighbors compares by one mix of layers; pass --layers top, mean, ...")
    elmo = model.load(text.tokenizer)
    question: Any = {"query": query, "contexts": contexts}
    with console.progress("sentences") as progress:
        found = Neighbors(elmo, layers=layers, progress=progress, **probe)
        if len(text.inputs) == 1 and Path(text.inputs[0]).is_dir():
            return found.run(text.inputs[0], **question)  # an index
        text.check(console)
        name = ", ".join(text.inputs) if text.inputs else "stdin"
        try:
            tokens = (sentence.tokens for sentence in text.sentences(elmo))
            return found.run(tokens, name=name, **question)
        except InputError as error:
            raise error if error.file else InputError(str(error), file=name) from None


_add(
    "neighbors",
    """\
  elmore analyze neighbors corpus.txt --query play
  elmore analyze neighbors corpus.txt --query play --context "They saw a play ."

Without --context, elmore splits the word's uses into two clusters and takes the most central use
of each.
""",
    _neighbors,
    "Similar uses of a word in a text: INPUT are files, or one index of uses.",
    options.text_input,
    click.option("--query", metavar="WORD", required=True, help="The word to look for."),
    click.option(
        "--context",
        "contexts",
        multiple=True,
        metavar="SENTENCE",
        help="A sentence with the word, by default two from the text; may be repeated.",
    ),
    options.flag("--same-word", help="Only uses of the word itself."),
    options.count("--top", 5, "How many to list.", "K"),
    options.layers("top"),
    options.vectors,
    options.caching,
    _model,
)

# --------------------------------------------------------------------------- the language model

_add_class(
    "blimp",
    "Blimp",
    "file",
    """\
  elmore analyze blimp blimp.jsonl
  elmore analyze blimp blimp.jsonl --limit 100 --json

The file has one JSON object per line with good, bad, and optionally task and phenomenon. --limit
takes the first N pairs of each task.
""",
    "Grammar: which of two sentences is likelier.",
    options.limit,
)
_add_class(
    "substitutes",
    "LexicalSubstitution",
    "file",
    """\
  elmore analyze substitutes lexsub07.test.jsonl
  elmore analyze substitutes lexsub07.test.jsonl -o report.json

The file has one JSON object per line with lemma, tokens, index, gold and candidates.
""",
    "Which words could replace a word in its sentence.",
    options.limit,
)

# --------------------------------------------------------------------------- studies of tasks

_STUDY = (
    click.option("--task", type=click.Choice(_TASKS), default="ner", help="What to train."),
    options.recipe("laptop"),
    options.seeds,
    click.option(
        "--runs", "out", type=options.PATH, metavar="FOLDER", help="Keep the runs, to resume them."
    ),
    options.seed,
    options.vectors,
    options.caching,
)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"'{text}'; use numbers such as 0.1,1") from None


_add_class(
    "layers",
    "LayerWeighting",
    "train dev",
    """\
  elmore analyze layers train.conll dev.conll --task ner --vectors glove.txt
  elmore analyze layers train.conll dev.conll --seeds 3 --runs runs/
""",
    "A task with the last layer, an equal mix, a learned one.",
    *_STUDY,
)
_add_class(
    "placement",
    "Placement",
    "train dev",
    """\
  elmore analyze placement train.conll dev.conll --task ner
  elmore analyze placement train.conll dev.conll --runs runs/ --json
""",
    "A task with ELMo below, above, both.",
    *_STUDY,
)
_add_class(
    "sample-size",
    "SampleSize",
    "train dev",
    """\
  elmore analyze sample-size train.conll dev.conll --task ner
  elmore analyze sample-size train.conll dev.conll --shares 0.01,0.1,1 --plot sizes.svg
""",
    "How much data ELMo saves.",
    *_STUDY,
    click.option(
        "--shares",
        type=_numbers,
        default="0.01,0.03,0.1,0.3,1",
        metavar="LIST",
        help="Parts of the data.",
    ),
)


def _mix(*, folders: tuple[Path, ...], console: Console) -> Report:
    from elmore.analysis import Mixes

    return Mixes().run(folders)


_add(
    "mix",
    """\
  elmore analyze mix runs/ner runs/srl --plot mixes.svg
  elmore analyze mix runs/ner --json
""",
    _mix,
    "The layers that trained tasks chose.",
    click.argument("folders", nargs=-1, required=True, type=options.PATH, metavar="FOLDER..."),
)
