from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import ConfigError, InputError
from elmore.text.tokenizer import CONVENTIONS, Convention, Sentence, respell, tokenize

# (text, tokens joined by spaces)
ENGLISH = [
    ("", ""),
    ("Stocks fell.", "Stocks fell ."),
    ("Stop! Why? Well; so: yes, no.", "Stop ! Why ? Well ; so : yes , no ."),
    # contractions and possessives
    ("I don't know", "I do n't know"),
    ("He can't and won't", "He ca n't and wo n't"),
    ("DON'T", "DO N'T"),
    ("We cannot. Cannot we?", "We can not . Can not we ?"),
    ("gimme gonna gotta lemme wanna", "gim me gon na got ta lem me wan na"),
    ("it's you're I've we'll she'd I'm", "it 's you 're I 've we 'll she 'd I 'm"),
    ("shouldn't've", "should n't 've"),
    ("Murray's dogs' bones", "Murray 's dogs ' bones"),
    ("don’t it’s dogs’", "do n't it 's dogs '"),
    ("'tis 'Twas", "'t is 'T was"),
    ("rock 'n' roll in the '90s", "rock 'n' roll in the '90s"),
    ("O'Brien and O’Brien at five o'clock", "O'Brien and O'Brien at five o'clock"),
    ("l'homme d'état", "l'homme d'état"),
    ("goin' to th' fair", "goin' to th' fair"),
    ("do n't Murray 's", "do n't Murray 's"),
    # quotes and brackets
    ('"Yes," she said.', '" Yes , " she said .'),
    ("“Yes,” she said.", '" Yes , " she said .'),
    ("``Yes,'' she said.", '" Yes , " she said .'),
    ("'Yes,' she said; ‘no’.", "' Yes , ' she said ; ' no ' ."),
    ('"Foo"\'s', '" Foo " \'s'),
    ("(a [b] {c})", "( a [ b ] { c } )"),
    # dots and dashes
    ("Well... no… yes..", "Well ... no … yes .."),
    ("wait...what", "wait ... what"),
    ("one--two—three – four", "one -- two — three – four"),
    ("1990–95", "1990 – 95"),
    ("a well-known mid-October plan", "a well-known mid-October plan"),
    ("pre- and post-war", "pre- and post-war"),
    ("and/or", "and / or"),
    # numbers
    ("1,000.50 at 10:30 is 1/2", "1,000.50 at 10:30 is 1/2"),
    ("the 98th of 3.", "the 98th of 3 ."),
    ("1, 2, 3.", "1 , 2 , 3 ."),
    ("$5 and 5% of €3.20", "$ 5 and 5 % of € 3.20"),
    ("US$1,000", "US$ 1,000"),
    ("-5 to +3 or .5", "-5 to +3 or .5"),
    ("won 6-3 on 2008-01-02", "won 6-3 on 2008-01-02"),
    ("20°C", "20 ° C"),
    # periods
    ("Dr. Smith met Mr. Jones.", "Dr. Smith met Mr. Jones ."),
    ("He lives in the U.S.", "He lives in the U.S."),
    ("the U.S.-led U.S.'s U.S. army", "the U.S.-led U.S. 's U.S. army"),
    ("e.g. this, i.e. that, etc.", "e.g. this , i.e. that , etc."),
    ("at 5 p.m. on Jan. 3", "at 5 p.m. on Jan. 3"),
    ("a Ph.D. at Acme Inc.", "a Ph.D. at Acme Inc."),
    ("J. R. R. Tolkien, J.R.R. Tolkien", "J. R. R. Tolkien , J.R.R. Tolkien"),
    ("J.Smith and G.N.Rao", "J. Smith and G.N. Rao"),
    ("She took vitamin C.", "She took vitamin C ."),
    ('He said "vitamin C."', 'He said " vitamin C . "'),
    ("No. 5 won. No. The end.", "No. 5 won . No . The end ."),
    ("Nov.28 and Fig.3", "Nov. 28 and Fig. 3"),
    ("The end.The start", "The end . The start"),
    # names of the net, of files, of languages
    ("See https://a.b/c_(d)?e=f. Now", "See https://a.b/c_(d)?e=f . Now"),
    ("(www.example.com)", "( www.example.com )"),
    ("Mail ada.l@example.co.uk, please", "Mail ada.l@example.co.uk , please"),
    ("@ada likes #elmo, not #1", "@ada likes #elmo , not # 1"),
    ("Open main.py and README.TXT.", "Open main.py and README.TXT ."),
    ("Amazon.com's .txt files", "Amazon.com 's .txt files"),
    ("C++, C# and .NET at AT&T", "C++ , C# and .NET at AT&T"),
    # faces and pictures
    ("good :) bad :-( so ;-) <3", "good :) bad :-( so ;-) <3"),
    ("thanks:)", "thanks :)"),
    ("note:(a)", "note : ( a )"),
    ("👍🏽👩‍👩‍👧 🇩🇪🇫🇷 ❤️ 1️⃣", "👍🏽 👩‍👩‍👧 🇩🇪 🇫🇷 ❤️ 1️⃣"),
    ("no!!! really?!", "no !!! really ?!"),
    ("*** a == b", "*** a == b"),
    ("snake_case stays", "snake_case stays"),
]
BILLION_WORD = [
    ("Don't, wasn't, Murray's", "Don 't , wasn 't , Murray 's"),
    ("I'm; they’re; can't've", "I 'm ; they 're ; can 't 've"),
    ("cannot gonna", "cannot gonna"),
    ('"Yes" (no) 68.88 98th U.S.', '" Yes " ( no ) 68.88 98th U.S.'),
    ("Don 't", "Don 't"),
]
SCRIPTS = [
    ("我爱北京。你呢？", "我 爱 北 京 。 你 呢 ？"),
    ("iPhone手机，3个", "iPhone 手 机 ， 3 个"),
    ("「東京タワー」はすごい！", "「 東 京 タワー 」 はすごい ！"),
    ("나는 학교에 간다.", "나는 학교에 간다 ."),
    ("สวัสดีครับ ผมชื่อ", "สวัสดีครับ ผมชื่อ"),
    ("ສະບາຍດີ", "ສະບາຍດີ"),
    ("សួស្តី។ ភាសា", "សួស្តី ។ ភាសា"),
    ("မင်္ဂလာပါ။", "မင်္ဂလာပါ ။"),
    ("བོད་སྐད།", "བོད་སྐད །"),
    ("‘말’이라는 '배'를 탔다.", "' 말 ' 이라는 ' 배 ' 를 탔다 ."),
    ("أين الكتاب، يا مُعَلِّم؟", "أين الكتاب ، يا مُعَلِّم ؟"),
    ("می‌خواهم بروم", "می‌خواهم بروم"),
    ('שלום, צה"ל צה״ל', 'שלום , צה"ל צה״ל'),
    ("यह हिन्दी में है।", "यह हिन्दी में है ।"),
    ("এটি বাংলা।", "এটি বাংলা ।"),
    ("தமிழ் மொழி.", "தமிழ் மொழி ."),
    ("Он, т.е. Иван, ушёл.", "Он , т.е. Иван , ушёл ."),
    ("п’ять, п'ять", "п'ять , п'ять"),
    ("Τι κάνεις; Καλά.", "Τι κάνεις ; Καλά ."),
    ("Բարև։ Ինչո՞ւ", "Բարև ։ Ինչո՞ւ"),
    ("ሰላም፡ነው።", "ሰላም ፡ ነው ።"),
    ("¿Qué tal? ¡Hola!", "¿ Qué tal ? ¡ Hola !"),
    ("« Oui », dit-il à l’école", "« Oui » , dit-il à l'école"),
    ("„Ja“, sagte sie.", "„ Ja “ , sagte sie ."),
    ("col·legi", "col·legi"),
    ("cafe\u0301 nai\u0308ve", "cafe\u0301 nai\u0308ve"),
    ("გამარჯობა!", "გამარჯობა !"),
]


