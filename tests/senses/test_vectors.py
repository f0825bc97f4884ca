"""elmore.language_model.sense_vectors, against plain float64 arithmetic and on homonyms."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import WORDS, Slow, load_both
from small_models import TEXT

from elmore import Elmo
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import SubstituteSpace
from elmore.senses import marked_place, sense_vectors
from elmore.text.tokenizer import Sentence

SENTENCE = Sentence(tuple(TEXT[:6]))
PLAIN = [k for k, word in enumerate(WORDS) if word not in ("<S>", "</S>", "<UNK>")]


def expected(slow: Slow, tokens: tuple[str, ...], position: int) -> np.ndarray:
    """The weight of every plain word: positive pointwise mutual information."""
    prior = 1 / np.arange(1, len(WORDS) + 1)
    prior /= prior.sum()
    logs = slow.logs(tokens)
    joint = logs[0][position]
    if len(logs) == 2:
        joint = joint + logs[1][position + 2] + np.log(np.arange(1, len(WORDS) + 1))
    joint = joint - np.log(np.exp(joint[PLAIN]).sum())
    rows = slow.softmax.weight - slow.softmax.weight.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    known = [word for word in (tokens[position], tokens[position].lower()) if word in WORDS]
    likeness = rows @ rows[WORDS.index(known[0])] if known else 0
    return np.maximum(np.maximum(joint - np.log(prior), 0) + likeness / 2, 0)


# Products are rounded to int8, so that weights are near their definition, not equal to it.
def test_weights_are_mutual_information_and_likeness(both_models: tuple[Elmo, Slow]) -> None:
    elmo, slow = both_models
    found = sense_vectors(elmo, [(SENTENCE, k) for k in range(6)], k=len(WORDS))
    assert found.ids.shape == (6, len(PLAIN))
    for position in range(6):
        weights = expected(slow, SENTENCE.tokens, position)
        assert sorted(found.ids[position]) == PLAIN
        np.testing.assert_allclose(found.weights[position], weights[found.ids[position]], atol=0.1)


def test_one_direction_judges_by_what_is_before(tmp_path: Path) -> None:
    elmo, slow = load_both(tmp_path, "one direction")
    found = sense_vectors(elmo, [(SENTENCE, 3)], k=5)
    weights = expected(slow, SENTENCE.tokens, 3)
    np.testing.assert_allclose(found.weights[0], weights[found.ids[0]], atol=0.1)


def test_frequent_candidates_alone(lm: Elmo) -> None:
    space = SubstituteSpace(lm, candidates=5)
    found = space.vectors([(SENTENCE, k) for k in range(6)])
    assert found.ids.max() < 5
    assert space.k == 5 - sum(k < 5 for k in range(len(WORDS)) if k not in PLAIN)
    assert space.dim == found.dense().shape[1]
    with pytest.raises(ConfigError, match="candidates=0"):
        SubstituteSpace(lm, candidates=0)
    with pytest.raises(ConfigError, match="candidates=1 leaves no word"):
        SubstituteSpace(lm, candidates=1)


def test_few_words_are_the_likeliest_of_all(lm: Elmo) -> None:
    places = [(SENTENCE, k) for k in range(6)]
    everything, few = sense_vectors(lm, places, k=1000), sense_vectors(lm, places, k=4)
    np.testing.assert_array_equal(few.ids, everything.ids[:, :4])
    np.testing.assert_array_equal(few.weights, everything.weights[:, :4])


def test_a_place_does_not_depend_on_the_others(lm: Elmo) -> None:
    texts = [Sentence(tuple(TEXT[k : k + 2 + k % 5])) for k in range(11)]
    places = [(text, k) for text in texts for k in range(len(text))]
    places = [places[k] for k in np.random.default_rng(0).permutation(len(places))]
    together = SubstituteSpace(lm, 5).vectors(places, batch_tokens=20)
    for row, place in enumerate(places):
        alone = sense_vectors(lm, [place], k=5)
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.weights[0], together.weights[row], atol=1e-5)
    assert len(sense_vectors(lm, [])) == 0


def test_the_context_is_what_both_directions_know_before_they_read_the_word(lm: Elmo) -> None:
    context = SubstituteSpace(lm).vectors([(SENTENCE, k) for k in range(6)]).context
    assert context is not None
    top = lm.layers([SENTENCE.tokens], tokenized=True)[0].values[-1]
    half = lm.dim // 2
    np.testing.assert_allclose(context[1:, :half], top[:-1, :half], atol=1e-6)
    np.testing.assert_allclose(context[:-1, half:], top[1:, half:], atol=1e-6)
    other = Sentence((*SENTENCE.tokens[:3], "xyzzy", *SENTENCE.tokens[4:]))
    found = SubstituteSpace(lm).vectors([(other, 3)]).context
    assert found is not None
    np.testing.assert_allclose(found[0], context[3], atol=1e-6)


def test_similarity_is_the_cosine_over_all_words_and_contexts(lm: Elmo) -> None:
    found = sense_vectors(lm, [(SENTENCE, k) for k in range(6)], k=7)
    table = np.zeros((6, len(WORDS)))
    np.put_along_axis(table, found.ids, np.sqrt(found.weights), axis=1)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    context = found.context
    assert context is not None
    context = context / np.linalg.norm(context, axis=1, keepdims=True)
    words, expected = table @ table.T, 0.8 * table @ table.T + 0.2 * context @ context.T
    np.testing.assert_allclose(found.similarity(), expected, atol=1e-6)
    np.testing.assert_allclose(found[:2].similarity(found[2:]), expected[:2, 2:], atol=1e-6)
    alone = dataclasses.replace(found, context=None)
    np.testing.assert_allclose(alone.similarity(), words, atol=1e-6)
    # What two positions share adds up to the part of the words.
    for one, part in ((found, 0.8), (alone, 1)):
        shared = dict(one.shared(0, 1, n=100))
        assert sum(shared.values()) == pytest.approx(part * float(words[0, 1]), abs=1e-6)
    assert set(shared) <= {word for word, _ in found.words(0, 100)}


def test_the_dense_form_is_a_weighted_sum_of_softmax_rows(lm: Elmo) -> None:
    found = sense_vectors(lm, [(SENTENCE, k) for k in range(3)], k=7)
    rows = lm.checkpoint.softmax.weight - lm.checkpoint.softmax.weight.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for k in range(3):
        expected_vector = found.weights[k] @ rows[found.ids[k]]
        np.testing.assert_allclose(found.dense()[k], expected_vector, atol=1e-5)


def test_bad_calls_say_what_to_do(lm: Elmo, tiny_elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match=r"position=6 .* positions 0\.\.5"):
        sense_vectors(lm, [(SENTENCE, 6)])
    with pytest.raises(ConfigError, match="k=0"):
        sense_vectors(lm, [(SENTENCE, 0)], k=0)
    without = Elmo(dataclasses.replace(lm.checkpoint, softmax=None))
    with pytest.raises(ConfigError, match="no softmax"):
        sense_vectors(without, [(SENTENCE, 0)])


def test_elmo_gives_one_row_per_token(lm: Elmo) -> None:
    found = lm.senses("It fell.")
    assert found.tokens == ("It", "fell", ".")
    sentence = lm.tokenize("It fell.")
    expected = sense_vectors(lm, [(sentence, k) for k in range(3)])
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
    several = lm.senses(["It fell.", "", "Yes"])
    assert [one.tokens for one in several] == [("It", "fell", "."), (), ("Yes",)]
    assert [len(one) for one in several] == [3, 0, 1]
    assert lm.senses([]) == []
    assert len(lm.senses("")) == 0
    with pytest.raises(ConfigError, match="item 0 is a list"):
        lm.senses([["It"]])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "text", ["no mark", "[two words here] too", "[a] and [b]", "]odd[", "a [ ] b"]
)
def test_one_word_must_be_marked(lm: Elmo, text: str) -> None:
    with pytest.raises(InputError, match="mark one word"):
        marked_place(lm, text)


def test_a_marked_word_is_found_where_it_is(lm: Elmo) -> None:
    sentence, position = marked_place(lm, "It fell on the [bank].")
    assert sentence.tokens == ("It", "fell", "on", "the", "bank", ".")
    assert position == 4


def test_homonyms_come_apart_better_than_by_layers() -> None:
    """The bundled model: nearest use among five of the same word; by chance 40 % are right."""
    elmo = Elmo.load(threads=1)
    lines = (Path(__file__).parent / "homonyms.tsv").read_text(encoding="utf-8").splitlines()
    words, senses, texts = zip(*(line.split("\t") for line in lines), strict=True)
    places = [marked_place(elmo, text) for text in texts]

    def right(similarity: np.ndarray) -> float:
        same = np.array(words)[:, None] == np.array(words)
        similarity = np.where(same & ~np.eye(len(words), dtype=bool), similarity, -9)
        nearest = similarity.argmax(axis=1)
        return float(np.mean([senses[k] == senses[n] for k, n in enumerate(nearest)]))

    layers = elmo.layers([sentence.tokens for sentence, _ in places], tokenized=True)
    top = np.stack([one.values[-1, k] for one, (_, k) in zip(layers, places, strict=True)])
    top /= np.linalg.norm(top, axis=1, keepdims=True)
    found = sense_vectors(elmo, places)
    dense = found.dense() / np.linalg.norm(found.dense(), axis=1, keepdims=True)
    assert right(found.similarity()) >= 0.9 > right(top @ top.T)
    assert right(dense @ dense.T) >= 0.9
