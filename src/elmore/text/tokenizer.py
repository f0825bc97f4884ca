"""Cut a text into tokens, with the place of each token in the original string.

Four conventions. ``ptb`` is Penn-Treebank-like English (``do n't``, ``dogs '``) with plain
``"`` for quotes and plain brackets. ``billion-word`` is the same but splits a contraction before
its apostrophe (``Don 't``), as the text did on which the published English models were trained, and
does not split ``cannot`` and ``gonna``. ``unicode`` has no English contractions (``geht's``,
``don't``), for all other languages. ``spaces`` splits at white space and nowhere else.

The first three take any script. Words of scripts that write spaces (Hangul, Arabic, Hebrew, the
Indic scripts, Cyrillic, Greek, ...) keep their combining marks. Scripts without spaces are cut
without a dictionary: each Han character is a token; a run of Hiragana or of Katakana is a token; a
run of Thai, Lao, Khmer, Myanmar or Tibetan up to the next space or punctuation mark is one token,
however many words it holds.

A token equals the characters of its span, save for these rewritings (never with ``spaces``),
made so that a model meets one spelling only:

- curly apostrophes, in words, clitics or standing alone, become ``'``;
- the double quotes ``“ ”``, and the typewriter's two backticks or two apostrophes, become ``"``. A
  text that holds ``„`` quotes the German way; there a ``“ ” ‘ ’`` standing alone is kept.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal, TypeAlias, get_args

from elmore.errors import ConfigError, InputError

Convention: TypeAlias = Literal["ptb", "billion-word", "unicode", "spaces"]
CONVENTIONS: Final[tuple[Convention, ...]] = get_args(Convention)

# A token with its start and end, counted from the start of its chunk.
_Piece: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True, repr=False)
class Sentence:
    """Hold the tokens of one sentence, without any sentence marker.

    Args:
        tokens: the tokens, kept verbatim.
        spans: for each token the characters ``text[start:end]`` it was made from; None when the
            tokens came ready-made and there is no text to point into.

    Raises:
        InputError: when there are not as many spans as tokens.
    """

    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        if self.spans is not None and len(self.spans) != len(self.tokens):
            raise InputError(
                f"{len(self.tokens)} tokens but {len(self.spans)} spans; "
                "give one (start, end) for each token, or spans=None"
            )

    def __len__(self) -> int:
        """Count the tokens."""
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"Sentence({reprlib.repr(self.tokens)}, n_tokens={len(self)})"


# Patterns are compiled when they are first used: most words never need the large ones.
_compiled = cache(re.compile)


def word_set(table: str) -> frozenset[str]:
    """The words of a text, which is easier to read and change than a list of strings."""
    return frozenset(table.split())


# Always written with a period. Case counts: "Gen." and "Fla." are listed, "gen" and "fla" are not.
ABBREVIATIONS: Final = word_set(
    """
    Mr Mrs Ms Mx Messrs Mme Mmes Mlle Dr Drs Prof Profs Rev Revd Hon Fr Sr Jr Esq Pres Gov Sen Sens
    Rep Reps Amb Supt Gen Col Lt Sgt Capt Cpl Cmdr Cdr Maj Adm Brig Pvt Pfc Det Insp Ald Pte Lieut
    St Ste Mt Ft Ave Blvd Rd Hwy Rte
    Inc Corp Ltd Co Cos Bros Assn Univ Dept Intl Mfg
    Jan Feb Apr Jul Aug Sept Sep Oct Nov Dec Tue Tues Wed Thu Thur Thurs Fri
    Ala Ariz Calif Colo Conn Fla Ga Ky Mich Minn Nev Okla Ont Tenn Tex Va Vt Wis Wyo
    vs etc cf al viz approx ca pp vol vols ed eds fig figs eq eqs eqn nos dept assn univ incl
    excl resp repr orig fl ff ibid abbr corp ltd inc tel ext misc attn Attn
    """
)
# Abbreviations only where a number follows: "No. 5", but "No."; "Mar. 3", but "to mar."
_BEFORE_NUMBER: Final = word_set(
    """
    No no Nos Art art Sec sec Mar Jun Sat Sun Mon Op op p c ch Ch chap Chap Fig Figs Eq Eqs Eqn Vol
    Vols pt Pt para Para n Bk bk ver Ver App app lit trans est Est
    """
)
# Endings that make a dotted word a host or file name rather than two sentences without a space.
_SUFFIXES: Final = word_set(
    """
    com org net edu gov mil info biz int eu uk us ca au de fr es ru jp cn ch nl se fi dk pl br ie nz
    za kr hk tv fm io ai co app dev museum name
    txt pdf doc docx xls xlsx ppt pptx csv tsv json xml html htm php asp aspx jsp cfm css js ts jsx
    py pyc ipynb rb pl pm java class jar c h cc cpp hpp rs go sh bat exe dll so zip gz bz2 xz tar
    tgz rar iso jpg jpeg png gif svg bmp tif tiff mp3 mp4 avi mov wav ogg md rst tex bib log ini cfg
    conf yml yaml toml sql db dat bin url
    """
)
_FUSED: Final = {"cannot": 3, "gimme": 3, "lemme": 3, "gonna": 3, "gotta": 3, "wanna": 3}
_DROPPED: Final = word_set("o ol th an wi lil mo po fo d y")  # ol' man, th' other


def _ranges(table: str) -> str:
    """Turn hexadecimal ranges into the inside of a regular expression's character class."""
    bounds = (pair.partition("-") for pair in table.split())
    return "".join(rf"\U{a:0>8}-\U{b or a:0>8}" for a, _, b in bounds)


