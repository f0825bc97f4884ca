"""`elmore words`: of a vocabulary, and of a corpus."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from elmore import Elmo
from elmore.published.catalog import catalog


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("fell\nIt\nnever\n.\n")
    return path


@pytest.mark.parametrize("name", ["out.bin", "out.txt"])
def test_words_of_a_text(cli, tiny_folder: Path, tiny_elmo: Elmo, text, words, tmp_path, name):
    out = tmp_path / name
    result = cli("words", text, "--model", tiny_folder, "--words", words, "-o", out)
    assert (result.code, result.out) == (0, "")
    assert "wrote 3 vectors of 4 uses" in result.err
    keyed = KeyedVectors.load_word2vec_format(str(out), binary=name.endswith("bin"))
    assert keyed.index_to_key == [".", "fell", "It"]
    first, _, third = tiny_elmo.embed(text.read_text().splitlines())
    np.testing.assert_allclose(keyed["It"], first[0], atol=1e-5)
    ends = [first[2], third[tiny_elmo.tokenize('He said "no".').tokens.index(".")]]
    np.testing.assert_allclose(keyed["."], np.mean(ends, axis=0), atol=1e-5)


def test_counts_and_json(cli, tiny_folder: Path, text, words, tmp_path):
    base = ["words", text, "--model", tiny_folder, "--words", words, "--json"]
    report = json.loads(cli(*base, "--min-count", "2", "-o", tmp_path / "often.txt").out)
    assert (report["vectors"], report["uses"]) == (1, 2)


def test_the_models_own_words(cli, text, tmp_path):
    assert cli("words", text, "-o", tmp_path / "out.bin").code == 0
    keyed = KeyedVectors.load_word2vec_format(str(tmp_path / "out.bin"), binary=True)
    assert keyed.vector_size == catalog()["english"].dim
    assert {"It", "fell", "He", "said", "no"} <= set(keyed.index_to_key)


@pytest.mark.parametrize("name", ["out.bin", "out.vec"])
def test_words_without_context(
    cli, tiny_folder: Path, tiny_elmo: Elmo, words, tmp_path, name, monkeypatch
):
    monkeypatch.setattr("elmore.cli.embed._BLOCK", 3)
    out = tmp_path / name
    assert cli("words", "--model", tiny_folder, "--words", words, "-o", out).code == 0
    keyed = KeyedVectors.load_word2vec_format(str(out), binary=name.endswith("bin"))
    assert keyed.index_to_key == ["fell", "It", "never", "."]
    np.testing.assert_allclose(
        keyed.vectors, tiny_elmo.engine.token_vectors(keyed.index_to_key), atol=1e-6
    )
    assert keyed.most_similar("fell", topn=1)[0][0] in keyed
    assert cli("words", "--model", tiny_folder, "--words", words, "-o", out).code == 2