@pytest.mark.parametrize(("text", "tokens"), ENGLISH + SCRIPTS)
def test_ptb(text: str, tokens: str) -> None:
    assert " ".join(tokenize(text).tokens) == tokens


@pytest.mark.parametrize(("text", "tokens"), BILLION_WORD + SCRIPTS)
def test_billion_word(text: str, tokens: str) -> None:
    assert " ".join(tokenize(text, "billion-word").tokens) == tokens


@pytest.mark.parametrize(("text", "tokens"), ENGLISH)
def test_tokenized_text_stays_as_it_is(text: str, tokens: str) -> None:
    assert " ".join(tokenize(tokens).tokens) == tokens


def test_spans_point_at_the_original_characters() -> None:
    text = " “I don’t,”\u00a0she\u3000said."
    sentence = tokenize(text)
    assert sentence.tokens == ('"', "I", "do", "n't", ",", '"', "she", "said", ".")
    assert sentence.spans is not None
    slices = [text[start:end] for start, end in sentence.spans]
    assert slices == ["“", "I", "do", "n’t", ",", "”", "she", "said", "."]


def test_spaces_splits_at_white_space_only() -> None:
    sentence = tokenize("\u2028don’t\u3000stop.\u00a0“a”\x85b\n", "spaces")
    assert sentence.tokens == ("don’t", "stop.", "“a”", "b")
    assert sentence.spans == ((1, 6), (7, 12), (13, 16), (17, 18))