# Python's \w knows letters and digits only: words of most scripts also hold combining marks, and
# joiners and direction marks. These are the ranges of Mn, Mc, Me and Cf (Unicode 14), merged over
# letters and unassigned places. Added: Hebrew geresh and gershayim, the Tibetan tsheg.
_MARKS: Final = _ranges(
    """
    AD 300-36F 483-489 591-5BD 5BF 5C1-5C2 5C4-5C5 5C7 5F3-5F4 600-605 610-61A 61C 64B-65F 670
    6D6-6DD 6DF-6E8 6EA-6ED 70F-7F3 7FD 816-82D 859-85B 890-963 981-9E3 9FE-A75 A81-AE3 AFA-B63
    B82-BD7 C00-C63 C81-C83 CBC-D4D D57-D63 D81-DF3 F0B-F0C F18-F19 F35 F37 F39 F3E-F84 F86-FBC FC6
    135D-135F 1712-1734 1752-1773 180B-193B 1A17-1A1B 1A55-1A7F 1AB0-1B44 1B6B-1B73 1B80-1BF3
    1C24-1C37 1CD0-1CD2 1CD4-1DFF 200B-200F 202A-202E 2060-206F 20D0-20F0 2CEF-2CF1 2D7F-2DFF
    302A-302F A66F-A672 A674-A67D A69E-A6F1 A802-A827 A82C A880-A8C5 A8E0-A8F1 A8FF-A92D A947-A953
    A980-A9C0 AA29-AA4D AAB0-AAC1 AAEB-AAEF AAF5-AAF6 ABE3-ABEA ABEC-ABED FB1E FE00-FE0F FE20-FE2F
    FEFF FFF9-FFFB 101FD-1037A 10A01-10A3F 10AE5-10AE6 10D24-10EAC 10F46-10F50 10F82-10F85
    11000-11046 11070-110BA 110BD 110C2-11134 11145-11173 11180-111C0 111C9-111CC 111CE-111CF
    1122C-11237 1123E 112DF-11446 1145E-114C3 115AF-115C0 115DC-11640 116AB-116B7 1171D-1172B
    1182C-1183A 11930-11943 119D1-119E0 119E4-11A3E 11A47-11A99 11C2F-11C3F 11C92-11EF6 13430-13438
    16AF0-16AF4 16B30-16B36 16F4F-16F92 16FE4-16FF1 1BC9D-1BC9E 1BCA0-1CF46 1D165-1D169 1D16D-1D182
    1D185-1D18B 1D1AA-1D1AD 1D242-1D244 1DA00-1DA36 1DA3B-1DA6C 1DA75 1DA84 1DA9B-1E136 1E2AE-1E2EF
    1E8D0-1E94A E0001-E01EF
    """
)
_HAN: Final = _ranges("2E80-2FDF 3005-3007 3021-3029 3038-303B 3400-4DBF 4E00-9FFF F900-FAFF") + (
    _ranges("20000-3FFFD")
)
_HIRAGANA: Final = _ranges("3041-3096 3099-309F 1B001-1B11F 1B150-1B152")
_KATAKANA: Final = _ranges("30A1-30FA 30FC-30FF 3099-309A 31F0-31FF FF66-FF9F 1B000 1B164-1B167")
# Each script a run of its own; holes are the script's punctuation and the baht sign.
_UNSPACED: Final = (
    _ranges("E01-E3E E40-E4E E50-E59"),  # Thai
    _ranges("E81-EFF"),  # Lao
    _ranges("1780-17D3 17D7 17DC-17FF 19E0-19FF"),  # Khmer
    _ranges("1000-1049 1050-109F A9E0-A9FF AA60-AA7F"),  # Myanmar
)
_OTHER_RULES: Final = _HAN + _HIRAGANA + _KATAKANA + "".join(_UNSPACED)

