"""bilm-tf's dumps: vectors of a vocabulary, and of all lines of a file."""

from __future__ import annotations

from pathlib import Path

from elmore._io import open_text, read_lines
from elmore.embedding.elmo import Elmo
from elmore.embedding.word_cache import write_token_vectors
from elmore.embedding.writers import Record, Settings, open_writer
from elmore.limits import LIMITS
from elmore.text.vocabulary import Vocabulary

__all__ = ["dump_bilm_embeddings", "dump_token_embeddings"]

_BLOCK = 4096


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path, outfile: str | Path
) -> None:
    """Write the token layer of every word of a vocabulary: dataset `embedding`, (n_words, dim).

    Args:
        vocab_file: one word a line; `<S>` and `</S>` stand for the markers.
        options_file: options.json.
        weight_file: the HDF5 weights.
        outfile: the HDF5 file to make; one that is there is replaced.
    """
    words = Vocabulary.read(vocab_file).words
    elmo = Elmo.load((options_file, weight_file))
    write_token_vectors(
        Path(outfile),
        lambda row: elmo.token_vectors(words[row : row + _BLOCK]),
        len(words),
        overwrite=True,
    )


def dump_bilm_embeddings(
    vocab_file: str | Path,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path,
    outfile: str | Path,
) -> None:
    """Write all layers of every line of a file: dataset = line number, (layers, time, dim).

    As in bilm-tf a line is a batch of its own and the state goes on from line to line.

    Args:
        vocab_file: kept for the signature and checked; characters need no vocabulary.
        dataset_file: a sentence a line, tokens separated by white space; may be packed.
        options_file: options.json.
        weight_file: the HDF5 weights.
        outfile: the HDF5 file to make; one that is there is replaced.
    """
    Vocabulary.read(vocab_file)
    elmo = Elmo.load((options_file, weight_file))
    settings = Settings(shape=(elmo.n_layers, None, elmo.dim), sentence_index=False, overwrite=True)
    name = str(dataset_file)
    with (
        open_text(Path(dataset_file), what="text") as stream,
        open_writer("hdf5", Path(outfile), settings) as writer,
        elmo.stateful() as state,
    ):
        for _, line in read_lines(stream, what=name, max_line=LIMITS.text_line_bytes):
            [layers] = state.layers_tokens([line.split()])
            writer.write(Record(line, layers.tokens, None, layers.values))
