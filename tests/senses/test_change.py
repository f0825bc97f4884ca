"""elmore.senses.change: a word that changed, a word that did not, and the figures themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import unit
from elmore.senses import Index, build_index, compare
from elmore.text.statistics import corrected_p, divergence, pairwise_shift

SIDES = ["left", "north", "south", "far", "other", "west", "east", "near", "right", "opposite"]
VERBS = ["lent", "gave", "offered", "paid", "owed", "sent", "brought", "left", "showed", "promised"]
RIVER = [f"They sat on the {side} bank of the river ." for side in SIDES]
MONEY = [f"The bank {verb} him the money ." for verb in VERBS]
DOGS = [f"A {size} dog was asleep ." for size in ("big", "small", "black", "white", "fat")]
CATS = [f"The {size} dog ate the bone ." for size in ("old", "young", "grey", "thin", "lazy")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora: `bank` moves from rivers to money, `dog` stays."""
    folder = tmp_path_factory.mktemp("change")
    texts = {
        "old": [*RIVER, *DOGS[::2], *CATS[::2]],
        "new": [*MONEY, *RIVER[:2], *DOGS[1::2], *CATS[1::2], *DOGS[:1]],
    }
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines), "utf-8")
        build_index([folder / f"{name}.txt"], folder / name, words=["bank", "dog"], threads=1)
    return folder


def test_a_word_that_changed_is_ranked_first(folder: Path) -> None:
    old, new = Index.open(folder / "old"), Index.open(folder / "new")
    found = compare(old, new, min_uses=4, permutations=199, n_senses=2)
    assert [one.word for one in found.words] == ["bank", "dog"]
    bank, dog = found.words
    assert bank.uses.tolist() == [10, 12]
    assert bank.p == pytest.approx(1 / 200)
    assert bank.q == pytest.approx(2 / 200)
    assert dog.p > 0.05
    old_shares, new_shares = bank.shares
    river, gained = np.argsort(-old_shares)
    assert (old_shares[river], old_shares[gained]) == (1, 0)
    assert new_shares[river] == pytest.approx(2 / 12)
    assert "river" in bank.examples[river].tokens
    assert "money" in bank.examples[gained].tokens
    assert bank.examples[gained].source.endswith("new.txt")
    shares = np.array([1, 0]), np.array([2 / 12, 10 / 12])
    assert bank.divergence == pytest.approx(divergence(*shares))
    assert dog.divergence < bank.divergence


def test_distances_are_those_of_all_pairs(folder: Path) -> None:
    old, new = Index.open(folder / "old"), Index.open(folder / "new")
    bank = compare(old, new, words=["bank"], min_uses=4, permutations=9)[0]
    one, two = (unit(index.vectors(index.rows("bank"))) for index in (old, new))
    assert bank.pairwise == pytest.approx(float(np.mean(1 - one @ two.T)), abs=1e-5)
    means = [some.mean(axis=0) / np.linalg.norm(some.mean(axis=0)) for some in (one, two)]
    assert bank.prototype == pytest.approx(1 - float(means[0] @ means[1]), abs=1e-5)


def test_a_corpus_against_itself_shows_nothing(folder: Path) -> None:
    old = Index.open(folder / "old")
    for one in compare(old, old, min_uses=4, permutations=99).words:
        assert one.p > 0.3
        assert one.low <= one.pairwise + 0.1
        assert one.prototype == pytest.approx(0, abs=1e-5)
        assert one.divergence == 0


def test_ranking_names_its_key_and_leaves_function_words_out(folder: Path) -> None:
    old, new = Index.open(folder / "old"), Index.open(folder / "new")
    found = compare(old, new, min_uses=4, permutations=9, stop_words={"dog"}, sort="divergence")
    assert [one.word for one in found.words] == ["bank"]
    assert "change, by divergence" in str(found.report)
    assert len(compare(old, new, min_uses=4, permutations=9, top=1)) == 1
    dog = compare(old, new, words="dog", min_uses=4, permutations=9, n_senses=1)
    assert "one sense: " in str(dog.report)
    with pytest.raises(ConfigError, match="sort='p'; use one of pairwise"):
        compare(old, new, sort="p")


