"""The uses of a word in some sentences, compared: as data, and as a page that shows them."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore._version import __version__
from elmore.base.atomic import atomic_file
from elmore.base.messages import shown
from elmore.embedding.results import SentenceLayers
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import SenseVectors
from elmore.language_model.word_uses import (
    Use,
    find_uses,
    inner_products,
    repeated_words,
    shared_word,
    use_layers,
)
from elmore.text.tokenizer import Sentence
from elmore.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from elmore.elmo import Elmo

_FOLDER = Path(__file__).parents[1] / "serve" / "page"
_DOCS = "https://elmore-nlp.github.io/elmore/"
_LINK, _SCRIPT = '<link rel="stylesheet" href="page.css">', '<script src="page.js"></script>'
# A saved page has everything inside and may load nothing.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_MAX_USES = 60
_MAX_WORDS = 50  # of those that are repeated


SenseWords = dict[str, list[Any]]


@dataclass(frozen=True)
class ChosenUses:
    """The uses to compare: of a word in sentences, the first of them if there are too many."""

    sentences: tuple[Sentence, ...]
    word: str | None
    uses: tuple[Use, ...]
    left_out: int

    @property
    def by_sentence(self) -> dict[int, list[int]]:
        """The positions in each sentence that has any."""
        places: dict[int, list[int]] = {}
        for use in self.uses:
            places.setdefault(use.sentence, []).append(use.position)
        return places


@dataclass(frozen=True, repr=False)
class Exploration:
    """The uses of a word, compared: a notebook shows it as the page of `elmore serve`.

    Attributes:
        answer: all that the page shows, as JSON values; the same as of `/v1/explore`.
    """

    answer: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Exploration({self.answer['word']!r}, {len(self.answer['uses'])} uses)"

    def to_html(self) -> str:
        """One file with everything inside; it needs neither a service nor a network."""
        # As \u003c, no text can end the element that it is in.
        data = json.dumps(self.answer, ensure_ascii=False).replace("<", "\\u003c")
        inside = {
            _LINK: f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            f"<style>\n{page_file('page.css').decode()}</style>",
            _SCRIPT: f'<script type="application/json" id="answer">{data}</script>\n'
            f"<script>\n{page_file('page.js').decode()}</script>",
        }
        text = page_file("index.html").decode()
        for tag, content in inside.items():
            before, _, after = text.partition(tag)
            text = before + content + after
        return text

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the page as an HTML file.

        Args:
            path: the file.
            overwrite: replace a file that exists.
        """
        with atomic_file(Path(path), overwrite=overwrite) as stream:
            stream.write(self.to_html().encode("utf-8", "replace"))

    def _repr_html_(self) -> str:
        # A frame keeps the styles of the page and of the notebook apart.
        return (
            f'<iframe srcdoc="{html.escape(self.to_html())}" sandbox="allow-scripts" '
            'title="uses of a word, compared" width="100%" height="900" '
            'style="border:0"></iframe>'
        )


def page_file(name: str) -> bytes:
    """A file of the page."""
    content = (_FOLDER / name).read_bytes()
    if name != "index.html":
        return content
    return content.replace(b"@version@", __version__.encode()).replace(b"@docs@", _DOCS.encode())


def explore(elmo: Elmo, texts: Sequence[str], *, word: str | None = None) -> Exploration:
    """Compare the uses of a word; see `Elmo.explore`."""
    sentences = [elmo.tokenize(text) for text in ([texts] if isinstance(texts, str) else texts)]
    chosen = choose_uses(sentences, word, elmo.checkpoint.vocabulary, _MAX_USES)
    if not chosen.uses:
        if chosen.word is None:
            raise InputError("no word occurs twice in these sentences; choose one with word=")
        raise InputError(f"'{shown(word, 60)}' is in none of the sentences; choose another word")
    places = chosen.by_sentence
    layers = elmo.pipe((sentences[k] for k in places), layers="all")
    try:
        space = elmo.sense_space
    except ConfigError:  # it has no softmax; the page says so
        senses = None
    else:
        asked = ((sentences[k], mine) for k, mine in places.items())
        senses = [sense_words(found) for found in space.pipe(asked)]
    name = Path(str(elmo.checkpoint.origin)).name
    by_number = dict(zip(places, layers, strict=True))
    return Exploration(describe_uses(name, elmo.n_layers, chosen, by_number, senses))


def choose_uses(
    sentences: Sequence[Sentence], word: str | None, vocabulary: Vocabulary | None, limit: int
) -> ChosenUses:
    """The uses of a word, or of the one that is most worth comparing."""
    tokens = [sentence.tokens for sentence in sentences]
    if word is None:
        word = shared_word(tokens, vocabulary)
    every = () if word is None else find_uses(tokens, word)
    return ChosenUses(tuple(sentences), word, every[:limit], max(0, len(every) - limit))


def describe_uses(
    model: str,
    n_layers: int,
    chosen: ChosenUses,
    layers: Mapping[int, SentenceLayers],
    senses: Sequence[Sequence[SenseWords]] | None,
) -> dict[str, Any]:
    """What the page shows, as JSON values.

    Args:
        model: its name.
        n_layers: of the model.
        chosen: the uses.
        layers: of each sentence with a use.
        senses: of the uses in the same sentences; None if the model has no softmax.
    """
    tokens = [sentence.tokens for sentence in chosen.sentences]
    products: list[Any] = []
    if chosen.uses:
        inner = inner_products(use_layers(layers, chosen.uses))
        products = inner.astype(float).round(4).tolist()
    return {
        "model": model,
        "n_layers": n_layers,
        "language_model": senses is not None,
        "sentences": [{"tokens": s.tokens, "spans": s.spans} for s in chosen.sentences],
        "words": [{"word": name, "count": n} for name, n in repeated_words(tokens)[:_MAX_WORDS]],
        "word": chosen.word,
        "uses": [use._asdict() for use in chosen.uses],
        "left_out": chosen.left_out,
        "products": products,
        "senses": None if senses is None else [words for some in senses for words in some],
    }


def sense_words(found: SenseVectors) -> list[SenseWords]:
    """The words of each place with their weights, the likeliest first."""
    names = found.space.words
    return [
        {
            "words": [names[k] for k in ids[weights > 0]],
            "weights": weights[weights > 0].astype(float).round(3).tolist(),
        }
        for ids, weights in zip(found.ids, found.weights, strict=True)
    ]
