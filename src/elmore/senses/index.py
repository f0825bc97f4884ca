"""An index of the uses of words in a corpus: computed once, opened in a moment.

offsets.npy             uses of word w are rows offsets[w] to offsets[w + 1]
sentence.npy, position.npy                      where each use is
ids.npy, weights.npy, weight_scale.npy          its likeliest substitutes, uint8 times a scale
vectors.npy, vector_scale.npy                   its dense vector, int8 times a scale
layers.npy, layer_scale.npy                     its layers, if asked for, int8 times a scale
tag.npy                                         its part of speech, if asked for
text.npy, text_end.npy                          the sentences: tokens, each ended by a newline
line.npy, source.npy, number.npy                their lines, documents, and numbers in the corpus
count.npy                                       rows (word, document, how often)
words.json, corpus.json                         counts of the words, and of all words of the corpus
documents.json, vocabulary.json                 what is known about documents; the substitutes
manifest.json                                   settings, sizes and digests of all of them

A folder may come from elsewhere or be damaged. So only regular files with these names are read, up
to the size that the manifest states; types, shapes and numbers are checked before they are used;
and nothing that the manifest names is imported or downloaded.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, NoReturn, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.base.io import open_checked, sha256_file
from elmore.base.json import read_json
from elmore.base.manifest import FolderFormat, check_file, check_size, check_sum
from elmore.base.messages import shown
from elmore.elmo import Elmo
from elmore.embedding.load import ModelPath
from elmore.errors import ConfigError, FormatError, InputError
from elmore.language_model.sense_vectors import (
    Array,
    Place,
    SenseSpace,
    SenseVectors,
    SubstituteSpace,
    base_forms,
    make_space,
)
from elmore.options import ComputeOptions
from elmore.published.catalog import BUNDLED, INCLUDED
from elmore.text.documents import Documents
from elmore.text.patterns import expand
from elmore.text.segmenter import (
    Split,
    Tokenizer,
    is_convention,
    split_function,
    tokenizer_name,
)
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.senses.find import Concordance, Sort
    from elmore.senses.groups import WordSenses

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
_T = TypeVar("_T")
MANIFEST, WORDS, VOCABULARY = "manifest.json", "words.json", "vocabulary.json"
CORPUS, DOCUMENTS = "corpus.json", "documents.json"
# The types of the arrays; the largest vocabulary decides about ids. Rows of the first are uses.
_USES = {
    **{"sentence": ("<i4",), "position": ("<i4",), "ids": ("<u2", "<u4"), "weights": ("|u1",)},
    **{"weight_scale": ("<f4",), "vectors": ("|i1",), "vector_scale": ("<f4",)},
}
# Only if layers were asked for; a model without a softmax has them as vectors.npy.
_LAYERS = {"layers": ("|i1",), "layer_scale": ("<f4",)}
_SENTENCES = {
    **{"text": ("|u1",), "text_end": ("<i8",), "line": ("<i4",), "source": ("<i4",)},
    "number": ("<i4",),
}
_TYPES = {
    **{**_USES, **_LAYERS, **_SENTENCES},
    **{"tag": ("|u1",), "offsets": ("<i8",), "count": ("<i4",)},
}
USES, LAYERS, SENTENCES = tuple(_USES), tuple(_LAYERS), tuple(_SENTENCES)
_MATRICES = ("ids", "weights", "vectors", "layers", "count")
# Universal parts of speech, by the numbers in tag.npy.
TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN"),
    *("PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
# Files up to this size are compared with their SHA-256 when the index is opened, which takes a
# millisecond each; `verify` compares all.
_COMPARED = 1 << 20
# Of a JSON file. Two million words are 30 MB.
_MAX_JSON = 1 << 28
# Weights are logarithms of probabilities, vectors have length 1, and layers are small.
_MAX_SCALE = 1e4
FORMAT = FolderFormat(
    name="elmore-uses", version=1, label="an index of uses", fix="make it again with --force"
)
# Of a manifest: a hundred thousand files of text are 15 MB.
_MANIFEST_BYTES = 1 << 27
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class _Settings(msgspec.Struct):
    k: _Count
    max_uses: _Count
    candidates: Annotated[int, msgspec.Meta(ge=1)]
    tokenized: bool
    start: str
    precision: str | None = None
    tokenizer: str | None = None
    tags: bool = False


class _Model(msgspec.Struct):
    sha256: str
    dim: _Count
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
    model_name: str | list[str] | None = None
    tokenizer: str | None = None


class Use(NamedTuple):
    """A use of a word.

    Attributes:
        row: its number in the index.
        tokens: the sentence.
        position: of the word in it; of its first token if it is a phrase.
        source: the document that it is from: a file, or file#line for a record of one.
        line: of that file, the first one of a record; the number of the sentence if sentences
            were split.
        width: how many tokens the word has: 2 for *cell phone*.
    """

    row: int
    tokens: tuple[str, ...]
    position: int
    source: str
    line: int
    width: int = 1

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.source.rpartition('#')[0] or self.source}:{self.line}"

    @property
    def word(self) -> str:
        """The word, or the tokens of a phrase, as they are spelled here."""
        return " ".join(self.tokens[self.position : self.position + self.width])

    def context(self, width: int = 40) -> tuple[str, str, str]:
        """The text before the word, the word, and the text after it; `width` characters each."""
        left, right = (
            " ".join(some)
            for some in (self.tokens[: self.position], self.tokens[self.position + self.width :])
        )
        left = left if len(left) <= width else "…" + left[1 - width :]
        right = right if len(right) <= width else right[: width - 1] + "…"
        return left, self.word, right


class Index:
    """The uses of words in a corpus; `Index.open` opens one that `build_index` made.

    Attributes:
        path: its folder.
        words: each indexed word in lower case, with how often it occurs in the corpus; the order
            is that of the rows.
        manifest: settings, inputs and model.
        documents: what is known about the documents of the corpus.
        label: the name of its folder, and which documents were selected.
    """

    def __init__(
        self,
        path: Path,
        elmo: Elmo | None = None,
        model: ModelPath | None = None,
        tokenizer: Tokenizer | None = None,
        threads: int | None = None,
    ) -> None:
        self.path, self.manifest = path, read_manifest(path)
        self._elmo, self._model, self._threads = elmo, model, threads
        self._given = tokenizer
        self.label, self._base, self._chosen = str(path), self, cast(Mask | None, None)
        self.documents = self._json(DOCUMENTS, Documents)
        self.words = self._json(WORDS, dict[str, _Count])
        self.arrays = {name: self._mapped(name) for name in part_names(self.manifest)}
        self.offsets = np.array(self._mapped("offsets"))
        self._check_shapes()
        self._numbers = {word: number for number, word in enumerate(self.words)}
        # Which words have several tokens.
        self._widths = [word.count(" ") + 1 for word in self.words]

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        elmo: Elmo | None = None,
        model: ModelPath | None = None,
        tokenizer: Tokenizer | None = None,
        threads: int | None = None,
    ) -> Index:
        """Open an index. Its arrays are mapped, not read.

        Args:
            path: the folder.
            elmo: the model that it was made with; by default it is loaded when it is needed.
            model: what to load then, if the model is not where it was. Only a model inside the
                package or on this computer is loaded without it: an index from elsewhere must not
                make us download anything.
            tokenizer: what splits questions, as in `Elmo.load`; needed if the index was made with
                a function. By default the convention that the index states.
            threads: processors that it may use; all by default.

        Raises:
            FormatError: there is no complete index.
        """
        return cls(Path(path), elmo, model, tokenizer, threads)

    def __len__(self) -> int:
        n_uses = int(self.offsets[-1])
        return n_uses if self._chosen is None else len(self._selected(np.arange(n_uses)))

    def __contains__(self, word: str) -> bool:
        return word.lower() in self.words

    def __repr__(self) -> str:
        return f"Index({self.label!r}, {len(self.words)} words, {len(self)} uses)"

    def _json(self, name: str, kind: type[_T]) -> _T:
        """Read a JSON file of a known type."""
        with self._open(name, compared=True) as stream:
            data = stream.read(_MAX_JSON + 1)
        if len(data) > _MAX_JSON:
            self._damaged(f"{name} has more than {_MAX_JSON} bytes")
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._damaged(f"{name}: {error}")

    def _mapped(self, name: str) -> NDArray[Any]:
        """Map an array of a known type."""
        with self._open(f"{name}.npy") as stream:
            try:
                if np.lib.format.read_magic(stream) != (1, 0):
                    self._damaged(f"{name}.npy has an unknown header")
                shape, fortran, kind = np.lib.format.read_array_header_1_0(stream)
                start = stream.tell()
                known = kind.str in _TYPES[name] and not fortran
                if not known or len(shape) != 1 + (name in _MATRICES):
                    self._damaged(f"{name}.npy has another type or shape")
                check_size(
                    start + math.prod(shape) * kind.itemsize,
                    self.manifest["files"][f"{name}.npy"]["size"],
                    what=self.path / f"{name}.npy",
                    fix=FORMAT.fix,
                )
                return np.memmap(stream, kind, "r", start, shape)
            except FormatError:
                raise
            except Exception as error:  # numpy evaluates the header, which raises many kinds
                self._damaged(f"{name}.npy: {error}")

    def _open(self, name: str, *, compared: bool = False) -> BinaryIO:
        """Open a file of the index; small ones are compared with their SHA-256."""
        path, entry = self.path / name, self.manifest["files"][name]
        stream = open_checked(path, what="index file", follow=False)
        try:
            check_size(os.fstat(stream.fileno()).st_size, entry["size"], what=path, fix=FORMAT.fix)
            if compared or entry["size"] <= _COMPARED or name == "offsets.npy":
                check_sum(stream, entry["sha256"], what=path, fix=FORMAT.fix)
                stream.seek(0)
            return stream
        except BaseException:
            stream.close()
            raise

    def _check_shapes(self) -> None:
        """Refuse arrays that do not fit together."""
        offsets, sizes = self.offsets, {name: len(one) for name, one in self.arrays.items()}
        n_uses = int(offsets[-1]) if len(offsets) else -1
        model, widths = (
            self.manifest["model"],
            {name: self.arrays[name].shape[1:] for name in sizes},
        )
        fit = (
            len(offsets) == len(self.words) + 1
            and offsets[0] == 0
            and bool((np.diff(offsets) >= 0).all())
            and all(sizes[name] == n_uses for name in sizes if name not in (*SENTENCES, "count"))
            and sizes["text_end"] == sizes["line"] == sizes["source"] == sizes["number"]
            and self.documents.consistent
            and widths["count"] == (3,)
            and widths["ids"] == widths["weights"]
            and widths["vectors"] == (model["dim"],)
            and bool(widths["ids"][0]) == model["softmax"]
        )
        if not fit:
            self._damaged("its arrays do not fit together")

    def _damaged(self, reason: str) -> NoReturn:
        raise FormatError(
            f"'{shown(self.path, 100)}' is damaged ({shown(reason, 80)}); {FORMAT.fix}"
        )

    @property
    def sources(self) -> list[str]:
        """The names of the documents."""
        return self.documents.names

    @property
    def whole(self) -> Index:
        """The index with all of its documents."""
        return self._base

    def has(self, rows: Rows) -> Mask:
        """Whether uses are in the chosen documents, (n,)."""
        every = np.ones(len(rows), bool)
        return every if self._chosen is None else self._chosen[self.source_of(rows)]

    def where(self, *conditions: str) -> Index:
        """The same index with the documents alone of which all conditions hold.

        Args:
            conditions: such as `genre=news`, `genre=news,letters` or `date>=1900`; see
                `Documents.matching`.

        Raises:
            InputError: there is no such document.
        """
        masks = [self.documents.matching(condition) for condition in conditions]
        if not masks:
            return self
        return self._view(np.logical_and.reduce(masks), ", ".join(conditions))

    def groups(self, by: str, period: int | None = None) -> dict[str, Index]:
        """This index divided by what is known about its documents, such as `genre` or `date`.

        Args:
            by: the field; see `documents.values`.
            period: join so many years.
        """
        chosen = True if self._chosen is None else self._chosen
        masks = self.documents.groups(by, period)
        return {
            label: self._view(mask, f"{by}={label}")
            for label, mask in masks.items()
            if (mask & chosen).any()
        }

    def _view(self, mask: Mask, label: str) -> Index:
        view = copy.copy(self)
        chosen = mask if self._chosen is None else mask & self._chosen
        if not chosen.any():
            raise InputError(f"no document has {shown(label, 100)}")
        view._chosen, view.label = (
            chosen,
            label if self._chosen is None else f"{self.label}, {label}",
        )
        table = self._counted[0]
        # Counts of words that occur nowhere in these documents are 0.
        n = np.bincount(table[:, 0], table[:, 2] * chosen[table[:, 1]], len(self._numbers))
        view.words = {word: int(n[k]) for word, k in self._numbers.items() if n[k]}
        return view

    def counts(self, word: str) -> Rows:
        """How often a word of the index occurs in each document of the corpus, (n_documents,)."""
        table, starts = self._counted
        rows = table[slice(*starts[self._numbers[word] :][:2])]
        found = np.bincount(rows[:, 1], rows[:, 2], len(self.sources)).astype(np.int64)
        return found if self._chosen is None else np.where(self._chosen, found, 0)

    def frequency(self, word: str | Sequence[str]) -> Rows:
        """How often words and patterns occur in each document, together, (n_documents,).

        Args:
            word: as in `rows`; a part of speech is estimated from the uses that are kept.

        Raises:
            InputError: the index has no such word.
        """
        found, rows, names = np.zeros(len(self.sources)), self._base.rows(word), [*self._numbers]
        for number in np.unique(np.searchsorted(self.offsets, rows, "right") - 1):
            mine = self._selected(np.arange(*self.offsets[number : number + 2]))
            share = np.isin(mine, rows).mean() if len(mine) else 1.0
            found += self.counts(names[number]) * share
        return np.rint(found).astype(np.int64)

    @property
    def n_words(self) -> Rows:
        """How many words each document has, chosen ones alone, (n_documents,)."""
        found = np.array(self.documents.n_words, np.int64)
        return found if self._chosen is None else np.where(self._chosen, found, 0)

    @cached_property
    def _counted(self) -> tuple[NDArray[Any], Rows]:
        """The rows of count.npy, and where those of each word begin."""
        if self._base is not self:
            return self._base._counted
        table, most = self.arrays["count"], (len(self._numbers), len(self.sources), 1 << 31)
        if len(table) and not ((table >= 0).all() and (table.max(axis=0) < most).all()):
            self._damaged("count.npy has a number that no word or document has")
        return table, np.searchsorted(table[:, 0], np.arange(len(self._numbers) + 1))

    @cached_property
    def corpus_counts(self) -> dict[str, int]:
        """How often every word of the corpus occurs in it, in lower case."""
        return self._json(CORPUS, dict[str, _Count])

    @cached_property
    def space(self) -> SenseSpace:
        """What computes sense vectors of new text: the model that the index was made with."""
        if self._base is not self:  # loaded once for all parts of an index
            return self._base.space
        settings = self.manifest["settings"]
        elmo = self._elmo or self._loaded()
        model = self.manifest["model"]
        space = make_space(
            elmo,
            settings["k"],
            candidates=settings["candidates"],
            layers=None if model["softmax"] else model["layers"],
        )
        if space_digest(space) != self.manifest["model"]["sha256"]:
            raise ConfigError(
                f"'{shown(self.path, 100)}' was made with another model than "
                f"{shown(space.elmo, 100)}; pass that one (--model)"
            )
        return space

    def _loaded(self) -> Elmo:
        name = stated_model(self.path, self.manifest) if self._model is None else self._model
        options = compute_settings(self.manifest)
        stated = self._stated
        options["threads"] = self._threads
        options["tokenizer"] = stated if stated is None or is_convention(stated) else None
        # The name alone could be that of a folder here; a folder is stored with its whole path.
        default = name == BUNDLED and self._model is None
        return Elmo.load(None if default else name, **options)

    @property
    def _stated(self) -> str | None:
        """How its text was split, as the manifest says; None for the tokenizer of the model."""
        # The setting is what was asked for; the other is what came of it.
        asked: str | None = self.manifest["settings"].get("tokenizer")
        return self.manifest.get("tokenizer") or asked

    @cached_property
    def _split(self) -> Split:
        stated = self._stated
        if self._given is not None:
            return split_function(self._given)
        if self.manifest["settings"]["tokenized"]:
            return split_function(lambda text: text.split(" "))
        if stated is None:
            return self.space.elmo.tokenize
        if is_convention(stated):
            return split_function(stated)
        # A file may not choose what is imported: the function must come from the caller.
        own = None if self._elmo is None else self._elmo.engine.compute.tokenizer
        if own is None or tokenizer_name(own) != stated:
            raise ConfigError(
                f"'{shown(self.path, 100)}' was split by {shown(repr(stated), 60)}, a function of "
                "yours; pass it (tokenizer=, --tokenizer)"
            )
        return split_function(own)

    def tokenize(self, text: str) -> Sentence:
        """Split a sentence into tokens, as the text of the index was split."""
        return self._split(text)

    @cached_property
    def vocabulary(self) -> list[str]:
        """The words that can be substitutes."""
        return (
            self._base.vocabulary if self._base is not self else self._json(VOCABULARY, list[str])
        )

    @cached_property
    def bases(self) -> NDArray[np.int32]:
        """The substitute that each one counts as; see `base_forms`."""
        return base_forms(self.vocabulary)

    def rows(self, word: str | Sequence[str], *, literal: bool = False) -> Rows:
        """The uses of a word, of some words, or of a pattern, in the order of the index.

        Args:
            word: a word or several; `run*` for a prefix; `/runs?|ran/` for a regular expression;
                `lemma:run` for all its forms; each with `/NOUN` for a part of speech, if the index
                has them. Case does not matter.
            literal: take it as a word even if it looks like a pattern.

        Raises:
            InputError: the index has no such word, or none of several. Where it has some of
                several, a warning names the others.
        """
        patterns = [word] if isinstance(word, str) else list(word)
        if not patterns:
            raise InputError("the list of words is empty; name at least one")
        found = {pattern: self._matching(pattern, literal) for pattern in patterns}
        missing = ", ".join(f"'{shown(one, 60)}'" for one, rows in found.items() if rows is None)
        if all(rows is None for rows in found.values()):
            be, them = ("is", "it") if len(found) == 1 else ("are", "them")
            raise InputError(
                f"{missing} {be} not in the index of {len(self._numbers)} words; index {them} with "
                "--words, or use a pattern such as 'run*'"
            )
        if missing:  # few texts have all forms of a word, so this is not an error
            warnings.warn(f"not in the index: {missing}", stacklevel=2)
        rows = [rows for rows in found.values() if rows is not None]
        return self._selected(rows[0] if len(rows) == 1 else np.unique(np.concatenate(rows)))

    def _selected(self, rows: Rows) -> Rows:
        """Those of rows that are in chosen documents."""
        return rows if self._chosen is None else rows[self.has(rows)]

    def vectors(self, rows: Rows) -> Array:
        """Dense vectors of uses, of length 1 up to rounding, (n, dim)."""
        return self._scaled("vectors", "vector_scale", rows)

    def products(self, rows: Rows, query: Array) -> Array:
        """The product of a vector with the dense vectors of uses, `vectors(rows) @ query`, (n,)."""
        # Uses of one word follow each other: a slice of the map needs no copy. Scaled at the end,
        # one number per use instead of one per dimension.
        follow = bool(len(rows)) and bool((np.diff(rows) == 1).all())
        some = slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows
        numbers = self.arrays["vectors"][some].astype(np.float32)
        return np.asarray((numbers @ query) * self._scale("vector_scale", some), np.float32)

    def layers(self, rows: Rows) -> Array:
        """The layers of uses, if the index was made with some, (n, dim).

        They are of length 1 up to rounding in an index that has nothing but layers.

        Raises:
            ConfigError: it was made without.
        """
        if not self.manifest["model"]["softmax"]:
            return self.vectors(rows)
        if "layers" not in self.arrays:
            raise ConfigError(f"'{shown(self.path, 100)}' has no layers; make it with --layers top")
        return self._scaled("layers", "layer_scale", rows)

    def substitutes(self, rows: Rows) -> SenseVectors:
        """Sparse vectors of uses: their likeliest substitutes with weights."""
        weights = self._scaled("weights", "weight_scale", rows)
        ids = self.arrays["ids"][rows].astype(np.int32)
        if ids.max(initial=-1) >= len(self.vocabulary):
            self._damaged("ids.npy has words that vocabulary.json lacks")
        layers = None if ids.shape[1] else self.vectors(rows)
        return SenseVectors(_Stored(self), ids, weights, layers=layers)

    def _scaled(self, name: str, scale: str, rows: Rows) -> Array:
        """Small integers of rows times their scale, (n, width)."""
        return np.asarray(self.arrays[name][rows] * self._scale(scale, rows)[:, None], np.float32)

    def _scale(self, name: str, rows: Rows | slice) -> Array:
        values = self.arrays[name][rows]
        if not ((values >= 0) & (values <= _MAX_SCALE)).all():  # NaN fails too
            self._damaged(f"{name}.npy has a number that is not a scale")
        return np.asarray(values)

    def use(self, row: int) -> Use:
        """A use with its sentence."""
        number, position = (int(self.arrays[name][row]) for name in ("sentence", "position"))
        ends, text = self.arrays["text_end"], self.arrays["text"]
        if not 0 <= number < len(ends):
            self._damaged("sentence.npy has a number that no sentence has")
        start, end = int(ends[number - 1]) if number else 0, int(ends[number])
        if not 0 <= start <= end <= len(text):
            self._damaged("text_end.npy goes beyond the text")
        tokens = tuple(text[start:end].tobytes().decode("utf-8", "replace").split("\n")[:-1])
        source, line = (int(self.arrays[name][number]) for name in ("source", "line"))
        if not (0 <= position < len(tokens) and 0 <= source < len(self.sources)):
            self._damaged("position.npy or source.npy has a number beyond its text")
        width = self._widths[int(np.searchsorted(self.offsets, row, "right")) - 1]
        return Use(int(row), tokens, position, self.sources[source], line, width)

    def about(self, row: int) -> dict[str, str]:
        """What is known about the document of a use."""
        number = int(self.source_of(np.array([row]))[0])
        known = {name: values[number] for name, values in self.documents.values.items()}
        return {name: value for name, value in known.items() if value}

    def forms(self) -> list[str]:
        """The indexed words as they are spelled in the sentences, in the order of the text."""
        tokens = self.arrays["text"].tobytes().decode("utf-8", "replace").split("\n")
        return [form for form in dict.fromkeys(tokens) if form.lower() in self.words]

    def source_of(self, rows: Rows) -> NDArray[np.int64]:
        """The number of the file that each use is from, (n,)."""
        numbers = self.arrays["sentence"][rows]
        if numbers.min(initial=0) < 0 or numbers.max(initial=-1) >= len(self.arrays["source"]):
            self._damaged("sentence.npy has a number that no sentence has")
        sources = np.asarray(self.arrays["source"][numbers], np.int64)
        if sources.min(initial=0) < 0 or sources.max(initial=-1) >= len(self.sources):
            self._damaged("source.npy has a number that no file has")
        return sources

    def find(
        self,
        place: str | Place,
        *,
        word: str | Sequence[str] | None = None,
        k: int = 10,
        like: Sequence[str | Place] = (),
        unlike: Sequence[str | Place] = (),
        sort: Sort | None = None,
        by: str | None = None,
        period: int | None = None,
    ) -> Concordance:
        """The uses most similar to one, or all of a word; see `senses.find.find_uses`."""
        from elmore.senses.find import find_uses

        how: Any = {"like": like, "unlike": unlike, "sort": sort, "by": by, "period": period}
        return find_uses(self, place, word=word, k=k, **how)

    def senses(
        self, word: str | Sequence[str], *, corrected: bool = True, **options: Any
    ) -> WordSenses:
        """Group the uses of a word; see `senses.groups.find_senses` for the options.

        Args:
            word: see `rows`.
            corrected: apply the corrections by hand (see `senses.corrections`), if all documents
                are asked.
            options: such as `n_senses`, `like` and `seed`.
        """
        from elmore.senses import corrections
        from elmore.senses.groups import find_senses

        found = find_senses(self, word, **options)
        return corrections.corrected(found) if corrected and self._base is self else found

    def _matching(self, pattern: str, literal: bool) -> Rows | None:
        """The uses that a word or pattern stands for; None if no word of the index is meant."""
        word, slash, tag = pattern.rpartition("/")
        tagged = bool(slash and word) and tag.upper() in TAGS and not literal
        # A slash may be part of a word, as in *and/or*, or of an expression, as in /noun/.
        tagged = tagged and pattern.lower() not in self._numbers
        words = expand(word if tagged else pattern, self._numbers, literal=literal)
        if not words:
            return None
        offsets, numbers = self.offsets, sorted(self._numbers[one] for one in words)
        rows = np.concatenate([np.arange(offsets[n], offsets[n + 1]) for n in numbers])
        if not tagged:
            return rows
        if "tag" not in self.arrays:
            raise ConfigError(
                f"'{shown(self.path, 100)}' has no parts of speech; make it with --tags"
            )
        mine: Rows = rows[self.arrays["tag"][rows] == TAGS.index(tag.upper())]
        return mine


@dataclass(frozen=True)
class _Stored:
    """The words that an index stores; only their softmax rows need the model."""

    index: Index

    @property
    def words(self) -> Sequence[str]:
        return self.index.vocabulary

    @property
    def rows(self) -> Array:
        return self.index.space.rows

    @property
    def bases(self) -> NDArray[np.int32]:
        return self.index.bases


def compute_settings(manifest: Mapping[str, Any]) -> ComputeOptions:
    """How the model of an index computed; another precision or start gives other vectors."""
    settings = manifest["settings"]
    return {"precision": settings["precision"], "start": settings["start"]}


def stated_model(path: Path, manifest: Mapping[str, Any]) -> str | tuple[str, ...]:
    """The model that an index names, if loading it contacts nobody.

    Raises:
        ConfigError: it names none, or one that is neither inside the package nor on this computer.
    """
    name = manifest.get("model_name")
    if name is None:
        raise ConfigError("the index does not name its model; pass it (--model)")
    if isinstance(name, str) and name in INCLUDED:
        return name
    files = [name] if isinstance(name, str) else name
    # Two slashes could be the address of another computer.
    if all(os.path.isabs(one) and one[1:2] not in "/\\" and os.path.exists(one) for one in files):
        return name if isinstance(name, str) else tuple(files)
    raise ConfigError(
        f"'{shown(path, 100)}' was made with the model {shown(repr(name), 80)}, which is not here; "
        "pass it (--model)"
    )


def part_names(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The arrays of an index besides its offsets, by its manifest."""
    model = manifest["model"]
    kept = model["softmax"] and model["layers"] is not None
    tags = ("tag",) if manifest["settings"].get("tags") else ()
    return (*USES, *(LAYERS if kept else ()), *tags, *SENTENCES, "count")


