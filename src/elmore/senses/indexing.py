"""Make an index of the uses of words: count, choose, compute in parts, merge.

While it is made, the folder of `senses/files.py` also holds part-*.npz, counts.json, the journal
and the lock. The bytes of the index depend neither on the number of processes nor on interruptions.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import msgspec

from elmore.base.atomic import atomic_file
from elmore.base.io import sha256_file
from elmore.base.journal import FinishedFile, JournalFolder
from elmore.base.messages import SILENT, Progress, shown
from elmore.base.pool import Pool
from elmore.bulk.embed_files import InputFile, cut_shards, inspect_input
from elmore.bulk.job import Job, JobOptions
from elmore.bulk.output_folder import check_manifest, check_same_run
from elmore.elmo import Elmo
from elmore.embedding.load import ModelPath, absolute
from elmore.errors import ConfigError, InputError
from elmore.published.catalog import BUNDLED, bundled_model
from elmore.senses.files import (
    FORMAT,
    MANIFEST,
    NAMES,
    IndexFiles,
    array_types,
    digest_words,
    read_manifest,
    write_rest,
)
from elmore.senses.index import Index
from elmore.senses.parts import (
    CANDIDATES,
    LEAST_USES,
    PLAN,
    Plan,
    Tagger,
    divide,
    join_parts,
    part_name,
    read_plan,
    start_indexer,
)
from elmore.text.documents import Documents, corpus_files, read_documents
from elmore.text.patterns import expand
from elmore.text.reading import Counts

_FILES = re.compile(r"part-\w+\.np[yz]|" + "|".join(map(re.escape, (*NAMES, PLAN))))
# Of the settings of a bulk job, those that an index depends on.
_SETTINGS = (
    *("tokenized", "split_sentences", "errors", "limit", "shard_bytes", "start"),
    *("column", "conllu"),
)
# Words that a message lists.
_LISTED = 10


@dataclass(frozen=True, kw_only=True)
class _Part(FinishedFile):
    """A finished part, or what was counted."""

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
    add: str | Path | None = None,
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
        max_uses: about how many uses of a word are kept, drawn with equal chances; 64 or more.
        k: substitutes that are kept for each use; 0 for none, to compare uses by `layers` alone.
        metadata: a table with a header: a file in the first column, then what is known about it.
        fields: of JSON lines, or columns of tables, that describe each record.
        tagger: gives the universal part of speech of each token of sentences, so that `bank/NOUN`
            can be asked for. For several workers it must be picklable.
        add: an index whose uses are taken over: the result has its words and `max_uses`, and is
            that of indexing its files and the new ones at once with these words.
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
    if min_count < 1:
        raise ConfigError(f"min_count={min_count}; use 1 or more")
    if max_uses < LEAST_USES:
        raise ConfigError(
            f"max_uses={max_uses}; use {LEAST_USES} or more, so that every word has some"
        )
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
    elmo: Elmo | None = None
    origin: ModelPath = bundled_model()
    # What `Index` loads in any folder; None for a model that was not loaded from files.
    known: str | tuple[str, ...] | None = BUNDLED
    if isinstance(model, Elmo):
        if workers > 1:
            raise ConfigError("several workers load the model themselves; pass its name or path")
        elmo, origin, known = model, model.checkpoint.origin, model.source
        options["start"] = elmo.engine.compute.start
    elif model is not None:
        origin, known = model, absolute(model)
    job = Job(model=origin, **options)
    if fields and isinstance(job.column, int):
        raise ConfigError(
            f"fields are named in a first line, where column={job.column} expects none; give the "
            "name of the column"
        )
    path = Path(os.path.abspath(out))
    busy = f"'{shown(path, 120)}' is being written by another process; wait for it"
    listed = None if words is None else _word_list(words)
    documents, where, unknown = read_documents(
        found,
        metadata=None if metadata is None else Path(metadata),
        fields=fields,
        errors=job.errors,
    )
    if unknown:
        report(f"no metadata for {_first(unknown)}")
    base = None
    if add is not None:
        if listed is not None:
            raise ConfigError("an index keeps its words; leave out words, or make it again")
        if path.resolve() == Path(add).resolve():
            raise ConfigError(f"'{shown(path, 120)}' is what is added to; choose another folder")
        base = IndexFiles(Path(add))
        base.verify()
        listed, max_uses = sorted(base.words), base.manifest["settings"]["max_uses"]
        documents = base.documents.joined(documents)
    check_manifest(path, FORMAT)
    setup = {
        **{"job": job, "k": k, "layers": keeps_layers, "elmo": elmo, "tagger": tagger},
        "phrases": [word for word in listed or () if " " in word],
    }
    with (
        JournalFolder.opened(path, _Part, _FILES, busy=busy, marks=(MANIFEST,)) as folder,
        Pool(start_indexer, workers, setup=setup, in_process=workers == 1) as pool,
    ):
        inputs = [inspect_input(path) for path, _ in found]  # while the workers load the model
        found_out = dict(pool.facts())
        vocabulary, tokenizer = found_out.pop("vocabulary"), found_out.pop("tokenizer")
        settings = {name: value for name, value in job.settings().items() if name in _SETTINGS}
        settings |= {"words": listed and digest_words(listed), "k": k, "max_uses": max_uses}
        settings |= {"candidates": CANDIDATES, "tags": tagger is not None, "tokenizer": tokenizer}
        settings |= {"precision": found_out.pop("precision")}
        settings |= {"metadata": documents.digest()} | ({} if listed else {"min_count": min_count})
        facts = {
            **{**FORMAT.head(), "settings": dict(sorted(settings.items())), **found_out},
            "inputs": [one.facts() for one in inputs],
        }
        facts = json.loads(json.dumps(facts))  # with lists for tuples, as it will be read back
        if base is not None:
            _extend(facts, base)
        builder = _Builder(folder, pool, job, inputs, where, base, progress)
        if not builder.resume(facts, overwrite):
            plan = builder.start(facts, documents, listed, min_count)
            absent = [word for word in listed or () if not expand(word, plan.table)]
            if absent:
                report(f"not in the text: {_first(absent)}")
            if k and not facts["model"]["softmax"]:
                report("the model has no softmax, so uses are compared by its layers")
            report(_estimate(plan, facts, max_uses))
            builder.compute(max_uses)
            builder.merge(plan, {**facts, "model_name": known}, vocabulary)
    return Index.open(out, elmo=elmo)


def _extend(facts: dict[str, Any], base: IndexFiles) -> None:
    """Put the inputs of an index before those of `facts`, if all else is the same."""
    manifest, label = base.manifest, f"'{shown(base.path, 100)}'"
    # What a run that adds need not repeat.
    own = {name: manifest["settings"].get(name) for name in ("words", "min_count", "metadata")}
    same = {name: manifest[name] for name in ("software", "inputs")}
    check_same_run(base.path, manifest, {**facts, "settings": facts["settings"] | own, **same})
    known = {one["sha256"] for one in manifest["inputs"]}
    if not known.isdisjoint(one["sha256"] for one in facts["inputs"]):
        raise ConfigError(f"{label} has some of these files already; name new ones alone")
    facts["inputs"] = manifest["inputs"] + facts["inputs"]


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


@dataclass
class _Builder:
    """The steps of `build_index`; `where` has the documents of `inputs`, as they are numbered."""

    folder: JournalFolder[_Part]
    pool: Pool
    job: Job
    inputs: Sequence[InputFile]
    where: Sequence[dict[int, int] | int]
    base: IndexFiles | None
    progress: Progress

    def __post_init__(self) -> None:
        self.path, self.done = self.folder.path, dict[str, _Part]()

    def resume(self, facts: Mapping[str, Any], overwrite: bool) -> bool:
        """Find what is done; whether the index is complete already."""
        found = None if overwrite else self.folder.found()
        if (self.path / MANIFEST).exists() and not overwrite:
            check_same_run(self.path, read_manifest(self.path), facts)
            IndexFiles(self.path).verify()
            self._clean()  # a kill may have left parts
            return True
        if found is not None:
            check_same_run(self.path, found[0], facts)
            # A damaged part is computed again.
            self.done = {
                one.file: one
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
    ) -> Plan:
        """Count, unless that is done; without a use of any word nothing is changed."""
        if PLAN not in self.done:
            plan = self._count(documents, listed, min_count)
            with atomic_file(self.path / PLAN, overwrite=True) as stream:
                stream.write(msgspec.json.encode(plan))
            self._add(PLAN)
        # From here on the journal counts, and an earlier index goes.
        self.folder.begin(facts, self.done.values())
        (self.path / MANIFEST).unlink(missing_ok=True)
        return read_plan(self.path)

    def _count(self, documents: Documents, listed: Sequence[str] | None, min_count: int) -> Plan:
        """Find the words to index."""
        counts = Counter({} if self.base is None else self.base.corpus_counts)
        sentences = self._first
        for request, reply in self.pool.map(self._requests("count")):
            counts.update(reply["counts"])
            for document, n in reply["sizes"].items():
                documents.n_words[document] += n
            sentences += len(request["texts"])
            self.progress.update(len(request["texts"]))
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
        table = {word: -count for count, word in ranked}
        corpus = {word: counts[word] for word in sorted(counts)}
        return Plan(table, corpus, documents, sentences)

    def compute(self, max_uses: int) -> None:
        """Write the parts that are missing."""
        for request, _ in self.pool.map(self._requests("write", max_uses)):
            self.folder.add(self._add(part_name(request["first"])))
            self.progress.update(len(request["texts"]))

    def merge(self, plan: Plan, facts: Mapping[str, Any], vocabulary: list[str]) -> None:
        """Join the parts, sorted by word; they go when the manifest is there."""
        limits = plan.limits(facts["settings"]["max_uses"])
        parts = [] if self.base is None else divide(self.base, self.path, limits)
        new = (name for name in self.done if name != PLAN and name >= part_name(self._first))
        parts += [self.path / name for name in sorted(new)]
        k = facts["model"]["k"]
        kept = join_parts(parts, self.path, array_types(facts), k, len(plan.table))
        words = {word: (plan.table[word], n) for word, n in zip(plan.table, kept, strict=True)}
        manifest = {**facts, "sentences": plan.sentences}
        write_rest(self.path, manifest, words, plan.corpus, plan.documents, vocabulary)
        self._clean()

    def _clean(self) -> None:
        """Remove what is not part of a finished index."""
        for path in (*self.path.glob("part-*"), self.path / PLAN):
            path.unlink(missing_ok=True)
        self.folder.finish()

    def _add(self, file: str) -> _Part:
        path = self.path / file
        record = _Part(file=file, bytes=path.stat().st_size, sha256=sha256_file(path))
        self.done[file] = record
        return record

    @property
    def _first(self) -> int:
        """The number of the first new sentence."""
        return 0 if self.base is None else int(self.base.manifest["sentences"])

    def _requests(self, do: str, max_uses: int = 0) -> Iterator[dict[str, Any]]:
        """A request for each shard that is not done; sentences are numbered over all files."""
        job, first = self.job, self._first
        earlier = 0 if self.base is None else len(self.base.documents.names)
        for file, mine in zip(self.inputs, self.where, strict=True):
            left = None if job.limit is None else job.limit - first
            for shard in cut_shards([file], job, Counts(), left):
                if do == "write" and part_name(first) in self.done:
                    self.progress.update(len(shard.texts))
                else:
                    numbers = [mine if isinstance(mine, int) else mine[n] for n in shard.lines]
                    yield {
                        **{"do": do, "max_uses": max_uses, "folder": self.path, "first": first},
                        **{"texts": shard.texts, "lines": shard.lines},
                        "documents": [earlier + number for number in numbers],
                    }
                first += len(shard.texts)


def _estimate(plan: Plan, facts: Mapping[str, Any], max_uses: int) -> str:
    n = sum(min(count, max_uses) for count in plan.table.values())
    kinds = array_types(facts)
    # A substitute takes about two bytes, a sentence 70; frequent words share theirs.
    size = kinds["uses"].itemsize + kinds["vectors"].itemsize + 2 * facts["model"]["k"] + 30
    words = "1 word" if len(plan.table) == 1 else f"{len(plan.table)} words"
    return f"{words}, about {n} uses, about {n * size / 1e6:.1f} MB"
