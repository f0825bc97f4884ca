"""elmore.senses.groups: on vectors whose groups are known, and on homonyms."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo
from elmore.analysis.wsi import rand_index
from elmore.embedding.clustering import average_linkage, cut_linkage
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import SenseVectors, unit
from elmore.senses import Index, build_index, induce, marked_place
from elmore.senses.induction import divide, sense_names


def clouds(*sizes: int, spread: float = 0.06, seed: int = 0) -> np.ndarray:
    """Unit vectors around as many random directions as there are sizes."""
    draws = np.random.default_rng(seed)
    middles = unit(draws.normal(size=(len(sizes), 40)).astype(np.float32))
    points = np.repeat(middles, sizes, axis=0)
    return unit(points + draws.normal(0, spread, points.shape).astype(np.float32))


class _Words:
    """A space whose words are numbers, each its own base."""

    words = tuple(f"w{k}" for k in range(60))
    bases = np.arange(60, dtype=np.int32)
    rows = np.eye(60, dtype=np.float32)


def senses_of(*sizes: int, seed: int = 0) -> SenseVectors:
    """Uses of as many senses as there are sizes, each with ten words of its own."""
    draws = np.random.default_rng(seed)
    senses = np.repeat(np.arange(len(sizes)), sizes)
    ids = np.stack([np.append(draws.permutation(10)[:7] + 10 * k, 50) for k in senses])
    weights = draws.uniform(1, 3, ids.shape).astype(np.float32)
    return SenseVectors(_Words(), ids.astype(np.int32), weights)


@pytest.mark.parametrize("sizes", [(50, 30), (60, 25, 15), (40, 30, 20, 10), (900, 600)])
def test_senses_with_words_of_their_own_are_found(sizes: tuple[int, ...]) -> None:
    found = senses_of(*sizes)
    memberships = divide(found, len(sizes))
    groups = memberships.argmax(axis=1)
    np.testing.assert_array_equal(groups, np.repeat(np.arange(len(sizes)), sizes))
    np.testing.assert_allclose(memberships.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(divide(found, len(sizes)), memberships)
    names = sense_names(found, groups, {"w50"})
    assert all(
        {*name} <= {f"w{k}" for k in range(10 * g, 10 * g + 10)} for g, name in enumerate(names)
    )


def test_contexts_divide_uses_with_the_same_words() -> None:
    found = senses_of(60)
    truth = np.random.default_rng(1).permutation(np.repeat([0, 1], 30))
    context = clouds(30, 30)[np.argsort(np.argsort(truth, kind="stable"), kind="stable")]
    divided = divide(dataclasses.replace(found, context=context), 2).argmax(axis=1)
    assert rand_index(truth, divided) == 1
    assert rand_index(truth, divide(found, 2).argmax(axis=1)) < 0.5
    # Without a number they are one sense: their words do not tell them apart.
    assert divide(dataclasses.replace(found, context=context)).shape[1] == 1


def test_uses_that_are_alike_are_one_sense() -> None:
    assert divide(senses_of(40)).shape == (40, 1)
    assert divide(senses_of(40, 30)).shape == (70, 2)
    assert divide(senses_of(2, 1)).shape == (3, 1)
    assert divide(senses_of(2, 1), 5).shape == (3, 3)
    assert divide(senses_of(3, 2), 1).shape == (5, 1)


def test_average_linkage_against_scipy() -> None:
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    points = clouds(9, 8, 7, spread=0.5)
    distances = 1 - points @ points.T
    tree = linkage(squareform(distances, checks=False), "average")
    merges, heights = average_linkage(distances)
    np.testing.assert_allclose(heights, tree[:, 2], rtol=1e-4)
    for k in (1, 2, 5, 11, 24):
        assert rand_index(cut_linkage(merges, k), fcluster(tree, k, "maxclust") - 1) == 1


def test_induce_takes_tokens_and_marked_sentences() -> None:
    elmo = Elmo.load()
    river = [f"They sat on the {side} [bank] of the river ." for side in ("left", "far", "other")]
    money = [f"The [bank] {verb} him the money ." for verb in ("lent", "gave", "paid")]
    found = induce([*river, *money], elmo=elmo, n_senses=2)
    assert found.labels.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    assert found.to_pandas().shape == (6, 5)
    assert "2 senses of 6 uses" in repr(found)
    tokens = [("They sat on the bank of the river .".split(), 4)]
    like = {
        "money": ["A [bank] lends money ."],
        "river": ["They lay on the [bank] of the stream ."],
    }
    named = induce(tokens, elmo=elmo, like=like)
    assert named.names[named.labels[0]] == ("river",)
    with pytest.raises(InputError, match="no use to divide"):
        induce([], elmo=elmo)
    with pytest.raises(ConfigError, match="n_senses=0"):
        induce(river, elmo=elmo, n_senses=0)


def test_as_many_senses_as_the_uses_support() -> None:
    elmo = Elmo.load()
    sides = ["left", "north", "south", "far", "other", "west"]
    verbs = ["lent", "gave", "offered", "paid", "owed", "sent"]
    river = [f"They sat on the {side} [bank] of the river ." for side in sides]
    money = [f"The [bank] {verb} him the money ." for verb in verbs]
    for copies in (1, 7):
        both = induce([*river * copies, *money * copies], elmo=elmo)
        assert np.bincount(both.labels).tolist() == [6 * copies] * 2
        assert len(induce(river * copies, elmo=elmo)) == 1
        assert len(induce(money * copies, elmo=elmo)) == 1


def test_the_rand_index_is_1_for_the_same_groups_and_0_by_chance() -> None:
    groups = np.repeat([0, 1, 2], [7, 5, 4])
    assert rand_index(groups, (groups + 1) % 3) == 1
    draws = np.random.default_rng(1)
    assert abs(rand_index(draws.integers(0, 3, 3000), draws.integers(0, 3, 3000))) < 0.01


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The bundled model on two files: one of rivers, one of money."""
    folder = tmp_path_factory.mktemp("senses")
    sides = ["left", "right", "north", "south", "far", "other"]
    rivers = [
        f"They {verb} on the {side} bank of the river ."
        for verb in ("sat", "walked", "slept")
        for side in sides
    ]
    verbs = ["lent", "gave", "offered", "paid", "owed", "sent"]
    money = [f"The bank {verb} {who} the money ." for verb in verbs for who in ("him", "her", "us")]
    (folder / "rivers.txt").write_text("\n".join(rivers), "utf-8")
    (folder / "money.txt").write_text("\n".join([*money, rivers[0]]), "utf-8")
    files = [folder / "rivers.txt", folder / "money.txt"]
    return build_index(files, folder / "uses", words=["bank", "the"])


