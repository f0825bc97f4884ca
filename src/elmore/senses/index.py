"""An index of the uses of words in a corpus: computed once, opened in a moment."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.elmo import Elmo
from elmore.embedding.load import ModelPath
from elmore.errors import ConfigError, InputError
from elmore.formats.containers.packing import pack_two_bits, unpack_two_bits
from elmore.language_model.sense_vectors import Array, Place, SenseSpace, SenseVectors
from elmore.senses.files import TAGS, IndexFiles
from elmore.senses.files import Rows as Rows
from elmore.senses.find import find_uses
from elmore.senses.model import IndexModel
from elmore.text.patterns import expand
from elmore.text.segmenter import Tokenizer
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.senses.groups import WordSenses

Mask = NDArray[np.bool_]
# Weights are logarithms of probabilities, vectors have length 1, and layers are small.
_MAX_SCALE = 1e4


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
        """File, without its folder, and line."""
        file = self.source.rpartition("#")[0] or self.source
        return f"{file.rpartition('/')[2]}:{self.line}"

    @property
    def word(self) -> str:
        """The word, or the tokens of a phrase, as they are spelled here."""
        return " ".join(self.tokens[self.position : self.position + self.width])

    def context(self, width: int | None = 40) -> tuple[str, str, str]:
        """The text before the word, the word, and the text after it.

        Args:
            width: characters that are left of each text; None for all.
        """
        left, right = (
            " ".join(some)
            for some in (self.tokens[: self.position], self.tokens[self.position + self.width :])
        )
        if width is not None:
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
        offsets: where the uses of each word begin, and the end.
    """

    find = find_uses

    def __init__(self, files: IndexFiles, model: IndexModel) -> None:
        self._files, self._model = files, model
        self.path, self.manifest, self.documents = files.path, files.manifest, files.documents
        self.words, self.offsets = files.words, files.offsets
        self.label, self.whole, self._chosen = str(files.path), self, cast(Mask | None, None)
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
        files = IndexFiles(Path(path))
        return cls(files, IndexModel(files, elmo, model, tokenizer, threads))

    def __len__(self) -> int:
        n_uses = int(self.offsets[-1])
        return n_uses if self._chosen is None else len(self._selected(np.arange(n_uses)))

    def __repr__(self) -> str:
        return f"Index({self.label!r}, {len(self.words)} words, {len(self)} uses)"

    @property
    def name(self) -> str:
        """The name of its folder, and which documents were selected, for titles."""
        folder = self.path.resolve().name
        return folder if self._chosen is None else f"{folder} ({self.label})"

    @property
    def sources(self) -> list[str]:
        """The names of the documents."""
        return self.documents.names

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
        view._chosen = chosen
        view.label = label if self._chosen is None else f"{self.label}, {label}"
        table = self._files.counts[0]
        # Counts of words that occur nowhere in these documents are 0.
        n = np.bincount(table["word"], table["n"] * chosen[table["document"]], len(self._numbers))
        view.words = {word: int(n[k]) for word, k in self._numbers.items() if n[k]}
        return view

    def counts(self, word: str) -> Rows:
        """How often a word of the index occurs in each document of the corpus, (n_documents,)."""
        table, starts = self._files.counts
        rows = table[slice(*starts[self._numbers[word] :][:2])]
        found = np.bincount(rows["document"], rows["n"], len(self.sources)).astype(np.int64)
        return found if self._chosen is None else np.where(self._chosen, found, 0)

    def frequency(self, word: str | Sequence[str]) -> Rows:
        """How often words and patterns occur in each document, together, (n_documents,).

        Args:
            word: as in `rows`; a part of speech is estimated from the uses that are kept.

        Raises:
            InputError: the index has no such word.
        """
        found, rows, names = np.zeros(len(self.sources)), self.whole.rows(word), [*self._numbers]
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

    @property
    def corpus_counts(self) -> dict[str, int]:
        """How often every word of the corpus occurs in it, in lower case."""
        return self._files.corpus_counts

    @property
    def space(self) -> SenseSpace:
        """What computes sense vectors of new text: the model that the index was made with."""
        return self._model.space

    def sense_vectors(self, places: Sequence[Place]) -> SenseVectors:
        """The sense vectors of new text, rounded as those of the index."""
        found = self.space.vectors(places)
        if found.context is None:
            return found
        context = unpack_two_bits(pack_two_bits(found.context), found.context.shape[1])
        return dataclasses.replace(found, context=context)

    def tokenize(self, text: str) -> Sentence:
        """Split a sentence into tokens, as the text of the index was split."""
        return self._model.split(text)

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
        return self._scaled(self._files.arrays["vectors"][rows], "vectors")

    def products(self, rows: Rows, query: Array) -> Array:
        """The product of a vector with the dense vectors of uses, `vectors(rows) @ query`, (n,)."""
        # Uses of one word follow each other: a slice of the map needs no copy. Scaled at the end,
        # one number per use instead of one per dimension.
        follow = bool(len(rows)) and bool((np.diff(rows) == 1).all())
        some = slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows
        found = self._files.arrays["vectors"][some]
        products = found["vectors"].astype(np.float32) @ query
        return np.asarray(products * self._scale(found, "vectors"), np.float32)

    def layers(self, rows: Rows) -> Array:
        """The layers of uses, if the index was made with some, (n, dim).

        They are of length 1 up to rounding in an index that has nothing but layers.

        Raises:
            ConfigError: it was made without.
        """
        if not self.manifest["model"]["softmax"]:
            return self.vectors(rows)
        if not self.manifest["model"]["layers_dim"]:
            raise ConfigError(f"'{shown(self.path, 100)}' has no layers; make it with --layers top")
        return self._scaled(self._files.arrays["uses"][rows], "layers")

    def substitutes(self, rows: Rows) -> SenseVectors:
        """Sparse vectors of uses: their likeliest substitutes with weights."""
        if not self.manifest["model"]["softmax"]:
            nothing = np.zeros((len(rows), 0), np.int32)
            layers = self.vectors(rows)
            return SenseVectors(self._model, nothing, nothing.astype(np.float32), layers=layers)
        found = self._files.substitutes(rows)
        ids = found["ids"].astype(np.int32)
        if ids.max(initial=-1) >= len(self._model.words):
            self._files.refuse("a use has a substitute that is not in the vocabulary")
        uses = self._files.arrays["uses"][rows]
        weights = found["weights"] * self._scale(uses, "weights")[:, None]
        context = unpack_two_bits(uses["context"], self.manifest["model"]["context"])
        return SenseVectors(self._model, ids, weights, context=context)

    def _scaled(self, found: NDArray[Any], name: str) -> Array:
        """Small integers of records times their scale, (n, width)."""
        return np.asarray(found[name] * self._scale(found, name)[:, None], np.float32)

    def _scale(self, found: NDArray[Any], name: str) -> Array:
        values = np.asarray(found[f"{name}_scale"])
        if not ((values >= 0) & (values <= _MAX_SCALE)).all():  # NaN fails too
            self._files.refuse(f"a scale of {name} is not a number that it can be")
        return values

    def use(self, row: int) -> Use:
        """A use with its sentence."""
        table, where = self._files.arrays["sentences"], self._files.arrays["uses"][row]
        number, position = int(where["sentence"]), int(where["position"])
        if not 0 <= number < len(table):
            self._files.refuse("uses.npy has a sentence that is not there")
        line, document, _ = table[number].tolist()
        if not 0 <= document < len(self.documents.names):
            self._files.refuse("sentences.npy has a document that is not there")
        tokens = self._files.tokens(number)
        if not 0 <= position < len(tokens):
            self._files.refuse("uses.npy has a position beyond its sentence")
        width = self._widths[int(np.searchsorted(self.offsets, row, "right")) - 1]
        return Use(int(row), tuple(tokens), position, self.documents.names[document], line, width)

    def about(self, row: int) -> dict[str, str]:
        """What is known about the document of a use."""
        number = int(self.source_of(np.array([row]))[0])
        known = {name: values[number] for name, values in self.documents.values.items()}
        return {name: value for name, value in known.items() if value}

    def forms(self) -> list[str]:
        """The indexed words as they are spelled in the sentences, in the order of the text."""
        sentences = map(self._files.tokens, range(len(self._files.arrays["sentences"])))
        forms = dict.fromkeys(token for tokens in sentences for token in tokens)
        return [form for form in forms if form.lower() in self.words]

    def source_of(self, rows: Rows) -> Rows:
        """The number of the document that each use is from, (n,)."""
        documents = self._files.arrays["sentences"]["document"]
        found = np.asarray(documents[self._files.sentences_of(rows)], np.int64)
        if found.min(initial=0) < 0 or found.max(initial=-1) >= len(self.documents.names):
            self._files.refuse("sentences.npy has a document that is not there")
        return found

    def senses(
        self, word: str | Sequence[str], *, corrected: bool = True, **options: Any
    ) -> WordSenses:
        """Group the uses of a word; see `senses.groups.find_senses` for the options.

        Args:
            word: see `rows`.
            corrected: apply the corrections by hand (see `senses.corrections`) to the senses that
                elmore finds by itself in all documents.
            options: such as `n_senses`, `like` and `seed`.
        """
        from elmore.senses import corrections
        from elmore.senses.groups import find_senses

        found = find_senses(self, word, **options)
        own = self.whole is self and not options.get("like")
        return corrections.corrected(found) if corrected and own else found

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
        if not self.manifest["settings"]["tags"]:
            raise ConfigError(
                f"'{shown(self.path, 100)}' has no parts of speech; make it with --tags"
            )
        tags = self._files.arrays["uses"]["tag"][rows]
        mine: Rows = rows[tags == TAGS.index(tag.upper())]
        return mine
