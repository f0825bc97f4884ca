"""Which words a pattern stands for."""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from elmore.base.messages import shown
from elmore.errors import ConfigError

_LEMMA = "lemma:"
# English endings, and what may have been there before them.
_ENDINGS = (
    *(("ies", ("y",)), ("es", ("", "e")), ("s", ("",)), ("ied", ("y",)), ("ed", ("", "e"))),
    *(("ing", ("", "e")),),
)


def is_pattern(word: str) -> bool:
    """Whether it stands for words that must be looked up, such as `run*`."""
    return word.lower().startswith(_LEMMA) or "*" in word or "?" in word or is_expression(word)


def is_expression(word: str) -> bool:
    """Whether it is a regular expression: /runs?|ran/."""
    return len(word) > 2 and word[0] == word[-1] == "/"


def expand(pattern: str, words: Collection[str], *, literal: bool = False) -> list[str]:
    """The words, in lower case, that a pattern stands for.

    Args:
        pattern: a word; `run*`; `/runs?|ran/`, a regular expression; `lemma:run` for all forms of
            a word, or `lemma:laufen@de` in another language.
        words: all of them.
        literal: take it as a word even if it looks like a pattern.

    Raises:
        ConfigError: a bad expression.
    """
    if pattern.lower() in words:
        return [pattern.lower()]
    if literal or not is_pattern(pattern):
        return []
    if pattern.lower().startswith(_LEMMA):
        lemma, _, language = pattern[len(_LEMMA) :].lower().partition("@")
        lemmas = _lemmas(language or "en")
        return [word for word in words if word == lemma or lemma in lemmas(word)]
    expression = is_expression(pattern)
    try:
        source = pattern[1:-1] if expression else fnmatch.translate(pattern)
        compiled = re.compile(source, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(f"'{shown(pattern, 60)}' is not a pattern: {error}") from None
    return [word for word in words if compiled.fullmatch(word)]


def is_word(token: str) -> bool:
    """Whether it has a letter or digit."""
    return token[:1].isalnum() or any(map(str.isalnum, token))


class Phrases:
    """Finds phrases, such as *cell phone*, in sentences."""

    def __init__(self, phrases: Iterable[str]) -> None:
        # By their first word, to be found quickly.
        self._starts: dict[str, list[list[str]]] = {}
        for words in map(str.split, phrases):
            self._starts.setdefault(words[0], []).append(words)

    def find(self, tokens: Sequence[str]) -> list[tuple[int, str]]:
        """Where each one begins in a sentence."""
        return [
            (position, " ".join(words))
            for position, token in enumerate(tokens if self._starts else ())
            for words in self._starts.get(token, ())
            if tokens[position : position + len(words)] == words
        ]


def _lemmas(language: str) -> Callable[[str], set[str]]:
    """What a word may be a form of: by simplemma if it is installed, by its ending otherwise."""
    try:
        simplemma = importlib.import_module("simplemma")
        simplemma.lemmatize("a", lang=language)
    except ImportError:
        if language == "en":
            return _without_ending
        problem = "pip install simplemma, which knows the forms of other languages than English"
    except ValueError as error:
        problem = str(error)
    else:
        return lambda word: {simplemma.lemmatize(word, lang=language).lower()}
    raise ConfigError(f"no lemmas for language '{shown(language, 20)}': {problem}")


def _without_ending(word: str) -> set[str]:
    found = set()
    for ending, befores in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < 2:
            continue
        found |= {stem + before for before in befores}
        if ending in ("ed", "ing") and stem[-1] == stem[-2]:  # running, stopped
            found.add(stem[:-1])
    return found
