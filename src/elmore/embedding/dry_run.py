"""What `embed` would do with a text: how much there is, what does not fit the model, what it costs.

Nothing is written. The complete text is read, and its first sentences are embedded to measure the
speed.
"""

from __future__ import annotations

import math
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from elmore.base.messages import shown
from elmore.embedding.results import value_shape
from elmore.embedding.stream import embed_records
from elmore.formats.checkpoint import Checkpoint
from elmore.options import Output
from elmore.text.tokenizer import Sentence, tokenize

if TYPE_CHECKING:
    from elmore.elmo import Elmo

_HTML = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
# Written without spaces between words: a tokenizer for English makes one token of a sentence.
_UNSPACED = frozenset("CJK HIRAGANA KATAKANA THAI LAO KHMER MYANMAR TIBETAN".split())
_UNSPACED_LENGTH = 8
# A script that fewer words of the vocabulary have is as good as unseen.
_SEEN_SHARE = 0.002
# Share of tokens or sentences above which the tokenization seems wrong.
_SPLIT_SHARE, _SPACED_SHARE = 0.03, 0.5
_PUNCTUATION = frozenset(".,;:!?")
# The sample that is embedded: tokens at most, sentences between two looks at the clock, seconds.
_SAMPLE_TOKENS, _SAMPLE_STEP, _SAMPLE_SECONDS = 20_000, 64, 3.0


def dry_run(
    elmo: Elmo,
    sentences: Iterable[tuple[str, Sentence]],
    output: Output,
    *,
    tokenized: bool = False,
) -> DryRun:
    """Read a text and predict what embedding it costs.

    Args:
        elmo: the model.
        sentences: each as text and as tokens, read as a stream.
        output: what `embed` is asked for.
        tokenized: whether the tokens were given, not made by the model's tokenizer.
    """
    shape = value_shape(elmo.config, output)
    found = DryRun(elmo.checkpoint, tokenized)
    sample: list[tuple[str, Sentence]] = []
    n_sample = 0
    for text, sentence in sentences:
        found.add(text, sentence)
        if n_sample < _SAMPLE_TOKENS:
            sample.append((text, sentence))
            n_sample += len(sentence)
    rows = found.tokens if None in shape else found.sentences
    numbers = rows * math.prod(size for size in shape if size is not None)
    found.size_bytes = numbers * (2 if output.dtype == "float16" else 4)
    found.seconds = _seconds_per_token(elmo, sample, output) * found.tokens
    return found


def _seconds_per_token(elmo: Elmo, sample: list[tuple[str, Sentence]], output: Output) -> float:
    start, tokens = time.perf_counter(), 0
    for first in range(0, len(sample), _SAMPLE_STEP):
        for record in embed_records(elmo.engine, sample[first : first + _SAMPLE_STEP], output):
            tokens += len(record.tokens)
        if time.perf_counter() - start > _SAMPLE_SECONDS:
            break
    return (time.perf_counter() - start) / max(tokens, 1)


