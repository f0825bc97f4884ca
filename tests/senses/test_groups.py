"""elmore.senses.groups: on vectors whose groups are known, and on homonyms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import unit
from elmore.senses import Index, build_index, marked_place
from elmore.senses.groups import _assigned, _divided, _silhouette, group_vectors, rand_index


def clouds(*sizes: int, spread: float = 0.06, seed: int = 0) -> np.ndarray:
    """Unit vectors around as many random directions as there are sizes."""
    draws = np.random.default_rng(seed)
    middles = unit(draws.normal(size=(len(sizes), 40)).astype(np.float32))
    points = np.repeat(middles, sizes, axis=0)
    return unit(points + draws.normal(0, spread, points.shape).astype(np.float32))


@pytest.mark.parametrize("sizes", [(50, 30), (60, 25, 15), (40, 30, 20, 10, 10)])
def test_the_number_of_groups_is_found(sizes: tuple[int, ...]) -> None:
    found = group_vectors(clouds(*sizes))
    assert np.bincount(found.groups).tolist() == list(sizes)
    assert rand_index(found.groups, np.repeat(np.arange(len(sizes)), sizes)) == 1
    assert found.stability > 0.9


def test_one_cloud_is_one_group() -> None:
    assert len(group_vectors(clouds(80)).centres) == 1
    assert len(group_vectors(clouds(80, spread=1)).centres) == 1
    assert len(group_vectors(clouds(1)).centres) == 1


def test_a_few_strays_are_not_a_sense() -> None:
    found = group_vectors(clouds(60, 30, 1, 1))
    assert len(found.centres) == 2


@pytest.mark.parametrize("seed", range(4))
def test_groups_are_by_falling_size_and_none_is_small(seed: int) -> None:
    """Many strays: what is left after small groups are dissolved is large enough."""
    points = clouds(90, 60, *[2] * 12, spread=0.1, seed=seed)
    for k in (4, 8, 12):
        groups = _divided(points, k, 5, np.random.default_rng(seed))
        assert np.bincount(groups).min() >= 5
    sizes = np.bincount(group_vectors(points).groups)
    assert sizes.min() >= 0.03 * len(points) - 1
    assert sizes.tolist() == sorted(sizes, reverse=True)


def test_all_uses_decide_the_order_and_which_groups_stay() -> None:
    vectors, centres = clouds(50, 2, 80), unit(clouds(1, 1, 1, spread=0.001))
    groups, kept = _assigned(vectors, centres)
    assert np.bincount(groups).tolist() in ([80, 52], [82, 50])
    np.testing.assert_array_equal(kept, centres[[2, 0]])
    np.testing.assert_array_equal(groups, np.argmax(vectors @ kept.T, axis=1))


def test_more_uses_than_are_compared() -> None:
    found = group_vectors(clouds(2000, 1500))
    assert np.bincount(found.groups).tolist() == [2000, 1500]


def test_silhouette_and_rand_against_their_definitions() -> None:
    points, groups = clouds(7, 5, 4, spread=0.3), np.repeat([0, 1, 2], [7, 5, 4])
    distance = 1 - points @ points.T
    values = []
    for k in range(16):
        means = [distance[k, (groups == g) & (np.arange(16) != k)].mean() for g in range(3)]
        a, b = means[groups[k]], min(m for g, m in enumerate(means) if g != groups[k])
        values.append((b - a) / max(a, b))
    assert _silhouette(points, groups) == pytest.approx(np.mean(values), abs=1e-5)
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
    found = index.senses("bank")
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
    found = index.senses("bank")
    assert repr(found).startswith("bank: 2 senses in 37 uses (silhouette 0.")
    assert "<table>" in found._repr_html_()
    assert list(found.to_pandas()["sense"]) == [1, 2]
    assert found.to_dict()["metrics"]["senses"] == 2
    assert "one sense in" in repr(index.senses("bank", max_senses=1))
    with pytest.raises(ConfigError, match="max_senses=0"):
        index.senses("bank", max_senses=0)


def test_a_word_without_uses_is_one_line(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of earlier versions can have such words."""
    monkeypatch.setattr(index, "rows", lambda _: np.arange(0))
    with pytest.raises(InputError, match="the index has no use of 'bank'; make it again"):
        index.senses("bank")
    assert len(index.find("the [bank]", word="bank")) == 0


def test_a_long_cloud_is_one_group() -> None:
    """Its halves are separate by silhouette, but no more than those of any such cloud."""
    draws = np.random.default_rng(3)
    points = draws.normal(size=(300, 32)).astype(np.float32)
    points[:, 0] = 18
    points[:, 1] *= 6
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    assert _silhouette(points, (points[:, 1] > 0).astype(np.int64)) > 0.35
    assert len(group_vectors(points).centres) == 1
