"""`elmore analyze`: the paper's analyses: probes of layers, studies of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.cli import options
from elmore.cli.console import Console, check_picture, check_report, fitted
from elmore.tasks import PAPER_TASKS

if TYPE_CHECKING:
    from elmore.report import Report


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
    name: str, examples: str, help: str, run: Callable[..., Report], declared: Mapping[str, Any]
) -> None:
    """Add a command whose function returns a report."""

    def show(
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

    every = {
        **declared,
        "plot": options.path("Draw it too: svg, png or pdf.", "PICTURE"),
        "output": options.output("Write the report there: JSON if it ends in .json, else text."),
        "force": options.force,
    }
    analyze.add_command(options.command(name, show, every, help, examples))


_MODEL = options.model("batch_tokens")
_COUNTED = {"blimp": "pairs", "wsi": "words", "usage-graph": "words"}


def _add_class(
    name: str, examples: str, help: str, kind: str, data: str, declared: Mapping[str, Any]
) -> None:
    """Add an analysis whose class takes all options by their names; `data` names its files."""
    names = data.split()

    def run(*, model: options.ModelChoice, console: Console, **given: Any) -> Report:
        import elmore.analysis

        files = [given.pop(name) for name in names]
        with console.progress(_COUNTED.get(name, "sentences")) as progress:
            made = getattr(elmore.analysis, kind)(model.load(), progress=progress, **given)
            report: Report = made.run(files if len(files) > 1 else files[0])
            return report

    arguments = {name: options.argument(type=options.PATH) for name in names}
    _add(name, examples, help, run, {**arguments, **declared, "model": _MODEL})


# --------------------------------------------------------------------------- probes of layers

_PROBE = {
    "cache": options.cache,
    "layers": options.layers("all", every="each and their mean"),
    "random": options.flag(
        "Leave out the random control.",
        names="--no-random",
        callback=lambda context, param, value: not value,
    ),
    "limit": options.limit,
    "vectors": options.vectors,
    "seed": options.seed,
}
_add_class(
    "pos",
    """\
  elmore analyze pos train.conllu dev.conllu test.conllu --vectors glove.txt
  elmore analyze pos train.conllu dev.conllu test.conllu --tags upos --layers all --json
""",
    "How much of the part of speech a linear probe finds, in three CoNLL-U files.",
    "Pos",
    "train dev test",
    {
        "tags": options.option(
            "upos, xpos or both.",
            "KINDS",
            type=lambda value: value.split(","),
            default="upos,xpos",
        ),
        **_PROBE,
    },
)
_add_class(
    "wsd",
    """\
  elmore analyze wsd wsd-data/ --cache layers/ --plot wsd.svg
  elmore analyze wsd wsd-data/ --no-random --json

The folder holds semcor.jsonl, test sets and *_order.tsv; see docs/analysis.md.
""",
    "Which sense of a word is meant, by nearest neighbours.",
    "Wsd",
    "folder",
    _PROBE,
)


def _neighbors(
    *,
    text: options.TextInput = options.text_input,
    query: str = options.option("The word to look for.", "WORD", required=True),
    contexts: tuple[str, ...] = options.repeated(
        "A sentence with the word, by default two from the text", "SENTENCE", names="--context"
    ),
    settings: dict[str, Any] = options.keywords(
        same_word=options.flag("Only uses of the word itself."),
        top=options.count(5, "How many to list.", "K"),
        layers=options.layers("top"),
        vectors=options.vectors,
        cache=options.cache,
    ),
    model: options.ModelChoice = _MODEL,
    console: Console,
) -> Report:
    from elmore.analysis import Neighbors

    elmo = model.load(text.tokenizer)
    question: Any = {"query": query, "contexts": contexts}
    with console.progress("sentences") as progress:
        found = Neighbors(elmo, progress=progress, **settings)
        if len(text.inputs) == 1 and Path(text.inputs[0]).is_dir():
            return found.run(text.inputs[0], **question)  # an index
        text.check(console)
        name = ", ".join(text.inputs) if text.inputs else "stdin"
        tokens = (sentence.tokens for sentence in text.sentences(elmo))
        return found.run(tokens, name=name, **question)


_add(
    "neighbors",
    """\
  elmore analyze neighbors corpus.txt --query play
  elmore analyze neighbors corpus.txt --query play --context "They saw a play ."