def write_manifest(path: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write the manifest of an index, with sizes and digests of its files."""
    files = {
        name: {"size": (path / name).stat().st_size, "sha256": sha256_file(path / name)}
        for name in names
    }
    with atomic_file(path / MANIFEST, overwrite=True) as stream:
        text = json.dumps({**manifest, "files": files}, indent=1, ensure_ascii=False)
        stream.write(text.encode() + b"\n")


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
    if not (path / MANIFEST).is_file():
        begun = (path / "journal.jsonl").exists()
        what = "is not complete; run `elmore index` again to resume" if begun else "is not an index"
        more = "" if begun else "; make one with `elmore index`"
        raise FormatError(f"'{shown(path, 120)}' {what}{more}")
    manifest = read_json(path / MANIFEST, max_bytes=_MANIFEST_BYTES, follow=False)
    FORMAT.check(manifest, what=str(path / MANIFEST))
    try:
        msgspec.convert(manifest, _Manifest)
    except msgspec.ValidationError as error:
        raise FormatError(
            f"'{shown(path / MANIFEST, 100)}' is damaged ({shown(error, 100)}); {FORMAT.fix}"
        ) from None
    arrays = {f"{name}.npy" for name in (*part_names(manifest), "offsets")}
    if set(manifest["files"]) != {*arrays, WORDS, CORPUS, DOCUMENTS, VOCABULARY}:
        raise FormatError(f"'{shown(path / MANIFEST, 100)}' lists other files; {FORMAT.fix}")
    return manifest


def verify(path: Path) -> None:
    """Compare all files of an index with their SHA-256; this reads all of them.

    Raises:
        FormatError: one is damaged or missing.
    """
    for name, entry in Index(path).manifest["files"].items():
        check_file(path / name, entry["sha256"], fix=FORMAT.fix)


def digest_words(values: Sequence[str]) -> str:
    """A digest of a list of words."""
    return hashlib.sha256("\n".join(values).encode("utf-8", "surrogatepass")).hexdigest()


def space_digest(space: SenseSpace) -> str:
    """A digest of all that sense vectors depend on."""
    digest = hashlib.sha256(space.elmo.digest.encode())
    if not isinstance(space, SubstituteSpace):
        return digest.hexdigest()
    for array in (space.softmax.weight, space.softmax.bias):
        digest.update(np.ascontiguousarray(array, np.float32).data)
    digest.update(digest_words(space.words).encode())
    return digest.hexdigest()
