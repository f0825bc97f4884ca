"""An index of the uses of words in a corpus: computed once, opened in a moment.

offsets.npy             uses of word w are rows offsets[w] to offsets[w + 1]
sentence.npy, position.npy                      where each use is
ids.npy, weights.npy, weight_scale.npy          its likeliest substitutes, uint8 times a scale
vectors.npy, vector_scale.npy                   its dense vector, int8 times a scale
layers.npy, layer_scale.npy                     its layers, if asked for, int8 times a scale
cells.npy, cell_rows.npy, cell_offsets.npy      similar uses, if asked for: see `senses/cells.py`
text.npy, text_end.npy, line.npy, source.npy    the sentences: tokens, each ended by a newline
words.json, vocabulary.json                     words and their counts; the substitutes
manifest.json                                   settings, sizes and digests of all of them
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.base.io import sha256_file
from elmore.base.json import read_json
from elmore.base.manifest import FolderFormat, check_file, check_size
from elmore.base.messages import SILENT, Progress, shown
from elmore.bulk.output_folder import FOLDER_LIMITS
from elmore.elmo import Elmo
from elmore.embedding.search import largest
from elmore.errors import ConfigError, FormatError, InputError
from elmore.formats.detect import ModelPath
from elmore.language_model.sense_vectors import Array, Place, SenseSpace, SenseVectors
from elmore.options import ComputeOptions
from elmore.published.catalog import BUNDLED, INCLUDED
from elmore.text.segmenter import (
    Split,
    Tokenizer,
    is_convention,
    split_function,
    tokenizer_name,
)
from elmore.text.sentence import Sentence

if TYPE_CHECKING:
    from elmore.senses.find import Concordance
    from elmore.senses.groups import WordSenses

__all__ = ["Index", "Use"]

Rows = NDArray[np.int64]
MANIFEST, WORDS, VOCABULARY = "manifest.json", "words.json", "vocabulary.json"
USES = ("sentence", "position", "ids", "weights", "weight_scale", "vectors", "vector_scale")
# Only if layers were asked for; a model without a softmax has them as vectors.npy.
LAYERS = ("layers", "layer_scale")
SENTENCES = ("text", "text_end", "line", "source")
# Only if they were added.
CELLS = ("cells", "cell_rows", "cell_offsets")
# Cells that a search reads. Of the ten best uses among a million, 32, 64 and 128 of 2,000 cells had
# 98.8, 99.7 and 100 per cent.
PROBES = 64
FORMAT = FolderFormat(
    name="elmore-uses", version=1, label="an index of uses", fix="make it again with --force"
)


class Use(NamedTuple):
    """A use of a word.

    Attributes:
        row: its number in the index.
        tokens: the sentence.
        position: of the word in it.
        source: the file that it is from.
        line: of that file, the first one of a record; the number of the sentence if sentences
            were split.
    """

    row: int
    tokens: tuple[str, ...]
    position: int
    source: str
    line: int

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.source}:{self.line}"

    def context(self, width: int = 40) -> tuple[str, str, str]:
        """The text before the word, the word, and the text after it; `width` characters each."""
        left, right = (
            " ".join(some)
            for some in (self.tokens[: self.position], self.tokens[self.position + 1 :])
        )
        left = left if len(left) <= width else "…" + left[1 - width :]
        right = right if len(right) <= width else right[: width - 1] + "…"
        return left, self.tokens[self.position], right


class Index:
    """The uses of words in a corpus; `Index.open` opens one that `build_index` made.

    Attributes:
        path: its folder.
        words: each indexed word in lower case, with how often it occurs in the corpus.
        manifest: settings, inputs and model.
        has_cells: whether `find` over all words may read a part of the uses; see `add_cells`.
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
        try:
            for name, entry in self.manifest["files"].items():
                size = (path / name).stat().st_size
                check_size(size, entry["size"], what=path / name, fix=FORMAT.fix)
            self.has_cells = f"{CELLS[0]}.npy" in self.manifest["files"]
            names = (*part_names(self.manifest), "offsets", *(CELLS if self.has_cells else ()))
            self._arrays: dict[str, NDArray[Any]] = {
                name: np.load(path / f"{name}.npy", mmap_mode="r") for name in names
            }
            self.words: Mapping[str, int] = read_json(path / WORDS, FOLDER_LIMITS)
            self.sources = [str(one["path"]) for one in self.manifest["inputs"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                f"'{shown(path, 100)}' is damaged ({shown(error, 80)}); {FORMAT.fix}"
            ) from None
        self._numbers = {word: number for number, word in enumerate(self.words)}

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
        return len(self._arrays["position"])

    def __contains__(self, word: str) -> bool:
        return word.lower() in self.words

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self.words)} words, {len(self)} uses)"

    def verify(self) -> None:
        """Compare all files with their SHA-256; this reads all of them."""
        for name, entry in self.manifest["files"].items():
            check_file(self.path / name, entry["sha256"], fix=FORMAT.fix)

    @cached_property
    def space(self) -> SenseSpace:
        """What computes sense vectors of new text: the model that the index was made with."""
        settings = self.manifest["settings"]
        elmo = self._elmo or self._loaded()
        model = self.manifest["model"]
        space = SenseSpace(
            elmo,
            settings["k"],
            candidates=settings.get("candidates"),
            layers=None if model.get("softmax", True) else model["layers"],
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
        if self.manifest["settings"].get("tokenized"):
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
        words: list[str] = json.loads((self.path / VOCABULARY).read_bytes())
        return words

    def rows(self, word: str | Sequence[str], *, literal: bool = False) -> Rows:
        """The uses of a word, of some words, or of a pattern, in the order of the index.

        Args:
            word: a word or several; `run*` for a prefix; `/runs?|ran/` for a regular expression.
                Case does not matter.
            literal: take it as a word even if it looks like a pattern.

        Raises:
            InputError: the index has no such word, or none of several. Where it has some of
                several, a warning names the others.
        """
        offsets = self._arrays["offsets"]
        patterns = [word] if isinstance(word, str) else list(word)
        if not patterns:
            raise InputError("the list of words is empty; name at least one")
        found = {pattern: self._matching(pattern, literal) for pattern in patterns}
        missing = ", ".join(f"'{shown(one, 60)}'" for one, rows in found.items() if not rows)
        if not any(found.values()):
            be, them = ("is", "it") if len(found) == 1 else ("are", "them")
            raise InputError(
                f"{missing} {be} not in the index of {len(self.words)} words; index {them} with "
                "--words, or use a pattern such as 'run*'"
            )
        if missing:  # few texts have all forms of a word, so this is not an error
            warnings.warn(f"not in the index: {missing}", stacklevel=2)
        numbers = {number for matched in found.values() for number in matched}
        return np.concatenate([np.arange(offsets[n], offsets[n + 1]) for n in sorted(numbers)])

    def vectors(self, rows: Rows) -> Array:
        """Dense vectors of uses, of length 1 up to rounding, (n, dim)."""
        scale = self._arrays["vector_scale"][rows][:, None]
        return np.asarray(self._arrays["vectors"][rows] * scale, np.float32)

    def products(self, rows: Rows, query: Array) -> Array:
        """The product of a vector with the dense vectors of uses, `vectors(rows) @ query`, (n,)."""
        # Uses of one word follow each other: a slice of the map needs no copy. Scaled at the end,
        # one number per use instead of one per dimension.
        follow = bool(len(rows)) and bool((np.diff(rows) == 1).all())
        some = slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows
        numbers = self._arrays["vectors"][some].astype(np.float32)
        return np.asarray((numbers @ query) * self._arrays["vector_scale"][some], np.float32)

    def layers(self, rows: Rows) -> Array:
        """The layers of uses, if the index was made with some, (n, dim).

        They are of length 1 up to rounding in an index that has nothing but layers.

        Raises:
            ConfigError: it was made without.
        """
        if not self.manifest["model"].get("softmax", True):
            return self.vectors(rows)
        if "layers" not in self._arrays:
            raise ConfigError(f"'{shown(self.path, 100)}' has no layers; make it with --layers top")
        scale = self._arrays["layer_scale"][rows][:, None]
        return np.asarray(self._arrays["layers"][rows] * scale, np.float32)

    def substitutes(self, rows: Rows) -> SenseVectors:
        """Sparse vectors of uses: their likeliest substitutes with weights."""
        scale = self._arrays["weight_scale"][rows][:, None]
        weights = np.asarray(self._arrays["weights"][rows] * scale, np.float32)
        ids = self._arrays["ids"][rows].astype(np.int32)
        layers = None if ids.shape[1] else self.vectors(rows)
        return SenseVectors(_Stored(self), ids, weights, layers=layers)

    def use(self, row: int) -> Use:
        """A use with its sentence."""
        number = int(self._arrays["sentence"][row])
        ends = self._arrays["text_end"]
        text = self._arrays["text"][int(ends[number - 1]) if number else 0 : int(ends[number])]
        tokens = tuple(text.tobytes().decode("utf-8", "replace").split("\n")[:-1])
        source = self.sources[int(self._arrays["source"][number])]
        position = int(self._arrays["position"][row])
        return Use(int(row), tokens, position, source, int(self._arrays["line"][number]))

    def near(self, query: Array, least: int) -> Rows:
        """The uses of the cells nearest to a vector, at least so many, in the order of the index.

        Only for an index with cells: it misses what other cells hold.
        """
        centres, order, offsets = (self._arrays[name] for name in CELLS)
        found, n = [], 0
        for number, cell in enumerate(largest(centres @ query, len(centres))):
            if number >= PROBES and n >= least:
                break
            found.append(order[offsets[cell] : offsets[cell + 1]])
            n += len(found[-1])
        return np.sort(np.concatenate(found)).astype(np.int64)

    def add_cells(self, *, threads: int | None = None, progress: Progress = SILENT) -> Index:
        """Divide the uses into cells, so that `find` over all words reads a few of them.

        Worth it above a million uses. The cells are added to the folder.

        Args:
            threads: of faiss; all processors by default.
            progress: counts uses.

        Returns:
            the index, opened again.

        Raises:
            MissingExtra: faiss is not installed.
        """
        from elmore.senses.cells import write_cells

        if not self.has_cells:
            write_cells(self, threads, progress)
        return Index(self.path, self._elmo, self._model, self._given, self._threads)

    def forms(self) -> list[str]:
        """The indexed words as they are spelled in the sentences, in the order of the text."""
        tokens = self._arrays["text"].tobytes().decode("utf-8", "replace").split("\n")
        return [form for form in dict.fromkeys(tokens) if form.lower() in self.words]

    def source_of(self, rows: Rows) -> NDArray[np.int64]:
        """The number of the file that each use is from, (n,)."""
        return np.asarray(self._arrays["source"][self._arrays["sentence"][rows]], np.int64)

    def find(
        self,
        place: str | Place,
        *,
        word: str | Sequence[str] | None = None,
        k: int = 10,
        like: Sequence[str | Place] = (),
        unlike: Sequence[str | Place] = (),
        exact: bool = False,
    ) -> Concordance:
        """The uses that are most similar to a use of a word; see `senses.find.find_similar`."""
        from elmore.senses.find import find_similar

        return find_similar(self, place, word=word, k=k, like=like, unlike=unlike, exact=exact)

    def senses(
        self, word: str | Sequence[str], *, max_senses: int = 8, seed: int = 0
    ) -> WordSenses:
        """Group the uses of a word; see `senses.groups.find_senses`."""
        from elmore.senses.groups import find_senses

        return find_senses(self, word, max_senses=max_senses, seed=seed)

    def _matching(self, pattern: str, literal: bool) -> list[int]:
        """The numbers of the words that a word or pattern stands for."""
        known = self._numbers.get(pattern.lower())
        if known is not None:
            return [known]
        if literal:
            return []
        if len(pattern) > 2 and pattern[0] == pattern[-1] == "/":
            source = pattern[1:-1]
        elif "*" in pattern or "?" in pattern:
            source = fnmatch.translate(pattern)
        else:
            return []
        try:
            compiled = re.compile(source, re.IGNORECASE)
        except re.error as error:
            raise ConfigError(f"'{shown(pattern, 60)}' is not a pattern: {error}") from None
        return [number for word, number in self._numbers.items() if compiled.fullmatch(word)]


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


def compute_settings(manifest: Mapping[str, Any]) -> ComputeOptions:
    """How the model of an index computed; another precision or start gives other vectors."""
    settings = manifest["settings"]
    return {"precision": settings.get("precision"), "start": settings.get("start", "zeros")}


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
    kept = model.get("softmax", True) and model.get("layers") is not None
    return (*USES, *(LAYERS if kept else ()), *SENTENCES)


def write_manifest(path: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write the manifest of an index, with sizes and digests of these files and those it lists."""
    entries = {
        name: {"size": (path / name).stat().st_size, "sha256": sha256_file(path / name)}
        for name in names
    }
    manifest = {**manifest, "files": {**manifest.get("files", {}), **entries}}
    with atomic_file(path / MANIFEST, overwrite=True) as stream:
        stream.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        FormatError: there is none, or it is not ours.
    """
    if not (path / MANIFEST).is_file():
        begun = (path / "journal.jsonl").exists()
        what = "is not complete; run `elmore index` again to resume" if begun else "is not an index"
        more = "" if begun else "; make one with `elmore index`"
        raise FormatError(f"'{shown(path, 120)}' {what}{more}")
    manifest = read_json(path / MANIFEST, FOLDER_LIMITS, follow=False)
    FORMAT.check(manifest, what=str(path / MANIFEST))
    return manifest


def digest_words(values: Sequence[str]) -> str:
    """A digest of a list of words."""
    return hashlib.sha256("\n".join(values).encode("utf-8", "surrogatepass")).hexdigest()


def space_digest(space: SenseSpace) -> str:
    """A digest of all that sense vectors depend on."""
    from elmore.embedding.layer_cache import model_digest

    digest = hashlib.sha256(model_digest(space.elmo).encode())
    if not space.k:  # a model without a softmax
        return digest.hexdigest()
    for array in (space.softmax.weight, space.softmax.bias):
        digest.update(np.ascontiguousarray(array, np.float32).data)
    digest.update(digest_words(space.words).encode())
    return digest.hexdigest()
