"""`elmore words`: static word vectors, of a vocabulary or averaged over a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.cli import options
from elmore.cli.console import Console
from elmore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.cli.options import ModelChoice, TextInput
    from elmore.elmo import Elmo
    from elmore.options import LayerChoice
    from elmore.text.tokenizer import Sentence

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


@options.verb(_EXAMPLES)
def words(
    *,
    text: TextInput = options.text_input,
    output: Path = options.output(
        "word2vec file to create: NAME.bin, or any other name for text.", required=True
    ),
    force: bool = options.force,
    file: Path | None = options.option(
        "The words, one per line, by default the model's vocabulary.",
        "FILE",
        names="--words",
        type=options.PATH,
    ),
    min_count: int = options.count(1, "Of a corpus: leave out words and senses with fewer uses."),
    senses: int | None = options.count(
        None, "Of a corpus: cluster the uses of each word into K rows word%1, word%2, ...", "K"
    ),
    sampling: dict[str, int] = options.keywords(
        uses=options.count(200, "With --senses: uses per word that are kept, a random sample."),
        seed=options.seed,
    ),
    layers: LayerChoice = options.layers(),
    model: ModelChoice = options.model(),
    console: Console,
) -> None:
    """Without INPUT each word has the vector of its spelling, without context. With INPUT, text
    files or - for stdin, it has the mean of its contextual vectors there, and words that do not
    occur are left out.
    """
    from elmore.embedding.centroids import sense_centroids, word_centroids
    from elmore.text.vocabulary import Vocabulary
    from elmore.text.word_vectors import write_word_vectors

    if output is None:
        # The number of words is known only at the end, and a pipe cannot be rewound.
        raise ConfigError("a word2vec file starts with its counts; pass -o FILE")
    if senses is not None and not text.inputs:
        raise ConfigError("--senses needs a corpus; name an INPUT")
    if text.inputs:
        text.check(console, output)
    vocabulary = model.checkpoint.vocabulary if file is None else Vocabulary.read(file)
    if vocabulary is None:
        raise ConfigError("this model has no vocabulary; name the words with --words FILE")
    listed = vocabulary.words
    elmo = model.load(text.tokenizer)
    report: dict[str, Any] = {"output": str(output), "words": len(listed)}
    rows: Iterable[tuple[str, NDArray[np.float32]]]
    if not text.inputs:
        n_rows, dim, of = len(listed), elmo.config.lstm.projection_dim, ""
        rows = _spelled(elmo, listed, console)
    else:
        how: Any = {"layers": layers, "batch_tokens": elmo.engine.batch_tokens}
        sentences = _read(text, elmo, console)
        if senses is None:
            found = word_centroids(elmo, sentences, listed, **how)
        else:
            found = sense_centroids(elmo, sentences, listed, senses=senses, **sampling, **how)
        kept = [one for one in found if one.n_uses >= min_count]
        report["uses"] = sum(one.n_uses for one in kept)
        n_rows, dim, of = len(kept), elmo.dim, f" of {report['uses']} uses"
        rows = ((one.word, one.vector) for one in kept)
    write_word_vectors(output, rows, n_words=n_rows, dim=dim, overwrite=force)
    console.done({**report, "vectors": n_rows}, f"wrote {n_rows} vectors{of} to '{output}'")


def _spelled(
    elmo: Elmo, listed: Sequence[str], console: Console
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The vectors of words without context: layer 0, once per direction the same."""
    with console.progress("words", len(listed)) as progress:
        for row in range(0, len(listed), _BLOCK):
            block = listed[row : row + _BLOCK]
            yield from zip(block, elmo.engine.token_vectors(block), strict=True)
            progress.update(len(block))


def _read(text: TextInput, elmo: Elmo, console: Console) -> Iterator[Sentence]:
    with console.progress("sentences", text.count(console)) as progress:
        for sentence in text.sentences(elmo):
            progress.update(1)
            yield sentence
