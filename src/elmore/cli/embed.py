"""`elmore embed` and `elmore words`: vectors for text, and for words."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from elmore.base.messages import readable_bytes, readable_time
from elmore.cli import options
from elmore.cli.console import Console, line_writer, several
from elmore.embedding.vector_files import VECTOR_FORMATS, Record, Settings, write_vectors
from elmore.errors import ConfigError
from elmore.options import LayerChoice, Output, Pooling, StoredType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.base.messages import Progress
    from elmore.elmo import Elmo
    from elmore.language_model.sense_vectors import SenseVectors
    from elmore.text.tokenizer import Sentence

_SUFFIXES = {name: one.suffixes for name, one in VECTOR_FORMATS.items()}
_EMBED = """\
  elmore embed "A plant grew ."
  elmore embed news.txt -o news.hdf5 --layers all --tokenized
  elmore embed book.txt --split-sentences --pool mean -o book.npz
  elmore embed reviews.csv --column review --pool mean -o reviews.npy
  elmore embed corpus/*.txt --dry-run
  elmore embed corpus/*.txt --workers 4 -f parquet --dtype float16 -o vectors/
  echo "She sat on the bank ." | elmore embed --view substitutes

formats:
  jsonl    one object per sentence: {"tokens": [...], "spans": [...], "vectors": [[...], ...]};
           "layers" with --layers all, "vector" with --pool
  npz      arrays "0", "1", ... (time, dim) for numpy.load; with --pool one matrix "vectors"
  npy      one matrix for numpy.load, with --pool only
  hdf5     datasets "0", "1", ... and sentence_to_index, as the `allennlp elmo` command wrote them;
           tokens and spans are attributes of each dataset
  parquet  one row per sentence: number, tokens, spans, vectors; needs elmore[parquet]

--view senses writes sense vectors, which separate the senses of a word better than layers do: one
short vector per token. --view substitutes writes what they are made of, as jsonl: "senses" has for
each token the words that fit its position, with weights.

With --workers, -o is a folder: shards in the order of the input, and manifest.json when all are
there. An interrupted run resumes when it is started again. The bytes are the same for any number of
workers.
"""

# Words of each token with --view substitutes: what a person can read.
_MAX_WORDS = 10


@options.verb(_EMBED)
def embed(
    *,
    text: options.TextInput = options.text_input,
    output: Path | None = options.output("File to create; stdout by default, for jsonl."),
    force: bool = options.force,
    form: str | None = options.format(_SUFFIXES, "jsonl"),
    wanted: Output = options.group(
        Output,
        layers=options.layers(every="each layer"),
        pool=options.choice(
            get_args(Pooling),
            None,
            "One vector per sentence instead of one per token; sif to compare sentences.",
        ),
        dtype=options.choice(get_args(StoredType), "float32", "Type of the stored vectors."),
    ),
    view: str = options.choice(
        ["layers", "senses", "substitutes"],
        "layers",
        "What a vector is made of: layers, or substitutes of the word.",
    ),
    workers: int | None = options.count(
        None, "Processes, one thread each, that fill a folder with shards.", type=options.CPUS
    ),
    shard_bytes: int | None = options.count(
        None, "With --workers: bytes of text per shard, by default 524288."
    ),
    dry_run: bool = options.flag(
        "Only check the text and predict time, memory and size: whether it fits the model."
    ),
    model: options.ModelChoice = options.model(),
    console: Console,
) -> None:
    """INPUT is a UTF-8 text file with one sentence per line (plain, gz, bz2, xz or zst), or a
    sentence in quotes; - or none reads stdin.
    """
    from elmore.embedding.results import value_shape
    from elmore.text.reading import check_rereadable

    if dry_run:
        text.check(console)
        _predict(text, model.load(text.tokenizer), wanted, console)
        return
    form = options.format_of(form, output, _SUFFIXES, "jsonl")
    if workers is None and shard_bytes is not None:
        raise ConfigError("--shard-bytes is for --workers; leave it out or pass --workers N")
    if workers is not None and output is None:
        raise ConfigError("--workers fills a folder; pass -o FOLDER")
    if output is None and console.json:
        raise ConfigError("--json would mix with the vectors on stdout; pass -o FILE")
    if view != "layers":
        _check_view(view, form, wanted, workers)
    # Everything that can be wrong is found before anything slow is loaded.
    config = model.checkpoint.config
    shape = value_shape(config, wanted)
    if workers is not None:
        check_rereadable(text.inputs)  # a job that resumes reads its input again
    else:
        text.check(console, output)
    counts = text.counts
    with console.progress("sentences", text.count(console)) as progress:
        if workers is not None:
            from elmore.bulk.embed_files import embed_files

            chosen: dict[str, Any] = {**text.options(), **model.options(), **vars(wanted)}
            chosen["threads"] = model.threads or 1
            if shard_bytes is not None:
                chosen["shard_bytes"] = shard_bytes
            counts = embed_files(
                text.inputs,
                str(output),
                model=model.path,
                workers=workers,
                overwrite=force,
                progress=progress,
                format=form,
                **chosen,
            ).counts
        elif view == "substitutes":
            with line_writer(output, force) as write:
                for line in _substitutes(text, model.load(text.tokenizer)):
                    write(line)
                    progress.update(1)
        else:
            settings = Settings(
                shape=(None, config.lstm.projection_dim) if view == "senses" else shape,
                dtype=wanted.dtype,
                texts=text.split_sentences or text.column is not None,
                overwrite=force,
            )
            records = _records(text, model, wanted, view, console, progress)
            write_vectors(form, output, records, settings)
    done = f"{several(counts.sentences, 'sentence')} ({several(counts.tokens, 'token')})"
    console.done(
        {**dataclasses.asdict(counts), "output": output and str(output), "format": form},
        ", ".join([f"embedded {done}", *text.notes(model.checkpoint, counts)]),
    )


def _check_view(view: str, form: str, wanted: Output, workers: int | None) -> None:
    if wanted.layers != "mean" or wanted.pool:
        raise ConfigError(f"--view {view} has neither layers nor pooling; leave them out")
    if workers is not None:
        raise ConfigError(f"--view {view} runs in one process; for a corpus use `elmore index`")
    if view == "substitutes" and form != "jsonl":
        raise ConfigError(f"substitutes are words, which {form} cannot hold; pass -f jsonl")


def _records(
    text: options.TextInput,
    model: options.ModelChoice,
    wanted: Output,
    view: str,
    console: Console,
    progress: Progress,
) -> Iterator[Record]:
    """The records to write; the model is loaded when the output is known to be writable."""
    from elmore.embedding.stream import embed_records

    elmo = model.load(text.tokenizer)
    start = time.perf_counter()
    records = (
        embed_records(elmo.engine, text.read(elmo), wanted)
        if view == "layers"
        else (
            Record(line, sentence.tokens, sentence.spans, found.dense())
            for line, sentence, found in _senses(text, elmo)
        )
    )
    for record in records:
        yield record
        progress.update(1)
    if console.verbose:
        seconds = time.perf_counter() - start
        speed = text.counts.tokens / seconds
        console.say(f"{readable_time(seconds)}, {speed:,.0f} tokens per second")


def _substitutes(text: options.TextInput, elmo: Elmo) -> Iterator[str]:
    """The words that fit each position, one line of JSON per sentence."""
    for line, sentence, found in _senses(text, elmo):
        record: dict[str, Any] = {"text": line} if text.split_sentences else {}
        record["tokens"] = sentence.tokens
        if sentence.spans is not None:
            record["spans"] = sentence.spans
        record["senses"] = [
            [[word, round(weight, 3)] for word, weight in found.words(row, _MAX_WORDS)]
            for row in range(len(found))
        ]
        yield json.dumps(record, ensure_ascii=False)


def _senses(text: options.TextInput, elmo: Elmo) -> Iterator[tuple[str, Sentence, SenseVectors]]:
    """Each sentence of the inputs with the sense vectors of its tokens."""
    read, again = itertools.tee(text.read(elmo))
    found = elmo.sense_space.pipe(
        ((sentence, range(len(sentence))) for _, sentence in again),
        batch_tokens=elmo.engine.batch_tokens,
    )
    for (line, sentence), vectors in zip(read, found, strict=True):
        yield line, sentence, vectors


def _predict(text: options.TextInput, elmo: Elmo, wanted: Output, console: Console) -> None:
    """Show what the text has that does not fit the model, and what embedding it costs."""
    from elmore.embedding.dry_run import dry_run

    found = dry_run(elmo, text.read(elmo), wanted, tokenized=text.tokenized)
    lines = [
        f"{several(found.sentences, 'sentence')}, {several(found.tokens, 'token')}; the longest "
        f"sentence has {found.longest}",
        f"not in the vocabulary: {found.unknown}; cut: {found.cut}",
        *found.warnings,
        f"embedding takes about {readable_time(found.seconds)} and writes about "
        f"{readable_bytes(found.size_bytes)} in a binary format, three times as much as text",
    ]
    names = "sentences tokens longest unknown cut warnings size_bytes seconds".split()
    report = {"model": elmo.checkpoint.origin, **{name: getattr(found, name) for name in names}}
    console.result(report, "\n".join(lines))


_WORDS = """\
  elmore words --words vocab.txt -o words.bin
  elmore words news.txt -o words.bin
  elmore words news.txt.gz --words vocab.txt --layers top --min-count 5 -o words.vec

The file has word2vec's format: binary if it is called NAME.bin, else text. gensim reads it with
KeyedVectors.load_word2vec_format(NAME, binary=...).
"""

# Words at a time: enough to keep all threads busy, with scratch memory below 200 MB.
_BLOCK = 512


@options.verb(_WORDS)
def words(
    *,
    text: options.TextInput = options.text_input,
    output: Path = options.output(
        "word2vec file to create: NAME.bin, or any other name for text.", required=True
    ),
    force: bool = options.force,
    file: Path | None = options.path(
        "The words, one per line, by default the model's vocabulary.", names="--words"
    ),
    min_count: int = options.count(1, "Of a corpus: leave out words with fewer uses."),
    layers: LayerChoice = options.layers(),
    model: options.ModelChoice = options.model(),
    console: Console,
) -> None:
    """Without INPUT each word has the vector of its spelling, without context. With INPUT, text
    files or - for stdin, it has the mean of its contextual vectors there, and words that do not
    occur are left out.
    """
    from elmore.embedding.centroids import word_centroids
    from elmore.text.vocabulary import Vocabulary
    from elmore.text.word_vectors import write_word_vectors

    if output is None:
        # The number of words is known only at the end, and a pipe cannot be rewound.
        raise ConfigError("a word2vec file starts with its counts; pass -o FILE")
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
        found = word_centroids(elmo, _read(text, elmo, console), listed, layers=layers)
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


def _read(text: options.TextInput, elmo: Elmo, console: Console) -> Iterator[Sentence]:
    with console.progress("sentences", text.count(console)) as progress:
        for sentence in text.sentences(elmo):
            progress.update(1)
            yield sentence
