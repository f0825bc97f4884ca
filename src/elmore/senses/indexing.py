"""Make an index of the uses of words: count, choose, compute in parts, merge.

While it is made, the folder of `senses/index.py` also holds part-*.npz, counts.json, the journal
and the lock. The bytes of the index depend neither on the number of processes nor on interruptions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file, write_error
from elmore.base.io import sha256_file
from elmore.base.journal import FinishedFile, JournalFolder
from elmore.base.messages import SILENT, Progress, shown
from elmore.base.pool import Pool, Worker
from elmore.bulk.embed_files import InputFile, TextShard, cut_shards, inspect_input
from elmore.bulk.job import Job, JobOptions, ShardEmbedder
from elmore.bulk.output_folder import check_manifest, check_same_run
from elmore.elmo import Elmo
from elmore.embedding.load import ModelPath, absolute
from elmore.embedding.results import LayerChoice
from elmore.embedding.stream import windows
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import Array, SenseVectors, make_space, unit
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.senses.index import (
    FORMAT,
    LAYERS,
    MANIFEST,
    SENTENCES,
    USES,
    VOCABULARY,
    WORDS,
    Index,
    digest_words,
    part_names,
    read_manifest,
    space_digest,
    verify,
    write_manifest,
)
from elmore.text.reading import Counts
from elmore.text.segmenter import Tokenizer, sendable

__all__ = ["CANDIDATES", "build_index"]

Rows = NDArray[np.int64]
_COUNTS = "counts.json"
_ARRAYS = "|".join((*USES, *LAYERS, *SENTENCES, "offsets"))
_FILES = re.compile(rf"part-\d{{6,}}\.npz|({_ARRAYS})\.npy|(counts|words|vocabulary)\.json")
# Of the settings of a bulk job, those that an index depends on.
_SETTINGS = (
    *("tokenized", "split_sentences", "errors", "limit", "shard_bytes", "precision", "start"),
    *("tokenizer", "column", "conllu"),
)
_HASHES = 1 << 64
# If so many uses of a word are expected, the chance that none is drawn is below 1e-27.
_SURE = 64
# Words that a message lists.
_LISTED = 10
# Substitutes are chosen among so many frequent words. The softmax of all 50,000 words of `english`
# makes an index of all words 15 % slower and no better: the 15 nearest uses give the sense of
# 11,242 uses of SemCor in 71.2 per cent with both (dense vectors: 68.5, and 68.7 with all words).
CANDIDATES = 20_000


@dataclass(frozen=True, kw_only=True)
class _Part(FinishedFile):
    """A finished part, counted from 0, or the counts of words, with the number -1."""

    number: int
    source: int
    sha256: str


def build_index(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    model: ModelPath | Elmo | None = None,
    words: Iterable[str] | None = None,
    min_count: int = 100,
    max_uses: int = 1000,
    k: int = 64,
    workers: int = 1,
    overwrite: bool = False,
    progress: Progress = SILENT,
    report: Callable[[str], object] = lambda _: None,
    **options: Unpack[JobOptions],
) -> Index:
    """Index the uses of words in text files; if it is interrupted, call it again to resume.

    The text is read twice: once to count words, once to compute the sentences that have a chosen
    use. Words are counted in lower case.

    Args:
        files: text files, plain or compressed, one sentence per line.
        out: the folder to create.
        model: what `Elmo.load` takes, or a loaded model, which works in this process alone; the
            English model by default. Without a softmax, uses are compared by its top layer.
        words: which words, or one word; all that occur `min_count` times by default.
        min_count: how often a word must occur, unless `words` is given.
        max_uses: about how many uses of a word are kept, drawn with equal chances; at least one.
        k: substitutes that are kept for each use; 0 for none, to compare uses by `layers` alone.
        workers: processes.
        overwrite: start again in a folder that holds an earlier index.
        progress: counts sentences, each twice.
        report: called with one line that says how large the index will be, and with those of
            `words` that do not occur.
        options: of `embed_files`: `tokenized`, `split_sentences`, `errors`, `limit`, `threads`,
            `precision`, `batch_tokens`, `shard_bytes`. With `layers`, this mix of the layers of
            each use is kept too, as int8: see `Index.layers`.

    Raises:
        ConfigError: a bad option, or a folder that holds something other than an index.
        InputError: no word occurs often enough.
        ResumeError: the folder holds an index of something else.
    """
    for name, value in (("min_count", min_count), ("max_uses", max_uses)):
        if value < 1:
            raise ConfigError(f"{name}={value}; use 1 or more")
    if k < 0:
        raise ConfigError(f"k={k}; use 1 or more, or 0 for layers alone")
    paths = [Path(path) for path in ([files] if isinstance(files, str | Path) else files)]
    if not paths:
        raise InputError("no input files; name at least one text file")
    if options.get("layers") == "all":
        raise ConfigError(
            'an index keeps one mix of layers; pass "mean", "top", a number or weights'
        )
    keeps_layers = "layers" in options
    options.setdefault("threads", None if workers == 1 else 1)
    elmo = model if isinstance(model, Elmo) else None
    if elmo is not None:
        if workers > 1:
            raise ConfigError("several workers load the model themselves; pass its name or path")
        options["precision"], options["start"] = elmo.precision, elmo.engine.compute.start
        if options.get("tokenizer") is None:
            options["tokenizer"] = _tokenizer_name(elmo)
    named = bundled_model() if model is None else model
    job = Job(
        model=elmo.checkpoint.origin if elmo is not None else cast(ModelPath, named), **options
    )
    path = Path(os.path.abspath(out))
    busy = f"'{shown(path, 120)}' is being written by another process; wait for it"
    listed = None if words is None else _word_list(words)
    check_manifest(path, FORMAT)
    with (
        JournalFolder.opened(path, _Part, _FILES, busy=busy, marks=(MANIFEST,)) as folder,
        Pool(
            start_indexer,
            workers,
            setup={
                "job": job,
                "k": k,
                "layers": keeps_layers,
                "elmo": elmo,
            },
            in_process=workers == 1,
        ) as pool,
    ):
        settings = {name: value for name, value in job.settings().items() if name in _SETTINGS}
        settings |= {"words": listed and digest_words(listed), "k": k, "max_uses": max_uses}
        settings |= {"candidates": CANDIDATES}
        settings |= {} if listed else {"min_count": min_count}
        inputs = [inspect_input(path) for path in paths]
        facts = {"settings": settings, **pool.facts(), "inputs": [one.facts() for one in inputs]}
        facts = json.loads(json.dumps({**FORMAT.head(), **facts}))
        builder = _Builder(folder, pool, job, inputs, progress)
        if not builder.resume(facts, overwrite):
            table = builder.start(facts, listed, min_count, max_uses)
            if listed and (absent := [word for word in listed if word not in table]):
                more = ", ..." if len(absent) > _LISTED else ""
                report(f"not in the text: {shown(', '.join(absent[:_LISTED]), 200)}{more}")
            if k and not facts["model"]["softmax"]:
                report("the model has no softmax, so uses are compared by its layers")
            report(_estimate(table, max_uses, facts["model"]["use_bytes"]))
            builder.compute(max_uses)
            builder.merge(facts, _model_name(model))
    return Index.open(out, elmo=elmo)


def _word_list(words: Iterable[str]) -> list[str]:
    """The words in lower case, sorted."""
    given = [words] if isinstance(words, str) else words
    listed = sorted({word.strip().lower() for word in given} - {""})
    if not listed:
        raise ConfigError("the list of words is empty; name at least one, or leave it out")
    return listed


def _model_name(model: ModelPath | Elmo | None) -> str | list[str] | None:
    """What `Index` loads in any folder; None for a model that was not loaded from files."""
    if isinstance(model, Elmo):  # knows its files by their whole paths
        found = model.source
    else:
        found = BUNDLED if model is None else absolute(model)
    return list(found) if isinstance(found, tuple) else found


def _tokenizer_name(elmo: Elmo) -> str | None:
    """The tokenizer that a model was loaded with, if other processes can find it."""
    with contextlib.suppress(ConfigError):
        return sendable(elmo.engine.compute.tokenizer)
    return None


class _Builder:
    """The steps of `build_index`."""

    def __init__(
        self,
        folder: JournalFolder[_Part],
        pool: Pool,
        job: Job,
        inputs: Sequence[InputFile],
        progress: Progress,
    ) -> None:
        self.folder, self.path, self.pool = folder, folder.path, pool
        self.job, self.inputs, self.progress = job, inputs, progress
        self.done: dict[int, _Part] = {}

    def resume(self, facts: Mapping[str, Any], overwrite: bool) -> bool:
        """Find what is done; whether the index is complete already."""
        found = None if overwrite else self.folder.found()
        manifest = self.path / MANIFEST
        if manifest.exists() and not overwrite:
            check_same_run(self.path, read_manifest(self.path), facts)
            verify(self.path)
            self._clean(found is not None)  # a kill may have left parts
            return True
        if found is not None:
            check_same_run(self.path, found[0], facts)
            # A damaged part is computed again.
            self.done = {
                one.number: one
                for one in found[1]
                if self.folder.is_intact(one) and sha256_file(self.path / one.file) == one.sha256
            }
        return False

    def start(
        self, facts: Mapping[str, Any], listed: Sequence[str] | None, min_count: int, max_uses: int
    ) -> dict[str, int]:
        """The words to index with their counts, the most frequent first."""
        table = None if -1 in self.done else self._counted(listed, min_count, max_uses)
        # Only now, with something to index, does an earlier index go. Its manifest goes first: it
        # says that all files are there.
        (self.path / MANIFEST).unlink(missing_ok=True)
        self.folder.begin(facts, self.done.values())
        if table is not None:
            with atomic_file(self.path / _COUNTS, overwrite=True) as stream:
                stream.write(json.dumps(table).encode())
            self._add(-1, 0, _COUNTS)
        return self._counts()

    def _counted(
        self, listed: Sequence[str] | None, min_count: int, max_uses: int
    ) -> dict[str, tuple[int, int]]:
        """The count of each word to index, and its smallest draw."""
        counts: Counter[str] = Counter()
        draws: dict[str, int] = {}
        for request, reply in self.pool.map(self._requests("count", {"max_uses": max_uses})):
            counts.update(reply["counts"])
            for word, draw in reply["draws"].items():
                draws[word] = min(draw, draws.get(word, _HASHES))
            self.progress.update(len(request["texts"]))
        kept = listed if listed is not None else counts
        least = 1 if listed is not None else min_count
        words = sorted((-counts[w], w) for w in kept if counts[w] >= least)
        if not words:
            raise InputError(
                f"none of the words occurs in the text ({shown(', '.join(kept), 60)}); check "
                "them, or the path if they are in a file"
                if listed is not None
                else f"no word occurs {min_count} times; pass a smaller min_count"
            )
        return {word: (-count, draws.get(word, 0)) for count, word in words}

    def _counts(self) -> dict[str, int]:
        table = json.loads((self.path / _COUNTS).read_bytes())
        return {word: count for word, (count, _) in table.items()}

    def compute(self, max_uses: int) -> None:
        """Write the parts that are missing."""
        more = {"table": str(self.path / _COUNTS), "max_uses": max_uses, "folder": str(self.path)}
        for request, _ in self.pool.map(self._requests("uses", more)):
            number = request["number"]
            self._add(number, request["source"], _part(number))
            self.progress.update(len(request["texts"]))

    def merge(self, facts: Mapping[str, Any], model: str | list[str] | None) -> None:
        """Join the parts, sorted by word; they go when the manifest is there."""
        numbers = sorted(set(self.done) - {-1})
        counts = self._counts()
        n_uses = np.zeros(len(counts), np.int64)
        shapes: dict[str, tuple[int, ...]] = {}
        kinds: dict[str, np.dtype[Any]] = {}
        for number in numbers:
            with np.load(self.path / _part(number)) as part:
                n_uses += np.bincount(part["word"], minlength=len(counts))
                for name in part_names(facts):
                    array = part[name]
                    length = shapes.get(name, (0,))[0] + len(array)
                    shapes[name], kinds[name] = (length, *array.shape[1:]), array.dtype
        kinds |= {"text_end": np.dtype("<i8"), "sentence": np.dtype("<i4")}
        out = {
            name: _reserved(self.path / f"{name}.npy", kinds[name], shape)
            for name, shape in shapes.items()
        }
        offsets = np.concatenate([[0], np.cumsum(n_uses)])
        uses = [name for name in out if name not in SENTENCES]
        self._fill(numbers, out, uses, offsets[:-1].copy())
        for array in out.values():
            array.flush()
        np.save(self.path / "offsets.npy", offsets)
        (self.path / WORDS).write_bytes(json.dumps(counts, ensure_ascii=False).encode())
        names = [*(f"{name}.npy" for name in (*out, "offsets")), WORDS, VOCABULARY]
        list(self.pool.map([{"do": "words", "folder": str(self.path)}]))
        write_manifest(self.path, {**facts, "model_name": model, "uses": int(offsets[-1])}, names)
        self._clean(True)

    def _clean(self, journal: bool) -> None:
        """Remove what is not part of a finished index."""
        for path in (*self.path.glob("part-*.npz"), self.path / _COUNTS):
            path.unlink(missing_ok=True)
        if journal:
            self.folder.finish()

    def _fill(
        self, numbers: list[int], out: Mapping[str, NDArray[Any]], uses: list[str], free: Rows
    ) -> None:
        """Copy each use to its row; `free` is the first free row of each word."""
        n_sentences = n_bytes = 0
        for number in numbers:
            with np.load(self.path / _part(number)) as part:
                order = np.argsort(part["word"], kind="stable")
                words = part["word"][order]
                # The uses of a word in this part are next to each other, from `first` on.
                first = np.searchsorted(words, words)
                rows = free[words] + np.arange(len(words)) - first
                np.add.at(free, words, 1)
                for name in uses:
                    values = part[name][order]
                    out[name][rows] = values + n_sentences if name == "sentence" else values
                ends = part["text_end"] + n_bytes
                here = slice(n_sentences, n_sentences + len(ends))
                out["text_end"][here], out["line"][here] = ends, part["line"]
                out["source"][here] = part["source"]
                text = part["text"]
                out["text"][n_bytes : n_bytes + len(text)] = text
                n_sentences, n_bytes = n_sentences + len(ends), n_bytes + len(text)

    def _add(self, number: int, source: int, file: str) -> None:
        size, digest = (self.path / file).stat().st_size, sha256_file(self.path / file)
        record = _Part(file=file, bytes=size, number=number, source=source, sha256=digest)
        self.done[number] = record
        self.folder.add(record)

    def _requests(self, do: str, more: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        for source, shard in self._shards():
            if do == "uses" and shard.number in self.done:
                self.progress.update(len(shard.texts))
                continue
            yield {
                **(more or {}),
                "do": do,
                "number": shard.number,
                "first": shard.first,
                "source": source,
                "texts": shard.texts,
                "lines": shard.lines,
            }

    def _shards(self) -> Iterator[tuple[int, TextShard]]:
        """Yield each shard with the number of its file; numbers count on from file to file."""
        number = first = 0
        for source, file in enumerate(self.inputs):
            limit = None if self.job.limit is None else self.job.limit - first
            before = first
            for shard in cut_shards([file], self.job, Counts(), limit):
                yield source, replace(shard, number=number, first=before + shard.first)
                number, first = number + 1, first + len(shard.texts)


def _reserved(path: Path, kind: np.dtype[Any], shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A new array file, mapped for writing, whose bytes are all on the disk already.

    Writing to a mapped file that the disk has no space for ends the process without a message.
    """
    zeros = bytes(1 << 20)
    try:
        with path.open("wb") as stream:
            header = {"descr": kind.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            start = stream.tell()
            left = math.prod(shape) * kind.itemsize
            if hasattr(os, "posix_fallocate"):
                stream.flush()
                os.posix_fallocate(stream.fileno(), 0, start + left)
            else:
                for done in range(0, left, len(zeros)):
                    stream.write(zeros[: left - done])
    except OSError as error:
        raise write_error(error, path) from None
    return np.memmap(path, kind, "r+", start, shape)


def _part(number: int) -> str:
    return f"part-{number:06d}.npz"


def _estimate(table: Mapping[str, int], max_uses: int, use_bytes: int) -> str:
    n = sum(min(count, max_uses) for count in table.values())
    # A sentence of 25 words takes about 130 bytes; frequent words share theirs.
    words = "1 word" if len(table) == 1 else f"{len(table)} words"
    return f"{words}, about {n} uses, about {n * (use_bytes + 60) / 1e6:.1f} MB"


# --------------------------------------------------------------------------- in a worker process


def start_indexer(setup: Mapping[str, Any]) -> Worker:
    """Load the model of a job."""
    indexer = _Indexer(setup["job"], setup)

    def perform(fields: Mapping[str, Any]) -> dict[str, Any]:
        if fields["do"] == "words":
            text = json.dumps(list(indexer.space.words))
            (Path(fields["folder"]) / VOCABULARY).write_bytes(text.encode())
            return {}
        return (indexer.count if fields["do"] == "count" else indexer.write)(fields)

    return Worker(perform, indexer.facts())


class _Indexer:
    """A loaded model that writes parts."""

    def __init__(self, job: Job, setup: Mapping[str, Any]) -> None:
        self._embedder = ShardEmbedder(job, setup["elmo"])
        self.elmo = self._embedder.elmo
        words = setup["k"] > 0 and self.elmo.checkpoint.softmax is not None
        self.layers = job.layers if setup["layers"] else None if words else "top"
        self.space = make_space(
            self.elmo,
            setup["k"],
            candidates=CANDIDATES,
            layers=cast(LayerChoice | None, self.layers),  # "all" is refused
        )
        self.reading = job.reading(job.tokenizer or self.elmo.tokenize)
        self.tokenizer: Tokenizer | None = job.tokenizer or self.elmo.checkpoint.tokenizer
        if setup["elmo"] and self.elmo.engine.compute.tokenizer and not job.tokenizer:
            self.tokenizer = None  # a function that only the loaded model has
        self._table: dict[str, tuple[int, int]] = {}

    def facts(self) -> dict[str, Any]:
        facts = self._embedder.facts()
        small = len(self.space.words) <= 1 << 16
        dim = self.space.dim
        model: dict[str, Any] = {"sha256": space_digest(self.space), "dim": dim}
        model |= {"softmax": self.space.k > 0, "layers": self.layers}
        # ids and weights, the vector, two scales, sentence and position.
        model["use_bytes"] = self.space.k * (3 if small else 5) + dim + 16
        if self._keeps_layers:
            model["use_bytes"] += self.elmo.dim + 4
        return {**facts, "model": model, "tokenizer": self.tokenizer}

    def count(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """How often each word occurs; what has neither letter nor digit is not a word.

        With few uses of a word to keep, also the smallest draw of each, so that one is kept.
        """
        counts: Counter[str] = Counter()
        draws: dict[str, int] = {}
        for number, text in enumerate(fields["texts"], fields["first"]):
            words = [token.lower() for token in self.reading.sentence(text).tokens]
            counts.update(words)
            if fields["max_uses"] < _SURE:
                for position, word in enumerate(words):
                    draw = _draw(word, number, position)
                    draws[word] = min(draw, draws.get(word, _HASHES))
        counts = Counter({w: n for w, n in counts.items() if any(map(str.isalnum, w))})
        return {"counts": counts, "draws": {w: draws[w] for w in counts if w in draws}}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the chosen uses of a shard and write them."""
        if not self._table:
            counts = json.loads(Path(fields["table"]).read_bytes())
            most = fields["max_uses"]
            self._table = {
                word: (number, min(_HASHES, max(_HASHES * most // count, draw + 1)))
                for number, (word, (count, draw)) in enumerate(counts.items())
            }
        self._embedder.forget_words()
        chosen, lines, words = [], [], []
        for k, text in enumerate(fields["texts"]):
            sentence = self.reading.sentence(text)
            found = self._chosen(sentence.tokens, fields["first"] + k)
            if found:
                chosen.append((sentence, [position for position, _ in found]))
                words += [word for _, word in found]
                lines.append(fields["lines"][k])
        parts = [self._packed(self.space.vectors([]))]  # gives the shapes if nothing is chosen
        for window in windows(chosen, lambda item: len(item[0])):
            parts.append(self._packed(self.space.window(window, self.elmo.engine.batch_tokens)))
        # Tokens end with a newline, so that none may be inside one.
        encoded = [
            "".join(t.replace("\n", " ") + "\n" for t in s.tokens).encode("utf-8", "replace")
            for s, _ in chosen
        ]
        names = ("ids", "weights", "weight_scale", "vectors", "vector_scale", *LAYERS)
        arrays: dict[str, NDArray[Any]] = {
            name: np.concatenate(columns)
            for name, columns in zip(names, zip(*parts, strict=True), strict=False)
        }
        sizes = [len(positions) for _, positions in chosen]
        arrays |= {
            "word": np.asarray(words, "<i4"),
            "sentence": np.repeat(np.arange(len(chosen)), sizes).astype("<i4"),
            "position": np.asarray([p for _, some in chosen for p in some], "<i4"),
            "text": np.frombuffer(b"".join(encoded), np.uint8),
            "text_end": np.cumsum([len(one) for one in encoded], dtype="<i8"),
            "line": np.asarray(lines, "<i4"),
            "source": np.full(len(chosen), fields["source"], "<i4"),
        }
        with atomic_file(Path(fields["folder"]) / _part(fields["number"]), overwrite=True) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stubs take names for flags
        return {}

    def _chosen(self, tokens: Sequence[str], number: int) -> list[tuple[int, int]]:
        """The positions that are indexed, and the numbers of their words."""
        found = []
        for position, token in enumerate(tokens):
            word, least = self._table.get(token.lower(), (0, 0))
            # A draw that depends on nothing but the place: flat, and the same in every run.
            if least == _HASHES or (least and _draw(token.lower(), number, position) < least):
                found.append((position, word))
        return found

    def _packed(self, found: SenseVectors) -> tuple[NDArray[Any], ...]:
        """Substitutes and vector of each place as small integers with scales."""
        kind = "<u2" if len(self.space.words) <= 1 << 16 else "<u4"
        weights, scale = _small(found.weights, 255)
        vectors, vector_scale = _small(unit(found.dense()), 127)
        packed = (
            found.ids.astype(kind),
            weights.astype(np.uint8),
            scale,
            vectors.astype(np.int8),
            vector_scale,
        )
        if not self._keeps_layers or found.layers is None:
            return packed
        layers, layer_scale = _small(found.layers, 127)
        return *packed, layers.astype(np.int8), layer_scale

    @property
    def _keeps_layers(self) -> bool:
        """Without a softmax, the vectors are the layers."""
        return self.layers is not None and self.space.k > 0


def _draw(word: str, sentence: int, position: int) -> int:
    key = f"{word} {sentence} {position}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def _small(values: Array, most: int) -> tuple[Array, Array]:
    """Each row as integers up to `most`, and the scale that undoes it."""
    scale = np.abs(values).max(axis=1, initial=0) / most
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.rint(values / scale[:, None]), scale
