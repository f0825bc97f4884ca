"""Text files, pipes and stdin as lines, sentences and tokens.

Files may be compressed (gz, bz2, xz, zst). Memory is bounded by one line or paragraph.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args

from elmore.base.io import Errors, open_text, read_lines
from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.limits import LIMITS
from elmore.text.characters import Alphabet
from elmore.text.records import Text, as_text, json_lines, record_texts
from elmore.text.segmenter import Split, Tokenizer, is_convention, split_function, tokenizer_name
from elmore.text.splitter import sentence_spans, split_sentences
from elmore.text.tokenizer import Convention, Sentence

STDIN = "-"
# The name of a file, - for stdin, or a sentence of the command line as an open stream.
Input = str | BinaryIO
_Parsed = TypeVar("_Parsed")
# A paragraph is searched for sentences as soon as it is this long, in characters.
_PARAGRAPH = 1 << 16


# --------------------------------------------------------------------------- lines


def numbered_lines(path: Path, errors: Errors | None = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file, plain or compressed, with their numbers from 1.

    `errors` is what to do with lines that are not UTF-8, as in `read_lines`.
    """
    with open_text(path, what="data file") as stream:
        size = LIMITS.text_line_bytes
        yield from read_lines(stream, what=str(path), max_line=size, errors=errors)


def json_records(
    path: Path, parse: Callable[[Any], _Parsed], error: str
) -> Iterator[tuple[int, _Parsed]]:
    """Yield line numbers and what `parse` makes of each line of JSON; blank lines are left out.

    `error` is the message for JSON that cannot be parsed, with {reason} for what Python says.
    """
    for number, value in json_lines(numbered_lines(path), str(path)):
        try:
            record = parse(value)
        # Whatever a value of the wrong type or a missing one leads to.
        except (LookupError, ValueError, TypeError, AttributeError) as problem:
            text = error.replace("{reason}", f"{type(problem).__name__}: {problem}")
            raise InputError(text, file=str(path), line=number) from None
        yield number, record


