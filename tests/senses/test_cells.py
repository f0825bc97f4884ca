"""Approximate search: cells of similar uses, against the search over everything."""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import TEXT

from elmore import Elmo
from elmore.base.locks import locked
from elmore.errors import ElmoreError, FormatError, MissingExtra
from elmore.senses import Index, build_index
from elmore.senses import index as index_module
from elmore.text.sentence import Sentence

LINES = [" ".join(TEXT[k % 37 : k % 37 + 4 + k % 9]) for k in range(120)]
QUERY = (Sentence(tuple(LINES[3].split())), 2)


@pytest.fixture(scope="module")
def plain(lm: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an index without cells; copy it before you change it."""
    folder = tmp_path_factory.mktemp("cells")
    lm.save(folder / "model")
    (folder / "text.txt").write_text("\n".join(LINES), "utf-8")
    files = [folder / "text.txt"]
    build_index(files, folder / "uses", model=folder / "model", min_count=1, tokenized=True)
    return folder / "uses"


@pytest.fixture
def index(plain: Path, tmp_path: Path) -> Index:
    pytest.importorskip("faiss")
    shutil.copytree(plain, tmp_path / "uses")
    return Index.open(tmp_path / "uses").add_cells(threads=1)


def rows(found: object) -> list[int]:
    return [hit.use.row for hit in found.hits]  # type: ignore[attr-defined]


def test_each_use_is_in_the_cell_of_the_nearest_centre(index: Index) -> None:
    centres, order, offsets = (np.load(index.path / f"{name}.npy") for name in index_module.CELLS)
    assert len(centres) > 5
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    assert sorted(order) == list(range(len(index)))
    cosines = index.vectors(np.arange(len(index))) @ centres.T
    for cell, (start, stop) in enumerate(itertools.pairwise(offsets)):
        mine = cosines[order[start:stop]]
        np.testing.assert_allclose(mine[:, cell], mine.max(axis=1), atol=1e-5)


def test_a_few_cells_are_read(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = index.find(QUERY, word="*", k=20, exact=True)
    assert rows(index.find(QUERY, word="*", k=20)) == rows(everything)  # there are few cells
    monkeypatch.setattr(index_module, "PROBES", 1)
    query = index.vectors(np.array([rows(everything)[0]]))[0]
    near = index.near(query, 1)
    assert rows(everything)[0] in near
    assert 0 < len(near) < len(index) / 2
    assert near.tolist() == sorted(near)
    # As many cells as it takes to have enough uses.
    assert len(near) < len(index.near(query, len(near) + 1)) < len(index)
    assert len(index.near(query, len(index))) == len(index)
    monkeypatch.setattr(Index, "near", lambda *_: near)
    found = index.find(QUERY, word="*", k=20)
    assert set(rows(found)) <= set(near)
    assert rows(index.find(QUERY, word="*", k=20, exact=True)) == rows(everything)
    # Uses of one word are few: all of them are compared.
    word = QUERY[0].tokens[2]
    assert set(rows(index.find(QUERY, k=1000))) == set(index.rows(word))


def test_cells_are_part_of_the_folder(index: Index, plain: Path) -> None:
    assert not Index.open(plain).has_cells
    index.verify()
    names = {path.name for path in index.path.iterdir()}
    assert names == {path.name for path in plain.iterdir()} | {
        "cells.npy",
        "cell_rows.npy",
        "cell_offsets.npy",
    }
    before = (index.path / "cells.npy").stat().st_mtime_ns
    assert index.add_cells().has_cells
    assert (index.path / "cells.npy").stat().st_mtime_ns == before
    settings = {"model": plain.parent / "model", "min_count": 1, "tokenized": True}
    files = [plain.parent / "text.txt"]
    assert build_index(files, index.path, **settings).has_cells  # type: ignore[arg-type]
    with (index.path / "cell_rows.npy").open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(FormatError, match=r"cell_rows.npy' has \d+ bytes, the manifest says"):
        Index.open(index.path)
    again = build_index(files, index.path, overwrite=True, **settings)  # type: ignore[arg-type]
    assert not again.has_cells
    assert {path.name for path in again.path.iterdir()} == {path.name for path in plain.iterdir()}


def test_refusals(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(plain, tmp_path / "uses")
    index = Index.open(tmp_path / "uses")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"needs faiss; install elmore\[approximate\]"):
        index.add_cells()
    monkeypatch.undo()
    pytest.importorskip("faiss")
    with (
        locked(index.path / "lock", "{owner}"),
        pytest.raises(ElmoreError, match="is being written by process"),
    ):
        index.add_cells()
