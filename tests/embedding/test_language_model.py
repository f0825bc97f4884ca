"""Perplexity, scores and likely words, against plain float64 arithmetic and bilm-tf's figures."""

from __future__ import annotations

import dataclasses
import doctest
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import ReferenceElmo, random_weights
from small_models import FIXTURES, SENTENCES, TEXT, make_options, needs_fixtures, write_pair
from tf_bundle import load_bundle, toy_corpus

from elmore import Elmo
from elmore.embedding import language_model
from elmore.embedding.language_model import (
    Perplexity,
    next_words,
    perplexity,
    perplexity_stream,
    pipe_scores,
    previous_words,
    score,
    substitutes,
)
from elmore.errors import ConfigError, FormatError, InputError
from elmore.formats.checkpoint import Softmax
from elmore.text.sentence import Sentence
from elmore.text.vocabulary import Vocabulary

# Some words of the text are missing; the markers stand where no reader expects them.
WORDS = ["<S>", "the", ",", "</S>", ".", "<UNK>", *dict.fromkeys(TEXT[3:30:2])]
MODELS: dict[str, dict[str, Any]] = {
    "skip": make_options(),
    "small clips": make_options(16, 8, cell_clip=0.5, proj_clip=0.25, skip=False),
    "one layer": make_options(n_layers=1),
    "words": make_options(n_words=len(WORDS)),
    "one direction": make_options(bidirectional=False),
}


