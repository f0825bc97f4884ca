"""`elmore embed`: vectors for text."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from elmore.base.messages import readable_time
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import (
    make_progress,
    reading_notes,
    say,
    say_waiting,
    several,
    write_json,
    write_result,
)
from elmore.embedding.vector_files import WRITERS, Record, Settings, check_format, open_writer
from elmore.errors import ConfigError
from elmore.options import Output

if TYPE_CHECKING:
    from elmore.base.messages import Progress
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.language_model.sense_vectors import SenseVectors
    from elmore.text.reading import Counts
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

Item = TypeVar("Item")

EXAMPLES = """\
  echo "A plant grew ." | elmore embed --model my-model
  elmore embed --model my-model news.txt -o news.hdf5 --layers all --tokenized
  elmore embed --model options.json weights.hdf5 book.txt --split-sentences --pool mean -o book.npz
  elmore embed reviews.csv --column review --pool mean -o reviews.npy
  elmore embed --model my-model corpus/*.txt --workers 4 -f parquet --dtype float16 -o vectors/
  echo "She sat on the bank ." | elmore embed --view substitutes

formats:
  jsonl  one object per sentence: {"tokens": [...], "spans": [...], "vectors": [[...], ...]};
         "layers" with --layers all, "vector" with --pool
  npz    arrays "0", "1", ... (time, dim) for numpy.load; with --pool one matrix "vectors"
  npy    one matrix for numpy.load, with --pool only
  hdf5   datasets "0", "1", ... and sentence_to_index, as the `allennlp elmo` command wrote them;
         tokens and spans are attributes of each dataset
  parquet      one row per sentence: number, tokens, spans, vectors; needs elmore[parquet]

--view senses writes sense vectors, which separate the senses of a word better than layers do: one
short vector per token. --view substitutes writes what they are made of, as jsonl: "senses" has for
each token the words that could stand in its place, with weights.

With --workers, -o is a folder: shards in the order of the input, and manifest.json when all are
there. An interrupted run resumes when it is started again. The bytes are the same for any number of
workers.
"""


_VIEWS = ("layers", "senses", "substitutes")
# Words of each token with --view substitutes: what a person can read.
_WORDS = 10


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_inputs(parser)
    flags.add_model(parser)
    flags.add_output(parser, "file to create; - or none for stdout (jsonl)")
    flags.add(parser, "--format", "--layers", "--pool")
    parser.add_argument(
        "--view",
        choices=_VIEWS,
        default="layers",
        help="what a vector is made of: layers, or substitutes of the word (default: layers)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help="type of the stored vectors (default: float32)",
    )
    parser.add_argument(
        "--sentence-index",
        action=argparse.BooleanOptionalAction,
        help="hdf5: write sentence_to_index (default: up to a million lines)",
    )
    flags.add(
        parser, "--workers", help="processes, one thread each, that fill a folder with shards"
    )
    parser.add_argument(
        "--shard-bytes",
        type=flags.parse_count,
        metavar="N",
        help="with --workers: bytes of text per shard (default: 524288)",
    )
    flags.add(parser, "--start")
    flags.add_compute(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Embed text."""
    from elmore.text.reading import check_inputs, check_rereadable

    model, inputs = flags.chosen_model(args), args.inputs
    output = None if args.output in (None, "-") else Path(args.output)
    form = _format(args, output)
    # Everything that can be wrong is found before anything slow is loaded.
    checkpoint = flags.read_model(model)
    _settings(args, checkpoint)
    # A job that resumes reads its input again, so pipes are refused.
    if args.workers is not None:
        check_rereadable(inputs)
    else:
        check_inputs(inputs, output)
    say_waiting(inputs, quiet=args.quiet)
    total = flags.count_inputs(args)
    progress = make_progress(unit="sentences", total=total, quiet=args.quiet)
    try:
        if args.workers is not None:
            counts = _run_bulk(args, model, inputs, form, progress)
        elif args.view == "substitutes":
            counts = _run_substitutes(args, checkpoint, inputs, progress)
        else:
            counts = _run_single(args, checkpoint, inputs, form, progress)
    finally:
        progress.close()
    if args.json:
        write_json({**dataclasses.asdict(counts), "output": args.output, "format": form})
    elif not args.quiet:
        done = f"{several(counts.sentences, 'sentence')} ({several(counts.tokens, 'token')})"
        say(", ".join([f"embedded {done}", *reading_notes(counts, checkpoint)]))
    return 0


def _run_single(
    args: argparse.Namespace,
    checkpoint: Checkpoint,
    inputs: list[str],
    form: str,
    progress: Progress,
) -> Counts:
    """Embed into one file, or to stdout."""
    from elmore.text.reading import Counts

    counts, times = Counts(), _Times()
    output = None if args.output in (None, "-") else Path(args.output)
    with open_writer(form, output, _settings(args, checkpoint)) as writer:
        with times.of("loading"):
            from elmore.embedding.stream import embed_records

            elmo = _load(args, checkpoint)
        records: Iterator[Record]
        if args.view == "senses":
            records = (
                Record(text, sentence.tokens, sentence.spans, found.dense())
                for text, sentence, found in _senses(args, elmo, inputs, counts)
            )
        else:
            sentences = flags.make_reader(args, elmo).read(inputs, counts)
            some = times.each("reading", itertools.islice(sentences, args.limit))
            records = embed_records(elmo.engine, some, _output(args))
        # The sentences of a batch are read before it is computed.
        for record in times.each("reading and computing", records):
            with times.of("writing"):
                writer.write(record)
            progress.update(1)
    if args.verbose and not args.quiet:
        say(times.summary(counts.tokens, elmo))
    return counts


def _run_substitutes(
    args: argparse.Namespace, checkpoint: Checkpoint, inputs: list[str], progress: Progress
) -> Counts:
    """Write the words that could stand in each place, one line of JSON per sentence."""
    from elmore.base.atomic import atomic_file
    from elmore.text.reading import Counts

    counts, elmo = Counts(), _load(args, checkpoint)
    to_file = args.output not in (None, "-")
    with atomic_file(Path(args.output), overwrite=args.force) if to_file else nullcontext() as file:
        for text, sentence, found in _senses(args, elmo, inputs, counts):
            fields: dict[str, Any] = {"text": text} if args.split_sentences else {}
            fields["tokens"] = sentence.tokens
            if sentence.spans is not None:
                fields["spans"] = sentence.spans
            fields["senses"] = [
                [[word, round(weight, 3)] for word, weight in found.words(row, _WORDS)]
                for row in range(len(found))
            ]
            line = json.dumps(fields, ensure_ascii=False)
            if file is None:
                write_result(line)
            else:
                file.write(line.encode("utf-8", "replace") + b"\n")
            progress.update(1)
    return counts


def _senses(
    args: argparse.Namespace, elmo: Elmo, inputs: list[str], counts: Counts
) -> Iterator[tuple[str, Sentence, SenseVectors]]:
    """Each sentence of the inputs with the sense vectors of its tokens."""
    some = itertools.islice(flags.make_reader(args, elmo).read(inputs, counts), args.limit)
    read, again = itertools.tee(some)
    found = elmo.sense_space.pipe(
        ((sentence, range(len(sentence))) for _, sentence in again),
        batch_tokens=elmo.engine.batch_tokens,
    )
    for (text, sentence), vectors in zip(read, found, strict=True):
        yield text, sentence, vectors


class _Times:
    """How long each stage takes, for --verbose."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(
            ("loading", "reading", "reading and computing", "writing"), 0.0
        )

    @contextlib.contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Count the time of a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] += time.perf_counter() - start

    def each(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        """Count the time that items take to come."""
        iterator = iter(items)
        while True:
            with self.of(stage):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def summary(self, tokens: int, elmo: Elmo) -> str:
        """One line: seconds, tokens per second, and how many words the cache knew."""
        both = self._seconds["reading and computing"]
        stages = {**self._seconds, "computing": both - self._seconds["reading"]}
        names = ("loading", "reading", "computing", "writing")
        parts = [f"{name} {readable_time(stages[name])}" for name in names]
        cache = elmo.engine.cache
        looked_up = max(1, cache.hits + cache.misses)
        parts.append(f"{tokens / max(both, 1e-9):,.0f} tokens per second")
        parts.append(f"word cache: {100 * cache.hits / looked_up:.0f} % of {looked_up} words found")
        return ", ".join(parts)


def _run_bulk(
    args: argparse.Namespace,
    model: ModelPath | None,
    inputs: list[str],
    form: str,
    progress: Progress,
) -> Counts:
    """Embed into a folder of shards."""
    from elmore.bulk.embed_files import run_job
    from elmore.bulk.job import SHARD_BYTES, Job

    job = Job(
        model=cast("ModelPath", model),
        format=form,
        layers=args.layers,
        pool=args.pool,
        dtype=args.dtype,
        tokenized=args.tokenized,
        split_sentences=args.split_sentences,
        field=args.field,
        column=args.column,
        conllu=args.conllu,
        errors=args.errors,
        limit=args.limit,
        sentence_index=args.sentence_index,
        shard_bytes=args.shard_bytes or SHARD_BYTES,
        threads=args.threads or 1,
        **_load_options(args),
    )
    result = run_job(
        job, inputs, args.output, workers=args.workers, overwrite=args.force, progress=progress
    )
    return result.counts


def _format(args: argparse.Namespace, output: Path | None) -> str:
    form: str | None = args.format
    if form is None:
        suffix = "" if output is None else output.suffix.lower()
        known = {suffix: name for name, info in WRITERS.items() for suffix in info.suffixes}
        if suffix and suffix not in known:
            # JSON lines in a file called x.pt would be a surprise later.
            raise ConfigError(f"'{output}' has an unknown suffix; pass -f {', '.join(WRITERS)}")
        form = known.get(suffix, "jsonl")
    if args.workers is None and args.shard_bytes is not None:
        raise ConfigError("--shard-bytes is for --workers; leave it out or pass --workers N")
    if args.workers is not None and output is None:
        raise ConfigError("--workers fills a folder; pass -o FOLDER")
    if output is None and not WRITERS[form].streams:
        raise ConfigError(f"{form} cannot be written to stdout; pass -o FILE")
    check_format(form, pooled=args.pool is not None)
    if output is None and args.json:
        raise ConfigError("--json would mix with the vectors on stdout; pass -o FILE")
    if args.view != "layers":
        _check_view(args, form)
    if args.sentence_index is not None and form != "hdf5":
        raise ConfigError(f"--sentence-index is for hdf5, not {form}; leave it out")
    return form


def _check_view(args: argparse.Namespace, form: str) -> None:
    view = args.view
    if args.layers != "mean" or args.pool:
        raise ConfigError(f"--view {view} has neither layers nor pooling; leave them out")
    if args.workers is not None:
        raise ConfigError(f"--view {view} runs in one process; for a corpus use `elmore index`")
    if view == "substitutes" and form != "jsonl":
        raise ConfigError(f"substitutes are words, which {form} cannot hold; pass -f jsonl")


def _settings(args: argparse.Namespace, checkpoint: Checkpoint) -> Settings:
    from elmore.embedding.results import value_shape

    return Settings(
        shape=(None, checkpoint.config.lstm.projection_dim)
        if args.view == "senses"
        else value_shape(checkpoint.config, _output(args)),
        dtype=args.dtype,
        texts=args.split_sentences or args.field is not None or args.column is not None,
        sentence_index=args.sentence_index,
        overwrite=args.force,
    )


def _output(args: argparse.Namespace) -> Output:
    return Output(layers=args.layers, pool=args.pool, dtype=args.dtype)


def _load(args: argparse.Namespace, checkpoint: Checkpoint) -> Elmo:
    from elmore.elmo import Elmo

    return Elmo(checkpoint, threads=args.threads, **_load_options(args))


def _load_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that `Elmo` and a bulk job share."""
    return {
        "device": args.device,
        "precision": args.precision,
        "start": args.start,
        "batch_tokens": args.batch_tokens,
        "tokenizer": args.tokenizer,
    }
