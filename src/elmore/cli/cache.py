"""`elmore cache`: token vectors of a vocabulary, computed once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from elmore.base.messages import shown
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, say
from elmore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore cache vocab.txt -o tokens.hdf5
  elmore cache --model options.json weights.hdf5 vocab.txt -o tokens.hdf5
  elmore cache vocab.txt --model my-model -o words.bin     (word2vec's binary format, for gensim)
"""

# .txt and .vec are word2vec's text format, .bin its binary one; everything else is HDF5.
_WORD2VEC = (".txt", ".vec", ".bin")

# Words at a time: enough to keep all threads busy, with scratch memory below 200 MB.
_BLOCK = 512


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser)
    parser.add_argument(
        "model_words",
        nargs="+",
        metavar="VOCAB",
        help="text file with one word per line; MODEL may come before it instead of --model",
    )
    flags.add_output(
        parser,
        "HDF5 file to create, one row per word; or word2vec's .txt, .vec or .bin",
        required=True,
    )
    flags.add_compute(parser, batches=False)
    flags.add_common(parser, json=False)


def run(args: argparse.Namespace) -> int:
    """Write the token vectors of a vocabulary."""
    from elmore.embedding.word_cache import write_token_vectors
    from elmore.text.vocabulary import Vocabulary
    from elmore.text.word_vectors import write_word_vectors

    vocabulary = args.model_words.pop()
    if not args.model_words and os.path.isdir(vocabulary):
        raise ConfigError(f"'{shown(vocabulary)}' is a folder; name the vocabulary file last")
    checkpoint = flags.read_model(flags.chosen_model(args))
    words = Vocabulary.read(vocabulary).words

    from elmore.elmo import Elmo

    elmo = Elmo(checkpoint, device=args.device, precision=args.precision, threads=args.threads)
    progress = make_progress(unit="words", total=len(words), quiet=args.quiet)

    # Both writers ask for the rows when they need them, so only one block is in memory.
    def block(row: int) -> NDArray[np.float32]:
        vectors = elmo.engine.token_vectors(words[row : row + _BLOCK])
        progress.update(len(vectors))
        return vectors

    def rows() -> Iterator[tuple[str, NDArray[np.float32]]]:
        for row in range(0, len(words), _BLOCK):
            yield from zip(words[row : row + _BLOCK], block(row), strict=True)

    output = Path(args.output)
    try:
        if output.suffix.lower() in _WORD2VEC:
            dim = elmo.config.lstm.projection_dim
            write_word_vectors(output, rows(), n_words=len(words), dim=dim, overwrite=args.force)
        else:
            write_token_vectors(output, block, len(words), overwrite=args.force)
    finally:
        progress.close()
    if not args.quiet:
        say(f"wrote the vectors of {len(words)} words to '{args.output}'")
    return 0
