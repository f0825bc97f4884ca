"""bilm-tf's vocabularies and batchers, and its dumps of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.base.io import open_text, read_lines
from elmore.elmo import Elmo
from elmore.embedding.vector_files import Record, Settings, write_vectors
from elmore.errors import ConfigError
from elmore.limits import LIMITS
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import BEGIN, END, UNKNOWN
from elmore.text.vocabulary import Vocabulary as Words

Ids = NDArray[np.int32]
Sentence = str | Sequence[str]


class Vocabulary:
    """The words of a file, one per line; a word's id is its line.

    `validate_file` refuses a file without `<S>`, `</S>` or `<UNK>`.

    Attributes:
        words: the same as elmore's own vocabulary.
        bos, eos, unk: the ids of these three, -1 without one, as in bilm-tf.
        size: number of words.
    """

    def __init__(self, filename: str | Path, validate_file: bool = False) -> None:
        self.words = Words.read(filename)
        self.size = len(self.words)
        ids = [self.words.find(word) for word in (BEGIN, END, UNKNOWN)]
        if validate_file and None in ids:
            raise ConfigError(f"'{filename}' lacks a marker; add <S>, </S> and <UNK>")
        self.bos, self.eos, self.unk = (-1 if k is None else k for k in ids)

    def word_to_id(self, word: str) -> int:
        """The id of a word, that of `<UNK>` for others."""
        found = self.words.find(word)
        return self.unk if found is None else found

    def id_to_word(self, cur_id: int) -> str:
        """The word of an id."""
        return self.words.words[cur_id]

    def decode(self, cur_ids: Sequence[int]) -> str:
        """Join the words of ids by spaces."""
        return " ".join(self.id_to_word(k) for k in cur_ids)

    def encode(self, sentence: Sentence, reverse: bool = False, split: bool = True) -> Ids:
        """The ids of a sentence, or of tokens if not `split`, between its markers.

        With `reverse` the sentence runs backward, and the markers are exchanged.
        """
        ids = [self.word_to_id(word) for word in _tokens(sentence, split)]
        first, last = (self.eos, self.bos) if reverse else (self.bos, self.eos)
        return np.array([first, *ids, last], np.int32)


class UnicodeCharsVocabulary(Vocabulary):
    """A vocabulary that gives character ids too, unshifted as in training: bytes and 256..260.

    One difference: in a file without `<S>` or `</S>` bilm-tf gave its last word the characters of
    a marker. Here every word has its own.
    """

    bos_char, eos_char, bow_char, eow_char, pad_char = 256, 257, 258, 259, 260

    def __init__(
        self, filename: str | Path, max_word_length: int, validate_file: bool = False
    ) -> None:
        super().__init__(filename, validate_file)
        # Our ids are shifted by one, as in `Batcher`; training data in bilm-tf is not.
        self.alphabet, self.max_word_length = ByteAlphabet(max_word_length), max_word_length
        self.bos_chars, self.eos_chars = (
            self.word_to_char_ids(marker) for marker in self.alphabet.markers
        )

    @property
    def word_char_ids(self) -> Ids:
        """Characters of all words, (n_words, max_word_length)."""
        return self._chars(self.words.words)

    def word_to_char_ids(self, word: str) -> Ids:
        """The characters of a word, (max_word_length,)."""
        ids: Ids = self._chars([word])[0]
        return ids

    def encode_chars(self, sentence: Sentence, reverse: bool = False, split: bool = True) -> Ids:
        """The characters of a sentence between its markers, (time, max_word_length)."""
        first, last = self.alphabet.markers[::-1] if reverse else self.alphabet.markers
        return self._chars([first, *_tokens(sentence, split), last])

    def _chars(self, words: Sequence[str]) -> Ids:
        return np.asarray(self.alphabet.encode(words) - 1, np.int32)


class Batcher:
    """Turns sentences into the character ids that a biLM reads.

    The vocabulary is checked; the ids do not depend on it.
    """

    def __init__(self, lm_vocab_file: str | Path | None, max_token_length: int) -> None:
        if lm_vocab_file is not None:
            Words.read(lm_vocab_file)
        self._alphabet = ByteAlphabet(max_token_length)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """The ids of tokenized sentences between their markers.

        (batch, longest + 2, max_token_length), shifted by one; rows of zeros are padding.
        """
        begin, end = self._alphabet.markers
        rows = [self._alphabet.encode([begin, *tokens, end]) for tokens in sentences]
        return _padded(rows, self._alphabet.max_chars)


class TokenBatcher:
    """Turns sentences into ids of words whose vectors were dumped.

    One difference: with a vocabulary that lacks `<UNK>` bilm-tf took an unknown word for padding
    and shortened the sentence. Here that is an error.
    """

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self._words = Words.read(lm_vocab_file)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """Ids of sentences between their markers, (batch, longest + 2): lines from 1, padding 0."""
        # Shifted by one, because 0 is padding.
        rows = [self._words.encode([BEGIN, *tokens, END]) + 1 for tokens in sentences]
        return _padded(rows)


def _padded(rows: Sequence[NDArray[np.integer]], *width: int) -> NDArray[np.int64]:
    ids = np.zeros((len(rows), max(map(len, rows), default=0), *width), np.int64)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row)] = row
    return ids


def _tokens(sentence: Sentence, split: bool) -> list[str]:
    if split:
        if not isinstance(sentence, str):
            raise ConfigError("a list of tokens is split already; pass split=False")
        return sentence.split()
    return list(sentence)


_BLOCK = 4096


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path, outfile: str | Path
) -> None:
    """Write the token layer of every word of a vocabulary: dataset `embedding`, (n_words, dim).

    `<S>` and `</S>` are the markers. An existing file is replaced.
    """
    words = Words.read(vocab_file).words
    elmo = Elmo.load((options_file, weight_file))
    with (
        atomic_file(Path(outfile), overwrite=True) as stream,
        h5py.File(stream, "w") as file,
    ):
        shape = (len(words), elmo.config.lstm.projection_dim)
        dataset = file.create_dataset("embedding", shape, np.float32)
        for row in range(0, len(words), _BLOCK):
            some = slice(row, row + _BLOCK)
            dataset[some] = elmo.engine.token_vectors(words[some])


def dump_bilm_embeddings(
    vocab_file: str | Path,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path,
    outfile: str | Path,
) -> None:
    """Write all layers of every line of a file: dataset = line number, (layers, time, dim).

    As in bilm-tf each line is a batch of its own and the state is carried from line to line. The
    text may be compressed; the vocabulary is only checked; an existing file is replaced.
    """
    Words.read(vocab_file)
    elmo = Elmo.load((options_file, weight_file))
    settings = Settings(shape=(elmo.n_layers, None, elmo.dim), sentence_index=False, overwrite=True)
    name = str(dataset_file)

    def records() -> Iterator[Record]:
        state = elmo.stateful()
        with open_text(Path(dataset_file), what="text") as stream:
            for _, line in read_lines(stream, what=name, max_line=LIMITS.text_line_bytes):
                [layers] = state.layers([line.split()], tokenized=True)
                yield Record(line, layers.tokens, None, layers.values)

    write_vectors("hdf5", Path(outfile), records(), settings)
