"""Whether a text fits a model: what it cannot read, has never seen, or will cut."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from elmore.base.messages import shown
from elmore.formats.checkpoint import Checkpoint
from elmore.text.characters import DictionaryAlphabet
from elmore.text.sentence import Sentence
from elmore.text.tokenizer import tokenize

__all__ = ["Finding", "TextCheck", "check_text"]

_HTML = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_MARKERS = frozenset("<S> </S> <PAD> <UNK> <pad> <unk> <s> </s> <bos> <eos> <bow> <eow>".split())
# Written without spaces between words: a tokenizer for English makes one token of a sentence.
_UNSPACED = frozenset("CJK HIRAGANA KATAKANA THAI LAO KHMER MYANMAR TIBETAN".split())
_UNSPACED_LENGTH = 8
# A script that fewer words of the vocabulary have is as good as unseen.
_SEEN_SHARE = 0.002
# Share of tokens or sentences above which the tokenization seems wrong.
_SPLIT_SHARE, _SPACED_SHARE = 0.03, 0.5
_EXAMPLES = 5
_PUNCTUATION = frozenset(".,;:!?")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing about a text that a model will not do well with.

    Attributes:
        name: what was found.
        count: how often.
        share: of the tokens, or of the sentences.
        of: "tokens" or "sentences".
        examples: a few.
        advice: what happens, and what to do.
    """

    name: str
    count: int
    share: float
    of: str
    examples: tuple[str, ...]
    advice: str

    def __str__(self) -> str:
        examples = ", ".join(repr(shown(example, 40)) for example in self.examples)
        found = f"{self.name}: {self.count:,} ({self.share:.1%} of the {self.of})"
        return f"{found}, {examples}; {self.advice}"


@dataclass(frozen=True, kw_only=True)
class TextCheck:
    """What is in a text, and what of it does not fit a model.

    Attributes:
        sentences: with those that are empty.
        tokens: of all sentences.
        longest: tokens of the longest sentence.
        scripts: how many tokens have letters of each script, the most frequent first.
        findings: what does not fit; empty if all is well.
    """

    sentences: int
    tokens: int
    longest: int
    scripts: dict[str, int]
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        scripts = ", ".join(
            f"{name.lower()} {count / max(1, self.tokens):.1%}"
            for name, count in list(self.scripts.items())[:6]
        )
        lines = [
            f"{self.sentences:,} sentences, {self.tokens:,} tokens; "
            f"{self.longest:,} in the longest sentence",
            f"tokens with letters of: {scripts or 'no script'}",
        ]
        return "\n".join([*lines, *(map(str, self.findings) if self.findings else ["it fits"])])


def check_text(
    checkpoint: Checkpoint, sentences: Iterable[tuple[str, Sentence]], *, tokenized: bool = False
) -> TextCheck:
    """Compare a text with what a model reads and has learned from.

    Args:
        checkpoint: the model.
        sentences: each as text and as tokens; read as a stream.
        tokenized: whether the tokens were given, and not made by the model's tokenizer.
    """
    check = _Check(checkpoint, tokenized)
    for text, sentence in sentences:
        check.add(text, sentence)
    return check.result()


