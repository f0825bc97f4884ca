"""Word senses by nearest neighbours, on small texts whose senses we plant."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import load_both

from elmore.analysis import Wsd
from elmore.analysis.wsd import _choose, read_wsd
from elmore.errors import ConfigError, InputError
from elmore.report import Report

rng = np.random.default_rng(0)
FILLERS = "the a old one that every my its".split()
ENDS = "fell grew stood went came stayed".split()
SENSES = {"river": "1:15:00::", "money": "1:14:00::"}


def sentence(k: int, cue: str, test: bool, noise: bool = False) -> dict:
    """The words around `bank` tell its sense, unless chance does."""
    tokens = [str(rng.choice(FILLERS)), cue, cue, "bank", cue, str(rng.choice(ENDS)), "."]
    tail = str(rng.choice(list(SENSES.values()))) if noise else SENSES[cue]
    item = [3, 4, "bank", "n"]
    item += [f"d.s{k}.t0", f"bank%{tail}"] if test else [tail]
    return {"id": f"s{k}", "tok": tokens, "inst": [item]}


def write(path: Path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def make(folder: Path, noise: bool = False) -> Path:
    folder.mkdir()
    cues = ["river", "money"]
    write(folder / "semcor.jsonl", [sentence(k, cues[k % 2], False, noise) for k in range(60)])
    for name, n in (("senseval2", 40), ("semeval2007", 20), ("mine", 2)):
        write(folder / f"{name}.jsonl", [sentence(k, cues[k % 2], True, noise) for k in range(n)])
    # `go up` is never seen in training: two words, the first sense.
    extra = {
        "tok": ["Prices", "go", "up"],
        "inst": [[1, 3, "Go_Up", "v", "d.t", "go_up%2:30:00:: x%1"]],
    }
    with open(folder / "senseval2.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(extra) + "\n\n")
    (folder / "wordnet30_order.tsv").write_text(
        "bank#n\t1:17:01:: 1:14:00:: 1:15:00::\t25 20 2\ngo_up#v\t2:30:00:: 2:38:00::\t4 1\n"
    )
    return folder


def test_a_planted_sense_is_found(tiny_elmo, tmp_path):
    report = Wsd(tiny_elmo, cache=tmp_path / "cache").run(make(tmp_path / "wsd"))
    rows = {(row["vectors"], row["method"]): row for row in report.tables["wsd"]}
    assert list(rows[("first sense", None)]) == [
        "vectors",
        "method",
        "senseval2",
        "semeval2007",
        "mine",
        "ALL",
        "ALL but semeval2007",
        "choices",
    ]
    # The first sense of the dictionary is never meant; the back-off is right once.
    assert rows[("first sense", None)]["ALL"] == round(100 / 63, 3)
    assert rows[("first sense", None)]["ALL but semeval2007"] == round(100 / 43, 3)
    # Equally often seen: the order of the dictionary decides.
    assert rows[("most frequent sense", None)]["semeval2007"] == 50
    for layer in ("layer 1", "layer 2"):
        for method in ("sense averages", "nearest instance"):
            assert rows[(layer, method)]["ALL"] > 95
            assert rows[(layer, method)]["semeval2007"] > 90
    # The token layer knows no context: every `bank` is the same, the first seen sense wins.
    assert rows[("layer 0", "sense averages")]["choices"] == 50
    assert rows[("layer 0", "nearest instance")]["choices"] == 50
    assert ("random, layer 2", "sense averages") in rows
    assert (
        report.metrics["ALL layer 2, sense averages"] == rows[("layer 2", "sense averages")]["ALL"]
    )
    assert report.measured_on["instances"] == ["senseval2 41", "semeval2007 20", "mine 2"]
    assert report.measured_on["choices"] == 62
    parts = {
        (row.pop("vectors"), row.pop("method")): row
        for row in map(dict, report.tables["ALL by part of speech"])
    }
    assert list(parts) == list(rows)
    # 62 times bank#n, and the verb that only the dictionary knows.
    assert parts["first sense", None] == {"noun": 0, "verb": 100, "adj": None, "adv": None}
    nouns = rows["layer 1", "15 nearest"]["choices"]
    assert parts["layer 1", "15 nearest"] == parts["first sense", None] | {"noun": nouns}
    assert report.measured_on["parts of speech"] == ["noun 62", "verb 1", "adj 0", "adv 0"]


def test_nothing_is_found_in_noise(tiny_elmo, tmp_path):
    report = Wsd(tiny_elmo, random=False).run(make(tmp_path / "wsd", noise=True))
    for row in report.tables["wsd"][2:]:
        assert 25 < row["choices"] < 75


def test_static_vectors_cannot_tell_senses_apart(tiny_elmo, tmp_path):
    """Every `bank` has one vector: both senses tie, and the dictionary's order decides."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("bank 1 2 3\nriver 3 2 1\n", encoding="utf-8")
    report = Wsd(tiny_elmo, random=False, vectors=vectors).run(make(tmp_path / "wsd"))
    rows = {(row["vectors"], row["method"]): row for row in report.tables["wsd"]}
    for method in ("sense averages", "nearest instance"):
        # money (1:14) stands before river (1:15) in the dictionary, and half the uses are money.
        assert rows["static vectors", method]["choices"] == 50.0
        assert f"ALL static vectors, {method}" in report.metrics


