"""Shards: files of tokenised documents, and pieces dealt into them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from elmore.corpus.pieces import KEYS, merge
from elmore.corpus.prepared import Shard, read_shard, shard_tensors, write_shard
from elmore.errors import FormatError

Document = list[list[str]]
DOCUMENTS: list[Document] = [
    [["the", "cat", "sat", "."], ["the", "end"]],
    [["é", "\x85", "a\tb", "日本"]],
    [["the"], ["the", "the"], ["<S>", "the"]],
]


def make(documents: list[Document]) -> Shard:
    types: dict[str, int] = {}
    tokens, sentences, ends = [], [0], [0]
    for document in documents:
        for sentence in document:
            tokens += [types.setdefault(word, len(types)) for word in sentence]
            sentences.append(len(tokens))
        ends.append(len(sentences) - 1)
    return Shard(
        np.array(tokens, np.int32), np.array(sentences), np.array(ends, np.int64), list(types)
    )


def documents_of(shard: Shard) -> list[Document]:
    places = shard.documents.tolist()
    return [[shard.sentence(k) for k in range(start, end)] for start, end in pairwise(places)]


def test_the_layout_is_the_documented_one(tmp_path: Path) -> None:
    write_shard(tmp_path / "a", shard_tensors(make([[["b", "é"], ["b"]]])))
    arrays = load_file(tmp_path / "a")
    assert {name: (a.dtype.name, a.tolist()) for name, a in arrays.items()} == {
        "tokens": ("int32", [0, 1, 0]),
        "sentences": ("int64", [0, 2, 3]),
        "documents": ("int64", [0, 2]),
        "type_bytes": ("int8", np.frombuffer("bé".encode(), np.int8).tolist()),
        "type_offsets": ("int64", [0, 1, 3]),
    }


def test_other_files_are_refused(tmp_path: Path) -> None:
    save_file({"tokens": np.zeros(2, np.int32)}, tmp_path / "b")
    with pytest.raises(FormatError, match="'documents', so it is not a shard"):
        read_shard(tmp_path / "b")


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3)
DRAWN = st.lists(
    st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=3), max_size=6
)


@settings(max_examples=30, deadline=None)
@given(pieces=st.lists(DRAWN, max_size=4), seed=st.integers(0, 9), n_shards=st.integers(1, 4))
def test_merging_deals_every_document_once(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[list[Document]],
    seed: int,
    n_shards: int,
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    rng = np.random.default_rng(seed)
    known: list[tuple[int, int, Document]] = []
    paths = []
    for k, documents in enumerate(pieces):
        keys = np.sort(rng.integers(0, KEYS, len(documents)))
        hashes = rng.integers(0, KEYS, len(documents))
        arrays = {"keys": keys, "hashes": hashes}
        write_shard(folder / f"{k}", shard_tensors(make(documents)) | arrays)
        paths.append(folder / f"{k}")
        known += zip(keys.tolist(), hashes.tolist(), documents, strict=True)
    limit = KEYS // 3
    bounds = [k * KEYS // n_shards for k in range(n_shards + 1)]
    chosen = [((low, high), (limit, KEYS)) for low, high in pairwise(bounds)]
    for k, ((low, high), (least, most)) in enumerate([*chosen, ((0, KEYS), (0, limit))]):
        out = folder / f"shard{k}"
        expected = [
            document
            for key, value, document in sorted(known, key=lambda item: item[0])
            if low <= key < high and least <= value < most
        ]
        found = merge(out, [(path, (least, most)) for path in paths], (low, high))
        assert found == {"documents": len(expected)}
        assert out.exists() == bool(expected)
        if expected:
            assert documents_of(read_shard(out)) == expected