_LETTER: Final = rf"[^\W\d_{_OTHER_RULES}]"
_CHAR: Final = rf"(?:[^\W{_OTHER_RULES}]|(?![{_OTHER_RULES}])[{_MARKS}])"
# Zero-width joiners do not end a run.
_GLUE: Final = r"\u200C\u200D\u2060"
_APOSTROPHES: Final = "'’‘\u02bc\u201b"
_PICTURE: Final = (
    r"[\U0001F000-\U0001F1E5\U0001F200-\U0001F3FA\U0001F400-\U0001FAFF\u2190-\u21FF\u2300-\u23FF"
    r"\u2460-\u27BF\u2934\u2935\u2B00-\u2BFF\u203C\u2049\u2122\u2139\u3030\u303D\u3297\u3299\xA9\xAE]"
    r"[\uFE0E\uFE0F]?[\U0001F3FB-\U0001F3FF]?\u20E3?[\U000E0020-\U000E007F]*+"
)
# Korean has no apostrophe: beside Hangul it is a quote ('말'이라는) whose particle follows it.
_HANGUL: Final = r"\u1100-\u11FF\uAC00-\uD7A3"
_JOINT: Final = (
    rf"(?:[-.\u2010\u2011\u058A\u05BE\xB7](?={_CHAR})"
    rf"|(?<![{_HANGUL}])[{_APOSTROPHES}](?=(?![{_HANGUL}]){_CHAR})"
    r"|(?<=\d)[,:/\u066B\u066C\uFF0E](?=\d)"
    r"|(?<=[A-Z])&(?=[A-Z])"
    r'|(?<=[\u05D0-\u05EA])"(?=[\u05D0-\u05EA])'  # Hebrew acronyms, written with a plain quote
    rf"|[\u055B-\u055E](?={_CHAR}))"  # Armenian accents are inside the word
)
_HOSTS: Final = "com|org|net|edu|gov|info|io|co|uk|de|fr|eu"