def test_the_interval_holds_the_distance_and_chance_is_chance() -> None:
    draws = np.random.default_rng(0)
    points = unit(draws.normal(size=(60, 8)).astype(np.float32) + 1)
    moved = unit(points[30:] * np.float32([1, 1, 1, 1, -1, -1, -1, -1]))
    same, far = (pairwise_shift(points[:30], two, 199, 0) for two in (points[30:], moved))
    assert same.low < same.pairwise < same.high < far.low
    assert same.p > 0.05
    assert far.p == pytest.approx(1 / 200)


def test_divergence_and_correction() -> None:
    assert divergence(np.array([1.0, 0]), np.array([0, 1.0])) == pytest.approx(1)
    assert divergence(np.array([0.3, 0.7]), np.array([0.3, 0.7])) == 0
    # Benjamini and Hochberg by hand: 0.01 * 4 / 1, 0.02 * 4 / 2, 0.03 * 4 / 3, 0.5 * 4 / 4.
    np.testing.assert_allclose(
        corrected_p(np.array([0.5, 0.02, 0.01, 0.03])), [0.5, 0.04, 0.04, 0.04]
    )


def test_results_show_well_and_bad_calls_say_what_to_do(folder: Path, lm: Elmo) -> None:
    old, new = Index.open(folder / "old"), Index.open(folder / "new")
    found = compare(old, new, min_uses=4, permutations=9)
    assert "bank" in repr(found)
    assert "<table" in found._repr_html_()
    assert list(found.to_pandas()["word"]) == ["bank", "dog"]
    assert set(found.to_pandas("senses")["word"]) >= {"bank"}
    with pytest.raises(InputError, match="no word has 20 uses in both"):
        compare(old, new)
    with pytest.raises(InputError, match="'cat' is not in the index"):
        compare(old, new, words=["cat"])
    with pytest.raises(ConfigError, match="permutations=0"):
        compare(old, new, permutations=0)
    lm.save(folder / "model")
    (folder / "x.txt").write_text("the bank", "utf-8")
    other = build_index([folder / "x.txt"], folder / "x", model=folder / "model", words=["bank"])
    with pytest.raises(ConfigError, match="made with precision=int8 and precision=float32"):
        compare(old, other)


def test_only_indexes_of_the_same_kind_are_compared(folder: Path, lm: Elmo, tmp_path: Path) -> None:
    lm.save(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the bank and the dog\n" * 3, "utf-8")

    def made(**options: object) -> Index:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        settings: dict[str, object] = {"model": tmp_path / "model", "words": "the", "k": 8}
        files = [tmp_path / "text.txt"]
        return build_index(files, place, **{**settings, **options})  # type: ignore[arg-type]

    plain = made()
    # Layers that are kept beside the vectors change nothing.
    assert (
        compare(plain, made(layers="top"), words="the", min_uses=1, permutations=9)[0].prototype
        == 0
    )
    for options, message in (
        ({"k": 4}, "k=8 and k=4; index both with one"),
        ({"k": 0, "layers": "top"}, "k=8 and k=0"),
        ({"precision": "int8"}, "precision=float32 and precision=int8"),
    ):
        with pytest.raises(ConfigError, match=message):
            compare(plain, made(**options))
    with pytest.raises(ConfigError, match="layers=top and layers=1"):
        compare(made(k=0, layers="top"), made(k=0, layers=1))


def test_no_word_is_dropped_silently(folder: Path) -> None:
    old, new = Index.open(folder / "old"), Index.open(folder / "new")
    found = compare(old, new, words=["bank", "dog"], min_uses=8, permutations=9)
    assert [one.word for one in found.words] == ["bank"]
    assert "left out, with too few uses: dog" in str(found.report)
    assert compare(old, new, words="bank", min_uses=4, permutations=9)[0].word == "bank"
    assert not compare(old, new, min_uses=8, permutations=9).rare
