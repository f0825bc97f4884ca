"""`elmore analyze`: the paper's analyses: probes of layers, studies of tasks."""

from __future__ import annotations

import argparse
import importlib
import itertools
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.analysis.probe import PROBES
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, say, write_json, write_result
from elmore.cli.training import add_recipe, overrides
from elmore.errors import ConfigError, InputError
from elmore.tasks.loading import PAPER_TASKS
from elmore.text.reading import Counts, check_inputs

if TYPE_CHECKING:
    from elmore.analysis.neighbors import Neighbors
    from elmore.base.messages import Progress
    from elmore.elmo import Elmo
    from elmore.report import Report

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore analyze pos train.conllu dev.conllu test.conllu --vectors glove.txt
  elmore analyze neighbors corpus.txt --query play
  elmore analyze layers train.conll dev.conll --task ner
"""

# Of each action: its examples. What it does is in PROBES.
_EXAMPLES = {
    "pos": """\
  elmore analyze pos train.conllu dev.conllu test.conllu --model my-model --vectors glove.txt
  elmore analyze pos train.conllu dev.conllu test.conllu --tags upos --layers all --json
""",
    "wsd": """\
  elmore analyze wsd wsd-data/ --model my-model --cache layers/ --plot wsd.svg
  elmore analyze wsd wsd-data/ --no-random --json

The folder holds semcor.jsonl, test sets and *_order.tsv; see docs/analysis.md.
""",
    "neighbors": """\
  elmore analyze neighbors corpus.txt --query play
  elmore analyze neighbors corpus.txt --query play --context "They saw a play ."

Without --context, elmore splits the word's uses into two clusters and takes the most central use
of each.
""",
    "blimp": """\
  elmore analyze blimp blimp.jsonl
  elmore analyze blimp blimp.jsonl --limit 100 --model my-model --json

The file has one JSON object per line with good, bad, and optionally task and phenomenon. --limit
takes the first N pairs of each task.
""",
    "substitutes": """\
  elmore analyze substitutes lexsub07.test.jsonl
  elmore analyze substitutes lexsub07.test.jsonl --model my-model -o report.json

The file has one JSON object per line with lemma, tokens, index, gold and candidates.
""",
    "layers": """\
  elmore analyze layers train.conll dev.conll --task ner --model my-model --vectors glove.txt
  elmore analyze layers train.conll dev.conll --seeds 3 --runs runs/
""",
    "placement": """\
  elmore analyze placement train.conll dev.conll --task ner
  elmore analyze placement train.conll dev.conll --runs runs/ --json
""",
    "sample-size": """\
  elmore analyze sample-size train.conll dev.conll --task ner
  elmore analyze sample-size train.conll dev.conll --shares 0.01,0.1,1 --plot sizes.svg
""",
    "mix": """\
  elmore analyze mix runs/ner runs/srl --plot mixes.svg
  elmore analyze mix runs/ner --json