def read_input(name: str, errors: Errors | None = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, a pipe or stdin (-) with their numbers from 1.

    `errors` is for lines that are not UTF-8; see `read_lines`.
    """
    size = LIMITS.text_line_bytes
    with _open_input(name) as (stream, label):
        yield from read_lines(stream, what=label, max_line=size, errors=errors)


# --------------------------------------------------------------------------- sentences


@dataclass
class Counts:
    """How much was read, and what was unusual.

    Attributes:
        sentences: all of them.
        tokens: in these sentences.
        empty: sentences without tokens.
        cut: tokens of which the model sees only the start.
        replaced: lines with invalid UTF-8 that was replaced.
        skipped: lines with invalid UTF-8 that were left out.
    """

    sentences: int = 0
    tokens: int = 0
    empty: int = 0
    cut: int = 0
    replaced: int = 0
    skipped: int = 0

    def add(self, sentence: Sentence, alphabet: Alphabet | None) -> Sentence:
        """Count a sentence that was read for a model with this alphabet, and return it."""
        self.sentences += 1
        self.tokens += len(sentence)
        self.empty += not sentence.tokens
        if alphabet is not None:
            self.cut += alphabet.count_cut(sentence.tokens)
        return sentence


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How text, files, pipes and stdin become sentences and tokens.

    Attributes:
        tokenized: lines are tokens separated by spaces.
        split_sentences: lines are running text, not one sentence each.
        tokenizer: what splits text that is not tokenized, as `split_function` takes it.
        errors: what to do with lines that are not UTF-8.
        column: CSV or TSV: the name of the column in the first line, or its number from 1 in a
            file without names. JSON lines: the key of a text, or of a list of tokens. None for one
            text per line.
        conllu: CoNLL-U, which a `.conllu` file is without it.
    """

    tokenized: bool = False
    split_sentences: bool = False
    tokenizer: Tokenizer = "ptb"
    errors: Errors = "strict"
    column: str | int | None = None
    conllu: bool = False

    def __post_init__(self) -> None:
        if self.tokenized and self.split_sentences:
            raise ConfigError("tokenized and split_sentences cannot be combined; pass one of them")
        self._split  # noqa: B018 (refuses an unknown one now)
        if self.errors not in get_args(Errors):
            raise ConfigError(f"errors={self.errors!r} is unknown; use strict, replace or skip")
        if self.column is not None and self.conllu:
            raise ConfigError("column and conllu exclude each other; pass one of them")
        if isinstance(self.column, int) and self.column < 1:
            raise ConfigError(f"column={self.column}; columns count from 1")

    @property
    def convention(self) -> Convention:
        """The convention of the tokens that come out."""
        if not self.tokenized and is_convention(self.tokenizer):
            return self.tokenizer
        return "spaces"

    @property
    def segmenter(self) -> str | None:
        """The name of a function that splits text, instead of a convention."""
        own = not self.tokenized and not is_convention(self.tokenizer)
        return tokenizer_name(self.tokenizer) if own else None

    @cached_property
    def _split(self) -> Split:
        return split_function(self.tokenizer)

    def sentence(self, text: Text) -> Sentence:
        """Split a sentence into tokens, if it is not."""
        if not isinstance(text, str):
            return Sentence(tuple(text))
        return Sentence(_spaced(text)) if self.tokenized else self._split(text)

    def document(self, text: str) -> Iterator[Sequence[str]]:
        """Yield the tokens of each sentence of a document."""
        texts = split_sentences(text) if self.split_sentences else text.split("\n")
        if self.tokenized:
            for line in texts:
                # A blank line may end a document, and is not a sentence even if it holds tabs.
                yield _spaced(line) if line.strip(" \t\r") else ()
        else:
            for line in texts:
                yield self._split(line).tokens

    def texts(self, stream: BinaryIO, name: str, counts: Counts) -> Iterator[tuple[int, Text]]:
        """Yield the sentences of a stream, each with the number of its first line from 1.

        Sentences that are split from running text are numbered themselves, those of records have
        the number of their record. Lines that are not UTF-8 are counted.

        Args:
            stream: the file.
            name: its name, for messages and for what its suffix tells.
            counts: where to count.
        """

        def count(_: int) -> None:
            if self.errors == "skip":
                counts.skipped += 1
            else:
                counts.replaced += 1

        size = LIMITS.text_line_bytes
        lines = read_lines(stream, what=name, max_line=size, errors=self.errors, on_invalid=count)
        texts = record_texts(lines, name, self.column, self.conllu)
        if not self.split_sentences:
            # A cell of a table may have several lines; its spans stay the same.
            return ((n, t.replace("\n", " ") if isinstance(t, str) else t) for n, t in texts)
        running = _running(texts, name)
        if self.column is not None:
            return ((n, sentence) for n, text in running for sentence in split_sentences(text))
        return enumerate(_split_lines(text for _, text in running), 1)

    def read(
        self, inputs: Sequence[Input], counts: Counts, alphabet: Alphabet | None = None
    ) -> Iterator[tuple[str, Sentence]]:
        """Yield each sentence of files, stdin and open streams as text and as tokens, and count.

        `alphabet` is that of the model, whose cut tokens are counted.
        """
        for text in self._texts(inputs, counts):
            yield as_text(text), counts.add(self.sentence(text), alphabet)

    def count(self, inputs: Sequence[Input]) -> int | None:
        """How many sentences there are; None for stdin and pipes, which can be read only once."""
        if any(name == STDIN or _is_pipe(name) for name in inputs or [STDIN]):
            return None
        return sum(1 for _ in self._texts(inputs, Counts()))

    def _texts(self, inputs: Sequence[Input], counts: Counts) -> Iterator[Text]:
        for name in inputs or [STDIN]:
            with _open_input(name) as (stream, label):
                for _, text in self.texts(stream, label, counts):
                    yield text


def _spaced(line: str) -> tuple[str, ...]:
    # str.split() also splits at U+00A0 and its relatives, which may be inside tokens.
    return tuple([token for token in line.split(" ") if token])


def _running(texts: Iterable[tuple[int, Text]], name: str) -> Iterator[tuple[int, str]]:
    for number, text in texts:
        if not isinstance(text, str):
            raise ConfigError(
                f"{shown(name, 120)} has tokens, not running text; leave out --split-sentences"
            )
        yield number, text


def _split_lines(lines: Iterable[str]) -> Iterator[str]:
    """Split running text; a paragraph ends at a blank line and at the end of a file."""
    parts: list[str] = []
    size, enough = 0, _PARAGRAPH
    for line in lines:
        if not line.strip():
            yield from split_sentences("\n".join(parts))
            parts, size, enough = [], 0, _PARAGRAPH
            continue
        parts.append(line)
        size += len(line) + 1
        if size >= enough:
            text = "\n".join(parts)
            *spans, (last, _) = sentence_spans(text)
            yield from (text[start:end] for start, end in spans)
            # The last sentence may continue in the next line, so it is kept.
            parts, size = [text[last:]], len(text) - last
            # Doubled, so that a long sentence is not searched again after every line.
            enough = max(_PARAGRAPH, 2 * size)
    yield from split_sentences("\n".join(parts))


# --------------------------------------------------------------------------- files, pipes, stdin


def check_inputs(inputs: Sequence[str], output: Path | None) -> None:
    """Refuse unreadable inputs, and one that is also the output, before any work is done.

    Args:
        inputs: names of files; - or none for stdin.
        output: the file to write; None for stdout.
    """
    target = _status(output)
    for name in inputs or [STDIN]:
        if _is_pipe(name):
            continue  # its bytes come once: opening it here would lose them
        with _open_input(name) as (stream, _):
            source = _status(stream if name == STDIN else Path(name))
        if source and target and stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
            raise ConfigError(
                f"'{shown(name, 120)}' is both input and output; choose another output"
            )


def check_rereadable(inputs: Sequence[str]) -> None:
    """Refuse what cannot be read twice: a run that resumes reads its input from the start."""
    for name in inputs or [STDIN]:
        if name == STDIN or _is_pipe(name):
            what = "stdin" if name == STDIN else f"'{shown(name, 120)}'"
            raise ConfigError(
                f"{what} can be read only once, and a run that resumes reads its input again; save "
                "it to a file first"
            )
    check_inputs(inputs, None)


@contextlib.contextmanager
def _open_input(name: Input) -> Iterator[tuple[BinaryIO, str]]:
    """Open an input; with its name for messages."""
    if not isinstance(name, str):
        yield name, "the argument"
    elif not name:
        raise ConfigError("an input is empty; name a file, or - for stdin")
    elif name == STDIN:
        if sys.stdin is None:
            raise ElmoreError("stdin is closed; name an input file")
        yield sys.stdin.buffer, "stdin"
    elif _is_pipe(name):
        with open(name, "rb") as stream:
            yield stream, name
    else:
        with open_text(Path(name), what="input") as stream:
            yield stream, name


def _is_pipe(name: Input) -> bool:
    """Whether a name is the shell's <(command)."""
    try:
        return name != STDIN and isinstance(name, str) and stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False  # opening it reports why


def _status(file: Path | BinaryIO | None) -> os.stat_result | None:
    """The state of a file, or of stdout for None; None if there is no such file."""
    try:
        if isinstance(file, Path):
            return file.stat()
        return os.fstat((sys.stdout if file is None else file).fileno())
    except (OSError, ValueError, AttributeError):
        return None