# Every repetition that may fail after the fact is bounded, and every other one is possessive or
# consumes what it has read: no chunk costs more than linear time.
_MASTER: Final = "|".join(
    (
        r"(?P<address>(?i:https?://|ftp://|file://|mailto:)[^\s<>\"“”«»]+"
        r"|(?i:www\.)[^\s<>\"“”«»]+"
        rf"|(?<!\w)(?:[\w-]{{1,63}}\.){{1,6}}(?:{_HOSTS})/[^\s<>\"“”«»]+)",
        r"(?P<mail>[^\W_][\w.+%-]{0,63}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})",
        r"(?P<tag>(?<!\w)(?:@(?=[^\W\d])\w+|\#(?=\d{0,9}[^\W\d])\w+))",
        r"(?P<face>(?<![:;=(])[:;=]['’]?-?[)(\]\[](?![\w(])|[:;=]-[DPpOoSs/\\|*3](?!\w)"
        r"|(?<!\w)(?:[:;=][DPpOo|](?!\w)|:[/\\*](?![\w/])|:['’]\(|<\/?3(?![\w.,])"
        r"|\^_+\^|-_+-|[oO]_[oO](?!\w)|>[:.]<|>:-?[()]|\\o/|¯\\_\(ツ\)_/¯))",
        rf"(?P<picture>[\U0001F1E6-\U0001F1FF]{{2}}|[0-9#*]\uFE0F?\u20E3"
        rf"|{_PICTURE}(?:\u200D{_PICTURE})*+)",
        rf"(?P<clitic>(?<!\w)[{_APOSTROPHES}](?i:s|re|ve|ll|d|m|t)(?!{_CHAR}))",
        rf"(?P<elided>(?<!\w)[{_APOSTROPHES}](?:\d\ds?|(?i:em|til|till|cause|cos|bout|round|tween"
        rf"|neath|gainst|un|uns|tis|twas|twere|twill|n[{_APOSTROPHES}]?))(?!{_CHAR}))",
        r"(?P<language>(?<!\w)(?:C\+\+|[CF]\#)(?!\w))",
        r"(?P<dollars>(?<!\w)(?:US|AU|CA|HK|NZ|NT|[ACNRSZ])\$(?=\d|$))",
        rf"(?P<word>(?:(?<![^(\[{{\"“])(?:[-+−]?\.?(?=\d)|\.(?=[a-z]|NET)))?"
        rf"(?:(?<!\w)(?:(?:{_LETTER}\.){{2,}}+(?!{_CHAR})|(?:{_LETTER}\.)+{_LETTER}(?!{_CHAR}))"
        rf"|{_CHAR}++)(?:{_JOINT}{_CHAR}++)*+)",
        rf"(?P<unspaced>[{_HAN}][\uFE00-\uFE0F\U000E0100-\U000E01EF]?"
        rf"|[{_HIRAGANA}][{_HIRAGANA}ー{_GLUE}]*+|[{_KATAKANA}][{_KATAKANA}{_GLUE}]*+|"
        + "|".join(rf"[{script}][{script}{_GLUE}\u200B]*+" for script in _UNSPACED)
        + ")",
        r"(?P<quote>``|''|’’|‘‘|[“”\"])",
        r"(?P<other>\.{2,}|…+|-{2,}|[‒–—―─]+|[!?！？‼⁇⁈⁉]+"
        r"|(?P<same>[^\w\s()\[\]{}'’‘‹›«»「」『』（）【】《》〈〉.,;:¿¡])(?P=same)+|.)",
    )
)
_CLITICS: Final = {
    "ptb": (
        rf"(?<=\w)(?i:n[{_APOSTROPHES}]t|[{_APOSTROPHES}](?:s|re|ve|ll|d|m))$"
        rf"|(?<=\.)[{_APOSTROPHES}]s$"
    ),
    "billion-word": (
        rf"(?<=\w)(?i:[{_APOSTROPHES}](?:t|s|re|ve|ll|d|m))$|(?<=\.)[{_APOSTROPHES}]s$"
    ),
    "unicode": r"(?!)",  # nothing
}
_DOTTED_ABBREVIATION: Final = (
    r"(?:[A-Z][a-z]{0,2}|[a-z])(?:\.(?:[A-Z][a-z]?|[a-z]))+"
    rf"|(?:{_LETTER}\.)+{_LETTER}|[\d:]+[ap]\.m"
)
_ACRONYM: Final = rf"(?:{_LETTER}\.){{2,}}+"
_ADDRESS_END: Final = ".,;:!?'’\"”)]}>…*_"
_CLOSERS: Final = re.compile(r"[)\]}\"'”’»,;:]*+\Z")
_CHUNK: Final = re.compile(r"\S+")
_PLAIN: Final = str.maketrans(dict.fromkeys(_APOSTROPHES, "'"))
_QUOTES: Final = frozenset(("“", "”", "``", "''", "‘‘", "’’"))
_CACHED_CHARS: Final = 64  # longer chunks are rarely met twice, and would fill the cache
_CACHED_CHUNKS: Final = 1 << 16  # measured: 29 MB when full


def tokenize(text: str, convention: Convention = "ptb") -> Sentence:
    """Cut a text into tokens.

    Args:
        text: any string; several sentences are cut as one.
        convention: ``ptb``, ``billion-word``, ``unicode`` or ``spaces``.

    Returns:
        The tokens and their spans in the text: ascending, not empty, not overlapping, with only
        white space (what ``str.isspace`` calls so) between them.

    Raises:
        ConfigError: when there is no such convention.
    """
    if convention == "spaces":
        matches = list(_CHUNK.finditer(text))
        return Sentence(tuple(m[0] for m in matches), tuple(m.span() for m in matches))
    if convention not in _CLITICS:
        raise ConfigError(
            f"unknown tokenizer convention {convention!r}; use {', '.join(CONVENTIONS)}"
        )
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        start, end = match.span()
        chunk = match[0]
        cut = _split if end - start <= _CACHED_CHARS else _split.__wrapped__
        pieces = cut(convention, chunk, None)
        if pieces is None:
            pieces = cut(convention, chunk, _keeps_period_before(text, end, chunk)) or ()
        for token, a, b in pieces:
            tokens.append(token)
            spans.append((start + a, start + b))
    if "„" in text:
        for i, (a, b) in enumerate(spans):
            if text[a:b] in "“”‘’":
                tokens[i] = text[a:b]
    return Sentence(tuple(tokens), tuple(spans))


