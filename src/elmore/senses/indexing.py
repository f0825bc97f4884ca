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
from typing import Any, NoReturn, Unpack, cast

import msgspec
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
from elmore.embedding.stream import windows
from elmore.errors import ConfigError, FormatError, InputError, ResumeError
from elmore.language_model.sense_vectors import Array, SenseVectors, make_space, unit
from elmore.options import LayerChoice
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.senses.index import (
    CORPUS,
    DOCUMENTS,
    FORMAT,
    LAYERS,
    MANIFEST,
    SENTENCES,
    TAGS,
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
from elmore.text.documents import Documents, corpus_files, read_documents
from elmore.text.patterns import expand
from elmore.text.reading import Counts
from elmore.text.segmenter import Tokenizer, sendable
from elmore.text.tokenizer import Sentence

Rows = NDArray[np.int64]
# First and last token of a use.
Span = tuple[int, int]
# Gives the universal part of speech of each token of sentences.
Tagger = Callable[[Sequence[Sequence[str]]], Iterable[Sequence[str]]]
_COUNTS = "counts.json"
_ARRAYS = "|".join((*USES, *LAYERS, *SENTENCES, "tag", "offsets", "count"))
_JSON = "counts|words|vocabulary|corpus|documents"
_FILES = re.compile(rf"part-\d{{6,}}\.npz|({_ARRAYS})\.npy|({_JSON})\.json")
# Of the settings of a bulk job, those that an index depends on.
_SETTINGS = (
    *("tokenized", "split_sentences", "errors", "limit", "shard_bytes", "precision", "start"),
    *("tokenizer", "column", "conllu"),
)
_HASHES = 1 << 64
# If so many uses of a word are expected, the chance that none is drawn is below 1e-27.
_SURE = 64
# Sentences of an index that become one part when text is added.
_PART_SENTENCES = 4096
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
    metadata: str | Path | None = None,
    fields: Sequence[str] = (),
    tagger: Tagger | None = None,
    add: bool = False,
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
        files: text files, plain or compressed, one sentence per line, or folders of them.
        out: the folder to create.
        model: what `Elmo.load` takes, or a loaded model, which works in this process alone; the
            English model by default. Without a softmax, uses are compared by its top layer.
        words: which words, phrases (*cell phone*) and patterns (see `Index.rows`), or one of them;
            all words that occur `min_count` times by default.
        min_count: how often a word must occur, unless `words` is given.
        max_uses: about how many uses of a word are kept, drawn with equal chances; at least one.
        k: substitutes that are kept for each use; 0 for none, to compare uses by `layers` alone.
        metadata: a table with a header: a file in the first column, then what is known about it.
        fields: of JSON lines, or columns of tables, that describe each record.
        tagger: gives the universal part of speech of each token of sentences, so that `bank/NOUN`
            can be asked for. For several workers it must be picklable.
        add: add the files to the index in `out`, which keeps its words and `max_uses`; the result
            is that of indexing all files at once with these words.
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
    found = corpus_files([files] if isinstance(files, str | Path) else files)
    if not found:
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
    if add and listed is not None:
        raise ConfigError("an index keeps its words; leave out words, or make it again")
    documents, where, unknown = read_documents(
        found, metadata=None if metadata is None else Path(metadata), fields=fields
    )
    if unknown:
        report(f"no metadata for {_first(unknown)}")
    check_manifest(path, FORMAT)
    setup = {
        **{"job": job, "k": k, "layers": keeps_layers, "elmo": elmo, "tagger": tagger},
        "phrases": [word for word in listed or () if " " in word],
    }
    with (
        JournalFolder.opened(path, _Part, _FILES, busy=busy, marks=(MANIFEST,)) as folder,
        Pool(start_indexer, workers, setup=setup, in_process=workers == 1) as pool,
    ):
        settings = {name: value for name, value in job.settings().items() if name in _SETTINGS}
        settings |= {"words": listed and digest_words(listed), "k": k, "max_uses": max_uses}
        settings |= {"candidates": CANDIDATES, "tags": tagger is not None}
        settings |= {} if listed else {"min_count": min_count}
        settings = dict(sorted(settings.items()))
        inputs = [inspect_input(path) for path, _ in found]
        facts = {"settings": settings, **pool.facts(), "inputs": [one.facts() for one in inputs]}
        facts = json.loads(json.dumps({**FORMAT.head(), **facts}))
        for one, mine in zip(facts["inputs"], where, strict=True):
            one["about"] = documents.digest(mine)
        builder = _Builder(folder, pool, job, inputs, where, progress)
        base = builder.extend(facts) if add else None
        if base is not None or not builder.resume(facts, overwrite and not add):
            if base is not None:
                listed = list(base.words)
            plan = builder.start(facts, documents, listed, min_count, base)
            absent = [word for word in listed or () if not expand(word, plan.table)]
            if absent and not add:
                report(f"not in the text: {_first(absent)}")
            if k and not facts["model"]["softmax"]:
                report("the model has no softmax, so uses are compared by its layers")
            table = {word: count for word, (count, _) in plan.table.items()}
            most = facts["settings"]["max_uses"]
            report(_estimate(table, most, facts["model"]["use_bytes"]))
            builder.compute(most)
            builder.merge(facts, _model_name(model))
    return Index.open(out, elmo=elmo)


def _first(words: Sequence[str]) -> str:
    more = ", ..." if len(words) > _LISTED else ""
    return shown(", ".join(words[:_LISTED]), 200) + more


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


class _Plan(msgspec.Struct):
    """What was found out when the words were counted.

    Attributes:
        table: how often each word to index occurs, and its smallest draw; the most frequent first.
        corpus: how often every word and every phrase to index occurs.
        documents: of all inputs.
        sentences: how many there are in all inputs.
        earlier: parts, sentences and documents of the index that is added to.
    """

    table: dict[str, tuple[int, int]]
    corpus: dict[str, int]
    documents: Documents
    sentences: int
    earlier: tuple[int, int, int] = (0, 0, 0)


class _Builder:
    """The steps of `build_index`.

    To add to an index, it is taken apart first: its uses become parts like those of the new text.
    """

    def __init__(
        self,
        folder: JournalFolder[_Part],
        pool: Pool,
        job: Job,
        inputs: Sequence[InputFile],
        where: Sequence[dict[int, int] | int],
        progress: Progress,
    ) -> None:
        self.folder, self.path, self.pool = folder, folder.path, pool
        self.job, self.inputs, self.where, self.progress = job, inputs, where, progress
        self.done: dict[int, _Part] = {}
        self.plan = _Plan({}, {}, Documents([], {}, []), 0)

    def extend(self, facts: dict[str, Any]) -> Index | None:
        """Make `facts` those of the index in this folder together with the new files.

        Returns:
            the index; None if adding these files has begun, or is done.
        """
        label = f"'{shown(self.path, 100)}'"
        new = [one["sha256"] for one in facts["inputs"]]
        journal = self.folder.found()
        manifest = read_manifest(self.path) if (self.path / MANIFEST).exists() else None
        for begun in (manifest, journal and journal[0]):
            if begun is None:
                continue
            inputs = begun["inputs"]
            if len(inputs) > len(new) and [one["sha256"] for one in inputs[-len(new) :]] == new:
                facts |= {name: begun[name] for name in ("settings", "software", "inputs")}
                if begun is not manifest:  # a kill may have left that of the index added to
                    (self.path / MANIFEST).unlink(missing_ok=True)
                return None
        if manifest is None:
            raise ConfigError(f"{label} is not a complete index; make one without --add first")
        for name in ("words", "min_count", "max_uses"):  # of the index, whatever was asked for
            facts["settings"].pop(name, None)
            if name in manifest["settings"]:
                facts["settings"][name] = manifest["settings"][name]
        facts["software"] = manifest["software"]
        check_same_run(self.path, {**manifest, "inputs": []}, {**facts, "inputs": []})
        if {one["sha256"] for one in manifest["inputs"]} & set(new):
            raise ConfigError(f"{label} has some of these files already; name new ones alone")
        verify(self.path)
        base = Index.open(self.path)
        facts["settings"]["words"] = digest_words(sorted(base.words))
        facts["settings"].pop("min_count", None)
        facts["settings"] = dict(sorted(facts["settings"].items()))
        facts["inputs"] = manifest["inputs"] + facts["inputs"]
        return base

    def resume(self, facts: Mapping[str, Any], overwrite: bool) -> bool:
        """Find what is done; whether the index is complete already."""
        found = None if overwrite else self.folder.found()
        manifest = self.path / MANIFEST
        if manifest.exists() and not overwrite:
            self._check_same(read_manifest(self.path), facts)
            verify(self.path)
            self._clean(found is not None)  # a kill may have left parts
            return True
        if found is not None:
            self._check_same(found[0], facts)
            # A damaged part is computed again.
            self.done = {
                one.number: one
                for one in found[1]
                if self.folder.is_intact(one) and sha256_file(self.path / one.file) == one.sha256
            }
        return False

    def _check_same(self, earlier: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        check_same_run(self.path, earlier, facts)
        if [one["about"] for one in earlier["inputs"]] != [one["about"] for one in facts["inputs"]]:
            raise ResumeError(
                f"'{shown(self.path, 100)}' was started with other metadata; choose another "
                "folder, or pass overwrite=True (--force) to start again"
            )

    def start(
        self,
        facts: Mapping[str, Any],
        documents: Documents,
        listed: Sequence[str] | None,
        min_count: int,
        base: Index | None,
    ) -> _Plan:
        """Count, unless that is done; without a use of any word nothing is changed."""
        if -1 not in self.done:
            if base is None and len(facts["inputs"]) > len(self.inputs):
                self._refuse_damaged()
            self._count(documents, listed, min_count, facts["settings"]["max_uses"], base)
            with atomic_file(self.path / _COUNTS, overwrite=True) as stream:
                stream.write(msgspec.json.encode(self.plan))
            self.done[-1] = self._record(-1, _COUNTS)
        # From here on the journal counts, and an earlier index goes.
        self.folder.begin(facts, self.done.values())
        (self.path / MANIFEST).unlink(missing_ok=True)
        self.plan = msgspec.json.decode((self.path / _COUNTS).read_bytes(), type=_Plan)
        if not set(range(self.plan.earlier[0])) <= set(self.done):
            self._refuse_damaged()
        return self.plan

    def _refuse_damaged(self) -> NoReturn:
        raise FormatError(
            f"parts of the index in '{shown(self.path, 100)}' were damaged while text was added; "
            "index all of the text again with --force"
        )

    def _count(
        self,
        documents: Documents,
        listed: Sequence[str] | None,
        min_count: int,
        max_uses: int,
        base: Index | None,
    ) -> None:
        """Find the words to index, and take apart the index that is added to."""
        plan, draws = self.plan, dict[str, int]()
        own = np.zeros(0, np.uint64)
        plan.documents = documents
        if base is not None:
            plan.sentences = base.manifest["sentences"]
            plan.corpus = dict(base.corpus_counts)
            plan.documents = base.documents.joined(documents)
            plan.earlier = 0, plan.sentences, len(base.documents.names)
            own = _draws_of(base)
            starts = zip(base.words, np.minimum.reduceat(own, base.offsets[:-1]), strict=True)
            draws = {word: int(least) for word, least in starts if max_uses < _SURE}
        counts = Counter(plan.corpus)
        for request, reply in self.pool.map(self._requests("count", {"max_uses": max_uses})):
            counts.update(reply["counts"])
            for word, draw in reply["draws"].items():
                draws[word] = min(draw, draws.get(word, _HASHES))
            plan.sentences += request["n"]
            self.progress.update(request["n"])
        kept: Iterable[str] = counts
        if listed is not None:
            kept = {one for word in listed for one in (expand(word, counts) or [word])}
        least = 1 if listed is not None else min_count
        words = sorted((-counts[w], w) for w in kept if counts[w] >= least)
        if not words:
            raise InputError(
                f"none of the words occurs in the text ({shown(', '.join(listed), 60)}); check "
                "them, or the path if they are in a file"
                if listed is not None
                else f"no word occurs {min_count} times; pass a smaller min_count"
            )
        plan.table = {word: (-count, draws.get(word, 0)) for count, word in words}
        plan.corpus = {word: counts[word] for word in sorted(counts)}
        if base is not None:
            plan.earlier = self._take_apart(base, own, max_uses), *plan.earlier[1:]

    def _take_apart(self, base: Index, draws: NDArray[np.uint64], max_uses: int) -> int:
        """Write the uses of an index as parts, those that its words still need; how many parts."""
        numbers = {word: number for number, word in enumerate(self.plan.table)}
        words = np.array([numbers[word] for word in base.words], np.int32)
        limits = [_limit(*self.plan.table[word], max_uses) - 1 for word in base.words]
        sizes = np.diff(base.offsets)
        rows = np.flatnonzero(draws <= np.repeat(np.array(limits, np.uint64), sizes))
        arrays = base.arrays
        rows = rows[np.argsort(arrays["sentence"][rows], kind="stable")]
        sentences = np.asarray(arrays["sentence"][rows])
        used, ends = np.unique(sentences), arrays["text_end"]
        count = np.array(arrays["count"])
        count[:, 0] = words[count[:, 0]]
        parts = range(0, len(used), _PART_SENTENCES)
        for number, first in enumerate(parts):
            some = used[first : first + _PART_SENTENCES]
            mine = slice(*np.searchsorted(sentences, [some[0], some[-1] + 1]))
            found = {
                name: array[rows[mine]]
                for name, array in arrays.items()
                if name not in (*SENTENCES, "count")
            }
            text = [arrays["text"][ends[s - 1] if s else 0 : ends[s]] for s in some]
            found |= {name: arrays[name][some] for name in ("line", "source", "number")}
            found |= {
                "word": np.repeat(words, sizes)[rows[mine]],
                "sentence": np.searchsorted(some, sentences[mine]).astype("<i4"),
                "text": np.concatenate(text),
                "text_end": np.cumsum([len(one) for one in text], dtype="<i8"),
                "count": count if number == 0 else count[:0],
                "n_words": np.zeros((0, 2), np.int64),
            }
            self._write_part(number, found)
            self.done[number] = self._record(number, _part(number))
        return len(parts)

    def _write_part(self, number: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        with atomic_file(self.path / _part(number), overwrite=True) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stubs take names for flags

    def compute(self, max_uses: int) -> None:
        """Write the parts that are missing."""
        more = {"table": str(self.path / _COUNTS), "max_uses": max_uses, "folder": str(self.path)}
        for request, _ in self.pool.map(self._requests("uses", more)):
            number = request["number"]
            self.done[number] = self._record(number, _part(number))
            self.folder.add(self.done[number])
            self.progress.update(request["n"])

    def merge(self, facts: Mapping[str, Any], model: str | list[str] | None) -> None:
        """Join the parts, sorted by word; they go when the manifest is there."""
        plan, numbers = self.plan, sorted(set(self.done) - {-1})
        n_uses = np.zeros(len(plan.table), np.int64)
        shapes: dict[str, tuple[int, ...]] = {}
        kinds: dict[str, np.dtype[Any]] = {}
        counts, n_words = [], np.array(plan.documents.n_words, np.int64)
        for number in numbers:
            with np.load(self.path / _part(number)) as part:
                n_uses += np.bincount(part["word"], minlength=len(plan.table))
                counts.append(part["count"].astype(np.int64))
                np.add.at(n_words, part["n_words"][:, 0], part["n_words"][:, 1])
                for name in part_names(facts):
                    if name == "count":
                        continue
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
        np.save(self.path / "count.npy", _summed(np.concatenate(counts)))
        plan.documents.n_words = n_words.tolist()
        texts = {
            WORDS: {word: count for word, (count, _) in plan.table.items()},
            CORPUS: plan.corpus,
            DOCUMENTS: plan.documents,
        }
        for name, value in texts.items():
            (self.path / name).write_bytes(msgspec.json.encode(value))
        names = [*(f"{name}.npy" for name in (*out, "offsets", "count")), *texts, VOCABULARY]
        list(self.pool.map([{"do": "words", "folder": str(self.path)}]))
        more = {"model_name": model, "sentences": plan.sentences, "uses": int(offsets[-1])}
        write_manifest(self.path, {**facts, **more}, names)
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
                out["text_end"][here] = ends
                for name in ("line", "source", "number"):
                    out[name][here] = part[name]
                text = part["text"]
                out["text"][n_bytes : n_bytes + len(text)] = text
                n_sentences, n_bytes = n_sentences + len(ends), n_bytes + len(text)

    def _record(self, number: int, file: str) -> _Part:
        size, digest = (self.path / file).stat().st_size, sha256_file(self.path / file)
        return _Part(file=file, bytes=size, number=number, sha256=digest)

    def _requests(self, do: str, more: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for sources, shard in self._shards():
            if do == "uses" and shard.number in self.done:
                self.progress.update(len(shard.texts))
                continue
            place = {"do": do, "number": shard.number, "first": shard.first, "n": len(sources)}
            yield {**more, **place, "texts": shard.texts, "lines": shard.lines, "sources": sources}

    def _shards(self) -> Iterator[tuple[list[int], TextShard]]:
        """Yield each shard with the numbers of documents; numbers count on from file to file."""
        number, start, document = self.plan.earlier
        first = start
        for file, mine in zip(self.inputs, self.where, strict=True):
            limit = None if self.job.limit is None else self.job.limit - first + start
            before = first
            for shard in cut_shards([file], self.job, Counts(), limit):
                sources = [
                    document + (mine if isinstance(mine, int) else mine[line])
                    for line in shard.lines
                ]
                yield sources, replace(shard, number=number, first=before + shard.first)
                number, first = number + 1, first + len(shard.texts)


def _draws_of(index: Index) -> NDArray[np.uint64]:
    """The draw of each use of an index, as when it was chosen."""
    arrays, words = index.arrays, np.repeat(list(index.words), np.diff(index.offsets))
    numbers = arrays["number"][arrays["sentence"]].tolist()
    places = zip(words.tolist(), numbers, arrays["position"].tolist(), strict=True)
    return np.array([_draw(*place) for place in places], np.uint64)


def _limit(count: int, draw: int, max_uses: int) -> int:
    """Below which draws uses are kept: all of a rare word, and always the smallest."""
    return min(_HASHES, max(_HASHES * max_uses // count, draw + 1))


def _summed(counts: Rows) -> NDArray[np.int32]:
    """Rows (word, document, n) in order, those of a word and document joined."""
    keys, rows = np.unique(counts[:, 0] << 32 | counts[:, 1], return_inverse=True)
    sums = np.bincount(rows.reshape(-1), counts[:, 2], len(keys)).astype(np.int64)
    return np.stack([keys >> 32, keys & 0xFFFFFFFF, sums], axis=1).astype(np.int32)


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
        self._tagger: Tagger | None = setup["tagger"]
        # By their first word, to be found quickly.
        self._phrases: dict[str, list[list[str]]] = {}
        for phrase in setup["phrases"]:
            self._phrases.setdefault(phrase.split()[0], []).append(phrase.split())

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
            targets = [*enumerate(words), *self._found_phrases(words)]
            counts.update(word for _, word in targets)
            if fields["max_uses"] < _SURE:
                for position, word in targets:
                    draw = _draw(word, number, position)
                    draws[word] = min(draw, draws.get(word, _HASHES))
        counts = Counter({w: n for w, n in counts.items() if any(map(str.isalnum, w))})
        return {"counts": counts, "draws": {w: draws[w] for w in counts if w in draws}}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the chosen uses of a shard and write them."""
        if not self._table:
            plan = msgspec.json.decode(Path(fields["table"]).read_bytes(), type=_Plan)
            self._table = {
                word: (number, _limit(count, draw, fields["max_uses"]))
                for number, (word, (count, draw)) in enumerate(plan.table.items())
            }
        self._embedder.forget_words()
        chosen: list[tuple[Sentence, list[Span]]] = []
        kept, words = [], []
        counts: Counter[tuple[int, int]] = Counter()
        n_words: Counter[int] = Counter()
        texts, sources, lines = fields["texts"], fields["sources"], fields["lines"]
        for k, (text, source) in enumerate(zip(texts, sources, strict=True)):
            sentence = self.reading.sentence(text)
            tokens = [token.lower() for token in sentence.tokens]
            n_words[source] += sum(
                token[:1].isalnum() or any(map(str.isalnum, token)) for token in tokens
            )
            found = []
            for position, word in (*enumerate(tokens), *self._found_phrases(tokens)):
                number, limit = self._table.get(word, (-1, 0))
                if number < 0:
                    continue
                counts[number, source] += 1
                # A draw that depends on nothing but the place: flat, and the same in every run.
                if limit == _HASHES or _draw(word, fields["first"] + k, position) < limit:
                    found.append(((position, position + word.count(" ")), number))
            if found:
                chosen.append((sentence, [span for span, _ in found]))
                words += [word for _, word in found]
                kept.append(k)
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
        sizes = [len(spans) for _, spans in chosen]
        rows = [(number, source, n) for (number, source), n in counts.items()]
        arrays |= {
            "word": np.asarray(words, "<i4"),
            "sentence": np.repeat(np.arange(len(chosen)), sizes).astype("<i4"),
            "position": np.asarray([first for _, some in chosen for first, _ in some], "<i4"),
            "text": np.frombuffer(b"".join(encoded), np.uint8),
            "text_end": np.cumsum([len(one) for one in encoded], dtype="<i8"),
            "line": np.asarray([lines[k] for k in kept], "<i4"),
            "source": np.asarray([sources[k] for k in kept], "<i4"),
            "number": np.asarray([fields["first"] + k for k in kept], "<i4"),
            "count": np.asarray(rows, "<i4").reshape(-1, 3),
            "n_words": np.asarray(list(n_words.items()), np.int64).reshape(-1, 2),
        }
        if self._tagger is not None:
            tags = self._tagger([sentence.tokens for sentence, _ in chosen])
            arrays["tag"] = _tag_numbers(chosen, tags)
        with atomic_file(Path(fields["folder"]) / _part(fields["number"]), overwrite=True) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stubs take names for flags
        return {}

    def _found_phrases(self, tokens: Sequence[str]) -> list[tuple[int, str]]:
        """Where the phrases to index begin."""
        if not self._phrases:
            return []
        return [
            (position, " ".join(phrase))
            for position, token in enumerate(tokens)
            for phrase in self._phrases.get(token, ())
            if tokens[position : position + len(phrase)] == phrase
        ]

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


def _tag_numbers(
    chosen: Sequence[tuple[Sentence, Sequence[Span]]], tags: Iterable[Sequence[str]]
) -> NDArray[np.uint8]:
    """The part of speech of each use; the last word of a phrase decides."""
    known = {tag: number for number, tag in enumerate(TAGS)}
    pairs = zip(chosen, tags, strict=True)
    found = [mine[last] for (_, spans), mine in pairs for _, last in spans]
    # A tag of another set may follow: NOUN+NN.
    return np.array([known.get(tag.partition("+")[0], known["X"]) for tag in found], np.uint8)


def _draw(word: str, sentence: int, position: int) -> int:
    key = f"{word} {sentence} {position}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def _small(values: Array, most: int) -> tuple[Array, Array]:
    """Each row as integers up to `most`, and the scale that undoes it."""
    scale = np.abs(values).max(axis=1, initial=0) / most
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.rint(values / scale[:, None]), scale
