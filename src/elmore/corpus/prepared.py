"""A prepared corpus: a folder of shards, a vocabulary and counts.

    shard-00000.safetensors ...   training documents in random order, a few hundred each
    heldout.safetensors           held-out documents, if there are any
    vocab.txt                     one word per line, in id order
    counts.tsv                    word TAB training count, the most frequent first
    prepared.json                 what was made, from what and how; the SHA-256 of every file

prepared.json is written last; a folder without it is not complete.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_path
from elmore.base.json import from_json, read_json
from elmore.base.manifest import FolderFormat, check_file, check_size, file_entries
from elmore.base.messages import shown
from elmore.corpus.words import read_counts
from elmore.errors import FormatError
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors
from elmore.text.characters import DictionaryAlphabet
from elmore.text.tokenizer import Convention
from elmore.text.vocabulary import BEGIN, END, UNKNOWN, Vocabulary

MANIFEST, VOCABULARY, COUNTS = "prepared.json", "vocab.txt", "counts.tsv"
HELDOUT = "heldout.safetensors"
_AGAIN = "prepare or copy it again"
_FORMAT = FolderFormat(name="elmore-prepared", version=1, label="a prepared corpus", fix=_AGAIN)
# A line for each shard and input file: a corpus of 10**11 tokens has 100,000 shards.
_MANIFEST_BYTES = 1 << 26


@dataclass(frozen=True, kw_only=True)
class Part:
    """The size of a shard, or of all."""

    tokens: int = 0
    sentences: int = 0
    documents: int = 0

    def __add__(self, other: Part) -> Part:
        return Part(
            tokens=self.tokens + other.tokens,
            sentences=self.sentences + other.sentences,
            documents=self.documents + other.documents,
        )


@dataclass(frozen=True, kw_only=True)
class Counted(Part):
    """The size of training or held-out text, and what is not in the vocabulary."""

    oov: int = 0  # tokens
    types: int = 0  # distinct tokens; not counted for held-out text

    @property
    def oov_rate(self) -> float:
        """Share of the tokens that are not in the vocabulary."""
        return self.oov / max(1, self.tokens)


@dataclass(frozen=True, kw_only=True)
class _ShardEntry(Part):
    file: str


@dataclass(frozen=True, kw_only=True)
class _FileEntry:
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    """What prepared.json says, as far as it is read again; attributes as of `Prepared`."""

    tokenizer: Convention
    segmenter: str | None = None
    training: Counted
    heldout: Counted | None
    shards: tuple[_ShardEntry, ...]
    notes: tuple[str, ...]
    files: dict[str, _FileEntry]


@dataclass(frozen=True, kw_only=True, repr=False)
class Prepared(_Manifest):
    """A prepared corpus on disk; made by `prepare` or `Prepared.open`.

    Attributes:
        folder: where it is.
        vocabulary: the words that are targets.
        digest: SHA-256 over the hashes of all files.
        tokenizer: the convention of its tokens.
        segmenter: the function that split the text, if it was not a convention.
        training: the size of all shards.
        heldout: the size of what is held out; all 0 if nothing is.
        shards: the size of each shard.
        notes: what to know about the figures.
        files: size and SHA-256 of each file, by name.
    """

    folder: Path
    vocabulary: Vocabulary
    digest: str
    heldout: Counted

    def __repr__(self) -> str:
        size = f"{self.training.tokens:,} tokens, {self.heldout.tokens:,} held out"
        return f"<Prepared '{self.folder.name}': {size}, vocabulary of {len(self.vocabulary):,}>"

    def read(self, path: Path) -> Shard:
        """Read one of `shard_paths`, or `heldout_path`.

        Shards are compared with the manifest here and not when the folder is opened: hashing a
        large corpus takes minutes, and a training run may never reach its last shard.
        """
        check_file(path, self.files[path.name].sha256, fix=_AGAIN)
        return read_shard(path)

    @property
    def shard_paths(self) -> list[Path]:
        """The shards."""
        return [self.folder / shard.file for shard in self.shards]

    @property
    def heldout_path(self) -> Path | None:
        """The held-out documents, if there are any."""
        return self.folder / HELDOUT if HELDOUT in self.files else None

    @property
    def n_tokens(self) -> int:
        """Training tokens, without sentence markers."""
        return self.training.tokens

    @property
    def n_sentences(self) -> int:
        """Training sentences."""
        return self.training.sentences

    def counts_of(self, vocabulary: Vocabulary) -> NDArray[np.int64]:
        """How often each word of any vocabulary is a training target, (n_words,).

        `<S>` and `</S>` occur once per sentence, `<UNK>` as often as there are other words. Words
        of the text that are spelled like these are counted with them.
        """
        counts = np.zeros(len(vocabulary), np.int64)
        specials = vocabulary.specials
        for word, count in read_counts(self.folder / COUNTS):
            # As the model looks words up: some vocabularies cut them first.
            number = vocabulary.find(word[: specials.longest])
            if number is not None:
                counts[number] += count
        unknown, begin, end = map(vocabulary.find, (specials.unknown, *vocabulary.markers))
        counts[unknown] += self.n_tokens - int(counts.sum())
        counts[begin] += self.n_sentences
        counts[end] += self.n_sentences
        return counts

    def characters(self, max_chars: int) -> DictionaryAlphabet:
        """The alphabet of the training text, the most frequent characters first.

        A character that occurs once only is left out, so that a model learns what to do with those
        that it has never seen.

        Args:
            max_chars: characters of a word that are read, with its two markers.
        """
        counts: Counter[str] = Counter()
        for word, count in read_counts(self.folder / COUNTS):
            for character in word:
                counts[character] += count
        # White space is only found in tokens that somebody else made; a dictionary cannot hold it.
        kept = [c for c, count in counts.items() if count > 1 and not c.isspace()]
        kept.sort(key=lambda character: (-counts[character], character))
        return DictionaryAlphabet([*DictionaryAlphabet.specials, *kept], max_chars)

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = False) -> Prepared:
        """Open a prepared corpus.

        Args:
            folder: its path.
            verify: compare the shards with their SHA-256 now, not when they are first read.

        Raises:
            FormatError: not a prepared corpus, not complete, or damaged.
        """
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise FormatError(
                f"'{shown(folder, 120)}' has no {MANIFEST}, so it is not a complete prepared "
                "corpus; run `elmore prepare`"
            )
        data = read_json(folder / MANIFEST, max_bytes=_MANIFEST_BYTES, follow=False)
        _FORMAT.check(data, what=MANIFEST)
        manifest = from_json(
            _Manifest, data, what=MANIFEST, error=FormatError, fix=_AGAIN, extra=True
        )
        digest = _check_files(folder, manifest.files, verify)
        vocabulary = Vocabulary.read(folder / VOCABULARY)
        for word in (BEGIN, END, UNKNOWN):
            if word not in vocabulary:
                raise FormatError(f"'{shown(folder, 100)}/{VOCABULARY}' lacks {word}; {_AGAIN}")
        held, names = manifest.heldout, {shard.file for shard in manifest.shards}
        names |= {VOCABULARY, COUNTS} | ({HELDOUT} if held else set())
        if not manifest.shards or names != set(manifest.files):
            raise FormatError(f"'{MANIFEST}': shards and files do not agree; {_AGAIN}")
        if sum(manifest.shards, Part()) != manifest.training + Part():
            raise FormatError(f"'{MANIFEST}': shards and counts do not agree; {_AGAIN}")
        known = {**vars(manifest), "heldout": held or Counted()}
        return cls(folder=folder, vocabulary=vocabulary, digest=digest, **known)


def _check_files(folder: Path, files: Mapping[str, _FileEntry], verify: bool) -> str:
    """Compare the files with the manifest; the digest of all."""
    total = hashlib.sha256()
    # Sorted, so that the digest does not depend on the order in the manifest.
    for name, entry in sorted(files.items()):
        if Path(name).name != name:  # a path could lead out of the folder
            raise FormatError(f"'{MANIFEST}' names the file '{shown(name, 60)}'; {_AGAIN}")
        path = folder / name
        if not path.is_file() or path.is_symlink():
            raise FormatError(f"'{shown(folder, 120)}' lacks {shown(name, 60)}; {_AGAIN}")
        check_size(path.stat().st_size, entry.size, what=path, fix=_AGAIN)
        if verify or name in (VOCABULARY, COUNTS):
            check_file(path, entry.sha256, fix=_AGAIN)
        # From the sums in the manifest, so that opening a large corpus does not read it.
        total.update(f"{name} {entry.sha256}\n".encode())
    return total.hexdigest()


def is_prepared(folder: Path) -> bool:
    """Whether a folder is a prepared corpus, so that it may be replaced."""
    return _FORMAT.owns(folder, MANIFEST)


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write prepared.json over the files of a folder that is complete but for it."""
    data = {**_FORMAT.head(), **facts, "files": file_entries(folder)}
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8", newline="\n")


