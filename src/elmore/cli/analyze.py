"""`elmore analyze`: the paper's analyses of what the layers know."""

from __future__ import annotations

import argparse
import importlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.analysis.probe import PROBES
from elmore.cli import flags
from elmore.cli.report import make_progress, say, write_json, write_result
from elmore.cli.training import add_recipe, overrides
from elmore.errors import ConfigError, InputError
from elmore.tasks.task import TASKS
from elmore.text.reading import Counts, check_inputs

if TYPE_CHECKING:
    from elmore._messages import Progress
    from elmore.embedding.elmo import Elmo
    from elmore.report import Report

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore analyze pos train.conllu dev.conllu test.conllu --model my-model --vectors glove.txt
  elmore analyze wsd wsd-data/ --model my-model --cache layers/ --plot wsd.svg
  elmore analyze neighbors corpus.txt --model my-model --query play
  elmore analyze neighbors corpus.txt --model my-model --query play --context "They saw a play ."
  elmore analyze layers train.conll dev.conll --task ner --model my-model --vectors glove.txt
  elmore analyze mix runs/ner runs/srl --plot mixes.svg

pos        a linear probe for parts of speech on each layer and their mean (CoNLL-U files)
wsd        word senses by nearest neighbours (a folder: semcor.jsonl, test sets, *_order.tsv)
neighbors  uses of a word in a text that are nearest in context, beside nearest static words
layers     a task with the last layer alone, an equal mix, a learned one (files TRAIN DEV)
placement  a task with ELMo below its first RNN, above it, both (files TRAIN DEV)
sample-size  a task on growing parts of its data, with and without ELMo (files TRAIN DEV)
mix        the layers that trained tasks chose (folders of trained tasks)
"""

# Flags that one probe alone knows.
_ONLY = {
    "pos": {"tags": "--tags"},
    "wsd": {},
    "neighbors": {
        "query": "--query",
        "context": "--context",
        "same_word": "--same-word",
        "top": "--top",
        "tokenized": "--tokenized",
        "split_sentences": "--split-sentences",
    },
    "sample-size": {"shares": "--shares"},
}
_STUDIES = ("layers", "placement", "sample-size")
# Flags of the studies, which train.
_TRAINING = {"task": "--task", "set": "--set", "seeds": "--seeds", "runs": "--runs"}
_DEFAULT_TOP = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("probe", choices=tuple(PROBES), metavar="PROBE", help=", ".join(PROBES))
    flags.add_inputs(parser)
    flags.add_model(parser)
    parser.add_argument(
        "--layers",
        type=flags.parse_layers,
        metavar="CHOICE",
        help="all (each and their mean), mean, top, a number, or weights w0,w1,w2 "
        "(default: all; neighbors: top)",
    )
    flags.add_cache(parser)
    parser.add_argument("--vectors", metavar="FILE", help="static word vectors to compare with")
    parser.add_argument(
        "--no-random", action="store_true", help="leave out the control with random weights"
    )
    parser.add_argument("--tags", metavar="KINDS", help="pos: upos, xpos (default: upos,xpos)")
    parser.add_argument("--query", metavar="WORD", help="neighbors: the word")
    parser.add_argument(
        "--context",
        action="append",
        metavar="SENTENCE",
        help="neighbors: a sentence with it; again for more (default: two from the text)",
    )
    parser.add_argument(
        "--same-word", action="store_true", help="neighbors: among uses of the word only"
    )
    parser.add_argument(
        "--top", type=int, metavar="K", help=f"neighbors: how many (default: {_DEFAULT_TOP})"
    )
    parser.add_argument("--task", choices=tuple(TASKS), help="studies: the task (default: ner)")
    add_recipe(parser, "laptop")
    parser.add_argument("--seeds", type=int, metavar="N", help="studies: trainings (default: 1)")
    parser.add_argument("--runs", metavar="FOLDER", help="studies: keep the runs, to go on later")
    parser.add_argument("--shares", metavar="LIST", help="sample-size: such as 0.01,0.1,1")
    parser.add_argument("--plot", metavar="PICTURE", help="draw it too: svg, png or pdf")
    flags.add_output(parser, "write the report there: JSON if it ends in .json, else text")
    flags.add_start(parser)
    flags.add_compute(parser, batches=False)
    flags.add_seed(parser)
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run a probe and show its report."""
    model, rest = flags.split_model(args.model)
    inputs = [*rest, *args.inputs]
    _check(args, inputs)
    elmo = None
    if args.probe != "mix":
        checkpoint = flags.read_model(model)
        elmo = flags.make_elmo(args, checkpoint)
    progress = make_progress(unit="sentences", quiet=args.quiet)
    try:
        report = _RUNS[args.probe](args, elmo, inputs, progress)
    finally:
        progress.close()
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


