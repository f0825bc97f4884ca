"""spaCy's component: every token of spaCy's has the vector that elmore gives it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
from small_tasks import make
from spacy.language import Language
from spacy.tokens import Doc

from elmore import Elmo, cosine
from elmore.integrations import loaded
from elmore.integrations.spacy import add_hooks
from elmore.published.catalog import catalog

ROOT = Path(__file__).resolve().parents[2]
TEXT = "I sat on the bank .  \n\n The bank lent money, didn't it?"


@pytest.fixture
def nlp(tiny_folder: Path) -> Language:
    """A pipeline that tokenizes and embeds."""
    return pipeline(tiny_folder)


def pipeline(folder: Path, *, sentences: bool = False, **config: Any) -> Language:
    nlp = spacy.blank("en")
    if sentences:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmore", config={"model": str(folder), "threads": 1, **config})
    return nlp


def words(tokens: Any) -> list[str]:
    return [token.text for token in tokens if not token.is_space]


def test_without_sentences_a_document_is_one_sequence(nlp: Language, tiny_elmo: Elmo) -> None:
    doc = nlp(TEXT)
    assert doc.tensor.dtype == np.float32
    [expected] = tiny_elmo.embed([words(doc)], tokenized=True)
    found = np.stack([token.vector for token in doc if not token.is_space])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_sentences_are_read_on_their_own(tiny_folder: Path, tiny_elmo: Elmo) -> None:
    doc = pipeline(tiny_folder, sentences=True, layers="top")(TEXT)
    sentences = list(doc.sents)
    assert len(sentences) == 2
    for sentence in sentences:
        [expected] = tiny_elmo.embed([words(sentence)], layers="top", tokenized=True)
        found = np.stack([token.vector for token in sentence if not token.is_space])
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_white_space_has_no_vector_and_changes_none(nlp: Language, tiny_elmo: Elmo) -> None:
    doc = nlp(TEXT)
    [space] = [token for token in doc if token.is_space]
    assert not space.vector.any()
    assert not space.has_vector
    assert doc[0].has_vector
    assert doc[space.i : space.i + 1].has_vector is False
    whole = tiny_elmo.encode([words(doc)], tokenized=True)[0]
    np.testing.assert_allclose(doc.vector, whole, atol=1e-5)
    np.testing.assert_allclose(doc[:].vector, whole, atol=1e-5)
    for text in ("", " ", "\n\n"):
        empty = nlp(text)
        assert empty.vector.shape == (32,)
        assert not empty.vector.any()
        assert not empty.has_vector


def test_similarity_is_that_of_the_vectors(nlp: Language) -> None:
    doc = nlp(TEXT)
    first, second = (token for token in doc if token.text == "bank")
    expected = float(cosine(first.vector, second.vector))
    assert expected < 0.999
    assert first.similarity(second) == pytest.approx(expected, abs=1e-5)  # spaCy's own says 1
    parts = doc[3:5], doc[second.i - 1 : second.i + 1]
    assert [part.text.lower() for part in parts] == ["the bank"] * 2
    expected = float(cosine(parts[0].vector, parts[1].vector))
    assert parts[0].similarity(parts[1]) == pytest.approx(expected, abs=1e-5)
    other = nlp("Money")
    assert doc.similarity(other) == pytest.approx(float(cosine(doc.vector, other.vector)), abs=1e-5)
    assert doc.similarity(nlp("")) == 0


def test_a_vocabulary_with_vectors_of_its_own(tiny_folder: Path) -> None:
    nlp = pipeline(tiny_folder)
    nlp.vocab.set_vector("bank", np.ones(7, np.float32))
    doc = nlp(TEXT)
    assert doc[4].vector.shape == doc.vector.shape == doc[2:5].vector.shape == (32,)
    np.testing.assert_array_equal(doc[4].vector, doc.tensor[4])
    quiet = pipeline(tiny_folder, hooks=False)
    quiet.vocab.set_vector("bank", np.ones(7, np.float32))
    other = quiet(TEXT)
    assert other[4].vector.shape == (7,)
    np.testing.assert_array_equal(other.tensor, doc.tensor)


def test_a_stream_goes_in_batches(
    nlp: Language, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    texts = [TEXT, "", "It fell .", "  ", *["Rates rose ."] * 6]
    expected = [nlp(text).tensor for text in texts]
    calls: list[int] = []
    embed = Elmo.embed

    def counted(self: Elmo, sentences: Any, **options: Any) -> Any:
        calls.append(len(sentences))
        return embed(self, sentences, **options)

    monkeypatch.setattr(Elmo, "embed", counted)
    docs = list(nlp.pipe(iter(texts), batch_size=5))
    assert calls == [3, 5]
    for doc, tensor in zip(docs, expected, strict=True):
        np.testing.assert_allclose(doc.tensor, tensor, atol=1e-5)


def test_on_disk_and_in_bytes_a_model_is_named(
    nlp: Language, tiny_folder: Path, tmp_path: Path
) -> None:
    nlp = pipeline(tiny_folder, layers=[0.1, 0.2, 0.7])
    expected = nlp(TEXT).tensor
    nlp.to_disk(tmp_path / "saved")
    for other in (
        spacy.load(tmp_path / "saved"),
        spacy.blank("en", config=nlp.config).from_bytes(nlp.to_bytes()),
    ):
        np.testing.assert_array_equal(other(TEXT).tensor, expected)


def test_several_processes_load_the_model_once_each(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{TEXT} {k}" for k in range(40)]
    nlp = pipeline(tiny_folder, hooks=False)
    config = {"model": str(tiny_folder), "threads": 1, "hooks": False}
    nlp.add_pipe("elmore", name="again", config=config)
    expected = [doc.tensor for doc in nlp.pipe(texts)]
    read = loaded.read_checkpoint

    def noted(model: Any) -> Any:
        with (tmp_path / "loads").open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        return read(model)

    monkeypatch.setattr(loaded, "read_checkpoint", noted)
    loaded._model.cache_clear()
    nlp(TEXT)
    docs = list(nlp.pipe(texts, n_process=2, batch_size=4))
    loads = (tmp_path / "loads").read_text().split()
    assert len(loads) == 3  # this process, which computed before it forked, and both workers
    assert len(set(loads)) == 3
    for doc, tensor in zip(docs, expected, strict=True):
        np.testing.assert_allclose(doc.tensor, tensor, atol=1e-5)
        np.testing.assert_array_equal(doc[4].vector, doc.tensor[4])


def test_hooks_are_put_back_after_reading(nlp: Language) -> None:
    doc = nlp(TEXT)
    with pytest.warns(UserWarning, match="W109"):  # spaCy's own word on it
        data = doc.to_bytes()
    again = Doc(nlp.vocab).from_bytes(data)
    add_hooks(again)
    banks = [token for token in again if token.text == "bank"]
    assert banks[0].similarity(banks[1]) < 0.999
    copy = pickle.loads(pickle.dumps(doc))
    np.testing.assert_array_equal(copy.vector, doc.vector)


def test_wrong_settings(tiny_folder: Path) -> None:
    nlp = pipeline(tiny_folder, layers=9)
    with pytest.raises(ValueError, match=r"layers 0\.\.2"):
        nlp("It fell .")
    with pytest.raises(ValueError, match=r"layers 0\.\.2"):
        list(nlp.pipe(["It fell ."]))


def test_errors_go_to_the_pipelines_handler(tiny_folder: Path) -> None:
    nlp = pipeline(tiny_folder, layers=9)
    seen: list[str] = []
    nlp.set_error_handler(lambda name, component, docs, error: seen.append(f"{name}: {error}"))
    assert list(nlp.pipe(["It fell ."])) == []
    assert seen[0].startswith("elmore: layers=9")


def test_add_pipe_needs_no_import_where_elmore_is_installed(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    factories = project["entry-points"]["spacy_factories"]
    assert set(factories) == {"elmore", "elmore_tagger"}
    folder = tmp_path / "elmore_entry_point-1.dist-info"  # as an installed package has it
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: elmore-entry-point\nVersion: 1")
    lines = "".join(f"{name} = {target}\n" for name, target in factories.items())
    (folder / "entry_points.txt").write_text(f"[spacy_factories]\n{lines}")
    code = (
        "import sys, spacy; nlp = spacy.blank('en'); nlp.add_pipe('elmore');"
        "print('torch' in sys.modules, nlp('It fell .')[1].vector.shape)"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout.split("\n")[0].endswith(f"({catalog()['english'].dim},)")


@pytest.mark.parametrize("kind", ["spans", "tags"])
def test_a_trained_tagger(kind: str, tiny_elmo: Elmo, tmp_path: Path) -> None:
    x = [["Ada", "fell"], ["It", "fell"]] * 4
    y = [["PROPN+N", "VERB+V"], ["PUNCT+SYM", "VERB+V"]] * 4
    if kind == "spans":
        y = [["B-PER", "O"], ["O", "O"]] * 4
    task = make("tag", tiny_elmo, schedule__epochs="30")
    task.fit(x, y)
    task.save(tmp_path / "tagger")
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmore_tagger", config={"tagger": str(tmp_path / "tagger"), "threads": 1})
    nlp.to_disk(tmp_path / "nlp")
    for pipeline in (nlp, spacy.load(tmp_path / "nlp"), pickle.loads(pickle.dumps(nlp))):
        for doc in [pipeline("Ada fell  It fell"), *pipeline.pipe(["Ada fell", "Ada fell  It"])]:
            if kind == "spans":
                assert [(span.text, span.label_) for span in doc.spans["elmore"]] == [
                    ("Ada", "PER")
                ]
            else:
                assert [token.pos_ for token in doc[:2]] == ["PROPN", "VERB"]
                assert [token.tag_ for token in doc[:2]] == ["N", "V"]
    if kind == "tags":  # SYM is a Penn tag too
        token = nlp("It fell")[0]
        assert (token.pos_, token.tag_) == ("PUNCT", "SYM")
