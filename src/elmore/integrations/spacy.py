"""spaCy: a pipeline component that gives tokens, spans and documents their vectors.

elmore registers it as a factory: `nlp.add_pipe("elmore")` needs no import.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.embedding.results import cosine
from elmore.integrations.loaded import load_once, tagger_once

require("spacy", "spacy", "elmore.integrations.spacy")

from spacy.language import Language  # noqa: E402 (the line above says what to install)
from spacy.pipeline import Pipe  # noqa: E402
from spacy.tokens import Doc, Span, Token  # noqa: E402
from spacy.util import minibatch  # noqa: E402

if TYPE_CHECKING:
    from elmore.elmo import Elmo

Array = NDArray[np.float32]
_UNIVERSAL = frozenset(
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()
)


class _Component(Pipe):
    """What both components share; spaCy saves the config that made them, which names the model."""

    name: str

    @abstractmethod
    def _fill(self, docs: Sequence[Doc]) -> None:
        """Add to documents what the component computes."""

    def __call__(self, doc: Doc) -> Doc:
        """Fill a document."""
        self._fill([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Fill a stream of documents, a batch at a time.

        Args:
            stream: documents.
            batch_size: how many are read before the first is passed on; their sentences are sorted
                by length and computed together.
        """
        for batch in minibatch(stream, batch_size):  # type: ignore[no-untyped-call]  # spaCy's
            try:
                self._fill(batch)
            except Exception as error:  # the pipeline's owner decides what it means
                self.get_error_handler()(self.name, self, batch, error)
            else:
                yield from batch


class ElmoComponent(_Component):
    """Fill `doc.tensor` with one vector per token of spaCy, (tokens, dim).

    Tokens are taken as they are. If the document has sentences, each is read on its own, else all
    of it as one sequence. Tokens of white space are not read and get zeros.

    Args:
        nlp: the pipeline.
        name: of the component.
        model: a name, path or list of files, as in `Elmo.load`; the English model inside the
            package by default.
        layers: "mean", "top", the number of a layer, or one weight per layer.
        precision: "float32", "float16" or "int8".
        device: where to compute.
        threads: processors to use; set 1 where `nlp.pipe` has several processes.
        start: the state before each sentence: "zeros" or "warm".
        hooks: whether to call `add_hooks` for each document.
    """

    def __init__(
        self,
        nlp: Language,
        name: str,
        model: str | list[str] | None = None,
        layers: str | int | list[float] = "mean",
        precision: str | None = None,
        device: str = "cpu",
        threads: int | None = None,
        start: str = "zeros",
        hooks: bool = True,
    ) -> None:
        self.name = name
        self._model: Any = tuple(model) if isinstance(model, list | tuple) else model
        self._layers: Any = layers
        self._options: Any = {
            "device": device,
            "precision": precision,
            "threads": threads,
            "start": start,
        }
        self._hooks = hooks

    @property
    def elmo(self) -> Elmo:
        """The model, loaded when it is first used, once per process."""
        return load_once(self._model, **self._options)

    def _fill(self, docs: Sequence[Doc]) -> None:
        elmo = self.elmo
        places = [place for doc in docs for place in _sequences(doc)]
        words = [[token.text for token in tokens] for tokens in places]
        for doc in docs:
            doc.tensor = np.zeros((len(doc), elmo.dim), np.float32)
            # spaCy has cached these; they belong to the tensor that was there before.
            doc.vector = doc.vector_norm = None  # type: ignore[assignment]  # spaCy's own None
            if self._hooks:
                add_hooks(doc)
        found = elmo.embed(words, layers=self._layers, progress=False, tokenized=True)
        for tokens, vectors in zip(places, found, strict=True):
            tokens[0].doc.tensor[[token.i for token in tokens]] = vectors


class TaggerComponent(_Component):
    """Tag documents with a trained tagger of elmore, sentence by sentence if there are sentences.

    Universal tags become `token.pos_`, all others `token.tag_`. Of joined tags such as PROPN+NNP
    the first part that is universal becomes `token.pos_`, the other `token.tag_`. Spans become
    `doc.spans[key]`.

    Args:
        nlp: the pipeline.
        name: of the component.
        tagger: a name or folder, as in `elmore.tagger`.
        key: the group of `doc.spans` for spans.
        threads: processors to use.
    """

    def __init__(
        self,
        nlp: Language,
        name: str,
        tagger: str = "pos",
        key: str = "elmore",
        threads: int | None = None,
    ) -> None:
        self.name, self._tagger, self._key, self._threads = name, tagger, key, threads

    def _fill(self, docs: Sequence[Doc]) -> None:
        model = tagger_once(self._tagger, self._threads)
        places = [place for doc in docs for place in _sequences(doc)]
        tag_parts = model.tag_parts
        for doc in docs if model.marks_spans else ():
            doc.spans[self._key] = []
        found = model.predict([[token.text for token in tokens] for tokens in places])
        for tokens, one in zip(places, found, strict=True):
            doc = tokens[0].doc
            for span in one.spans:
                first, last = tokens[span.first].i, tokens[span.last].i
                doc.spans[self._key].append(Span(doc, first, last + 1, label=span.label))
            for token, tag in zip(tokens, one.tags if tag_parts else (), strict=False):
                parts = tag_parts[tag]
                # Penn tags have a SYM too, so only one part is universal.
                universal = next((part for part in parts if part in _UNIVERSAL), None)
                others = [*parts]
                if universal is not None:
                    token.pos_ = universal
                    others.remove(universal)
                if others:
                    token.tag_ = others[-1]


# The entry points of the package are these names.
make_component = Language.factory("elmore", assigns=["doc.tensor"], func=ElmoComponent)
make_tagger = Language.factory("elmore_tagger", func=TaggerComponent)


def _sequences(doc: Doc) -> Iterator[list[Token]]:
    """The tokens that are read together, without white space; no sequence is empty."""
    spans: Iterable[Doc | Span] = doc.sents if doc.has_annotation("SENT_START") else (doc,)
    for span in spans:
        tokens = [token for token in span if not token.is_space]
        if tokens:
            yield tokens


# Hooks ------------------------------------------------------------------------------------------


def add_hooks(doc: Doc) -> None:
    """Let `vector`, `has_vector` and `similarity` of a document and its parts use its tensor.

    Without them spaCy uses the vectors of its vocabulary if it has any, so that two tokens of one
    spelling are the same in every context. Hooks are lost when a document is written and read
    (`to_bytes`, `nlp.pipe` with several processes); the tensor is kept, and this puts them back.
    """
    hooks: dict[str, Callable[..., Any]] = {
        "vector": _vector,
        "has_vector": _has_vector,
        "similarity": _similarity,
    }
    for place in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        place.update(hooks)


def _rows(thing: Doc | Span | Token) -> Array:
    """The vectors of what is not white space, (n, dim)."""
    tokens = (thing,) if isinstance(thing, Token) else thing
    rows = [token.i for token in tokens if not token.is_space]
    return np.asarray(thing.doc.tensor[rows], np.float32)


def _vector(thing: Doc | Span | Token) -> Array:
    """The mean of its tokens, as in `Elmo.encode`; zeros for white space."""
    if isinstance(thing, Token):
        return np.asarray(thing.doc.tensor[thing.i], np.float32)
    vectors = _rows(thing)
    if not len(vectors):
        return np.zeros(vectors.shape[1:], np.float32)
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), np.float32)


def _has_vector(thing: Doc | Span | Token) -> bool:
    return len(_rows(thing)) > 0


def _similarity(thing: Doc | Span | Token, other: Any) -> float:
    return float(cosine(_vector(thing), other.vector))
