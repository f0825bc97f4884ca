"""ElmoVectorizer beside scikit-learn's own rules."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.integrations.sklearn import ElmoVectorizer

TEXTS = ["It rose .", "It fell .", "", "Stocks rose and fell again ."]
TOKENS = [text.split() for text in TEXTS]


@pytest.fixture
def vectorizer(tiny_folder: Path) -> ElmoVectorizer:
    """One with a small model."""
    return ElmoVectorizer(tiny_folder, threads=1)


@pytest.mark.parametrize(("pool", "layers"), [("mean", "mean"), ("max", [0.2, 0.3, 0.5])])
def test_sentences_are_those_of_encode(
    vectorizer: ElmoVectorizer, tiny_elmo: Elmo, pool: Any, layers: Any
) -> None:
    found = vectorizer.set_params(pool=pool, layers=layers).fit_transform(TEXTS)
    assert (found.shape, found.dtype) == ((4, 32), np.float32)
    expected = tiny_elmo.encode(TEXTS, pool=pool, layers=layers)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_tokens_are_rows_in_order(vectorizer: ElmoVectorizer, tiny_elmo: Elmo) -> None:
    found = vectorizer.set_params(pool=None, tokenized=True).transform(TOKENS)
    expected = np.concatenate(tiny_elmo.embed(TOKENS, tokenized=True))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert vectorizer.transform([]).shape == (0, 32)
    same_length = np.array([["It", "fell"], ["It", "rose"]])
    assert vectorizer.transform(same_length).shape == (4, 32)


@pytest.mark.parametrize("make", [iter, np.array, pd.Series])
def test_whatever_holds_sentences(vectorizer: ElmoVectorizer, make: Any) -> None:
    expected = vectorizer.transform(TEXTS)
    assert np.array_equal(vectorizer.fit_transform(make(TEXTS)), expected)
    assert np.array_equal(vectorizer.transform(make(TEXTS)), expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"layers": 7}, "layers 0..2"),
        ({"precision": "double"}, "use one of float32"),
        ({"model": 5}, "name it by a path"),
    ],
)
def test_wrong_parameters_are_told_by_fit(
    vectorizer: ElmoVectorizer, parameters: dict[str, Any], message: str
) -> None:
    vectorizer.set_params(**parameters)  # as scikit-learn wants it: nothing is checked here
    with pytest.raises(ConfigError, match=message):
        vectorizer.fit(TEXTS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("It fell .", r"pass \[text\]"),
        (pd.DataFrame({"text": TEXTS}), "pass one column"),
        (np.array([TEXTS]), "item 0 is a ndarray, not a string"),
        (frozenset(TEXTS), "pass a list"),
        (pd.Series(["It fell .", np.nan]), "item 1 is a float, not a string"),
        (TOKENS, "for lists of tokens pass tokenized=True"),
    ],
)
def test_wrong_input(vectorizer: ElmoVectorizer, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        vectorizer.fit_transform(given)


def test_copies_and_pickles_hold_no_weights(vectorizer: ElmoVectorizer, tiny_folder: Path) -> None:
    vectorizer.set_params(layers=[0.2, 0.3, 0.5]).fit(TEXTS)
    expected = vectorizer.transform(TEXTS)
    data = pickle.dumps(vectorizer)
    assert len(data) < 1000
    for other in (pickle.loads(data), clone(vectorizer)):
        assert other.get_params() == vectorizer.get_params()
        assert np.array_equal(other.transform(TEXTS), expected)


def test_names_of_columns_and_tables(vectorizer: ElmoVectorizer) -> None:
    names = vectorizer.get_feature_names_out()
    assert list(names[[0, 31]]) == ["elmovectorizer0", "elmovectorizer31"]
    column = pd.Series(TEXTS, index=[5, 7, 8, 9])
    table = vectorizer.set_output(transform="pandas").fit_transform(column)
    assert list(table.columns) == list(names)
    assert list(table.index) == [5, 7, 8, 9]
    tokens = clone(vectorizer).set_params(pool=None).transform(column)
    assert list(tokens.index) == [5, 5, 5, 7, 7, 7, 9, 9, 9, 9, 9, 9]
    plain = clone(vectorizer).set_params(pool=None).set_output(transform="default")
    assert np.array_equal(tokens.to_numpy(), plain.transform(column))


# scikit-learn's own checks -----------------------------------------------------------------------


def test_check_estimator(vectorizer: ElmoVectorizer) -> None:
    """With the tags of a text transformer, as of scikit-learn's own, most checks do not apply."""
    tags = vectorizer.__sklearn_tags__()
    assert (tags.input_tags.string, tags.input_tags.two_d_array) == (True, False)
    assert tags.requires_fit is False
    with pytest.warns(SkipTestWarning, match="Can't test estimator ElmoVectorizer"):
        results = check_estimator(vectorizer)
    assert {result["status"] for result in results} == {"passed"}


class OnNumbers(ElmoVectorizer):
    """Writes rows of numbers as text, so that every check of scikit-learn can be run."""

    def fit(self, X: Any, y: Any = None) -> OnNumbers:
        super().fit(_texts(validate_data(self, X)))
        return self

    def transform(self, X: Any) -> Any:
        return super().transform(_texts(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        return tags


def _texts(X: Any) -> list[str]:
    return [" ".join(f"{value:.3g}" for value in row) for row in X]


def test_check_estimator_on_numbers(tiny_folder: Path) -> None:
    """All checks, the ones with data too: order, subsets, pickles, read-only memory, ..."""
    with pytest.warns(SkipTestWarning):  # array API, which it does not offer
        results = check_estimator(OnNumbers(tiny_folder, threads=1), on_fail=None)
    by_status: dict[str, list[str]] = {}
    for result in results:
        by_status.setdefault(result["status"], []).append(result["check_name"])
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert failed == []
    assert len(by_status["passed"]) >= 40
    print({status: len(names) for status, names in by_status.items()}, by_status.get("skipped"))


def test_the_tokenizer_is_a_parameter(tiny_folder: Path) -> None:
    def vectors(tokenizer: Any) -> Any:
        return ElmoVectorizer(tiny_folder, pool=None, tokenizer=tokenizer).transform(["It's."])

    assert len(vectors(None)) == len(vectors("ptb")) == 3
    assert len(vectors("spaces")) == len(vectors(lambda text: [text])) == 1