# --------------------------------------------------------------------------- shards

# Tokens are numbers into the shard's own list of types, so that a shard can be read without any
# other file and without a list of all types of the corpus.
_ARRAYS = {"tokens", "sentences", "documents", "type_bytes", "type_offsets"}


@dataclass(frozen=True)
class Shard:
    """Documents of tokenized sentences, without sentence markers.

    Attributes:
        tokens: numbers of types, (n_tokens,).
        sentences: where each sentence starts in `tokens`, and the end, (n_sentences + 1,).
        documents: where each document starts in `sentences`, and the end, (n_documents + 1,).
        types: the distinct tokens.
    """

    tokens: NDArray[np.int32]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    types: list[str]

    @property
    def n_tokens(self) -> int:
        """Tokens of all sentences."""
        return len(self.tokens)

    @property
    def n_sentences(self) -> int:
        """Sentences of all documents."""
        return len(self.sentences) - 1

    def sentence(self, index: int) -> list[str]:
        """The tokens of a sentence."""
        start, end = self.sentences[index : index + 2]
        return [self.types[k] for k in self.tokens[start:end].tolist()]


def write_shard(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a shard or a piece, over an old one; its bytes depend on the tensors only."""
    with atomic_path(path, overwrite=True) as temporary:
        write_safetensors(temporary, dict(tensors), {"format": "elmore-shard"})


def read_shard(path: Path) -> Shard:
    """Read a shard; `Prepared.read` compares it with its SHA-256 first.

    Raises:
        FormatError: it is damaged, or not a shard.
    """
    with read_safetensors(path, what=str(path)) as view:
        if missing := _ARRAYS - view.shapes.keys():
            raise FormatError(
                f"'{shown(path, 120)}' has no list '{min(missing)}', so it is not a shard; pass a "
                "file that elmore prepare wrote"
            )
        arrays = {name: np.array(view.read(name)) for name in _ARRAYS}
    text, ends = arrays["type_bytes"].tobytes(), arrays["type_offsets"].tolist()
    types = [text[a:b].decode("utf-8", "replace") for a, b in pairwise(ends)]
    return Shard(arrays["tokens"], arrays["sentences"], arrays["documents"], types)


def shard_tensors(shard: Shard) -> dict[str, NDArray[Any]]:
    """What the file of a shard holds."""
    return {
        "tokens": shard.tokens.astype(np.int32, copy=False),
        "sentences": shard.sentences.astype(np.int64, copy=False),
        "documents": shard.documents.astype(np.int64, copy=False),
        **type_tensors([word.encode("utf-8") for word in shard.types]),
    }


def type_tensors(words: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """The list of types, as a shard stores it."""
    return {
        "type_bytes": np.frombuffer(b"".join(words), np.int8),
        "type_offsets": offsets(np.fromiter(map(len, words), np.int64, len(words))),
    }


def offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where things of these lengths start, and the end."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
