"""Make an index of the uses of words: count, choose, compute in parts, merge.

While it is made, the folder of `senses/files.py` also holds part-*.npz, counts.json, the journal
and the lock. The bytes of the index depend neither on the number of processes nor on interruptions.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Unpack, cast

import msgspec
import numpy as np

from elmore.base.atomic import atomic_file
from elmore.base.io import sha256_file
from elmore.base.journal import FinishedFile, JournalFolder
from elmore.base.messages import SILENT, Progress, shown
from elmore.base.pool import Pool
from elmore.bulk.embed_files import InputFile, TextShard, cut_shards, inspect_input
from elmore.bulk.job import Job, JobOptions
from elmore.bulk.output_folder import check_manifest, check_same_run
from elmore.elmo import Elmo
from elmore.embedding.load import ModelPath, absolute
from elmore.errors import ConfigError, FormatError, InputError
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.senses.files import (
    ARRAYS,
    CORPUS,
    DOCUMENTS,
    FORMAT,
    MANIFEST,
    WORDS,
    IndexFiles,
    array_types,
    digest_words,
    read_manifest,
    write_manifest,
)
from elmore.senses.index import Index
from elmore.senses.merging import divided, draws_of, join_parts
from elmore.senses.parts import CANDIDATES as CANDIDATES
from elmore.senses.parts import (
    SURE,
    Plan,
    Tagger,
    limit_of,
    part_name,
    start_indexer,
    write_part,
)
from elmore.text.documents import Documents, corpus_files, read_documents
from elmore.text.patterns import expand
from elmore.text.reading import Counts
from elmore.text.segmenter import sendable

_COUNTS = "counts.json"
_JSON = "counts|words|vocabulary|corpus|documents"
_FILES = re.compile(rf"part-\d{{6,}}\.npz|({'|'.join(ARRAYS)})\.npy|({_JSON})\.json")
# Of the settings of a bulk job, those that an index depends on.
_SETTINGS = (
    *("tokenized", "split_sentences", "errors", "limit", "shard_bytes", "precision", "start"),
    *("tokenizer", "column", "conllu"),
)
# Words that a message lists.
_LISTED = 10


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
        settings["metadata"] = documents.digest()
        settings |= {} if listed else {"min_count": min_count}
        settings = dict(sorted(settings.items()))
        inputs = [inspect_input(path) for path, _ in found]
        facts = {"settings": settings, **pool.facts(), "inputs": [one.facts() for one in inputs]}
        facts = json.loads(json.dumps({**FORMAT.head(), **facts}))
        builder = _Builder(folder, pool, job, inputs, where, progress)
        base = builder.extend(facts, documents) if add else None
        if base is not None or not builder.resume(facts, overwrite and not add):
            if base is not None:
                listed = list(base.words)
            plan = builder.start(facts, documents, listed, min_count, base)
            absent = [word for word in listed or () if not expand(word, plan.table)]
            if absent and not add:
                report(f"not in the text: {_first(absent)}")
            if k and not facts["model"]["softmax"]:
                report("the model has no softmax, so uses are compared by its layers")
            most = facts["settings"]["max_uses"]
            report(_estimate(plan, facts, most))
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
        self.plan = Plan({}, {}, Documents([], {}, []), 0)

    def extend(self, facts: dict[str, Any], documents: Documents) -> IndexFiles | None:
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
        # Those of the index, whatever was asked for.
        for name in ("words", "min_count", "max_uses", "metadata"):
            facts["settings"].pop(name, None)
            if name in manifest["settings"]:
                facts["settings"][name] = manifest["settings"][name]
        facts["software"] = manifest["software"]
        check_same_run(self.path, {**manifest, "inputs": []}, {**facts, "inputs": []})
        if {one["sha256"] for one in manifest["inputs"]} & set(new):
            raise ConfigError(f"{label} has some of these files already; name new ones alone")
        base = IndexFiles(self.path)
        base.verify()
        facts["settings"]["metadata"] = base.documents.joined(documents).digest()
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
            check_same_run(self.path, read_manifest(self.path), facts)
            IndexFiles(self.path).verify()
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
        self,
        facts: Mapping[str, Any],
        documents: Documents,
        listed: Sequence[str] | None,
        min_count: int,
        base: IndexFiles | None,
    ) -> Plan:
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
        self.plan = msgspec.json.decode((self.path / _COUNTS).read_bytes(), type=Plan)
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
        base: IndexFiles | None,
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
            own = draws_of(base)
            leasts = np.minimum.reduceat(own, base.arrays["offsets"][:-1]).tolist()
            draws = dict(zip(base.words, leasts, strict=True)) if max_uses < SURE else {}
        counts = Counter(plan.corpus)
        for request, reply in self.pool.map(self._requests("count", {"max_uses": max_uses})):
            counts.update(reply["counts"])
            for word, least in reply["draws"].items():
                draws[word] = min(least, draws.get(word, least))
            for document, n in reply["sizes"].items():
                plan.documents.n_words[document] += n
            plan.sentences += request["n"]
            self.progress.update(request["n"])
        wanted: Iterable[str] = counts
        if listed is not None:
            wanted = {one for word in listed for one in (expand(word, counts) or [word])}
        least = 1 if listed is not None else min_count
        ranked = sorted((-counts[w], w) for w in wanted if counts[w] >= least)
        if not ranked:
            raise InputError(
                f"none of the words occurs in the text ({shown(', '.join(listed), 60)}); check "
                "them, or the path if they are in a file"
                if listed is not None
                else f"no word occurs {min_count} times; pass a smaller min_count"
            )
        plan.table = {word: (-count, draws.get(word, 0)) for count, word in ranked}
        plan.corpus = {word: counts[word] for word in sorted(counts)}
        if base is None:
            return
        numbers = {word: number for number, word in enumerate(plan.table)}
        limits = [limit_of(*plan.table[word], max_uses) - 1 for word in base.words]
        kept = own <= np.repeat(np.array(limits, np.uint64), np.diff(base.arrays["offsets"]))
        words = np.array([numbers[word] for word in base.words], np.int32)
        for number, part in enumerate(divided(base, words, kept)):
            write_part(self.path / part_name(number), part)
            self.done[number] = self._record(number, part_name(number))
        plan.earlier = len(self.done), *plan.earlier[1:]

    def compute(self, max_uses: int) -> None:
        """Write the parts that are missing."""
        more = {"table": str(self.path / _COUNTS), "max_uses": max_uses, "folder": str(self.path)}
        for request, _ in self.pool.map(self._requests("uses", more)):
            number = request["number"]
            self.done[number] = self._record(number, part_name(number))
            self.folder.add(self.done[number])
            self.progress.update(request["n"])

    def merge(self, facts: Mapping[str, Any], model: str | list[str] | None) -> None:
        """Join the parts, sorted by word; they go when the manifest is there."""
        plan = self.plan
        parts = [self.path / part_name(number) for number in sorted(self.done) if number >= 0]
        join_parts(parts, self.path, array_types(facts))
        texts = {
            WORDS: {word: count for word, (count, _) in plan.table.items()},
            CORPUS: plan.corpus,
            DOCUMENTS: plan.documents,
        }
        for name, value in texts.items():
            (self.path / name).write_bytes(msgspec.json.encode(value))
        list(self.pool.map([{"do": "words", "folder": str(self.path)}]))
        more = {"model_name": model, "sentences": plan.sentences}
        write_manifest(self.path, {**facts, **more})
        self._clean(True)

    def _clean(self, journal: bool) -> None:
        """Remove what is not part of a finished index."""
        for path in (*self.path.glob("part-*.npz"), self.path / _COUNTS):
            path.unlink(missing_ok=True)
        if journal:
            self.folder.finish()

    def _record(self, number: int, file: str) -> _Part:
        size, digest = (self.path / file).stat().st_size, sha256_file(self.path / file)
        return _Part(file=file, bytes=size, number=number, sha256=digest)

    def _requests(self, do: str, more: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for documents, shard in self._shards():
            if do == "uses" and shard.number in self.done:
                self.progress.update(len(shard.texts))
                continue
            place = {"do": do, "number": shard.number, "first": shard.first, "n": len(documents)}
            texts = {"texts": shard.texts, "lines": shard.lines, "documents": documents}
            yield {**more, **place, **texts}

    def _shards(self) -> Iterator[tuple[list[int], TextShard]]:
        """Yield each shard with the numbers of documents; numbers count on from file to file."""
        number, start, document = self.plan.earlier
        first = start
        for file, mine in zip(self.inputs, self.where, strict=True):
            limit = None if self.job.limit is None else self.job.limit - first + start
            before = first
            for shard in cut_shards([file], self.job, Counts(), limit):
                documents = [
                    document + (mine if isinstance(mine, int) else mine[line])
                    for line in shard.lines
                ]
                yield documents, replace(shard, number=number, first=before + shard.first)
                number, first = number + 1, first + len(shard.texts)


def _estimate(plan: Plan, facts: Mapping[str, Any], max_uses: int) -> str:
    n = sum(min(count, max_uses) for count, _ in plan.table.values())
    kinds = array_types(facts)
    # A sentence of 25 words takes about 130 bytes; frequent words share theirs.
    size = kinds["uses"].itemsize + kinds["vectors"].itemsize + 60
    words = "1 word" if len(plan.table) == 1 else f"{len(plan.table)} words"
    return f"{words}, about {n} uses, about {n * size / 1e6:.1f} MB"