def test_homonyms_are_two_senses_with_names(index: Index) -> None:
    found = index.senses("bank", n_senses=2)
    assert len(found) == 2
    river = next(one for one in found.senses if "shore" in one.name or "side" in one.name)
    shares = {Path(name).stem: share for name, share in river.sources.items()}
    assert shares["rivers"] == 1
    assert shares["money"] == pytest.approx(1 / 19)
    assert all("river" in use.tokens for use in river.typical)
    # One sentence is in both files, and is shown once.
    assert len({use.tokens for use in river.typical}) == 3
    assert sum(one.share for one in found.senses) == pytest.approx(1)
    new = marked_place(index.space.elmo, "She lay on the [bank] of the stream .")
    assert found.assign([new])[0][0] == river.number
    sentence = index.space.elmo.tokenize("A bank lent it , and he sat on the bank of the river .")
    assert [sense == river.number for _, sense, _ in found.assign_text(sentence)] == [False, True]
    assert found.assign_text(index.space.elmo.tokenize("Nothing .")) == []


def test_results_show_well(index: Index) -> None:
    found = index.senses("bank", n_senses=2)
    assert repr(found).startswith("bank: 2 senses in 37 uses (stability 1.00)")
    assert "<table" in found._repr_html_()
    assert list(found.to_pandas()["sense"]) == [1, 2]
    assert found.to_dict()["metrics"]["senses"] == 2
    assert "one sense in" in repr(index.senses("bank", max_senses=1))
    with pytest.raises(ConfigError, match="max_senses=0"):
        index.senses("bank", max_senses=0)


def test_senses_by_examples(index: Index) -> None:
    like = {"water": ["They lay on the [bank] of a stream ."], "loan": ["A [bank] lends money ."]}
    water, loan = index.senses("bank", like=like).senses
    assert (water.name[0], loan.name[0]) == ("water", "loan")
    assert (len(water.rows), len(loan.rows)) == (19, 18)
