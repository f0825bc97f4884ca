"""`elmore centroids`: one vector per word or sense, averaged over a text."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, say, write_json
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.formats.checkpoint import Checkpoint
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore centroids news.txt -o words.bin
  elmore centroids news.txt.gz --words vocab.txt --layers top --min-count 5 -o words.vec
  elmore centroids news.txt --words nouns.txt --senses 3 -o senses.txt

The file has word2vec's format: binary if it is called NAME.bin, else text. gensim reads it with
KeyedVectors.load_word2vec_format(NAME, binary=...). Words that do not occur in the text are left
out. For vectors without context use `elmore cache VOCAB -o words.bin`.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_inputs(parser)
    flags.add_model(parser)
    flags.add_output(parser, "word2vec file to create: NAME.bin, or any other name for text")
    parser.add_argument(
        "--words", metavar="FILE", help="the words, one per line (default: the model's vocabulary)"
    )
    flags.add(
        parser,
        "--min-count",
        type=flags.parse_count,
        default=1,
        help="leave out words and senses with fewer uses (default: 1)",
    )
    parser.add_argument(
        "--senses",
        type=flags.parse_count,
        metavar="K",
        help="cluster the uses of each word into K rows word%%1, word%%2, ... (default: one mean)",
    )
    parser.add_argument(
        "--uses",
        type=flags.parse_count,
        default=200,
        metavar="N",
        help="with --senses: uses per word that are kept, a random sample (default: 200)",
    )
    flags.add(parser, "--layers", help=flags.LAYERS)
    flags.add(parser, "--seed", "--start")
    flags.add_compute(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Write the centroids of a text's words."""
    from elmore.text.reading import check_inputs

    if args.output is None or args.output == "-":
        # The number of words is known only at the end, and a pipe cannot be rewound.
        raise ConfigError("a word2vec file starts with its counts; pass -o FILE")
    if args.layers == flags.ALL_LAYERS:
        raise ConfigError("a word has one vector here; use --layers mean, top, a number or weights")
    output = Path(args.output)
    check_inputs(args.inputs, output)
    checkpoint = flags.read_model(flags.chosen_model(args))
    words = _words(args, checkpoint)

    from elmore.embedding.stream import BATCH_TOKENS
    from elmore.senses.centroids import sense_centroids, word_centroids
    from elmore.text.word_vectors import write_word_vectors

    elmo = flags.make_elmo(args, checkpoint)
    sentences = _sentences(args, elmo)
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
        raise ConfigError("this model has no vocabulary; name the words with --words FILE")
    return vocabulary.words


def _sentences(args: argparse.Namespace, elmo: Elmo) -> Iterator[Sentence]:
    from elmore.text.reading import Counts

    sentences = flags.make_reader(args, elmo).read(args.inputs, Counts())
    with closing(make_progress(unit="sentences", quiet=args.quiet)) as progress:
        for _, sentence in itertools.islice(sentences, args.limit):
            progress.update(1)
            yield sentence
