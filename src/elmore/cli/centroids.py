"""`elmore centroids`: a vector a word or sense, averaged over a text."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from elmore.cli import flags
from elmore.cli.report import make_progress, say, write_json
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo
    from elmore.formats.checkpoint import Checkpoint
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore centroids news.txt -o words.bin
  elmore centroids news.txt.gz --words vocab.txt --layers top --min-count 5 -o words.vec
  elmore centroids news.txt --words nouns.txt --senses 3 -o senses.txt

The file is word2vec's, binary if it is called NAME.bin, else text: gensim reads it with
KeyedVectors.load_word2vec_format(NAME, binary=...). Words that the text does not hold are left
out. Vectors without any context are those of `elmore cache MODEL VOCAB -o words.bin`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    flags.add_inputs(parser)
    flags.add_model(parser)
    flags.add_output(parser, "word2vec file to make: NAME.bin, or any other name for text")
    parser.add_argument(
        "--words",
        metavar="FILE",
        help="which words, one a line (default: those that the model predicts)",
    )
    parser.add_argument(
        "--min-count",
        type=flags.parse_count,
        default=1,
        metavar="N",
        help="leave out words and senses with fewer uses (default: 1)",
    )
    parser.add_argument(
        "--senses",
        type=flags.parse_count,
        metavar="K",
        help="group the uses of a word into K: rows word%%1, word%%2, ... (default: one mean)",
    )
    parser.add_argument(
        "--uses",
        type=flags.parse_count,
        default=200,
        metavar="N",
        help="with --senses: uses of a word that are kept, drawn from all (default: 200)",
    )
    parser.add_argument(
        "--layers",
        type=flags.parse_layers,
        default="mean",
        metavar="CHOICE",
        help="mean, top, a number, or weights w0,w1,w2 (default: mean)",
    )
    flags.add_seed(parser)
    flags.add_start(parser)
    flags.add_compute(parser)
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Write the centroids of a text's words."""
    from elmore.text.reading import check_inputs

    if args.output is None or args.output == "-":
        raise ConfigError("a word2vec file starts with its counts; pass -o FILE")
    if args.layers == flags.ALL_LAYERS:
        raise ConfigError("a word has one vector here; use --layers mean, top, a number or weights")
    model, rest = flags.split_model(args.model)
    inputs, output = [*rest, *args.inputs], Path(args.output)
    check_inputs(inputs, output)
    checkpoint = flags.read_model(model)
    words = _words(args, checkpoint)

    from elmore.embedding.centroids import sense_centroids, word_centroids
    from elmore.embedding.stream import BATCH_TOKENS
    from elmore.text.word_vectors import write_word_vectors

    elmo = flags.make_elmo(args, checkpoint)
    sentences = _sentences(args, elmo, inputs)
    batch_tokens = args.batch_tokens or BATCH_TOKENS
    if args.senses is None:
        found = word_centroids(
            elmo, sentences, words, layers=args.layers, batch_tokens=batch_tokens
        )
    else:
        found = sense_centroids(
            elmo,
            sentences,
            words,
            senses=args.senses,
            uses=args.uses,
            seed=args.seed,
            layers=args.layers,
            batch_tokens=batch_tokens,
        )
    kept = [one for one in found if one.n_uses >= args.min_count]
    write_word_vectors(
        output,
        ((one.word, one.vector) for one in kept),
        n_words=len(kept),
        dim=elmo.dim,
        overwrite=args.force,
    )
    uses = sum(one.n_uses for one in kept)
    if args.json:
        write_json({"output": args.output, "vectors": len(kept), "uses": uses, "words": len(words)})
    elif not args.quiet:
        say(f"wrote {len(kept)} vectors of {uses} uses to '{args.output}'")
    return 0


def _words(args: argparse.Namespace, checkpoint: Checkpoint) -> tuple[str, ...]:
    from elmore.text.vocabulary import Vocabulary

    vocabulary = checkpoint.vocabulary if args.words is None else Vocabulary.read(args.words)
    if vocabulary is None:
        raise ConfigError("this model has no list of words; name one with --words FILE")
    return vocabulary.words


def _sentences(args: argparse.Namespace, elmo: Elmo, inputs: list[str]) -> Iterator[Sentence]:
    from elmore.text.reading import Counts

    progress = make_progress(unit="sentences", quiet=args.quiet)
    sentences = flags.make_reader(args, elmo).read(inputs, Counts())
    try:
        for _, sentence in itertools.islice(sentences, args.limit):
            progress.update(1)
            yield sentence
    finally:
        progress.close()
