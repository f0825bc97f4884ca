"""Shards depend on the text alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.bulk.embed_files import cut_shards, inspect_input
from elmore.bulk.job import Job
from elmore.errors import InputError
from elmore.text.reading import Counts


def cut(paths, shard_bytes, limit=None, **options):
    files = [inspect_input(path) for path in paths]
    job, counts = Job(model="none", shard_bytes=shard_bytes, **options), Counts()
    return list(cut_shards(files, job, counts, limit)), counts


@given(
    lines=st.lists(st.text("aé 🦊", max_size=12), max_size=30),
    shard_bytes=st.integers(1, 60),
    cut_at=st.integers(0, 30),
    limit=st.none() | st.integers(1, 40),
)
def test_every_sentence_once_in_order(tmp_path_factory, lines, shard_bytes, cut_at, limit):
    folder = tmp_path_factory.mktemp("x")
    parts = [lines[:cut_at], lines[cut_at:]]
    paths = [folder / "a", folder / "b"]
    for path, part in zip(paths, parts, strict=True):
        path.write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    shards, _ = cut(paths, shard_bytes, limit)
    assert [text for shard in shards for text in shard.texts] == lines[:limit]
    place = 0
    for number, shard in enumerate(shards):
        assert (shard.number, shard.first) == (number, place)
        assert shard.texts
        place += len(shard.texts)
        sizes = [len(text.encode()) + 1 for text in shard.texts]
        assert sum(sizes[:-1]) < shard_bytes
        assert sum(sizes) >= shard_bytes or number == len(shards) - 1


def test_lines_that_are_not_utf8_are_counted(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"one\n\xff\ntwo\n")
    shards, counts = cut([tmp_path / "a"], 1, errors="skip")
    assert [shard.texts for shard in shards] == [["one"], ["two"]]
    assert [shard.lines for shard in shards] == [[1], [3]]
    assert counts.skipped == 1
    with pytest.raises(InputError, match="a:2"):
        cut([tmp_path / "a"], 1)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path):
    path = tmp_path / "a"
    path.write_text("one\ntwo\n")
    files = [inspect_input(path)]
    shards = cut_shards(files, Job(model="none", shard_bytes=1), Counts(), None)
    next(shards)
    path.write_text("one\ntwo\nthree\n")
    with pytest.raises(InputError, match="changed while it was being read"):
        list(shards)
