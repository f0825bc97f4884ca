"""Sequences read in chunks: the vectors of one go, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from small_models import TEXT, make_checkpoint, make_options

from elmore import Elmo
from elmore.embedding import long_input, stateful, stream
from elmore.embedding.long_input import LONG_TOKENS, read_long
from elmore.errors import ElmoreError

LONG = [TEXT[(7 * k + k * k) % len(TEXT)] for k in range(LONG_TOKENS + 900)]


def whole(elmo: Elmo, tokens: list[str], state=None):
    layers, after = elmo.engine.run(elmo.engine.indexer.batch([tokens]), state)
    return layers[:, 0, 1:-1], after


def random_state(elmo: Elmo):
    rng = np.random.default_rng(1)
    zero = elmo.engine.initial_state(1)
    return type(zero)(*(rng.normal(0, 0.5, part.shape).astype(np.float32) for part in zero))


def check(elmo: Elmo, n_tokens: int, chunk: int, state=None) -> None:
    tokens = LONG[:n_tokens]
    expected, after = whole(elmo, tokens, state)
    with read_long(elmo.engine, tokens, state, chunk=chunk) as long:
        found = np.concatenate([chunk.copy() for chunk in long.chunks()], axis=1)
        np.testing.assert_allclose(found, expected, atol=5e-6, rtol=0)
        for mine, other in zip(long.state, after, strict=True):
            np.testing.assert_allclose(mine, other, atol=5e-6, rtol=0)


@pytest.mark.parametrize("chunk", [1, 2, 7, 16])
@pytest.mark.parametrize("n_tokens", [1, 5, 6, 7, 13, 14, 15, 40])
def test_chunks_give_the_vectors_and_state_of_one_go(tiny_elmo, n_tokens, chunk):
    check(tiny_elmo, n_tokens, chunk)
    check(tiny_elmo, n_tokens, chunk, random_state(tiny_elmo))


@pytest.mark.parametrize(
    "shape",
    [
        {"bidirectional": False},
        {"n_layers": 1},
        {"n_layers": 3, "skip": False},
        {"dim": 16},  # without projection
    ],
)
def test_other_shapes(tmp_path, shape):
    elmo = Elmo(make_checkpoint(tmp_path, make_options(**shape)), threads=1, start="warm")
    check(elmo, 23, 5)


def test_large_ones_go_through_a_file(tiny_elmo, monkeypatch):
    files = []
    make = long_input.tempfile.TemporaryFile
    monkeypatch.setattr(long_input, "_MEMORY_BYTES", 0)
    monkeypatch.setattr(
        long_input.tempfile, "TemporaryFile", lambda: files.append(make()) or files[-1]
    )
    check(tiny_elmo, 40, 7)
    assert len(files) == 3
    assert all(file.closed for file in files)


def test_a_full_disk_is_one_line(tiny_elmo, monkeypatch):
    monkeypatch.setattr(long_input, "_MEMORY_BYTES", 0)
    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(long_input.tempfile, "TemporaryFile", lambda: full)
        with (
            pytest.raises(ElmoreError, match="TMPDIR") as caught,
            read_long(tiny_elmo.engine, LONG),
        ):
            pass
    assert "\n" not in str(caught.value)


@pytest.fixture
def expected(tiny_elmo):
    return whole(tiny_elmo, LONG)[0]


@pytest.fixture
def read_in_chunks(monkeypatch):
    """Lengths of what is read in chunks."""
    lengths = []

    def spy(engine, tokens, *rest):
        lengths.append(len(tokens))
        return read_long(engine, tokens, *rest)

    monkeypatch.setattr(stream, "read_long", spy)
    monkeypatch.setattr(stateful, "read_long", spy)
    return lengths


def test_the_facade_reads_long_sentences_in_chunks(tiny_elmo, expected, read_in_chunks):
    sentences = [["It", "fell"], LONG, [], LONG[: LONG_TOKENS - 2]]
    vectors = tiny_elmo.embed(sentences, tokenized=True)
    assert [len(v) for v in vectors] == [len(s) for s in sentences]
    np.testing.assert_allclose(vectors[1], expected.mean(0), atol=5e-6, rtol=0)
    np.testing.assert_array_equal(vectors[0], tiny_elmo.embed([sentences[0]], tokenized=True)[0])
    assert read_in_chunks == [len(LONG)]
    [top] = tiny_elmo.embed([LONG], layers="top", tokenized=True)
    np.testing.assert_allclose(top, expected[-1], atol=5e-6, rtol=0)
    [layers] = tiny_elmo.layers([LONG], tokenized=True)
    np.testing.assert_allclose(layers.values, expected, atol=5e-6, rtol=0)
    assert layers.tokens == tuple(LONG)


@pytest.mark.parametrize("pool", ["mean", "max", "first", "last"])
def test_pooled_in_chunks(tiny_elmo, expected, read_in_chunks, pool):
    from elmore.embedding.results import pool as pooled

    found = tiny_elmo.encode([LONG], pool=pool, tokenized=True)
    np.testing.assert_allclose(found[0], pooled(expected.mean(0), pool), atol=1e-5)
    assert read_in_chunks == [len(LONG)]
    # A budget that holds it asks for one go.
    [other] = tiny_elmo.pipe([LONG], tokenized=True, pool=pool, batch_tokens=2 * len(LONG))
    np.testing.assert_allclose(found[0], other, atol=1e-5)
    assert read_in_chunks == [len(LONG)]


def test_a_stream_carries_the_state_of_long_rows(tiny_elmo, read_in_chunks, monkeypatch):
    batches = [[LONG[:5], LONG, ["a"]], [LONG[3:9], LONG[:4]], [LONG, ["b"], LONG[:7], ["c"]]]
    with tiny_elmo.stateful() as rows:
        found = [layers for batch in batches for layers in rows.layers(batch, tokenized=True)]
    assert read_in_chunks == [len(LONG)] * 2
    monkeypatch.setattr(stateful, "is_long", lambda *_: False)
    with tiny_elmo.stateful() as rows:
        expected = [layers for batch in batches for layers in rows.layers(batch, tokenized=True)]
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.values, other.values, atol=5e-6, rtol=0)


MEASURE = """
import json, resource, sys
from elmore import Elmo
elmo = Elmo.load((sys.argv[1], sys.argv[2]), threads=1)
words = [f"w{k % 3000}" for k in range(int(sys.argv[3]))]
elmo.embed([words[:4000]], tokenized=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
[vectors] = elmo.embed([words], tokenized=True)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([len(vectors), vectors.nbytes, (after - before) * 1024]))
"""


@pytest.mark.slow
def test_a_hundred_thousand_tokens_need_little_more_than_their_vectors(tmp_path):
    make_checkpoint(tmp_path, make_options(dim=256, projection_dim=128))
    files = [str(tmp_path / "options.json"), str(tmp_path / "weights.hdf5")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *files, "100000"], capture_output=True, check=True
    )
    n_tokens, output, growth = json.loads(done.stdout)
    assert n_tokens == 100_000
    # All layers in one go take three times the output, and once more to be put in order.
    assert growth - output < 120 << 20