def test_unknown_convention() -> None:
    with pytest.raises(ConfigError, match="unknown tokenizer convention 'moses'; use ptb, billion"):
        tokenize("a", "moses")  # type: ignore[arg-type]  # the point of the test


def _plain(text: str) -> str:
    """Apply the documented rewritings."""
    if text in ("“", "”", "``", "''", "’’", "‘‘"):
        return '"'
    for apostrophe in "’‘\u02bc\u201b":
        text = text.replace(apostrophe, "'")
    return text


_PIECES = st.sampled_from(
    [
        *"aB1.,:;!?-'’“”\"()[]{}/@#&%$_ \n\u00a0\u3000\u2028\u200d\ufe0f\u0301",
        *"我のカกक。…—„\x00\ud800👍🏽\U0001f1e9",
        *("n't 's U.S. No. http:// www. .com can not :-) .. in' G.N.Rao 1.A".split(" ")),
    ]
)
_TEXT = st.text() | st.lists(_PIECES, max_size=25).map("".join)
_ANY = st.one_of(_TEXT, st.text(st.characters()))  # the second with lone surrogates


@given(_ANY, st.sampled_from(CONVENTIONS))
def test_spans_cover_all_but_white_space(text: str, convention: Convention) -> None:
    sentence = tokenize(text, convention)
    assert sentence.spans is not None
    at = 0
    for token, (start, end) in zip(sentence.tokens, sentence.spans, strict=True):
        assert at <= start < end
        assert text[at:start].strip() == ""
        piece = text[start:end]
        assert not any(character.isspace() for character in piece)
        if convention == "spaces":
            assert token == piece
        else:
            assert token in (piece, _plain(piece))
        at = end
    assert text[at:].strip() == ""


def test_length_of_the_chunk_does_not_change_the_rules() -> None:
    # Chunks over 64 characters bypass the cache.
    text = "don't," * 20
    assert tokenize(text).tokens == ("do", "n't", ",") * 20


@pytest.mark.parametrize(
    "unit", ["a.", "A.", ".", "(", "a's", "J.,", "http://)", "a@", "我", "1.A"]
)
def test_linear_time(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    start = time.process_time()
    tokenize(text)
    assert time.process_time() - start < 5  # measured 0.2 s; quadratic time would be minutes


@pytest.mark.parametrize(
    "text", ["“Don’t,” ‘she’ said.", "„Nein“, sagte er.", "``It 's'' so", "plain"]
)
def test_respelling_equals_tokenizing(text: str) -> None:
    """Tokens with the characters of the text become those that `tokenize` gives."""
    for convention in ("ptb", "billion-word", "spaces"):
        sentence = tokenize(text, convention)
        raw = [text[a:b] for a, b in sentence.spans]
        assert respell(raw, convention) == sentence.tokens


@pytest.mark.parametrize("spans", [(), ((0, 1), (1, 2))])
def test_spans_must_fit_the_tokens(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InputError, match=r"1 tokens but \d spans; give one"):
        Sentence(("a",), spans)