def respell(tokens: Sequence[str], convention: Convention = "ptb") -> tuple[str, ...]:
    """Write the tokens of a sentence that somebody else cut with the quotes of a convention.

    A model has met one spelling of them only; the tokens stay as they are otherwise.
    """
    if convention == "spaces":
        return tuple(tokens)
    kept = frozenset("“”‘’") if "„" in tokens else frozenset()
    return tuple(token if token in kept else _respelled(token) for token in tokens)


def _respelled(token: str) -> str:
    if token in _QUOTES:
        return '"'
    return token if token.isascii() else token.translate(_PLAIN)


def _keeps_period_before(text: str, end: int, chunk: str) -> bool:
    """Decide the period of an initial or of a word like "No" by what follows its chunk."""
    follower = _CHUNK.search(text, end)
    if follower is None:
        return False
    word = chunk[: chunk.rfind(".")].lstrip("([{\"'“‘")
    return word not in _BEFORE_NUMBER or follower[0][0].isdigit()


@lru_cache(maxsize=_CACHED_CHUNKS)
def _split(
    convention: Convention, chunk: str, keep_period: bool | None
) -> tuple[_Piece, ...] | None:
    """Cut a chunk of text without white space.

    Args:
        convention: one with rules for clitics.
        chunk: the characters.
        keep_period: whether an initial or a word of `_BEFORE_NUMBER` at the end of the chunk keeps
            its period; None when this is not known yet.

    Returns:
        The pieces in order; None when they depend on `keep_period` and that is None.
    """
    # "cannot" and its like are two tokens in one convention only.
    clitics, fused = _CLITICS[convention], convention == "ptb"
    if (simple := _split_simple(chunk, fused)) is not None:
        return simple
    pieces: list[_Piece] = []
    at, n = 0, len(chunk)
    while at < n:
        match = _compiled(_MASTER, re.DOTALL).match(chunk, at)
        if match is None:  # unreachable: the last alternative takes any character
            break
        kind, end = match.lastgroup, match.end()
        if kind == "word":
            end = _word_end(chunk, at, end)
            first = len(pieces)
            _cut_word(chunk, at, end, clitics, fused, pieces)
            if chunk.startswith(".", end) and not chunk.startswith("..", end):
                word, a, _ = pieces[-1]
                keeps: bool | None = _is_abbreviation(word)
                if not keeps and len(pieces) == first + 1 and _depends(word):
                    keeps = False
                    if _CLOSERS.match(chunk, end + 1):
                        if keep_period is None:
                            return None
                        keeps = keep_period
                    elif word not in _BEFORE_NUMBER:
                        keeps = True
                if keeps:
                    end += 1
                    pieces[-1] = (word + ".", a, end)
        elif kind == "address":
            end = _address_end(chunk, at, end)
            pieces.append((chunk[at:end], at, end))
        elif kind == "quote":
            pieces.append(('"', at, end))
        elif (
            kind == "elided" and chunk[at + 1 : at + 2] in "tT" and chunk[at + 2 : at + 3] in "iIwW"
        ):
            pieces.append(("'" + chunk[at + 1], at, at + 2))  # 't is, 't was
            pieces.append((chunk[at + 2 : end], at + 2, end))
        else:
            token = chunk[at:end]
            if token[0] in _APOSTROPHES:
                token = token.translate(_PLAIN)
            pieces.append((token, at, end))
        at = end
    return tuple(pieces)


def _split_simple(chunk: str, fused: bool) -> tuple[_Piece, ...] | None:
    """Cut what is a word of plain letters, with or without one plain mark after it; else None.

    That is nine chunks in ten of English text, cut as the patterns would cut them.
    """
    word, mark = (chunk[:-1], chunk[-1]) if chunk[-1] in ".,;!?" else (chunk, "")
    n = len(word)
    if not (word.isascii() and word.isalpha()):
        return ((chunk, 0, 1),) if not n else None
    if mark == "." and (_depends(word) or word in ABBREVIATIONS):
        return None
    if fused and (cut := _FUSED.get(word.lower())):
        pieces: tuple[_Piece, ...] = ((word[:cut], 0, cut), (word[cut:], cut, n))
    else:
        pieces = ((word, 0, n),)
    return (*pieces, (mark, n, n + 1)) if mark else pieces


