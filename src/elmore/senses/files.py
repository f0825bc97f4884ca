"""The folder of an index: which files it has, and the checks that they pass.

uses.npy            a record per use, those of a word together: its sentence and position; if asked
                    for, its part of speech, and its layers as int8 times a scale
substitutes.blocks  its likeliest substitutes, weights as uint8 times a scale (see `pack_pairs`)
vectors.npy         its dense vector, int8 times a scale
sentences.npy       a record per sentence: line, document, number in the corpus
text.blocks         the sentences: their sizes; then their tokens, each ended by a newline
count.npy           rows (word, document, how often)
words.json          of each indexed word, how often it occurs and how many uses are kept, in the
                    order of the rows
corpus.json.gz      counts of all words of the corpus
documents.json      what is known about the documents
vocabulary.json.gz  the words that can be substitutes
manifest.json       settings, sizes and digests of all of them

In .blocks, many uses or sentences are compressed together (see `formats.containers.blocks`).

A folder may come from elsewhere or be damaged. So only regular files with these names are read, up
to the size that the manifest states; types, shapes and numbers are checked before they are used;
and nothing that the manifest names is imported or downloaded.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.base.json import read_json
from elmore.base.manifest import FolderFormat, ListedFiles, check_size, file_entries
from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.blocks import Blocks
from elmore.formats.containers.packing import pair_type, unpack_pairs, unpack_texts
from elmore.text.documents import Documents

Rows = NDArray[np.int64]
MANIFEST = "manifest.json"
ARRAYS = ("uses", "vectors", "sentences", "count")
_TEXT, _SUBSTITUTES = BLOCKS = ("text.blocks", "substitutes.blocks")
_WORDS, _CORPUS, _DOCUMENTS, _VOCABULARY = _JSON = (
    *("words.json", "corpus.json.gz", "documents.json", "vocabulary.json.gz"),
)
NAMES = (*(f"{name}.npy" for name in ARRAYS), *BLOCKS, *_JSON)
# Uses of a block, whose numbers must fit into a byte, and sentences of one. A search over all words
# reads a block for each of the uses that it ranks, which takes 0.3 ms.
BLOCK_USES, BLOCK_SENTENCES = 256, 128
# Universal parts of speech, by their numbers in the records of uses.
TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN"),
    *("PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
FORMAT = FolderFormat(
    name="elmore-uses", version=1, label="an index of uses", fix="make it again with --force"
)
# Of a manifest: a hundred thousand files of text are 15 MB.
_MANIFEST_BYTES = 1 << 27
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_Width = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]


class _Settings(msgspec.Struct):
    k: _Width
    max_uses: _Count
    # Substitutes are stored in 16 bits.
    candidates: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
    tokenized: bool
    start: str
    precision: str
    tags: bool
    tokenizer: str | None


class _Model(msgspec.Struct):
    sha256: str
    dim: _Width
    k: _Width
    context: _Width
    layers_dim: _Width
    softmax: bool
    layers: str | int | list[float] | None


class _File(msgspec.Struct):
    size: _Count
    sha256: str


class _Input(msgspec.Struct):
    path: str


class _Manifest(msgspec.Struct):
    """What is read of a manifest; other keys say how the index was made."""

    settings: _Settings
    model: _Model
    sentences: _Count
    inputs: list[_Input]
    files: dict[str, _File]
    model_name: str | list[str] | None


def array_types(manifest: Mapping[str, Any]) -> dict[str, np.dtype[Any]]:
    """The type of the records in each of `ARRAYS`, by what a manifest says about the model."""
    model = manifest["model"]
    use: list[Any] = [("sentence", "<i4"), ("position", "<i4")]
    if model["k"]:
        use += [("weights_scale", "<f4"), ("context", "|u1", (-(-model["context"] // 4),))]
    if model["layers_dim"]:
        use += [("layers", "|i1", (model["layers_dim"],)), ("layers_scale", "<f4")]
    if manifest["settings"]["tags"]:
        use += [("tag", "|u1")]
    vector: list[Any] = [("vectors", "|i1", (model["dim"],)), ("vectors_scale", "<f4")]
    sentence = [("line", "<i4"), ("document", "<i4"), ("number", "<i4")]
    count = [("word", "<i4"), ("document", "<i4"), ("n", "<i4")]
    return dict(zip(ARRAYS, map(np.dtype, (use, vector, sentence, count)), strict=True))


class IndexFiles:
    """The files of an index. Arrays are mapped, not read.

    Attributes:
        path: the folder.
        manifest: settings, inputs and model.
        documents: what is known about the documents of the corpus.
        words: counts of the indexed words.
        offsets: the uses of word w are rows offsets[w] to offsets[w + 1].
        arrays: those of `ARRAYS`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, read_manifest(path)
        self._listed = ListedFiles(path, self.manifest["files"], FORMAT.fix)
        self.documents = self._listed.json(_DOCUMENTS, Documents)
        words = self._listed.json(_WORDS, dict[str, tuple[_Count, _Count]])
        self.words = {word: count for word, (count, _) in words.items()}
        n_uses = [kept for _, kept in words.values()]
        self.arrays = {
            name: self._mapped(name, kind) for name, kind in array_types(self.manifest).items()
        }
        fit = sum(n_uses) == len(self.arrays["uses"]) == len(self.arrays["vectors"])
        if not (fit and self.documents.consistent):
            self.refuse("its arrays do not fit together")
        self.offsets: Rows = np.cumsum([0, *n_uses])
        self._k = k = self.manifest["model"]["k"]
        for file in BLOCKS:
            self._listed.open(file).close()
        self._text = Blocks(
            path / _TEXT, len(self.arrays["sentences"]), BLOCK_SENTENCES, unpack_texts, self.refuse
        )
        self._substitutes = Blocks(
            path / _SUBSTITUTES,
            sum(n_uses) if k else 0,
            BLOCK_USES,
            partial(unpack_pairs, k),
            self.refuse,
        )

    def _mapped(self, name: str, kind: np.dtype[Any]) -> NDArray[Any]:
        """Map the array of a known type."""
        file = f"{name}.npy"
        self._listed.open(file).close()
        try:
            found = np.lib.format.open_memmap(self.path / file, mode="r")
        except Exception as error:  # numpy evaluates the header, which raises many kinds
            self.refuse(f"{file}: {error}")
        if found.dtype != kind or found.ndim != 1:
            self.refuse(f"{file} has another type or shape")
        end, size = found.offset + found.nbytes, self.manifest["files"][file]["size"]
        check_size(end, size, what=self.path / file, fix=FORMAT.fix)
        return found

    def refuse(self, reason: str) -> NoReturn:
        """Say that the index is damaged."""
        self._listed.refuse(reason)

    def verify(self) -> None:
        """Compare all files with their SHA-256; this reads all of them."""
        self._listed.verify()

    @cached_property
    def vocabulary(self) -> list[str]:
        """The words that can be substitutes."""
        return self._listed.json(_VOCABULARY, list[str])

    @cached_property
    def corpus_counts(self) -> dict[str, int]:
        """How often every word of the corpus occurs in it."""
        return self._listed.json(_CORPUS, dict[str, _Count])

    @cached_property
    def counts(self) -> tuple[NDArray[Any], Rows]:
        """The records of count.npy, and where those of each word begin."""
        table, most = self.arrays["count"], (len(self.words), len(self.documents.names), 1 << 31)
        for name, end in zip(table.dtype.names or (), most, strict=True):
            if len(table) and not 0 <= table[name].min() <= table[name].max() < end:
                self.refuse("count.npy has a number that no word or document has")
        return table, np.searchsorted(table["word"], np.arange(len(self.words) + 1))

    def substitutes(self, rows: Rows) -> NDArray[Any]:
        """The substitutes of uses, (n,) of `pair_type`; each use has its own by id."""
        found = np.empty(len(rows), pair_type(self._k))
        blocks, inside = np.divmod(rows, BLOCK_USES)
        order = np.argsort(blocks, kind="stable")
        firsts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
        for here in np.split(order, firsts[1:]) if len(order) else ():
            found[here] = self._substitutes.read(int(blocks[here[0]]))[inside[here]]
        return found

    def text(self, sentence: int) -> bytes:
        """The tokens of a sentence, each ended by a newline."""
        return self._text.read(sentence // BLOCK_SENTENCES)[sentence % BLOCK_SENTENCES]

    def tokens(self, sentence: int) -> list[str]:
        """The tokens of a sentence."""
        return self.text(sentence).decode("utf-8", "replace").split("\n")[:-1]

    def sentences_of(self, rows: Rows | slice) -> Rows:
        """The number of the sentence of each use, (n,)."""
        found = np.asarray(self.arrays["uses"]["sentence"][rows], np.int64)
        if found.min(initial=0) < 0 or found.max(initial=-1) >= len(self.arrays["sentences"]):
            self.refuse("uses.npy has a sentence that is not there")
        return found


def is_index(path: Path) -> bool:
    """Whether a folder holds an index, which may be damaged."""
    try:
        return read_json(path / MANIFEST, follow=False).get("format") == FORMAT.name
    except FormatError:
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an index; what `_Manifest` states has the right types.

    Raises:
        FormatError: there is none, or it is not ours.
    """
    file = path / MANIFEST
    if not file.is_file():
        begun = (path / "journal.jsonl").exists()
        what = "is not complete; run `elmore index` again to resume" if begun else "is not an index"
        more = "" if begun else "; make one with `elmore index`"
        raise FormatError(f"'{shown(path, 120)}' {what}{more}")
    manifest = read_json(file, max_bytes=_MANIFEST_BYTES, follow=False)
    FORMAT.check(manifest, what=str(file))
    try:
        model = msgspec.convert(manifest, _Manifest).model
    except msgspec.ValidationError as error:
        raise FormatError(
            f"'{shown(file, 100)}' is damaged ({shown(error, 100)}); {FORMAT.fix}"
        ) from None
    if {*manifest["files"]} != {*NAMES} or bool(model.k) != model.softmax:
        raise FormatError(f"'{shown(file, 100)}' contradicts itself; {FORMAT.fix}")
    return manifest


def write_rest(path: Path, manifest: Mapping[str, Any], *values: Any) -> None:
    """Write the JSON files of an index: last the manifest, with sizes and digests of all.

    `values` are words, corpus, documents and vocabulary.
    """
    for name, value in zip(_JSON, values, strict=True):
        data = msgspec.json.encode(value)
        # Without the time, so that the same index has the same bytes.
        (path / name).write_bytes(gzip.compress(data, 6, mtime=0) if name.endswith(".gz") else data)
    text = json.dumps({**manifest, "files": file_entries(path, NAMES)}, indent=1)
    with atomic_file(path / MANIFEST, overwrite=True) as stream:
        stream.write(text.encode() + b"\n")


def digest_words(values: Sequence[str]) -> str:
    """A digest of a list of words."""
    return hashlib.sha256("\n".join(values).encode("utf-8", "surrogatepass")).hexdigest()
