"""Split running text into sentences, by rules, in any script.

A sentence ends at ``. ! ? …`` when white space follows and then something that may start a
sentence, together with the quotes and brackets that close there. The full stops of scripts that
need no space after them (``。！？।؟`` ...) end one wherever they are. A blank line, or U+2029,
always ends one; a single line break never does. Abbreviations, initials, decimal numbers and list
numbers do not end a sentence, unless a word follows that rarely occurs anywhere but at a start
("... in the U.S. The ..."). Thai and Lao write no full stop: their sentences end at paragraphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from elmore.text.tokenizer import ABBREVIATIONS, word_set

_CLOSERS: Final = "\"'”’»›)\\]}」』）】》〉〕］｣"
_OPENERS: Final = "\"'“‘«‹(\\[{「『（【《〈„‚¿¡*_–—•·-"
# Devanagari, Urdu, Arabic, Armenian, Ethiopic, Khmer, Myanmar, Tibetan, Mongolian, Ol Chiki,
# Meetei, Javanese, Greek, full width and half width.
_STRONG: Final = "。！？｡।॥۔؟։።፧፨។៕။༎᠃᠉᱾᱿꯫꧈꧉⸮\u037e"

_CANDIDATE: Final = re.compile(
    rf"(?P<strong>[{_STRONG}][{_STRONG}!?.…]*+[{_CLOSERS}]*+)"
    rf"|(?P<weak>[.!?…‼⁇⁈⁉][.!?…‼⁇⁈⁉]*+)(?P<closers>[{_CLOSERS}]*+)"
    # a speech broken off by a dash, and the answer to it
    r"|(?P<broken>(?<![—–])[—–]++[\"'”’](?=\s++[\"'“‘]\w))"
)
_BREAK: Final = re.compile(r"(?>\r\n?|\n)[^\S\r\n]*+(?:\r|\n)|\u2029")
_FOLLOWER: Final = re.compile(rf"\s*+([{_OPENERS}]*+)(\w[\w'’]{{0,15}}+|\S)?")
_LAST_WORD: Final = re.compile(r"[^\s\"'“”‘’()\[\]{}«»„—–/]+\Z")
_DOTTED: Final = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]|Ph\.D")
_LIST_NUMBER: Final = re.compile(r"[(\[]?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})\Z")
_REACH: Final = 24  # characters looked back for the word before a full stop


# Followed by a name or a number, hence hardly ever the last word of a sentence.
_NEVER_LAST: Final = word_set(
    """
    Mr Mrs Ms Mx Messrs Mme Mmes Mlle Dr Drs Prof Profs Rev Revd Hon Fr Pres Gov Sen Sens Rep Reps
    Amb Supt Gen Col Lt Sgt Capt Cpl Cmdr Cdr Maj Adm Brig Pvt Pfc Det Insp Pte Lieut St Ste Mt Ft
    vs cf viz approx ca incl e.g i.e
    """
)
_BEFORE_NUMBER: Final = word_set(
    """
    no nos p pp vol vols fig figs eq eqs eqn sec ch chap art op para pt jan feb mar apr jun jul aug
    sep sept oct nov dec n c app bk ver
    """
)
# Words that, capitalised after an abbreviation, tell a new sentence from a name.
_STARTERS: Final = word_set(
    """
    The A An This That These Those There Here He She It We They You His Her Its Their Our My Your
    In On At By For From With Without After Before During Since Until While When Where Why How What
    Who Which As If Though Although Because But And Or So Yet Nor Then Thus Hence However Moreover
    Meanwhile Some Many Most Several Both Each Every All Another Other Others One No Not Is Are Was
    Were Do Does Did Has Have Had Can Could Will Would Should May Might Must To Of Also Only Even
    Once Under Over Between Among Through Today Now Later Finally First Despite According Such
    """
)


def split_sentences(text: str) -> list[str]:
    """Split a text into its sentences, stripped of the white space around them."""
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence: ascending, not empty, only white space between them."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _BREAK.finditer(text):
        spans.extend(_paragraph(text, start, match.start()))
        start = match.end()
    spans.extend(_paragraph(text, start, len(text)))
    return spans


def _paragraph(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    start = _skip_space(text, start, end)
    for match in _CANDIDATE.finditer(text, start, end):
        at = match.end()
        if match["weak"] and not _ends(text, start, match, end):
            continue
        yield start, at
        start = _skip_space(text, at, end)
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end:
        yield start, end


def _skip_space(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _ends(text: str, start: int, match: re.Match[str], limit: int) -> bool:
    """Decide whether ``. ! ? …`` ends the sentence that began at `start`."""
    if match.end() < limit and not text[match.end()].isspace():
        return False
    follower = _FOLLOWER.match(text, match.end(), limit)
    opener, word = (follower[1], follower[2] or "") if follower else ("", "")
    if word[:1].islower():
        # iPhone and its like start sentences too
        return word[1:2].isupper() and not match["closers"]
    stop = match.start()
    if match["closers"][:1] in (")", "]") and text[stop - 1 : stop] in ("(", "["):
        return False  # [...] and (!) are remarks inside a sentence
    if match["weak"] != ".":
        return True
    last = _LAST_WORD.search(text, max(start, stop - _REACH), stop)
    before = last[0] if last else ""
    if _LIST_NUMBER.match(text, start, stop) and not match["closers"] and not before.isalpha():
        return False
    if before.lower() in _BEFORE_NUMBER and word[:1].isdigit():
        return False
    if before in _NEVER_LAST:
        return False
    is_initial = len(before) == 1 and before.isalpha() and before.isupper()
    if is_initial or before in ABBREVIATIONS or _DOTTED.fullmatch(before):
        if before == "I" or match["closers"]:
            return True
        return before == "etc" or word in _STARTERS or any(mark in opener for mark in '"“«„')
    return True
