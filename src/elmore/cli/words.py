"""`elmore words`: static word vectors, of a vocabulary or averaged over a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmore.cli import options
from elmore.cli.console import Console, common, write_json
from elmore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.cli.options import ComputeChoice, TextInput
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.options import LayerChoice
    from elmore.text.sentence import Sentence

__all__ = ["words"]

_EXAMPLES = """\
  elmore words --words vocab.txt -o words.bin
  elmore words news.txt -o words.bin
  elmore words news.txt.gz --words vocab.txt --layers top --min-count 5 -o words.vec
  elmore words news.txt --words nouns.txt --senses 3 -o senses.txt

The file has word2vec's format: binary if it is called NAME.bin, else text. gensim reads it with
KeyedVectors.load_word2vec_format(NAME, binary=...).
"""

# Words at a time: enough to keep all threads busy, with scratch memory below 200 MB.
_BLOCK = 512


@click.command(epilog=options.examples(_EXAMPLES))
@options.text_input
@options.model()
@options.force_output(
    "word2vec file to create: NAME.bin, or any other name for text.", required=True
)
@click.option(
    "--words",
    "file",
    type=options.PATH,
    metavar="FILE",
    help="The words, one per line, by default the model's vocabulary.",
)
@click.option(
    "--min-count",
    type=options.COUNT,
    default=1,
    metavar="N",
    help="Of a corpus: leave out words and senses with fewer uses.",
)
@click.option(
    "--senses",
    type=options.COUNT,
    metavar="K",
    help="Of a corpus: cluster the uses of each word into K rows word%1, word%2, ...",
)
@click.option(
    "--uses",
    type=options.COUNT,
    default=200,
    metavar="N",
    help="With --senses: uses per word that are kept, a random sample.",
)
@options.layers()
@options.seed
@options.compute()
@common()
def words(
    *,
    text: TextInput,
    model: ModelPath | None,
    output: Path,
    force: bool,
    file: Path | None,
    min_count: int,
    senses: int | None,
    uses: int,
    layers: LayerChoice,
    seed: int,
    compute: ComputeChoice,
    console: Console,
) -> None:
    """Static word vectors in word2vec's format.

    Without INPUT each word has the vector of its spelling, without context. With INPUT, text files
    or - for stdin, it has the mean of its contextual vectors there, and words that do not occur are
    left out.
    """
    if output is None:
        # The number of words is known only at the end, and a pipe cannot be rewound.
        raise ConfigError("a word2vec file starts with its counts; pass -o FILE")
    if layers == options.ALL_LAYERS:
        raise ConfigError("a word has one vector here; use --layers mean, top, a number or weights")
    if senses is not None and not text.inputs:
        raise ConfigError("--senses needs a corpus; name an INPUT")
    if text.inputs:
        text.check(console, output)
    checkpoint = options.read_model(model)
    listed = _listed(file, checkpoint)
    elmo = compute.load(checkpoint, text.tokenizer)
    if text.inputs:
        n_vectors, n_uses = _averaged(
            text, elmo, listed, layers, senses, uses, seed, min_count, output, force, console
        )
    else:
        n_vectors, n_uses = _spelled(elmo, listed, output, force, console), 0
    if console.json:
        report = {"output": str(output), "vectors": n_vectors, "words": len(listed)}
        write_json({**report, "uses": n_uses} if text.inputs else report)
    else:
        found = f" of {n_uses} uses" if text.inputs else ""
        console.say(f"wrote {n_vectors} vectors{found} to '{output}'")


def _listed(file: Path | None, checkpoint: Checkpoint) -> tuple[str, ...]:
    from elmore.text.vocabulary import Vocabulary

    vocabulary = checkpoint.vocabulary if file is None else Vocabulary.read(file)
    if vocabulary is None:
        raise ConfigError("this model has no vocabulary; name the words with --words FILE")
    return vocabulary.words


def _spelled(
    elmo: Elmo, listed: tuple[str, ...], output: Path, force: bool, console: Console
) -> int:
    """Write the vectors of words without context: layer 0, once per direction the same."""
    from elmore.text.word_vectors import write_word_vectors

    with console.progress("words", len(listed)) as progress:

        def rows() -> Iterator[tuple[str, NDArray[np.float32]]]:
            for row in range(0, len(listed), _BLOCK):
                block = listed[row : row + _BLOCK]
                yield from zip(block, elmo.engine.token_vectors(block), strict=True)
                progress.update(len(block))

        dim = elmo.config.lstm.projection_dim
        write_word_vectors(output, rows(), n_words=len(listed), dim=dim, overwrite=force)
    return len(listed)


def _averaged(
    text: TextInput,
    elmo: Elmo,
    listed: tuple[str, ...],
    layers: LayerChoice,
    senses: int | None,
    uses: int,
    seed: int,
    min_count: int,
    output: Path,
    force: bool,
    console: Console,
) -> tuple[int, int]:
    """Write the mean vectors of words or of their senses; how many there are, of how many uses."""
    from elmore.senses.centroids import sense_centroids, word_centroids
    from elmore.text.reading import Counts
    from elmore.text.word_vectors import write_word_vectors

    batch_tokens = elmo.engine.batch_tokens
    with console.progress("sentences", text.count(console)) as progress:

        def sentences() -> Iterator[Sentence]:
            for _, sentence in text.read(elmo, Counts()):
                progress.update(1)
                yield sentence

        if senses is None:
            found = word_centroids(
                elmo, sentences(), listed, layers=layers, batch_tokens=batch_tokens
            )
        else:
            found = sense_centroids(
                elmo,
                sentences(),
                listed,
                senses=senses,
                uses=uses,
                seed=seed,
                layers=layers,
                batch_tokens=batch_tokens,
            )
    kept = [one for one in found if one.n_uses >= min_count]
    write_word_vectors(
        output,
        ((one.word, one.vector) for one in kept),
        n_words=len(kept),
        dim=elmo.dim,
        overwrite=force,
    )
    return len(kept), sum(one.n_uses for one in kept)
