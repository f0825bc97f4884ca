"""The table of published models."""

from __future__ import annotations

import re

import pytest

from elmore.errors import ModelNotFound
from elmore.published.catalog import INCLUDED, catalog, find_file, find_published, find_weights

CATALOG = [model for name, model in catalog().items() if name not in INCLUDED]


def test_every_name_once_and_fit_for_a_folder() -> None:
    names = [model.name for model in CATALOG]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name), name


def test_addresses_are_https_and_belong_to_one_file() -> None:
    seen: set[str] = set()
    for model in CATALOG:
        assert model.page.startswith("https://")
        for name, addresses in model.files.items():
            assert addresses
            for address in addresses:
                assert address.startswith("https://"), address
                if name != "vocab.txt":  # both checkpoints have the same words
                    assert address not in seen, address
                seen.add(address)
            assert "/" not in name
        assert model.checksums.keys() <= model.files.keys()
        for checksum in model.checksums.values():
            assert re.fullmatch(r"sha256:[0-9a-f]{64}|sha1:[0-9a-f]{40}", checksum)
    assert len(seen) > 90


def test_the_collections_are_all_there() -> None:
    count = {
        form: sum(model.form == form for model in CATALOG)
        for form in ("allennlp", "tensorflow", "manylangs", "tfhub")
    }
    assert count == {"allennlp": 26, "tensorflow": 8, "manylangs": 44, "tfhub": 6}
    assert {model.language for model in CATALOG if model.form == "manylangs"} >= {"de", "ug", "zh"}
    assert len({model.language for model in CATALOG}) >= 45
    names = {model.name for model in CATALOG}
    assert {"seqvec", "original-5.5b", "ru-wiki-checkpoint-simple"} <= names


def test_finding() -> None:
    with pytest.raises(ModelNotFound, match=r"did you mean original-5\.5b or original"):
        find_published("original-5.5")
    with pytest.raises(ModelNotFound, match="`elmore models` lists the names"):
        find_published("qqqqqq")
    address = find_published("original").files["weights.hdf5"][1]
    found = find_file(address)
    assert found is not None
    assert (found[0].name, found[1]) == ("original", "weights.hdf5")
    assert find_file("https://example.org/x") is None


@pytest.mark.parametrize(
    ("name", "convention", "note"),
    [
        ("small", "billion-word", ""),
        ("manylangs-en", "ptb", ""),
        ("manylangs-zh", "unicode", "words of UDPipe"),
        ("nlpl-195", "unicode", ""),
        ("nlpl-196", "unicode", "lemmas"),
        ("pubmed", "billion-word", "nobody states"),
        ("de-wiki", "unicode", "nobody states"),
    ],
)
def test_how_raw_text_is_split(name: str, convention: str, note: str) -> None:
    tokens = find_published(name).tokens
    assert tokens.convention == convention
    assert note in tokens.note
    assert bool(note) == bool(tokens.note)


def test_only_names_that_nobody_else_uses_say_which_model_it_is() -> None:
    known = find_weights("elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5")
    assert known is not None
    assert known.name == "original"
    assert find_weights("weights.hdf5") is None
    # The biomedical model has the same options file.
    assert find_weights("elmo_2x4096_512_2048cnn_2xhighway_options.json") is None