Without --context, elmore splits the word's uses into two clusters and takes the most central use
of each.
""",
    "Similar uses of a word in a text: INPUT are files, or one index of uses.",
    _neighbors,
    options.declared(_neighbors),
)

# --------------------------------------------------------------------------- the language model

_add_class(
    "blimp",
    """\
  elmore analyze blimp blimp.jsonl
  elmore analyze blimp blimp.jsonl --limit 100 --json

The file has one JSON object per line with good, bad, and optionally task and phenomenon. --limit
takes the first N pairs of each task.
""",
    "Grammar: which of two sentences is likelier.",
    "Blimp",
    "file",
    {"limit": options.limit},
)
_add_class(
    "substitutes",
    """\
  elmore analyze substitutes lexsub07.test.jsonl
  elmore analyze substitutes lexsub07.test.jsonl -o report.json

The file has one JSON object per line with lemma, tokens, index, gold and candidates.
""",
    "Which words could replace a word in its sentence.",
    "LexicalSubstitution",
    "file",
    {"limit": options.limit},
)

# --------------------------------------------------------------------------- senses

_SENSES = {
    "n_senses": options.option(
        "How many senses; by default see `elmore senses`.", "N", names="--senses", type=int
    ),
    "limit": options.limit,
    "seed": options.seed,
}
_add_class(
    "wsi",
    """\
  elmore analyze wsi semeval2010/
  elmore analyze wsi semeval2013/ --answers system.key

The folder holds the XML files and the all.key of SemEval-2010 task 14 or SemEval-2013 task 13.
""",
    "Do the senses of `elmore senses` agree with people's? SemEval-2010 and 2013.",
    "SenseInduction",
    "folder",
    {
        **_SENSES,
        "answers": options.path("Score this key instead.", "KEY"),
    },
)
_add_class(
    "usage-graph",
    """\
  elmore analyze usage-graph dwug_en/
  elmore analyze usage-graph dwug_en/ -o report.json

The folder holds data/WORD/uses.csv and judgments.csv, and clusters/opt/WORD.csv.
""",
    "Do similarity, senses and change agree with people's judgements? DWUG.",
    "UsageGraph",
    "folder",
    _SENSES,
)

# --------------------------------------------------------------------------- studies of tasks

_STUDY = {
    "task": options.choice(PAPER_TASKS, "ner", "What to train."),
    "recipe": options.recipe("laptop"),
    "settings": options.settings,
    "seeds": options.seeds,
    "out": options.path("Keep the runs, to resume them.", "FOLDER", names="--runs"),
    "seed": options.seed,
    "vectors": options.vectors,
    "cache": options.cache,
}


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"'{text}'; use numbers such as 0.1,1") from None


_add_class(
    "layers",
    """\
  elmore analyze layers train.conll dev.conll --task ner --vectors glove.txt
  elmore analyze layers train.conll dev.conll --seeds 3 --runs runs/
""",
    "A task with the last layer, an equal mix, a learned one.",
    "LayerWeighting",
    "train dev",
    _STUDY,
)
_add_class(
    "placement",
    """\
  elmore analyze placement train.conll dev.conll --task ner
  elmore analyze placement train.conll dev.conll --runs runs/ --json
""",
    "A task with ELMo below, above, both.",
    "Placement",
    "train dev",
    _STUDY,
)
_shares = options.option("Parts of the data.", "LIST", type=_numbers, default="0.01,0.03,0.1,0.3,1")
_add_class(
    "sample-size",
    """\
  elmore analyze sample-size train.conll dev.conll --task ner
  elmore analyze sample-size train.conll dev.conll --shares 0.01,0.1,1 --plot sizes.svg
""",
    "How much data ELMo saves.",
    "SampleSize",
    "train dev",
    {"shares": _shares, **_STUDY},
)


def _mix(
    *,
    folders: tuple[Path, ...] = options.argument(
        "FOLDER...", nargs=-1, required=True, type=options.PATH
    ),
    console: Console,
) -> Report:
    from elmore.analysis import Mixes

    return Mixes().run(folders)


_add(
    "mix",
    """\
  elmore analyze mix runs/ner runs/srl --plot mixes.svg
  elmore analyze mix runs/ner --json
""",
    "The layers that trained tasks chose.",
    _mix,
    options.declared(_mix),
)
