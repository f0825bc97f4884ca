"""The parts of an index: what a worker process counts and writes, and how parts are joined.

A part, part-000000000000.npz, holds the uses of one shard in the order of the text: records as in
uses.npy and vectors.npy, substitutes, the number of the word of each, its sentences with their text
and the size of each, and its counts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.base.pool import Worker
from elmore.bulk.job import Job, ShardEmbedder
from elmore.embedding.stream import windows
from elmore.formats.containers.blocks import reserved_array, write_blocks
from elmore.formats.containers.packing import pack_pairs, pack_texts, pack_two_bits, pair_type
from elmore.language_model.sense_vectors import Array, SenseVectors, make_space, unit
from elmore.options import LayerChoice
from elmore.senses.files import (
    BLOCK_SENTENCES,
    BLOCK_USES,
    BLOCKS,
    TAGS,
    IndexFiles,
    array_types,
)
from elmore.senses.model import space_digest
from elmore.text.documents import Documents
from elmore.text.patterns import Phrases, is_word
from elmore.text.segmenter import tokenizer_name
from elmore.text.tokenizer import Sentence

# First and last token of a use.
Span = tuple[int, int]
# Gives the universal part of speech of each token of sentences.
Tagger = Callable[[Sequence[Sequence[str]]], Iterable[Sequence[str]]]
PLAN = "counts.json"
# If so many uses of a word are expected, the chance that none is drawn is below 1e-27.
LEAST_USES = 64
_HASHES = 1 << 64
# Sentences of an index that become one part.
_PART_SENTENCES = 4096
# Substitutes are chosen among so many frequent words. The softmax of all 50,000 words of `english`
# makes an index of all words 15 % slower and no better: the 15 nearest uses give the sense of
# 11,242 uses of SemCor in 71.2 per cent with both (dense vectors: 68.5, and 68.7 with all words).
CANDIDATES = 20_000


class Plan(msgspec.Struct):
    """What was found out when the words were counted.

    Attributes:
        table: how often each word to index occurs, the most frequent first.
        corpus: how often every word and every phrase to index occurs.
        documents: of all inputs.
        sentences: how many there are in all inputs.
    """

    table: dict[str, int]
    corpus: dict[str, int]
    documents: Documents
    sentences: int

    def limits(self, max_uses: int) -> dict[str, tuple[int, int]]:
        """The number of each word, and below which draws its uses are kept."""
        return {
            word: (number, min(_HASHES, _HASHES * max_uses // count))
            for number, (word, count) in enumerate(self.table.items())
        }


def read_plan(folder: Path) -> Plan:
    """The plan of an index that is being made."""
    return msgspec.json.decode((folder / PLAN).read_bytes(), type=Plan)


def part_name(number: int) -> str:
    """The file of a part, by the number of its first sentence."""
    return f"part-{number:012d}.npz"


def write_part(path: Path, text: Sequence[bytes], **arrays: NDArray[Any]) -> None:
    """Write a part with the text of its sentences, over an old one."""
    arrays["sizes"] = np.array([len(one) for one in text], np.int64)
    arrays["text"] = np.frombuffer(b"".join(text), np.uint8)
    with atomic_file(path, overwrite=True) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the stubs take names for flags


def draw(word: str, sentence: int, position: int) -> int:
    """A random number that depends on nothing but a position: flat, and the same in every run."""
    key = f"{word} {sentence} {position}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def start_indexer(setup: Mapping[str, Any]) -> Worker:
    """Load the model of a job."""
    indexer = _Indexer(setup["job"], setup)

    def perform(fields: Mapping[str, Any]) -> dict[str, Any]:
        return (indexer.count if fields["do"] == "count" else indexer.write)(fields)

    return Worker(perform, indexer.facts)


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
        asked = job.tokenizer or self.elmo.engine.compute.tokenizer
        tokenizer = self.elmo.checkpoint.tokenizer if asked is None else tokenizer_name(asked)
        context = self.space.vectors([]).context
        model = {
            "sha256": space_digest(self.space),
            "context": 0 if context is None else context.shape[1],
            "dim": self.space.dim,
            "k": self.space.k,
            "softmax": self.space.k > 0,
            "layers": self.layers,
            # Without a softmax, the vectors are the layers.
            "layers_dim": self.elmo.dim if self.space.k and self.layers is not None else 0,
        }
        # What an index depends on besides settings and text, and the words of the model.
        self.facts = {
            **{**self._embedder.facts(), "model": model, "tokenizer": tokenizer},
            # Not what was asked for: the default depends on the machine that opens the index.
            **{"precision": self.elmo.precision, "vocabulary": list(self.space.words)},
        }
        settings = {"tags": setup["tagger"] is not None}
        self._types = array_types({"settings": settings, "model": model})
        self._table: dict[str, tuple[int, int]] = {}
        self._tagger: Tagger | None = setup["tagger"]
        self._phrases = Phrases(setup["phrases"])

    def count(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """How often each word occurs, and how many words each document has."""
        counts: Counter[str] = Counter()
        sizes: Counter[int] = Counter()
        for text, document in zip(fields["texts"], fields["documents"], strict=True):
            tokens = [token.lower() for token in self.reading.sentence(text).tokens]
            words = list(filter(is_word, tokens))
            sizes[document] += len(words)
            counts.update(words)
            counts.update(word for _, word in self._phrases.find(tokens))
        return {"counts": counts, "sizes": sizes}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the chosen uses of a shard and write them."""
        if not self._table:
            self._table = read_plan(fields["folder"]).limits(fields["max_uses"])
        self._embedder.forget_words()
        chosen: list[tuple[Sentence, list[Span]]] = []
        words: list[int] = []
        counts: Counter[tuple[int, int]] = Counter()
        records = []  # of the chosen sentences
        texts = zip(fields["texts"], fields["lines"], fields["documents"], strict=True)
        for number, (text, line, document) in enumerate(texts, fields["first"]):
            sentence = self.reading.sentence(text)
            tokens = [token.lower() for token in sentence.tokens]
            spans = []
            for position, word in (*enumerate(tokens), *self._phrases.find(tokens)):
                if word not in self._table:
                    continue
                mine, limit = self._table[word]
                counts[mine, document] += 1
                if limit == _HASHES or draw(word, number, position) < limit:
                    spans.append((position, position + word.count(" ")))
                    words.append(mine)
            if spans:
                chosen.append((sentence, spans))
                records.append((line, document, number))
        packed = [self._packed(self.space.vectors([]))]  # gives the types if nothing is chosen
        for window in windows(chosen, lambda item: len(item[0])):
            packed.append(self._packed(self.space.window(window, self.elmo.engine.batch_tokens)))
        uses, substitutes, vectors = map(np.concatenate, zip(*packed, strict=True))
        uses["sentence"] = np.repeat(np.arange(len(chosen)), [len(spans) for _, spans in chosen])
        uses["position"] = [first for _, spans in chosen for first, _ in spans]
        if self._tagger is not None:
            tags = self._tagger([sentence.tokens for sentence, _ in chosen])
            uses["tag"] = _tag_numbers(chosen, tags)
        # Tokens end with a newline, so that none may be inside one.
        text = [
            "".join(t.replace("\n", " ") + "\n" for t in sentence.tokens).encode("utf-8", "replace")
            for sentence, _ in chosen
        ]
        rows = [(word, document, n) for (word, document), n in counts.items()]
        write_part(
            fields["folder"] / part_name(fields["first"]),
            text,
            uses=uses,
            substitutes=substitutes,
            vectors=vectors,
            words=np.array(words, np.int32),
            sentences=np.array(records, self._types["sentences"]),
            count=np.array(rows, self._types["count"]),
        )
        return {}

    def _packed(self, found: SenseVectors) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The records of uses, substitutes and vectors, small integers with scales."""
        uses = np.zeros(len(found), self._types["uses"])
        substitutes = np.zeros(len(found), pair_type(self.space.k))
        vectors = np.zeros(len(found), self._types["vectors"])
        vectors["vectors"], vectors["vectors_scale"] = _rounded(unit(found.dense()), 127)
        if self.space.k:
            substitutes["ids"] = found.ids
            substitutes["weights"], uses["weights_scale"] = _rounded(found.weights, 255)
            if found.context is not None:
                uses["context"] = pack_two_bits(found.context)
            if found.layers is not None:
                uses["layers"], uses["layers_scale"] = _rounded(found.layers, 127)
        return uses, substitutes, vectors


def _rounded(values: Array, most: int) -> tuple[Array, Array]:
    """Each row as integers up to `most`, and the scale that undoes it, (n,)."""
    scale = np.abs(values).max(axis=1, initial=0) / most
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.rint(values / scale[:, None]), scale


def _tag_numbers(
    chosen: Sequence[tuple[Sentence, Sequence[Span]]], tags: Iterable[Sequence[str]]
) -> NDArray[np.uint8]:
    """The part of speech of each use; the last word of a phrase decides."""
    known = {tag: number for number, tag in enumerate(TAGS)}
    pairs = zip(chosen, tags, strict=True)
    found = [mine[last] for (_, spans), mine in pairs for _, last in spans]
    # A tag of another set may follow: NOUN+NN.
    return np.array([known.get(tag.partition("+")[0], known["X"]) for tag in found], np.uint8)


# --------------------------------------------------------------------------- in the parent


def join_parts(
    parts: Sequence[Path], folder: Path, kinds: Mapping[str, np.dtype[Any]], k: int, n_words: int
) -> list[int]:
    """Write the arrays and blocks of an index, with the uses sorted by word.

    Args:
        parts: in the order of the text.
        folder: where to write.
        kinds: the types of the arrays; see `array_types`.
        k: substitutes of each use.
        n_words: how many words are indexed.

    Returns:
        how many uses of each word there are.
    """
    counts, n_uses, n_sentences = [], np.zeros(n_words, np.int64), 0
    for path in parts:
        with np.load(path) as part:
            n_uses += np.bincount(part["words"], minlength=n_words)
            counts.append(part["count"])
            n_sentences += len(part["sentences"])
    count, total = _summed(np.concatenate(counts)), int(n_uses.sum())
    sizes = {"sentences": n_sentences, "count": len(count)}
    out = {
        n: reserved_array(folder / f"{n}.npy", one, sizes.get(n, total)) for n, one in kinds.items()
    }
    if k:  # sorted first, and compressed then
        out["substitutes"] = reserved_array(folder / "part-substitutes.npy", pair_type(k), total)
    out["count"][:] = count
    free = np.cumsum(n_uses) - n_uses  # the first free row of each word
    n_sentences = 0
    for path in parts:
        with np.load(path) as part:
            order = np.argsort(part["words"], kind="stable")
            words = part["words"][order]
            # The uses of a word in this part are next to each other, from `first` on.
            first = np.searchsorted(words, words)
            rows = free[words] + np.arange(len(words)) - first
            np.add.at(free, words, 1)
            uses, sentences = part["uses"], part["sentences"]
            uses["sentence"] += n_sentences
            out["uses"][rows] = uses[order]
            for name in {*out} & {"vectors", "substitutes"}:
                out[name][rows] = part[name][order]
            out["sentences"][n_sentences : n_sentences + len(sentences)] = sentences
            n_sentences += len(sentences)
    for array in out.values():
        array.flush()
    pieces, starts = _texts(parts), range(0, total if k else 0, BLOCK_USES)
    text, substitutes = (folder / name for name in BLOCKS)
    write_blocks(text, map(pack_texts, iter(lambda: list(islice(pieces, BLOCK_SENTENCES)), [])))
    rows = (out["substitutes"][at : at + BLOCK_USES] for at in starts)
    write_blocks(substitutes, map(pack_pairs, rows), repeats=False)
    return [int(n) for n in n_uses]


def _texts(parts: Sequence[Path]) -> Iterator[bytes]:
    """The text of each sentence of parts."""
    for path in parts:
        with np.load(path) as part:
            text, ends = part["text"].tobytes(), np.cumsum([0, *part["sizes"]]).tolist()
        yield from (text[start:end] for start, end in pairwise(ends))


def divide(base: IndexFiles, folder: Path, limits: Mapping[str, tuple[int, int]]) -> list[Path]:
    """Write the uses of an index as parts of another one.

    Args:
        base: the index.
        folder: where to write.
        limits: of the other index, for all words of this one; see `Plan.limits`.

    Returns:
        the parts, in the order of the text.
    """
    arrays = base.arrays
    sentences, starts = base.sentences_of(slice(None)), base.offsets.tolist()
    where = np.stack([arrays["sentences"]["number"][sentences], arrays["uses"]["position"]], axis=1)
    kept = [
        row
        for word, start, end in zip(base.words, starts, starts[1:], strict=False)
        for row, (number, position) in enumerate(where[start:end].tolist(), start)
        if draw(word, number, position) < limits[word][1]
    ]
    numbers = np.array([limits[word][0] for word in base.words], np.int32)
    words, count = np.repeat(numbers, np.diff(base.offsets)), np.array(base.counts[0])
    count["word"] = numbers[count["word"]]
    rows = np.array(kept, np.int64)
    rows = rows[np.argsort(sentences[rows], kind="stable")]
    sentences = sentences[rows]
    parts: list[Path] = []
    for first in range(0, len(arrays["sentences"]), _PART_SENTENCES):
        mine = rows[slice(*np.searchsorted(sentences, (first, first + _PART_SENTENCES)))]
        uses = arrays["uses"][mine]
        used, uses["sentence"] = np.unique(uses["sentence"], return_inverse=True)
        parts.append(folder / part_name(len(parts)))
        write_part(
            parts[-1],
            [base.text(int(number)) for number in used],
            uses=uses,
            substitutes=base.substitutes(mine),
            vectors=arrays["vectors"][mine],
            words=words[mine],
            sentences=arrays["sentences"][used],
            count=count[: 0 if first else None],
        )
    return parts


def _summed(counts: NDArray[Any]) -> NDArray[Any]:
    """Records (word, document, n) in order, those of a word and document joined."""
    pairs, rows = np.unique(counts[["word", "document"]], return_inverse=True)
    found = np.zeros(len(pairs), counts.dtype)
    found["word"], found["document"] = pairs["word"], pairs["document"]
    np.add.at(found["n"], rows, counts["n"])
    return found
