"""`elmore embed`: vectors for text."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.cli import flags
from elmore.cli.report import make_progress, say, write_json
from elmore.embedding.writers import WRITERS, Record, Settings, open_writer
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.cli.inputs import Counts
    from elmore.embedding.elmo import Elmo
    from elmore.formats.checkpoint import Checkpoint
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  echo "A plant grew ." | elmore embed --model my-model
  elmore embed --model my-model news.txt -o news.hdf5 --layers all --tokenized
  elmore embed --model options.json weights.hdf5 book.txt --split-sentences --pool mean -o book.npz

formats:
  jsonl  one object a sentence: {"tokens": [...], "spans": [...], "vectors": [[...], ...]};
         "layers" with --layers all, "vector" with --pool
  npz    arrays "0", "1", ... (time, dim) for numpy.load; with --pool one matrix "vectors"
  hdf5   datasets "0", "1", ... and sentence_to_index, as the `allennlp elmo` command wrote them
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    flags.add_inputs(parser)
    flags.add_model(parser)
    flags.add_output(parser, "file to make; - or none for stdout (jsonl only)")
    flags.add_format(parser)
    flags.add_layers(parser)
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help="how vectors are stored (default: float32)",
    )
    parser.add_argument(
        "--sentence-index",
        action=argparse.BooleanOptionalAction,
        help="hdf5: write sentence_to_index (default: up to a million lines)",
    )
    parser.add_argument(
        "--token-vectors",
        nargs=2,
        metavar=("VOCAB", "HDF5"),
        help="token vectors that `elmore cache` wrote",
    )
    flags.add_start(parser)
    flags.add_compute(parser)
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Embed text."""
    from elmore.cli.inputs import Counts, check_inputs, make_reader

    model, rest = flags.split_model(args.model)
    inputs = [*rest, *args.inputs]
    output = None if args.output in (None, "-") else Path(args.output)
    form = _format(args, output)
    # Everything that can be wrong is found before torch is loaded.
    checkpoint = flags.read_model(model)
    settings = _settings(args, checkpoint)
    check_inputs(inputs, output)
    if not inputs and sys.stdin.isatty() and not args.quiet:
        say("reading from the terminal; end with Ctrl-D")
    counts = Counts()
    progress = make_progress(unit="sentences", quiet=args.quiet)
    try:
        with open_writer(form, output, settings) as writer:
            elmo = _load(args, checkpoint)
            sentences = make_reader(args, elmo).read(inputs, counts)
            for record in _records(args, elmo, itertools.islice(sentences, args.limit)):
                writer.write(record)
                progress.update(1)
    finally:
        progress.close()
    if args.json:
        write_json({**dataclasses.asdict(counts), "output": args.output, "format": form})
    elif not args.quiet:
        say(_summary(counts, checkpoint))
    return 0


def _format(args: argparse.Namespace, output: Path | None) -> str:
    form: str | None = args.format
    if form is None:
        suffix = "" if output is None else output.suffix.lower()
        known = {suffix: name for name, info in WRITERS.items() for suffix in info.suffixes}
        if suffix and suffix not in known:
            # Vectors as text in a file called x.npy or x.parquet help nobody.
            raise ConfigError(
                f"'{output}' names no format that elmore writes; pass -f {', '.join(WRITERS)}"
            )
        form = known.get(suffix, "jsonl")
    if output is None and not WRITERS[form].streams:
        raise ConfigError(f"{form} cannot be written to stdout; pass -o FILE")
    if output is None and args.json:
        raise ConfigError("--json would mix with the vectors on stdout; pass -o FILE")
    if args.sentence_index is not None and form != "hdf5":
        raise ConfigError(f"--sentence-index is for hdf5, not {form}; leave it out")
    return form


def _settings(args: argparse.Namespace, checkpoint: Checkpoint) -> Settings:
    from elmore.embedding.layers import layer_weights

    config = checkpoint.config
    shape: tuple[int | None, ...] = (config.dim,) if args.pool else (None, config.dim)
    if args.layers == flags.ALL_LAYERS:
        shape = (config.n_layers, *shape)
    else:
        layer_weights(args.layers, config.n_layers)  # refuses what this model has not
    return Settings(
        shape=shape,
        dtype=args.dtype,
        texts=args.split_sentences,
        sentence_index=args.sentence_index,
        overwrite=args.force,
    )


def _load(args: argparse.Namespace, checkpoint: Checkpoint) -> Elmo:
    from elmore.embedding.elmo import Elmo

    flags.set_threads(args.threads)
    return Elmo(
        checkpoint,
        device=args.device,
        precision=args.precision,
        threads=args.threads,
        start=args.start,
        token_vectors=args.token_vectors and tuple(args.token_vectors),
    )


def _records(
    args: argparse.Namespace, elmo: Elmo, sentences: Iterable[tuple[str, Sentence]]
) -> Iterator[Record]:
    from elmore.embedding.pipe import BATCH_TOKENS
    from elmore.embedding.pooling import pool

    # The pipe reads ahead by a window and gives the results in order: what it has read waits here.
    waiting: deque[tuple[str, Sentence]] = deque()

    def fed() -> Iterator[Sentence]:
        for text, sentence in sentences:
            waiting.append((text, sentence))
            yield sentence

    batch_tokens = args.batch_tokens or BATCH_TOKENS
    results: Iterator[Any]
    if args.layers == flags.ALL_LAYERS:
        layered = elmo.pipe_layers(fed(), batch_tokens=batch_tokens)
        results = (
            layers.values if args.pool is None else pool(layers.values, args.pool)
            for layers in layered
        )
    else:
        results = elmo.pipe(
            (sentence.tokens for sentence in fed()),
            layers=args.layers,
            pool=args.pool,
            tokenized=True,
            batch_tokens=batch_tokens,
        )
    for values in results:
        text, sentence = waiting.popleft()
        yield Record(text, sentence.tokens, sentence.spans, values)


def _summary(counts: Counts, checkpoint: Checkpoint) -> str:
    parts = [
        f"embedded {_several(counts.sentences, 'sentence')} ({_several(counts.tokens, 'token')})"
    ]
    if counts.empty:
        parts.append(f"{counts.empty} empty")
    if counts.cut and checkpoint.alphabet is not None:
        unit = "bytes" if checkpoint.alphabet.kind == "bytes" else "characters"
        most = checkpoint.alphabet.max_chars - 2
        parts.append(f"{_several(counts.cut, 'token')} cut at {most} {unit}")
    if counts.replaced:
        parts.append(f"{_several(counts.replaced, 'line')} with invalid UTF-8 replaced")
    if counts.skipped:
        parts.append(f"{_several(counts.skipped, 'line')} with invalid UTF-8 skipped")
    return ", ".join(parts)


def _several(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