def _word_end(chunk: str, start: int, end: int) -> int:
    """Give a word the apostrophe or hyphen that ends it: "goin'", "pre-"."""
    after = chunk[end : end + 1]
    if not after:
        return end
    rest = chunk[end + 1 : end + 2]
    if after in _APOSTROPHES and not rest.isalnum():
        word = chunk[start:end]
        dropped_g = len(word) > 3 and word.endswith("in") and not word.endswith("ain")
        if (dropped_g or word.lower() in _DROPPED) and chunk[0] not in _APOSTROPHES:
            return end + 1
    if after == "-" and rest in ("", ",", ")"):
        return end + 1
    return end


def _cut_word(
    chunk: str, start: int, end: int, clitics: str, fused: bool, pieces: list[_Piece]
) -> None:
    """Cut clitics off a word, and periods that should have had a space after them."""
    tail: list[_Piece] = []
    while match := _compiled(clitics).search(chunk, max(start, end - 4), end):
        a = match.start()
        if a == start:
            break
        tail.append((chunk[a:end].translate(_PLAIN), a, end))
        end = a
    word = chunk[start:end]
    if "." in word:
        _cut_dotted(word, start, pieces)
    elif fused and (cut := _FUSED.get(word.lower())):
        pieces.append((word[:cut], start, start + cut))
        pieces.append((word[cut:], start + cut, end))
    else:
        pieces.append((word if word.isascii() else word.translate(_PLAIN), start, end))
    pieces.extend(reversed(tail))


def _cut_dotted(word: str, start: int, pieces: list[_Piece]) -> None:
    """Keep "main.py", "3.5" and "Ph.D" together, but cut "end.The" and "J.Smith"."""
    head, _, last = word.rpartition(".")
    if last.isdigit() and (head in ABBREVIATIONS or head in _BEFORE_NUMBER):  # Nov.28
        pieces.append((head + ".", start, start + len(head) + 1))
        pieces.append((last, start + len(head) + 1, start + len(word)))
        return
    together = (
        (last.lower() in _SUFFIXES and not last.istitle())
        or _compiled(_DOTTED_ABBREVIATION).fullmatch(word) is not None
        or word.islower()
    )
    a = 0
    if not together:
        at = 1
        if acronym := _compiled(_ACRONYM).match(word):
            at = acronym.end()
            if word[at : at + 1].isupper():  # G.N.Qureshi
                pieces.append((word[:at], start, start + at))
                a = at
        at = word.find(".", at)
        while 0 < at < len(word) - 1:
            if word[at + 1].isupper() and (
                not word[at - 1].isdigit() or word[at + 2 : at + 3].islower()
            ):
                head = word[a:at]
                end = at
                if (len(head) == 1 and head.isupper()) or _is_abbreviation(head):
                    end = at + 1
                pieces.append((word[a:end].translate(_PLAIN), start + a, start + end))
                if end == at:
                    pieces.append((".", start + at, start + at + 1))
                a = at + 1
            at = word.find(".", at + 1)
    pieces.append((word[a:].translate(_PLAIN), start + a, start + len(word)))


def _is_abbreviation(word: str) -> bool:
    """Say whether a word without its period is always written with one."""
    return word in ABBREVIATIONS or (
        "." in word and _compiled(_DOTTED_ABBREVIATION).fullmatch(word) is not None
    )


def _depends(word: str) -> bool:
    """Say whether a period after the word may or may not belong to it: "J.", "No."."""
    return word in _BEFORE_NUMBER or (len(word) == 1 and word.isupper())


def _address_end(chunk: str, start: int, end: int) -> int:
    """Take the punctuation of the sentence off an address, but leave it its own brackets."""
    unopened = chunk.count(")", start, end) - chunk.count("(", start, end)
    while end > start + 1 and chunk[end - 1] in _ADDRESS_END:
        if chunk[end - 1] == ")":
            if unopened <= 0:
                break
            unopened -= 1
        end -= 1
    return end