""",
}
# What measures the language model itself; it needs no layers.
_LANGUAGE = ("blimp", "substitutes")
_STUDIES = ("layers", "placement", "sample-size")
_OPTIONS = (
    "cache layers limit out random recipe same_word seed seeds shares tags task top vectors"
).split(" ")


def add_arguments(parser: Parser) -> None:
    """Declare the actions."""
    for name, (_, _, summary) in PROBES.items():
        action = parser.add_action(name, summary, _EXAMPLES[name])
        if name in _STUDIES:
            _add_study(action)
        else:
            _OWN[name](action)
        if name != "mix":
            flags.add_model(action)
            flags.add(action, "--start")
            flags.add_compute(action, batches=False)
        if name not in ("mix", *_LANGUAGE):
            flags.add_cache(action)
            flags.add(action, "--vectors", help="static word vectors to compare with")
            if name != "neighbors":  # nothing in it is random
                flags.add_seed(action)
        flags.add(action, "--plot")
        flags.add_output(action, "write the report there: JSON if it ends in .json, else text")
        flags.add_common(action)


def _add_pos(parser: Parser) -> None:
    for name in ("train", "dev", "test"):
        parser.add_argument(name, metavar=name.upper(), help="a CoNLL-U file")
    parser.add_argument(
        "--tags",
        type=lambda text: text.split(","),
        default=["upos", "xpos"],
        metavar="KINDS",
        help="upos, xpos (default: upos,xpos)",
    )
    _add_control(parser)


def _add_wsd(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="the data; see below")
    _add_control(parser)


def _add_control(parser: Parser) -> None:
    """What pos and wsd share."""
    flags.add(parser, "--layers", default="all", help=f"all (each and their mean), {flags.LAYERS}")
    parser.add_argument(
        "--no-random", action="store_false", dest="random", help="leave out the random control"
    )
    flags.add(parser, "--limit")


def _add_neighbors(parser: Parser) -> None:
    flags.add_inputs(parser)
    parser.add_argument("--query", metavar="WORD", required=True, help="the word to look for")
    parser.add_argument(
        "--context",
        action="append",
        metavar="SENTENCE",
        help="a sentence with the word; may be repeated (default: two from the text)",
    )
    parser.add_argument("--same-word", action="store_true", help="only uses of the word itself")
    flags.add(parser, "--top", default=5)
    flags.add(parser, "--layers", default="top", help=flags.LAYERS)


def _add_study(parser: Parser) -> None:
    for name in ("train", "dev"):
        parser.add_argument(name, metavar=name.upper(), help="a file in the format of the task")
    parser.add_argument("--task", choices=PAPER_TASKS, default="ner", help="default: ner")
    add_recipe(parser, "laptop")
    flags.add(parser, "--seeds")
    parser.add_argument(
        "--runs", dest="out", metavar="FOLDER", help="keep the runs, to resume them later"
    )
    if parser.prog.endswith("sample-size"):
        parser.add_argument(
            "--shares",
            type=_shares,
            default=argparse.SUPPRESS,
            metavar="LIST",
            help="parts of the data, such as 0.01,0.1,1",
        )


def _add_language(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FILE", help="the data; see below")
    flags.add(parser, "--limit")


def _add_mix(parser: Parser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="FOLDER", help="folders of trained tasks")


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}'; use numbers such as 0.1,1") from None


_OWN = {
    "pos": _add_pos,
    "wsd": _add_wsd,
    "neighbors": _add_neighbors,
    **dict.fromkeys(_LANGUAGE, _add_language),
    "mix": _add_mix,
}


def run(args: argparse.Namespace) -> int:
    """Run an analysis and show its report."""
    _check(args)
    with closing(make_progress(unit="sentences", quiet=args.quiet)) as progress:
        report = _analyze(args, progress)
    if args.output not in (None, "-"):
        report.save(args.output, overwrite=args.force)
    elif args.json:
        write_json(report.to_dict())
    else:
        write_result(str(report))
    if args.plot is not None:
        from elmore.analysis.plots import plot_report

        plot_report(report, Path(args.plot), overwrite=args.force)
        if not args.quiet:
            say(f"drew {args.plot}")
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse what would fail after the work is done, before it starts."""
    if args.action == "neighbors" and args.layers == flags.ALL_LAYERS:
        raise ConfigError("neighbors compares by one mix of layers; pass --layers top, mean, ...")
    if hasattr(args, "cache"):
        flags.cache_bytes(args)
    for name in (args.output, args.plot):
        if name not in (None, "-") and Path(name).exists() and not args.force:
            raise ConfigError(f"'{name}' exists; pass --force to replace it")
    if args.output not in (None, "-"):
        from elmore.report import check_suffix

        check_suffix(Path(args.output))
    if args.plot is not None:
        from elmore.analysis.plots import check_picture

        check_picture(Path(args.plot))


def _analyze(args: argparse.Namespace, progress: Progress) -> Report:
    module, name, _ = PROBES[args.action]
    kind: Any = getattr(importlib.import_module(module), name)
    report: Report
    if args.action == "mix":  # reads what tasks have learned, and needs no model
        report = kind().run(args.inputs)
        return report
    elmo = flags.make_elmo(args, flags.read_model(flags.chosen_model(args)))
    # The flags of an action are called like the parameters of its class.
    options = {key: getattr(args, key) for key in _OPTIONS if hasattr(args, key)}
    if args.action in _STUDIES:
        # A study trains for a long time, so each training is reported when it is done.
        options["settings"] = overrides(args.set)
        options["report"] = (lambda line: None) if args.quiet else say
    if args.action == "neighbors":
        del options["limit"]  # --limit is applied when the text is read
    if args.action not in _LANGUAGE:
        options["max_bytes"] = flags.cache_bytes(args)
    probe = kind(elmo, progress=progress, **options)
    if args.action == "neighbors":
        return _neighbors(args, elmo, probe)
    files = [getattr(args, name) for name in ("train", "dev", "test") if hasattr(args, name)]
    report = probe.run(files or args.folder)
    return report


def _neighbors(args: argparse.Namespace, elmo: Elmo, probe: Neighbors) -> Report:
    question = {"query": args.query, "contexts": args.context or ()}
    if len(args.inputs) == 1 and Path(args.inputs[0]).is_dir():
        return probe.run(args.inputs[0], **question)  # an index
    check_inputs(args.inputs, None)
    name = ", ".join(args.inputs) if args.inputs else "stdin"
    read = flags.make_reader(args, elmo).read(args.inputs, Counts())
    text = (sentence.tokens for _, sentence in itertools.islice(read, args.limit))
    try:
        return probe.run(text, name=name, **question)
    except InputError as error:
        raise error if error.file else InputError(str(error), file=name) from None