class _Notes:
    """Counts by name, and the first few different examples of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._examples: dict[str, dict[str, None]] = {}

    def add(self, name: str, example: str) -> None:
        self.counts[name] += 1
        examples = self._examples.setdefault(name, {})
        if len(examples) < _EXAMPLES:
            examples[example] = None

    def examples(self, name: str) -> tuple[str, ...]:
        return tuple(self._examples.get(name, ()))


class _Check:
    def __init__(self, checkpoint: Checkpoint, tokenized: bool) -> None:
        self._checkpoint, self._tokenized = checkpoint, tokenized
        self._words = checkpoint.vocabulary
        self._alphabet = checkpoint.alphabet
        self._characters, self._known_scripts = _seen(checkpoint)
        training = checkpoint.notes.get("training")
        longest = training.get("longest") if isinstance(training, dict) else None
        self._trained = longest if isinstance(longest, int) else None
        self._markers = _MARKERS | set(self._alphabet.markers if self._alphabet else ())
        self._notes = _Notes()
        self._scripts: Counter[str] = Counter()
        self._sentences = self._tokens = self._longest = 0
        # One word is met many times, and looking at it is most of the work.
        self._look: Callable[[str], tuple[tuple[str, ...], frozenset[str]]]
        self._look = lru_cache(maxsize=1 << 16)(self._problems)

    def add(self, text: str, sentence: Sentence) -> None:
        self._sentences += 1
        self._tokens += len(sentence)
        self._longest = max(self._longest, len(sentence))
        if not len(sentence):
            self._notes.add("empty sentences", text)
        for found in _HTML.findall(text):
            self._notes.add("HTML escapes", found)
        if not self._tokenized and "<" in text:  # the tokenizer would take them apart
            for marker in self._markers:
                if marker in text:
                    self._notes.add("special tokens", marker)
        if self._trained is not None and len(sentence) > self._trained:
            self._notes.add("sentences longer than in training", f"{len(sentence)} tokens")
        if not self._tokenized and _looks_tokenized(text, sentence):
            self._notes.add("sentences that are tokenized already", text)
        for token in sentence.tokens:
            names, scripts = self._look(token)
            self._scripts.update(scripts)
            for name in names:
                self._notes.add(name, token)

    def _problems(self, token: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """What is wrong with a token, and the scripts of its letters."""
        scripts = frozenset(script for c in token if (script := _script(c)) is not None)
        if token in self._markers:
            return ("special tokens",), scripts
        found = []
        if any(c.isspace() for c in token):
            found.append("tokens with spaces")
        if self._alphabet is not None and self._alphabet.count_cut([token]):
            found.append("tokens that are cut")
        if self._words is not None and token not in self._words:
            found.append("unknown words")
        if self._characters and not self._characters.issuperset(token):
            found.append("tokens with unseen characters")
        if self._known_scripts and not scripts <= self._known_scripts:
            found.append("tokens in unseen scripts")
        if len(token) >= _UNSPACED_LENGTH and scripts & _UNSPACED:
            found.append("tokens that look like sentences")
        if self._tokenized and self._would_split(token):
            found.append("tokens that its tokenizer would split")
        return tuple(found), scripts

    def _would_split(self, token: str) -> bool:
        convention = self._checkpoint.tokenizer
        return convention != "spaces" and len(tokenize(token, convention)) > 1

    def result(self) -> TextCheck:
        return TextCheck(
            sentences=self._sentences,
            tokens=self._tokens,
            longest=self._longest,
            scripts=dict(self._scripts.most_common()),
            findings=tuple(
                Finding(
                    name=name,
                    count=count,
                    share=share,
                    of=of,
                    examples=self._notes.examples(name),
                    advice=advice,
                )
                for name, (of, least, advice) in self._advice().items()
                if (count := self._notes.counts[name])
                and (
                    share := count / max(1, self._sentences if of == "sentences" else self._tokens)
                )
                > least
            ),
        )

    def _advice(self) -> dict[str, tuple[str, float, str]]:
        """By finding: of what its share is, the share above which it counts, and what to do."""
        kept, unit = 0, ""
        if self._alphabet is not None:
            kept, unit = self._alphabet.max_chars - 2, self._alphabet.kind
            unit = "bytes" if unit == "bytes" else "characters"
        other = "the model learned little or nothing about them; use a model of that language"
        return {
            "unknown words": (
                "tokens",
                0.0,
                "perplexity and scores count them as <UNK>; a model of characters still reads them",
            ),
            "tokens with unseen characters": ("tokens", 0.0, other),
            "tokens in unseen scripts": ("tokens", 0.0, other),
            "tokens that are cut": ("tokens", 0.0, f"only the first {kept} {unit} are read"),
            "tokens with spaces": (
                "tokens",
                0.0,
                "words of the vocabulary have none; split them, or replace the space",
            ),
            "special tokens": (
                "tokens",
                0.0,
                "the model takes them for its own markers; remove them from the text",
            ),
            "HTML escapes": ("sentences", 0.0, "decode the text, for example with html.unescape"),
            "empty sentences": ("sentences", 0.0, "they get no vectors"),
            "sentences longer than in training": (
                "sentences",
                0.0,
                f"the model was trained on at most {self._trained} tokens; split them",
            ),
            "tokens that its tokenizer would split": (
                "tokens",
                _SPLIT_SHARE,
                f"the model learned from tokens of '{self._checkpoint.tokenizer}'; leave out "
                "--tokenized",
            ),
            "sentences that are tokenized already": (
                "sentences",
                _SPACED_SHARE,
                "pass --tokenized to keep their tokens",
            ),
            "tokens that look like sentences": (
                "tokens",
                0.0,
                "the script has no spaces between words; segment the text and pass --tokenized",
            ),
        }


def _seen(checkpoint: Checkpoint) -> tuple[frozenset[str], frozenset[str]]:
    """The characters and scripts that a model knows, by its dictionary or its words."""
    alphabet, words = checkpoint.alphabet, checkpoint.vocabulary
    if isinstance(alphabet, DictionaryAlphabet):
        characters = frozenset(symbol for symbol in alphabet.symbols if len(symbol) == 1)
        return characters, frozenset(filter(None, map(_script, characters)))
    if words is None:
        return frozenset(), frozenset()
    scripts: Counter[str] = Counter()
    for word in words:
        scripts.update({script for c in word if (script := _script(c)) is not None})
    common = {name for name, count in scripts.items() if count > _SEEN_SHARE * len(words)}
    return frozenset(c for word in words for c in word), frozenset(common)


@lru_cache(maxsize=1 << 14)
def _script(character: str) -> str | None:
    """The script of a letter, as the first word of its Unicode name; None of anything else."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "")
    return name.partition(" ")[0] if name else None


def _looks_tokenized(text: str, sentence: Sentence) -> bool:
    """Whether a space stands before punctuation, as only tokenized text has it."""
    tokens = sentence.tokens
    return len(tokens) > 1 and not _PUNCTUATION.isdisjoint(tokens) and text.split() == list(tokens)