def test_limit_and_layers(tiny_elmo, tmp_path):
    folder = make(tmp_path / "wsd")
    report = Wsd(tiny_elmo, layers=2, random=False, limit=1).run(folder)
    assert len(report.tables["wsd"]) == 5
    assert report.measured_on["training sentences"] == 1
    assert report.tables["wsd"][2]["semeval2007"] == 50  # the one sense that was seen
    assert report.tables["wsd"][2]["choices"] is None
    (folder / "semeval2007.jsonl").unlink()
    packed = folder / "semcor.jsonl.xz"
    packed.write_bytes(lzma.compress((folder / "semcor.jsonl").read_bytes()))
    (folder / "semcor.jsonl").unlink()
    report = Wsd(tiny_elmo, layers=2, random=False).run(folder)
    assert "ALL but semeval2007" not in report.tables["wsd"][0]
    assert report.metrics["ALL layer 2, sense averages"] > 90


def test_sense_vectors_are_measured_where_there_is_a_softmax(tmp_path):
    elmo, _ = load_both(tmp_path)
    report = Wsd(elmo, layers=2, random=False).run(make(tmp_path / "wsd"))
    rows = {(row["vectors"], row["method"]): row for row in report.tables["wsd"]}
    for method in ("sense averages", "nearest instance", "15 nearest"):
        for vectors in ("sense vectors", "sense vectors and context"):
            assert rows[vectors, method]["choices"] > 80
            assert f"ALL {vectors}, {method}" in report.metrics


def test_choosing_by_hand():
    seen = np.array([[1, 0.2], [1, -0.2], [0, 1], [3, 4]], np.float32)[:, None]
    asked = np.array([[1, 0], [0.7, 0.8], [0.1, 9], [-1, 0]], np.float32)[:, None]
    senses = [[1], [1], [0], [2, 0]]
    chosen = {method: s.tolist() for _, method, s in _choose(seen, asked, senses, 3, [("x", 0)])}
    # Averages: sense 0 = (1.5, 2.5), 1 = (1, 0), 2 = (3, 4).
    assert chosen["sense averages"] == [1, 2, 0, 0]
    # An instance of two senses stands for the first of them.
    assert chosen["nearest instance"] == [1, 0, 0, 0]
    # All four vote with their cosines; one of two senses votes for both. Where no cosine is above
    # 0, the nearest decides: (0, 1), with cosine 0.
    assert chosen["15 nearest"] == [1, 0, 0, 0]
    ties = {
        m: s.tolist() for _, m, s in _choose(asked[[0, 0]], asked[:1], [[1], [0]], 2, [("x", 0)])
    }
    assert ties == {"sense averages": [0], "nearest instance": [0], "15 nearest": [0]}


def test_several_keys_and_spelling(tmp_path):
    folder = make(tmp_path / "wsd")
    write(
        folder / "semcor.jsonl",
        [{"tok": ["Bank", "x"], "inst": [[0, 2, "BANK", "n", "1:15:00:: 1:14:00::"]]}],
    )
    data = read_wsd(folder)
    (instance,) = data.training.instances
    assert (instance.lemma, instance.start, instance.end) == ("bank#n", 0, 2)
    assert instance.senses == ("bank%1:15:00::", "bank%1:14:00::")
    assert list(data.tests) == ["senseval2", "semeval2007", "mine"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"tok": ["a"]', "mine.jsonl:3: not JSON"),
        ('{"tok": ["a"]}', "mine.jsonl:3: not a sentence with senses .KeyError"),
        ('{"tok": [1], "inst": []}', "a token is not a text"),
        ('{"tok": ["a"], "inst": [[0, 2, "bank", "n", "i", "k"]]}', "span 0-2 of 1 tokens"),
        ('{"tok": ["a"], "inst": [[0, 1, "bank"]]}', "mine.jsonl:3: not a sentence"),
        ('{"tok": ["a"], "inst": [[0, 1, "seat", "n", "i", "k"]]}', "'seat#n' is not in the inv"),
    ],
)
def test_bad_lines(tmp_path, record, message):
    folder = make(tmp_path / "wsd")
    with open(folder / "mine.jsonl", "a") as file:
        file.write(record + "\n")
    with pytest.raises(InputError, match=message) as error:
        read_wsd(folder)
    assert error.value.line == 3
    assert "\n" not in str(error.value)


def test_bad_folders(tmp_path):
    with pytest.raises(ConfigError, match="is not a folder"):
        read_wsd(tmp_path / "none")
    with pytest.raises(InputError, match=r"needs semcor.jsonl, one or more test sets"):
        read_wsd(tmp_path)
    folder = make(tmp_path / "wsd")
    (folder / "wordnet30_order.tsv").write_text("bank#n\t1:1\nbank\n")
    with pytest.raises(InputError, match=r"wordnet30_order.tsv:2: expected lemma#pos"):
        read_wsd(folder)
    folder = make(tmp_path / "other")
    (folder / "mine.jsonl").write_text("")
    with pytest.raises(InputError, match=r"mine.jsonl: there is no instance"):
        read_wsd(folder)


def test_only_controls_are_drawn_grey(tmp_path):
    pytest.importorskip("matplotlib")
    from elmore.analysis.plots import plot_report

    names = ("first sense of WordNet", "static vectors", "sense vectors", "layer 2")
    rows = [{"vectors": name, "method": "average", "ALL": 65.0} for name in names]
    plot_report(Report(name="wsd", metrics={}, tables={"wsd": rows}), tmp_path / "wsd.svg")
    svg = (tmp_path / "wsd.svg").read_text()
    assert (svg.count("fill: #bdbdbd"), svg.count("fill: #08519c")) == (2, 2)
