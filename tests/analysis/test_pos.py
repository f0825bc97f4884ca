"""The part-of-speech probe and its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmore.analysis import Pos
from elmore.errors import ConfigError, InputError
from elmore.tasks.data.columns import read_conllu

LETTERS = "abcdefghij"


def conllu(sentences: list[list[tuple[str, str, str]]]) -> str:
    """Words with their two tags as CoNLL-U."""
    blocks = []
    for words in sentences:
        rows = [
            f"{k}\t{form}\t{form}\t{upos}\t{xpos}\t_\t0\troot\t_\t_"
            for k, (form, upos, xpos) in enumerate(words, 1)
        ]
        blocks.append("# a comment\n" + "\n".join(rows) + "\n")
    return "\n".join(blocks)


def sentences(n: int, seed: int) -> list[list[tuple[str, str, str]]]:
    """UPOS is told by the first letter of a word, XPOS by chance."""
    rng = np.random.default_rng(seed)
    return [
        [
            (
                first + "".join(rng.choice(list("xyz"), 3)),
                "VOWEL" if first in "aei" else "OTHER",
                str(rng.choice(["A", "B", "C"], p=[0.5, 0.25, 0.25])),
            )
            for first in rng.choice(list(LETTERS), 6)
        ]
        for _ in range(n)
    ]


@pytest.fixture
def data(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.conllu" for name in ("train", "dev", "test")]
    for seed, (path, n) in enumerate(zip(paths, (150, 50, 50), strict=True)):
        path.write_text(conllu(sentences(n, seed)), encoding="utf-8")
    return paths


def test_a_planted_signal_is_found_and_noise_is_not(tiny_elmo, data, tmp_path):
    vectors = tmp_path / "static.txt"
    vectors.write_text(
        "".join(
            f"{c}{a}{b}{d} {k} 1.0\n"
            for k, c in enumerate(LETTERS)
            for a in "xyz"
            for b in "xyz"
            for d in "xyz"
        )
    )
    report = Pos(tiny_elmo, vectors=vectors, cache=tmp_path / "cache").run(data)
    names = [
        f"{prefix}{layer}"
        for prefix in ("", "random, ")
        for layer in ("layer 0", "layer 1", "layer 2", "mean")
    ]
    assert [row["vectors"] for row in report.tables["upos"]] == [
        "most frequent tag",
        "static vectors",
        *names,
    ]
    # 70 of 100 words are OTHER; the weights of the tiny model are random, so the signal is noisy.
    assert report.metrics["upos layer 0"] > 88
    assert report.metrics["upos mean"] > 85
    assert all(abs(report.metrics[f"xpos {name}"] - 50) < 10 for name in names)
    rows = {row["vectors"]: row for row in report.tables["upos"]}
    assert rows["layer 0"]["dim"] == 16  # once, not doubled
    assert rows["mean"]["dim"] == 32
    assert rows["mean"]["test"] == report.metrics["upos mean"]
    assert rows["most frequent tag"]["ambiguous"] is None  # a form has one tag
    assert rows["most frequent tag"]["known"] == 100
    (tags,) = [rows for title, rows in report.tables.items() if title.startswith("upos, each tag")]
    assert [row["label"] for row in tags] == ["OTHER", "VOWEL"]
    assert sum(row["items"] for row in tags) == 300
    assert "static.txt (100.0% of the test words)" in report.measured_on["vectors"]
    assert report.measured_on["train"].endswith("(150 sentences, 900 words)")
    again = Pos(tiny_elmo, vectors=vectors, cache=tmp_path / "cache").run(data)
    assert again.metrics == report.metrics


def test_choices(tiny_elmo, data):
    report = Pos(tiny_elmo, tags=["upos"], layers="top", random=False, limit=20).run(data)
    assert list(report.metrics) == ["upos most frequent tag", "upos layer 2"]
    assert report.measured_on["train"].endswith("(20 sentences, 120 words)")
    assert report.measured_on["test"].endswith("(50 sentences, 300 words)")
    report = Pos(tiny_elmo, tags=["upos"], layers=[0.5, 0.5, 0], random=False).run(data)
    assert list(report.metrics)[1] == "upos 0.5,0.5,0"
    for arguments, message in [
        ({"tags": ["ner"]}, "use upos, xpos or both"),
        ({"tags": []}, "use upos, xpos or both"),
        ({"layers": 7}, "layers 0..2"),
        ({"layers": "bottom"}, "bottom"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Pos(tiny_elmo, **arguments)
    with pytest.raises(ConfigError, match="TRAIN DEV TEST"):
        Pos(tiny_elmo).run(data[:2])


def test_unseen_words_take_the_commonest_tag_of_rare_ones(tiny_elmo, tmp_path):
    texts = {
        "train": [
            [
                ("a", "X", "_"),
                ("a", "X", "_"),
                ("a", "Y", "_"),
                ("b", "Z", "_"),
                ("c", "Z", "_"),
                ("d", "Y", "_"),
            ]
        ],
        "dev": [[("a", "X", "_")]],
        "test": [
            [
                ("a", "X", "_"),
                ("a", "Y", "_"),
                ("b", "Z", "_"),
                ("new", "Z", "_"),
                ("other", "W", "_"),
            ]
        ],
    }
    paths = []
    for name, text in texts.items():
        paths.append(tmp_path / name)
        paths[-1].write_text(conllu(text))
    (row, *_) = Pos(tiny_elmo, tags=["upos"], random=False).run(paths).tables["upos"]
    assert (row["test"], row["known"], row["unseen"], row["ambiguous"]) == (60, 66.667, 50, 50)
    with pytest.raises(InputError, match="train: column xpos holds nothing but '_'"):
        Pos(tiny_elmo).run(paths)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 It PRON", "bad.conllu:2: 1 columns, expected 10; separate CoNLL-U columns by tabs"),
        ("2\tIt\t_\tX\tX\t_\t_\t_\t_\t_", "bad.conllu:2: word id '2', expected 1"),
        ("1\t\t_\tX\tX\t_\t_\t_\t_\t_", "bad.conllu:2: a word without a form"),
        ("# nothing", "bad.conllu: there is no sentence"),
    ],
)
def test_bad_conllu(tmp_path, line, message):
    path = tmp_path / "bad.conllu"
    path.write_text(f"# one\n{line}\n")
    with pytest.raises(InputError) as error:
        read_conllu(path)
    assert str(error.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(error.value)