class DryRun:
    """What `embed` would do with a text.

    Attributes:
        sentences: with those that are empty.
        tokens: of all sentences.
        longest: tokens of the longest sentence.
        counts: of what the model cannot read, has never seen, or will cut.
        size_bytes: of the numbers in a binary format; as text they take about three times as much.
        seconds: of embedding, without loading the model.
    """

    def __init__(self, checkpoint: Checkpoint, tokenized: bool) -> None:
        self._tokenized, self._convention = tokenized, checkpoint.tokenizer
        self._vocabulary, self._alphabet = checkpoint.vocabulary, checkpoint.alphabet
        self._scripts = _seen_scripts(checkpoint)
        training = checkpoint.notes.get("training")
        trained = training.get("longest") if isinstance(training, dict) else None
        self._trained = trained if isinstance(trained, int) else None
        self._markers = set(self._alphabet.markers if self._alphabet else ())
        self._markers |= set(self._vocabulary.markers if self._vocabulary else ())
        self.counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self.sentences = self.tokens = self.longest = self.size_bytes = 0
        self.seconds = 0.0
        # Most tokens are met many times, and looking at one is most of the work.
        self._look = lru_cache(maxsize=1 << 16)(self._problems)

    def add(self, text: str, sentence: Sentence) -> None:
        """Count a sentence."""
        self.sentences += 1
        self.tokens += len(sentence)
        self.longest = max(self.longest, len(sentence))
        if not len(sentence):
            self._note("empty sentences", text)
        if found := _HTML.search(text):
            self._note("HTML escapes", found[0])
        if self._trained is not None and len(sentence) > self._trained:
            self._note("sentences longer than in training", f"{len(sentence)} tokens")
        if not self._tokenized and _looks_tokenized(text, sentence):
            self._note("sentences that are tokenized already", text)
        for token in sentence.tokens:
            for name in self._look(token):
                self._note(name, token)

    def _note(self, name: str, example: str) -> None:
        self.counts[name] += 1
        self._examples.setdefault(name, example)

    def _problems(self, token: str) -> tuple[str, ...]:
        if token in self._markers:
            return ("special tokens",)
        scripts = {script for c in token if (script := _script(c)) is not None}
        split = self._tokenized and self._convention != "spaces"
        found = {
            "tokens with spaces": any(c.isspace() for c in token),
            "tokens that are cut": self._alphabet is not None
            and bool(self._alphabet.count_cut([token])),
            "unknown words": self._vocabulary is not None and token not in self._vocabulary,
            "tokens in unseen scripts": bool(self._scripts) and not scripts <= self._scripts,
            "tokens that look like sentences": len(token) >= _UNSPACED_LENGTH
            and bool(scripts & _UNSPACED),
            "tokens that its tokenizer would split": split
            and len(tokenize(token, self._convention)) > 1,
        }
        return tuple(name for name, is_so in found.items() if is_so)

    @property
    def unknown(self) -> int:
        """Tokens that the vocabulary lacks; 0 for a model without one."""
        return self.counts["unknown words"]

    @property
    def cut(self) -> int:
        """Tokens of which the model reads only the first characters."""
        return self.counts["tokens that are cut"]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What does not fit, with an example and advice; nothing that is too rare to matter."""
        advice = {
            "special tokens": "the model takes them for its own markers; remove them",
            "tokens with spaces": "words of the vocabulary have none; split them",
            "tokens in unseen scripts": "use a model of that language",
            "tokens that look like sentences": "segment the text and pass --tokenized",
            "tokens that its tokenizer would split": "leave out --tokenized",
            "sentences that are tokenized already": "pass --tokenized to keep their tokens",
            "sentences longer than in training": (
                f"the model was trained on at most {self._trained} tokens; split them"
            ),
            "HTML escapes": "decode the text, for example with html.unescape",
            "empty sentences": "they get no vectors",
        }
        rare = {
            "tokens that its tokenizer would split": _SPLIT_SHARE * self.tokens,
            "sentences that are tokenized already": _SPACED_SHARE * self.sentences,
        }
        return tuple(
            f"{name}: {self.counts[name]:,}, such as {shown(self._examples[name], 40)!r}; {what}"
            for name, what in advice.items()
            if self.counts[name] > rare.get(name, 0)
        )


def _seen_scripts(checkpoint: Checkpoint) -> frozenset[str]:
    """The scripts that the words of a model's vocabulary are written in."""
    words = checkpoint.vocabulary
    if words is None:
        return frozenset()
    counts: Counter[str] = Counter()
    for word in words:
        counts.update({script for c in word if (script := _script(c)) is not None})
    return frozenset(name for name, count in counts.items() if count > _SEEN_SHARE * len(words))


@lru_cache(maxsize=1 << 14)
def _script(character: str) -> str | None:
    """The script of a letter, as the first word of its Unicode name; None of anything else."""
    if not character.isalpha():
        return None
    return unicodedata.name(character, "").partition(" ")[0] or None


def _looks_tokenized(text: str, sentence: Sentence) -> bool:
    """Whether a space is before punctuation, as only tokenized text has it."""
    tokens = sentence.tokens
    return len(tokens) > 1 and not _PUNCTUATION.isdisjoint(tokens) and text.split() == list(tokens)
