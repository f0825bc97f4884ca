"""The facade: odd input, choices, files, threads."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import SENTENCES

import elmore
from elmore import Elmo, SentenceLayers
from elmore.embedding import stream as stream_module
from elmore.errors import ConfigError, FormatError
from elmore.formats.checkpoint import Checkpoint

TEXTS = ["Stocks fell .", "She fell .", "", "It doesn't matter, she said."]


def same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and np.allclose(x, y, atol=1e-5) for x, y in zip(a, b, strict=True)
    )


# Input -------------------------------------------------------------------------------------------


def test_a_lone_string_gives_one_result(tiny_elmo: Elmo) -> None:
    vectors = tiny_elmo.embed("She fell .")
    assert vectors.shape == (3, 32)
    assert vectors.dtype == np.float32
    assert same([vectors], tiny_elmo.embed(["She fell ."]))
    assert tiny_elmo.encode("She fell .").shape == (32,)
    assert isinstance(tiny_elmo.layers("She fell ."), SentenceLayers)


def test_a_list_gives_a_list_in_its_order(tiny_elmo: Elmo) -> None:
    vectors = tiny_elmo.embed(TEXTS)
    assert [len(v) for v in vectors] == [3, 3, 0, 8]
    assert same(vectors, [tiny_elmo.embed(text) for text in TEXTS])
    assert same(vectors, tiny_elmo.embed(tuple(TEXTS)))


def test_nothing_gives_nothing(tiny_elmo: Elmo) -> None:
    assert tiny_elmo.embed([]) == []
    assert tiny_elmo.embed([], tokenized=True) == []
    assert tiny_elmo.layers([]) == []
    assert tiny_elmo.encode([]).shape == (0, 32)
    assert list(tiny_elmo.pipe([])) == []
    assert tiny_elmo.engine.token_vectors([]).shape == (0, 16)


@pytest.mark.parametrize("text", ["", " ", "\t \n", "\u3000"])
def test_empty_and_blank_sentences_have_length_zero(tiny_elmo: Elmo, text: str) -> None:
    assert tiny_elmo.embed(text).shape == (0, 32)
    assert tiny_elmo.embed([text, "word"])[0].shape == (0, 32)
    assert tiny_elmo.layers(text).values.shape == (3, 0, 32)
    for pool in ("mean", "max", "first", "last"):
        np.testing.assert_array_equal(tiny_elmo.encode(text, pool=pool), np.zeros(32))
    assert tiny_elmo.embed([[]], tokenized=True)[0].shape == (0, 32)


def test_a_huge_token_is_cut_as_published(tiny_elmo: Elmo) -> None:
    [vectors] = tiny_elmo.embed([["x" * 10_000, "y"]], tokenized=True)
    assert same([vectors], tiny_elmo.embed([["x" * 48, "y"]], tokenized=True))
    assert not same([vectors], tiny_elmo.embed([["x" * 47, "y"]], tokenized=True))


METHODS: dict[str, Callable[..., Any]] = {
    "embed": lambda elmo, x, **how: elmo.embed(x, **how),
    "encode": lambda elmo, x, **how: elmo.encode(x, **how),
    "layers": lambda elmo, x, **how: elmo.layers(x, **how),
    "senses": lambda elmo, x, **how: elmo.senses(x, **how),
    "pipe": lambda elmo, x, **how: list(elmo.pipe(x, **how)),
    "stateful": lambda elmo, x, **how: elmo.stateful().embed(x, **how),
}


@pytest.mark.parametrize("name", METHODS)
def test_tokens_where_text_belongs_and_text_where_tokens_belong(tiny_elmo: Elmo, name: str) -> None:
    call = METHODS[name]
    with pytest.raises(ConfigError, match=r"item 0 is a list, .* pass tokenized=True"):
        call(tiny_elmo, [["Stocks", "fell"]])
    for value, message in (
        ("Stocks fell", "a string where lists of tokens belong; leave out tokenized=True"),
        ([["Stocks"], "fell"], "sentence 1 is a string"),
        ([["Stocks", 7]], "sentence 0 has a token of type int; tokens are"),
    ):
        with pytest.raises(ConfigError, match=message):
            call(tiny_elmo, value, tokenized=True)


# Choices -----------------------------------------------------------------------------------------


def test_layer_choices(tiny_elmo: Elmo) -> None:
    values = tiny_elmo.layers("She fell .").values
    choices: list[tuple[Any, np.ndarray]] = [
        ("mean", values.mean(axis=0)),
        ("top", values[2]),
        (0, values[0]),
        (1, values[1]),
        (np.int64(2), values[2]),
        ([0.2, 0.3, 0.5], 0.2 * values[0] + 0.3 * values[1] + 0.5 * values[2]),
        ((0, 2, 0), 2 * values[1]),  # as given, without a softmax
        ([0, 1, 0], values[1]),
        ([0, -1, 0], -values[1]),
        (np.array([1, 1, 1]), values.sum(axis=0)),
    ]
    for choice, expected in choices:
        np.testing.assert_allclose(
            tiny_elmo.embed("She fell .", layers=choice), expected, atol=1e-5
        )
        mixed = tiny_elmo.layers("She fell .").mix(choice)
        np.testing.assert_allclose(mixed, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (3, r'layers=3 but this model has layers 0\.\.2; use one of them, "mean" or "top"'),
        ("bottom", "layers='bottom'; use"),
        (True, "layers=True"),
        (1.5, r"layers=1\.5"),
        ([1, 2], "this model has 3 layers; give one number for each"),
        ([1, 2, float("nan")], "give one number for each"),
    ],
)
def test_wrong_layer_choices(tiny_elmo: Elmo, choice: Any, message: str) -> None:
    for call in (
        lambda: tiny_elmo.embed("a", layers=choice),
        lambda: tiny_elmo.encode([], layers=choice),
        lambda: tiny_elmo.pipe([], layers=choice),  # at once, not with the first item
        lambda: tiny_elmo.stateful().embed([], layers=choice),
    ):
        with pytest.raises(ConfigError, match=message):
            call()


def test_all_layers_are_for_streams(tiny_elmo: Elmo) -> None:
    [found] = tiny_elmo.pipe(["She fell ."], layers="all")
    np.testing.assert_array_equal(found.values, tiny_elmo.layers("She fell .").values)
    with pytest.raises(ConfigError, match="layers='all'; use"):
        tiny_elmo.embed("a", layers="all")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="pool='mean' needs one vector per token"):
        tiny_elmo.pipe(["a"], layers="all", pool="mean")  # type: ignore[call-overload]


def test_pooling(tiny_elmo: Elmo) -> None:
    """Over true lengths, without markers, whatever stands beside."""
    vectors = tiny_elmo.embed(TEXTS)
    for pool, function in {
        "mean": lambda v: v.mean(axis=0),
        "max": lambda v: v.max(axis=0),
        "first": lambda v: v[0],
        "last": lambda v: v[-1],
    }.items():
        expected = [function(v) if len(v) else np.zeros(32) for v in vectors]
        matrix = tiny_elmo.encode(TEXTS, pool=pool)
        assert matrix.shape == (4, 32)
        assert matrix.dtype == np.float32
        np.testing.assert_allclose(matrix, expected, atol=1e-5)
        np.testing.assert_allclose(list(tiny_elmo.pipe(TEXTS, pool=pool)), expected, atol=1e-5)
        tokens = [tiny_elmo.tokenize(text).tokens for text in TEXTS]
        np.testing.assert_allclose(
            tiny_elmo.encode(tokens, pool=pool, tokenized=True), matrix, atol=1e-5
        )
    with pytest.raises(ConfigError, match="pool='sum'; use one of mean, max, first, last"):
        tiny_elmo.encode("a", pool="sum")  # type: ignore[arg-type]


def test_results_belong_to_the_caller(tiny_elmo: Elmo) -> None:
    """Writing into one changes no other and no later one."""
    for call in (
        lambda: tiny_elmo.embed("She fell .", layers="top"),
        lambda: tiny_elmo.embed("She fell ."),
        lambda: tiny_elmo.layers("She fell .").values,
        lambda: tiny_elmo.engine.token_vectors(["She"]),
        lambda: tiny_elmo.encode("She fell .", pool="first"),
    ):
        first = call()
        kept = first.copy()
        first.fill(99)
        np.testing.assert_array_equal(call(), kept)


def test_layers_carry_their_tokens_and_places(tiny_elmo: Elmo) -> None:
    text = "It doesn't matter."
    layers = tiny_elmo.layers(text)
    assert len(layers) == len(layers.tokens) == layers.values.shape[1]
    assert layers.spans is not None
    assert [text[a:b] for a, b in layers.spans] == list(layers.tokens)
    [given] = tiny_elmo.layers([layers.tokens], tokenized=True)
    assert given.spans is None
    np.testing.assert_allclose(given.values, layers.values, atol=1e-5)


def test_what_a_model_says_of_itself(tiny_elmo: Elmo) -> None:
    assert tiny_elmo.dim == tiny_elmo.config.dim == 32
    assert tiny_elmo.n_layers == 3
    assert repr(tiny_elmo).startswith("Elmo('")
    assert "dim=32, n_layers=3" in repr(tiny_elmo)
    text = "She fell . " * 500
    layers = "SentenceLayers(('She', 'fell', '.', 'She', 'fell', '.', ...), values=(3, 1500, 32))"
    assert repr(tiny_elmo.layers(text)) == layers
    assert repr(tiny_elmo.tokenize("It fell.")) == "Sentence(('It', 'fell', '.'), n_tokens=3)"
    assert tiny_elmo.checkpoint.tokenizer == "billion-word"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu9"}, "device='tpu9' cannot be used"),
        ({"device": "cuda"}, "use device='cpu'"),
        ({"device": None}, "device=None cannot be used here; use device='cpu'"),
        ({"precision": "int4"}, "precision='int4'; use one of float32"),
        ({"threads": 0}, "threads=0"),
        ({"start": "cold"}, "start='cold'; use"),
    ],
)
def test_wrong_options(tiny_checkpoint: Checkpoint, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Elmo(tiny_checkpoint, **options)


# Streams -----------------------------------------------------------------------------------------


def test_pipe_is_lazy_and_ordered(tiny_elmo: Elmo) -> None:
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        while True:  # without end
            read += 1
            yield f"line {read - 1}"

    results = tiny_elmo.pipe(lines(), layers=0)
    assert read == 0
    first = next(results)
    assert read <= stream_module._WINDOW_SENTENCES
    for k in range(1, 40):
        ours = next(results)
        expected = tiny_elmo.engine.token_vectors(["line", str(k)])
        np.testing.assert_allclose(ours[:, :16], expected, atol=1e-5)
    assert read <= stream_module._WINDOW_SENTENCES
    assert first.shape == (2, 32)


def test_pipe_stops_reading_at_a_number_of_tokens(
    tiny_elmo: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_WINDOW_TOKENS", 100)
    read = 0

    def rows() -> Iterator[list[str]]:
        nonlocal read
        while True:
            read += 1
            yield ["word"] * 30

    assert next(tiny_elmo.pipe(rows(), tokenized=True)).shape == (30, 32)
    assert read == 4  # 4 * 32 >= 100


# Threads, forks and copies -----------------------------------------------------------------------


def test_eight_threads_share_one_model(tiny_checkpoint: Checkpoint) -> None:
    elmo = Elmo(tiny_checkpoint, threads=2)
    rows = [[*SENTENCES[k % 7], f"word{k}"] for k in range(40)]
    expected = Elmo(tiny_checkpoint, threads=1).embed(rows, tokenized=True)
    failures: list[str] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for k in range(number, number + 12):
            if not same(elmo.embed([rows[k % 40]], tokenized=True), [expected[k % 40]]):
                failures.append(f"thread {number}, sentence {k}")
        if not same(elmo.embed(rows, tokenized=True), expected):
            failures.append(f"thread {number}, all")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_can_use_the_model(tiny_checkpoint: Checkpoint, threads: int) -> None:
    elmo = Elmo(tiny_checkpoint, threads=threads)
    expected = elmo.embed("Before the fork .")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    long = [["the", "fell"] * 2000]
    elmo.embed(long, tokenized=True)
    # OpenMP has its threads now, which the child will not have.
    torch.einsum("l,ltd->td", torch.ones(3), torch.ones(3, 4000, 64))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)  # where it waits for them
            elmo.embed(long, tokenized=True)
            os.write(write, elmo.embed("Before the fork .").tobytes())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(np.frombuffer(data, np.float32), expected.ravel())
    np.testing.assert_array_equal(elmo.embed("Before the fork ."), expected)
    torch.set_num_threads(before)


# Files -------------------------------------------------------------------------------------------


def test_save_and_load(tiny_checkpoint: Checkpoint, tmp_path: Path) -> None:
    elmo = Elmo(tiny_checkpoint)  # a fresh one: what its cache holds may be seen in the last bit
    elmo.save(tmp_path / "model")
    loaded = Elmo.load(tmp_path / "model")
    assert loaded.config == elmo.config
    for text in TEXTS:
        np.testing.assert_array_equal(loaded.embed(text), elmo.embed(text))
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["config.json", "manifest.json", "model.safetensors"]


# The start state ---------------------------------------------------------------------------------


def test_warm_start(tiny_checkpoint: Checkpoint, tiny_elmo: Elmo, tmp_path: Path) -> None:
    warm = Elmo(tiny_checkpoint, start="warm")
    vectors, cold = warm.embed("She fell ."), tiny_elmo.embed("She fell .")
    assert np.abs(vectors - cold).max() > 1e-3
    np.testing.assert_allclose(warm.embed(["x", "She fell ."])[1], vectors, atol=1e-5)
    warm.save(tmp_path / "warm")
    loaded = Elmo.load(tmp_path / "warm", start="warm")
    stored, made = loaded.checkpoint.start_state, warm.engine.start_state
    assert stored is not None
    assert made is not None
    np.testing.assert_array_equal(stored.hidden, made.hidden)
    np.testing.assert_array_equal(stored.cell, made.cell)
    np.testing.assert_allclose(loaded.embed("She fell ."), vectors, atol=2e-6)
    # It is there, and yet the default stays.
    np.testing.assert_allclose(Elmo.load(tmp_path / "warm").embed("She fell ."), cold, atol=2e-6)


def test_warm_start_is_the_state_after_the_burn_in_text(
    tiny_checkpoint: Checkpoint, tiny_elmo: Elmo
) -> None:
    text = (Path(elmore.__file__).parent / "data/burn_in.txt").read_text(encoding="utf-8")
    stream = tiny_elmo.stateful()
    lines = [line.split(" ") for line in text.split("\n") if line]
    assert len(lines) > 1
    for line in lines:
        stream.layers([line], tokenized=True)
    expected = stream.embed([["She", "fell"]], tokenized=True)[0]
    ours = Elmo(tiny_checkpoint, start="warm").embed([["She", "fell"]], tokenized=True)[0]
    np.testing.assert_allclose(ours, expected, atol=1e-5)


# Copies ------------------------------------------------------------------------------------------


def test_a_tensor_that_does_not_fit_the_config_is_refused(
    tiny_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    weights = dict(tiny_checkpoint.weights)
    weights["tokens.characters"] = weights["tokens.characters"][:-1]
    broken = dataclasses.replace(tiny_checkpoint, weights=weights)
    with pytest.raises(FormatError, match=r"tokens\.characters has shape"):
        Elmo(broken)


def test_many_calls_do_not_grow_memory(tiny_elmo: Elmo) -> None:
    """Loops of single calls are how memory ran out elsewhere: each call kept something."""
    words = [f"word{k}" for k in range(50)]

    def calls(n: int) -> int:
        for k in range(n):
            tiny_elmo.embed(f"It fell {words[k % 50]} .")
            tiny_elmo.encode([words[k % 50]])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = calls(100)  # all words are in the caches now
        grown = calls(100) - before
    finally:
        tracemalloc.stop()
    assert grown < 30_000  # the vectors of all calls would be 140,000 bytes