def _check(args: argparse.Namespace, inputs: Sequence[str]) -> None:
    """Refuse what does not fit together, before any work."""
    for probe, names in _ONLY.items():
        for name, flag in names.items():
            if probe != args.probe and getattr(args, name):
                raise ConfigError(f"{flag} is for {probe}; leave it out for {args.probe}")
    for name, flag in _TRAINING.items():
        if args.probe not in _STUDIES and getattr(args, name):
            raise ConfigError(f"{flag} is for {', '.join(_STUDIES)}; leave it out")
    if args.no_random and args.probe not in ("pos", "wsd"):
        raise ConfigError("--no-random is for pos and wsd; leave it out")
    if args.probe in _STUDIES:
        if len(inputs) != 2:
            raise ConfigError(f"{args.probe} takes two files, TRAIN DEV, not {len(inputs)}")
        if args.limit is not None or args.layers is not None:
            raise ConfigError("--limit and --layers are not for studies; leave them out")
    if args.probe == "mix" and (not inputs or args.model):
        raise ConfigError("mix takes folders of trained tasks and no model; name one or more")
    if args.probe == "pos" and len(inputs) != 3:
        raise ConfigError(f"pos takes three files, TRAIN DEV TEST, not {len(inputs)}")
    if args.probe == "wsd" and len(inputs) != 1:
        raise ConfigError(f"wsd takes one folder, not {len(inputs)}")
    if args.probe == "neighbors" and args.query is None:
        raise ConfigError("neighbors needs a word; pass --query WORD")
    if args.probe == "neighbors" and args.layers == flags.ALL_LAYERS:
        raise ConfigError("neighbors compares by one mix of layers; pass --layers top, mean, ...")
    flags.cache_bytes(args)
    for name in (args.output, args.plot):
        if name not in (None, "-") and Path(name).exists() and not args.force:
            raise ConfigError(f"'{name}' exists; pass --force to replace it")
    if args.plot is not None:
        from elmore.analysis.plots import check_picture

        check_picture(Path(args.plot))


def _settings(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Collect what every probe takes."""
    return {"cache": args.cache, "max_bytes": flags.cache_bytes(args), "progress": progress}


def _run_pos(
    args: argparse.Namespace, elmo: Elmo, inputs: Sequence[str], progress: Progress
) -> Report:
    from elmore.analysis.pos import Pos

    tags: Any = (args.tags or "upos,xpos").split(",")
    return Pos(
        elmo,
        tags=tags,
        layers="all" if args.layers is None else args.layers,
        vectors=args.vectors,
        random=not args.no_random,
        limit=args.limit,
        seed=args.seed,
        **_settings(args, progress),
    ).run(inputs)


def _run_wsd(
    args: argparse.Namespace, elmo: Elmo, inputs: Sequence[str], progress: Progress
) -> Report:
    from elmore.analysis.wsd import Wsd

    return Wsd(
        elmo,
        layers="all" if args.layers is None else args.layers,
        vectors=args.vectors,
        random=not args.no_random,
        limit=args.limit,
        seed=args.seed,
        **_settings(args, progress),
    ).run(inputs[0])


def _run_neighbors(
    args: argparse.Namespace, elmo: Elmo, inputs: Sequence[str], progress: Progress
) -> Report:
    from elmore.analysis.neighbors import Neighbors

    check_inputs(inputs, None)
    probe = Neighbors(
        elmo,
        layers="top" if args.layers is None else args.layers,
        vectors=args.vectors,
        same_word=args.same_word,
        top=_DEFAULT_TOP if args.top is None else args.top,
        **_settings(args, progress),
    )
    text = _Text(args, elmo, inputs)
    name = ", ".join(inputs) if inputs else "stdin"
    try:
        return probe.run(text, query=args.query, contexts=args.context or (), name=name)
    except InputError as error:
        raise error if error.file else InputError(str(error), file=name) from None


def _run_study(
    args: argparse.Namespace, elmo: Elmo, inputs: Sequence[str], progress: Progress
) -> Report:
    module, name, _ = PROBES[args.probe]
    more: dict[str, Any] = {}
    if args.shares is not None:
        try:
            more["shares"] = [float(part) for part in args.shares.split(",")]
        except ValueError:
            raise ConfigError(f"--shares {args.shares!r}; use numbers such as 0.1,1") from None
    study = getattr(importlib.import_module(module), name)(
        elmo,
        task=args.task or "ner",
        recipe=args.recipe,
        settings=overrides(args.set),
        vectors=args.vectors,
        seeds=1 if args.seeds is None else args.seeds,
        seed=args.seed,
        out=args.runs,
        report=(lambda line: None) if args.quiet else say,
        **_settings(args, progress),
        **more,
    )
    report: Report = study.run(inputs)
    return report


def _run_mix(args: argparse.Namespace, elmo: Any, inputs: Sequence[str], progress: Any) -> Report:
    from elmore.analysis.mixes import Mixes

    return Mixes().run(inputs)


class _Text:
    """The inputs as token lists; files are read anew each time, stdin is kept."""

    def __init__(self, args: argparse.Namespace, elmo: Elmo, inputs: Sequence[str]) -> None:
        self._args, self._elmo, self._inputs = args, elmo, inputs
        once = not inputs or any(name == "-" or Path(name).is_fifo() for name in inputs)
        self._kept = list(self._read()) if once else None

    def __iter__(self) -> Iterator[Sequence[str]]:
        return self._read() if self._kept is None else iter(self._kept)

    def _read(self) -> Iterator[Sequence[str]]:
        read = flags.make_reader(self._args, self._elmo).read(self._inputs, Counts())
        return (sentence.tokens for _, sentence in itertools.islice(read, self._args.limit))


_RUNS: dict[str, Any] = {
    "pos": _run_pos,
    "wsd": _run_wsd,
    "neighbors": _run_neighbors,
    **dict.fromkeys(_STUDIES, _run_study),
    "mix": _run_mix,
}
