"""`elmore cache`: token vectors of a vocabulary, computed once."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from elmore.cli import flags
from elmore.cli.report import make_progress, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore cache my-model vocab.txt -o tokens.hdf5
  elmore cache options.json weights.hdf5 vocab.txt -o tokens.hdf5
  elmore embed --model my-model --token-vectors vocab.txt tokens.hdf5 news.txt -o news.hdf5
  elmore cache my-model vocab.txt -o words.bin     (word2vec's form, for gensim; .txt or .vec: text)
"""

# What ends so is word2vec's text; .bin is its binary form; all else is HDF5.
_WORD2VEC = (".txt", ".vec", ".bin")

# Words at a time: keeps both threads busy and the largest model below 200 MB of scratch.
_BLOCK = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    flags.add_model_argument(parser)
    parser.add_argument("vocabulary", metavar="VOCAB", help="text file, one word a line")
    flags.add_output(
        parser,
        "HDF5 file to make, dataset `embedding`: a row a word; or word2vec's .txt, .vec or .bin",
        required=True,
    )
    flags.add_compute(parser, batches=False)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Write the token vectors of a vocabulary."""
    from elmore.embedding.word_cache import write_token_vectors
    from elmore.text.vocabulary import Vocabulary
    from elmore.text.word_vectors import write_word_vectors

    checkpoint = flags.read_model(flags.model_path(args.model))
    words = Vocabulary.read(args.vocabulary).words

    from elmore.embedding.elmo import Elmo

    elmo = Elmo(checkpoint, device=args.device, precision=args.precision, threads=args.threads)
    progress = make_progress(unit="words", total=len(words), quiet=args.quiet)

    def block(row: int) -> NDArray[np.float32]:
        vectors = elmo.token_vectors(words[row : row + _BLOCK])
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