class Slow:
    """A language model in float64 which multiplies everything by everything."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.weights = random_weights(options, seed)
        self.body = ReferenceElmo(options, self.weights, WORDS)
        rng = np.random.default_rng(seed)
        dim = options["lstm"]["projection_dim"]
        self.softmax = Softmax(
            rng.normal(0, 0.3, (len(WORDS), dim)).astype(np.float32),
            rng.normal(0, 1, len(WORDS)).astype(np.float32),
        )

    def logs(self, tokens: Sequence[str]) -> list[np.ndarray]:
        """Log probabilities of all words at all places with markers -> (time, n_words) each."""
        [layers], _ = self.body.embed_batch([tokens], keep_boundaries=True)
        dim, result = self.body.projection_dim, []
        for direction in range(self.body.n_directions):
            hidden = layers[-1, :, direction * dim : (direction + 1) * dim]
            logits = hidden @ self.softmax.weight.astype(np.float64).T + self.softmax.bias
            logits -= logits.max(axis=1, keepdims=True)
            result.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
        return result

    def targets(self, tokens: Sequence[str]) -> tuple[np.ndarray, np.ndarray | None]:
        """Of the marked tokens 1.. forward, and ..n backward."""
        ids = [
            WORDS.index(w) if w in WORDS else WORDS.index("<UNK>") for w in ["<S>", *tokens, "</S>"]
        ]
        logs = self.logs(tokens)
        forward = np.array([logs[0][t, ids[t + 1]] for t in range(len(ids) - 1)])
        if len(logs) == 1:
            return forward, None
        return forward, np.array([logs[1][t + 1, ids[t]] for t in range(len(ids) - 1)])


def load(folder: Path, name: str = "skip", seed: int = 3, **settings: Any) -> tuple[Elmo, Slow]:
    slow = Slow(MODELS[name], seed)
    words = folder / "words.txt"
    words.write_bytes(Vocabulary(WORDS).to_bytes())
    checkpoint = Elmo.load((*write_pair(folder, MODELS[name], slow.weights), words)).checkpoint
    checkpoint = dataclasses.replace(
        checkpoint, softmax=slow.softmax, vocabulary=Vocabulary(WORDS), tokenizer="ptb"
    )
    return Elmo(checkpoint, **settings), slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Elmo, Slow]:
    return load(tmp_path_factory.mktemp("lm"))


@pytest.fixture(scope="module")
def elmo(pair: tuple[Elmo, Slow]) -> Elmo:
    return pair[0]


def numbers(result: Perplexity) -> dict[str, Any]:
    report = result.to_dict()
    assert report.pop("softmax") == "full"
    return report


# Against the slow way -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_perplexity_against_float64(name: str, seed: int, tmp_path: Path) -> None:
    elmo, slow = load(tmp_path, name, seed)
    result = perplexity(elmo, SENTENCES, tokenized=True)
    full = [tokens for tokens in SENTENCES if tokens]
    pairs = [slow.targets(tokens) for tokens in full]
    forward = np.concatenate([pair[0] for pair in pairs])
    assert result.forward == pytest.approx(np.exp(-forward.mean()), rel=1e-6)
    known = [np.array([*(w in WORDS for w in tokens), True]) for tokens in full]
    losses = [forward[np.concatenate(known)]]
    if slow.body.n_directions == 2:
        backward = np.concatenate([pair[1] for pair in pairs])
        assert result.backward == pytest.approx(np.exp(-backward.mean()), rel=1e-6)
        both = 0.5 * (forward.mean() + backward.mean())
        assert result.mean == pytest.approx(np.exp(-both), rel=1e-6)
        losses.append(backward[np.concatenate([np.roll(mask, 1) for mask in known])])
    else:
        assert result.backward is None
        assert result.mean == result.forward
    expected = np.exp(-np.concatenate(losses).mean())
    assert result.without_unknown == pytest.approx(expected, rel=1e-6)
    n_unknown = sum(w not in WORDS for tokens in full for w in tokens)
    n_words = sum(map(len, full))
    assert 0 < n_unknown < n_words
    assert (result.n_words, result.n_unknown) == (n_words, n_unknown)
    assert result.oov_rate == n_unknown / n_words
    assert (result.n_tokens, result.n_sentences) == (n_words + len(full), len(full))
    assert result.n_empty == 1


@pytest.mark.parametrize("name", MODELS)
def test_scores_against_float64(name: str, tmp_path: Path) -> None:
    elmo, slow = load(tmp_path, name)
    for tokens, result in zip(SENTENCES, score(elmo, SENTENCES, tokenized=True), strict=True):
        forward, backward = slow.targets(tokens)
        assert result.tokens == tuple(tokens)
        np.testing.assert_allclose([*result.forward, result.end], forward, rtol=1e-5)
        assert result.forward_total == pytest.approx(forward.sum(), rel=1e-6)
        assert result.unknown.tolist() == [w not in WORDS for w in tokens]
        if backward is None:
            assert result.backward is result.begin is result.backward_total is None
            assert result.total == result.forward_total
            continue
        assert result.backward is not None
        assert result.begin is not None
        np.testing.assert_allclose([result.begin, *result.backward], backward, rtol=1e-5)
        assert result.total == pytest.approx(0.5 * (forward.sum() + backward.sum()), rel=1e-6)
        assert result.perplexity == pytest.approx(
            np.exp(-result.total / (len(tokens) + 1)), rel=1e-12
        )


def test_likely_words_against_float64(pair: tuple[Elmo, Slow]) -> None:
    elmo, slow = pair
    tokens, plain = TEXT[:6], [k for k, w in enumerate(WORDS) if w[0] != "<" or w == "<"]
    assert len(plain) == len(WORDS) - 3

    def check(found: list[tuple[str, float]], logs: np.ndarray, k: int) -> None:
        best = sorted(plain, key=lambda word: -logs[word])[:k]
        assert [word for word, _ in found] == [WORDS[word] for word in best]
        np.testing.assert_allclose([value for _, value in found], logs[best], atol=1e-5)

    forward, backward = slow.logs(tokens)
    check(next_words(elmo, tokens), forward[6], 10)
    check(previous_words(elmo, tokens, 4), backward[1], 4)
    check(next_words(elmo, []), slow.logs([])[0][0], 10)
    check(previous_words(elmo, []), slow.logs([])[1][1], 10)
    for position in range(len(tokens)):
        logs = forward[position] + backward[position + 2]
        logs -= np.log(np.exp(logs[plain]).sum())
        check(substitutes(elmo, tokens, position, 5), logs, 5)
    everything = substitutes(elmo, tokens, 2, k=10**6)
    assert len(everything) == len(plain)
    assert sum(math.exp(value) for _, value in everything) == pytest.approx(1)
    assert sum(math.exp(value) for _, value in next_words(elmo, tokens, 10**6)) < 1


def test_substitutes_do_not_see_the_word_itself(elmo: Elmo) -> None:
    tokens = list(TEXT[:7])
    before = substitutes(elmo, tokens, 3)
    tokens[3] = "something"
    for (word, value), (same, other) in zip(before, substitutes(elmo, tokens, 3), strict=True):
        assert word == same
        assert value == pytest.approx(other, abs=1e-5)


def test_one_direction_judges_by_what_stands_before(tmp_path: Path) -> None:
    elmo, _ = load(tmp_path, "one direction")
    assert [w for w, _ in substitutes(elmo, TEXT[:5], 2)] == [
        w for w, _ in next_words(elmo, TEXT[:2])
    ]
    with pytest.raises(ConfigError, match="no backward direction"):
        previous_words(elmo, TEXT[:2])


# What must not matter -------------------------------------------------------------------------


def test_batches_order_and_threads_do_not_matter(tmp_path: Path) -> None:
    elmo, _ = load(tmp_path, threads=2)
    single, _ = load(tmp_path, threads=1)
    sentences = [s for s in SENTENCES if s] * 3
    whole = perplexity(elmo, sentences, tokenized=True)
    for result in (
        perplexity(elmo, sentences, tokenized=True, batch_tokens=1),
        perplexity(elmo, sentences[::-1], tokenized=True, batch_tokens=70),
        perplexity(single, iter(sentences), tokenized=True),
    ):
        assert result.mean == pytest.approx(whole.mean, rel=1e-6)
        assert result.without_unknown == pytest.approx(whole.without_unknown, rel=1e-6)
        assert result.n_tokens == whole.n_tokens
    alone = [score(elmo, [s], tokenized=True)[0] for s in sentences]
    for one, other in zip(alone, pipe_scores(elmo, sentences, tokenized=True), strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.forward, other.forward, atol=1e-5)
        np.testing.assert_allclose(one.backward, other.backward, atol=1e-5)
    assert perplexity(elmo, sentences, tokenized=True) == whole  # repeatable to the bit


def test_blocks_do_not_matter(elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = perplexity(elmo, SENTENCES, tokenized=True)
    likely = substitutes(elmo, TEXT[:6], 2)
    monkeypatch.setattr(language_model, "_BLOCK_ROWS", 3)
    monkeypatch.setattr(language_model, "_BLOCK_WORDS", 4)
    monkeypatch.setattr(language_model, "_WINDOW_SENTENCES", 2)
    result = perplexity(elmo, SENTENCES, tokenized=True)
    assert result.forward == pytest.approx(whole.forward, rel=1e-6)
    assert result.backward == pytest.approx(whole.backward, rel=1e-6)
    assert result.n_empty == 1
    assert [w for w, _ in substitutes(elmo, TEXT[:6], 2)] == [w for w, _ in likely]


def test_parts_add_up(elmo: Elmo) -> None:
    first, second = SENTENCES[:3], SENTENCES[3:]
    whole = perplexity(elmo, SENTENCES, tokenized=True)
    total = perplexity(elmo, first, tokenized=True) + perplexity(elmo, second, tokenized=True)
    assert numbers(total) == pytest.approx(numbers(whole), rel=1e-6)
    with pytest.raises(ConfigError, match="no backward direction"):
        whole + Perplexity()


# A model whose answer is known ----------------------------------------------------------------


def known(elmo: Elmo, bias: Sequence[float]) -> Elmo:
    """A softmax that looks at nothing: its bias alone decides."""
    softmax = Softmax(np.zeros_like(elmo.checkpoint.softmax.weight), np.array(bias, np.float32))
    return Elmo(dataclasses.replace(elmo.checkpoint, softmax=softmax))


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(elmo: Elmo) -> None:
    uniform = known(elmo, [5.0] * len(WORDS))
    result = perplexity(uniform, ["the , .", "zzz"])
    for value in (result.forward, result.backward, result.mean, result.without_unknown):
        assert value == pytest.approx(len(WORDS), rel=1e-6)
    assert (result.n_tokens, result.n_sentences, result.oov_rate) == (6, 2, 0.25)
    assert score(uniform, "").total == pytest.approx(-math.log(len(WORDS)), rel=1e-6)


def test_large_logits_neither_overflow_nor_vanish(elmo: Elmo) -> None:
    bias = np.full(len(WORDS), -1e4)
    bias[[WORDS.index("the"), WORDS.index("</S>")]] = 1e4
    result = score(known(elmo, bias), "the the")
    np.testing.assert_allclose([*result.forward, result.end], np.log(0.5), rtol=1e-6)
    assert result.begin == pytest.approx(-2e4, rel=1e-4)
    # no float holds exp(10,000)
    report = perplexity(known(elmo, bias), ["."] * 3).to_dict()
    assert report["backward"] is None
    json.dumps(report, allow_nan=False)


def test_ties_come_in_the_order_of_the_vocabulary(elmo: Elmo) -> None:
    words = [word for word, _ in next_words(known(elmo, [0.0] * len(WORDS)), ["a"], k=3)]
    assert words == ["the", ",", "."]


# The kinds of input ---------------------------------------------------------------------------


def test_text_is_tokenized(elmo: Elmo) -> None:
    one = score(elmo, "The virus, then.")
    assert one.tokens == ("The", "virus", ",", "then", ".")
    [same] = score(elmo, [list(one.tokens)], tokenized=True)
    assert same.total == pytest.approx(one.total, rel=1e-6)
    assert next(pipe_scores(elmo, [Sentence(one.tokens)])).total == same.total
    assert perplexity(elmo, "The virus, then.").n_tokens == 6
    assert next_words(elmo, "The virus,", 3) == next_words(elmo, ["The", "virus", ","], 3)


def test_an_empty_sentence_has_its_markers_alone(elmo: Elmo) -> None:
    result = score(elmo, "")
    assert (len(result), result.forward.shape, result.unknown.shape) == (0, (0,), (0,))
    assert result.total == pytest.approx(0.5 * (result.end + result.begin))
    assert score(elmo, []) == []


def test_nothing_to_measure(elmo: Elmo) -> None:
    for nothing in ([], [""], iter(["", " "])):
        with pytest.raises(InputError, match="no sentence"):
            perplexity(elmo, nothing)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: perplexity(e, [["a"]]), "tokenized=True"),
        (lambda e: perplexity(e, ["a"], tokenized=True), "sentence 0 is a string"),
        (lambda e: score(e, "a b", tokenized=True), "got a string"),
        (lambda e: score(e, [["a", 1]], tokenized=True), "type int"),
        (lambda e: next_words(e, ["a", None]), "type NoneType"),
        (lambda e: next_words(e, ["a"], 0), "k=0"),
        (lambda e: substitutes(e, ["a"], 1), r"position=1 but the sentence has places 0\.\.0"),
        (lambda e: substitutes(e, ["a"], -1), "position=-1"),
        (lambda e: substitutes(e, [], 0), "no place"),
        (lambda e: perplexity_stream(e, ["a"], batch_size=0), "batch_size=0"),
    ],
)
def test_misuse(elmo: Elmo, call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call(elmo)


def test_a_model_without_softmax(tiny_elmo: Elmo) -> None:
    for call in (
        lambda: perplexity(tiny_elmo, ["a"]),
        lambda: score(tiny_elmo, "a"),
        lambda: pipe_scores(tiny_elmo, ["a"]),  # at once, not when the first is asked for
        lambda: substitutes(tiny_elmo, ["a"], 0),
        lambda: perplexity_stream(tiny_elmo, ["a"]),
    ):
        with pytest.raises(ConfigError, match="this model has no softmax") as caught:
            call()
        assert "`elmore fine-tune`" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_damaged_models(elmo: Elmo) -> None:
    checkpoint = elmo.checkpoint
    weight, bias = (array.copy() for array in checkpoint.softmax)

    def broken(**parts: Any) -> Elmo:
        return Elmo(dataclasses.replace(checkpoint, **parts))

    with pytest.raises(FormatError, match="softmax of shape"):
        perplexity(broken(softmax=Softmax(weight[:, 1:], bias)), ["a"])
    other = Vocabulary(["x" if word == "<S>" else word for word in WORDS])
    with pytest.raises(FormatError, match="has no <S>"):
        perplexity(broken(vocabulary=other), ["a"])
    other = Vocabulary(["x" if word == "<UNK>" else word for word in WORDS])
    assert perplexity(broken(vocabulary=other), ["the ."]).oov_rate == 0
    with pytest.raises(FormatError, match="no <UNK>"):
        perplexity(broken(vocabulary=other), ["zzz"])
    bias[7] = np.nan
    with pytest.raises(FormatError, match="not finite"):
        perplexity(broken(softmax=Softmax(weight, bias)), ["a"])


def test_progress_counts_sentences(elmo: Elmo) -> None:
    class Counter:
        n = 0

        def update(self, n: int) -> None:
            self.n += n

        def close(self) -> None: ...

    counter = Counter()
    perplexity(elmo, SENTENCES, tokenized=True, progress=counter, batch_tokens=30)
    assert counter.n == len(SENTENCES) - 1


def test_a_saved_model_gives_the_same(elmo: Elmo, tmp_path: Path) -> None:
    """Its softmax is mapped from the file, hence read-only."""
    elmo.save(tmp_path / "model")
    before = perplexity(elmo, SENTENCES, tokenized=True)
    after = perplexity(Elmo.load(tmp_path / "model"), SENTENCES, tokenized=True)
    assert numbers(after) == pytest.approx(numbers(before), rel=1e-6)


def test_it_says_what_it_measured(elmo: Elmo) -> None:
    result = perplexity(elmo, ["the zzz ."])
    shown = str(result)
    for part in ("forward", "backward", "4 a direction", "33.33% of the words", "full"):
        assert part in shown
    assert repr(result).startswith(f"Perplexity(forward={result.forward:.6g}, backward=")
    assert "backward       none" in str(Perplexity(n_tokens=1, n_known=1))


def test_examples(elmo: Elmo) -> None:
    names = {name: getattr(language_model, name) for name in language_model.__all__}
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(language_model, globs={"elmo": elmo, **names}):
        assert runner.run(test).failed == 0, test.name
    assert runner.tries >= 5


# bilm-tf's own figures ------------------------------------------------------------------------


@needs_fixtures
@pytest.mark.parametrize(("batch_size", "n_batches"), [(1, 139), (2, 55)])
def test_test_perplexity_of_bilm_tf(
    batch_size: int, n_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = FIXTURES / "bilm-tf/checkpoint"
    golden = json.loads((path / "test_perplexity.json").read_text())
    elmo = Elmo(load_bundle(path / "model.ckpt-6"))
    result = perplexity_stream(elmo, toy_corpus(), batch_size=batch_size, tokenized=True)
    assert result.mean == pytest.approx(golden[f"perplexity_batch_size_{batch_size}"], rel=1e-6)
    assert result.n_tokens == n_batches * batch_size
    assert result.n_sentences == 5
    # In windows of a few steps the state is carried all the same.
    monkeypatch.setattr(language_model, "BATCH_TOKENS", 7)
    again = perplexity_stream(elmo, toy_corpus(), batch_size=batch_size, tokenized=True)
    assert again.mean == pytest.approx(result.mean, rel=1e-6)
    assert again.n_words == result.n_words


@needs_fixtures
def test_test_perplexity_of_bilm_tf_in_one_direction() -> None:
    elmo = Elmo(load_bundle(FIXTURES / "bilm-tf/edge/one_direction/model.ckpt-300"))
    result = perplexity_stream(elmo, toy_corpus(), batch_size=1, tokenized=True)
    assert result.mean == pytest.approx(16.38926, rel=1e-6)
    assert result.backward is None
    # A trained model knows its own text better than the words that it never saw there.
    likely = [word for word, _ in next_words(elmo, ["these", "models", "make", "use"], 3)]
    assert "of" in likely


def test_stream_of_one_sentence_equals_the_sentence_alone(elmo: Elmo) -> None:
    tokens = [TEXT[:9]]
    alone = perplexity(elmo, tokens, tokenized=True)
    stream = perplexity_stream(elmo, tokens, batch_size=1, tokenized=True)
    assert numbers(stream) == pytest.approx(numbers(alone), rel=1e-6)


def test_a_stream_drops_what_does_not_fill_all_rows(elmo: Elmo) -> None:
    # Rows of 3 and 2 steps; the second finds no sentence at step 3, which is lost for both.
    result = perplexity_stream(elmo, [["a", "b"], ["c"]], batch_size=2, tokenized=True)
    assert (result.n_tokens, result.n_sentences, result.n_words) == (4, 2, 3)
    with pytest.raises(InputError, match="too few sentences to fill 3 rows"):
        perplexity_stream(elmo, [["a", "b"], ["c"]], batch_size=3, tokenized=True)
