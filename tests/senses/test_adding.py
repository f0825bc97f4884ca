"""Documents: metadata, phrases and tags in an index, and text that is added to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import TEXT, posix

from elmore import Elmo
from elmore.errors import ConfigError, ElmoreError, FormatError, InputError, ResumeError
from elmore.senses import Index, build_index
from elmore.senses.files import IndexFiles

LINES = [" ".join(TEXT[k % 40 : k % 40 + 3 + k % 7]) for k in range(90)]


@pytest.fixture(scope="module")
def model(lm: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("adding") / "model"
    lm.save(path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = []
    for number in range(3):
        path = tmp_path / f"{number}.txt"
        path.write_text("\n".join(LINES[30 * number : 30 * number + 30]) + "\n", "utf-8")
        found.append(path)
    return found


def build(files: list[Path], out: Path, model: Path, **settings: object) -> Index:
    settings = {"tokenized": True, "shard_bytes": 300, **settings}
    return build_index(files, out, model=model, **settings)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("max_uses", [1000, 64])
def test_text_that_is_added_gives_the_index_of_all(
    files: list[Path], tmp_path: Path, model: Path, max_uses: int
) -> None:
    for path in files:
        path.write_text(path.read_text("utf-8") * 10, "utf-8")
    first = build(files[:1], tmp_path / "0", model, min_count=3, max_uses=max_uses)
    words = list(first.words)
    for number in (1, 2):
        base, out = tmp_path / f"{number - 1}", tmp_path / f"{number}"
        added = build([files[number]], out, model, add=base)
    assert set(added.words) == set(words)
    assert (len(added) < sum(added.words.values()) / 2) == (max_uses == 64)
    build(files, tmp_path / "all", model, words=words, max_uses=max_uses)
    IndexFiles(tmp_path / "2").verify()
    assert contents(tmp_path / "2") == contents(tmp_path / "all")
    before = contents(tmp_path / "1")
    build([files[2]], tmp_path / "2", model, add=tmp_path / "1")  # it is there already
    assert contents(tmp_path / "1") == before
    assert contents(tmp_path / "2") == contents(tmp_path / "all")


def test_what_cannot_be_added(files: list[Path], tmp_path: Path, model: Path) -> None:
    base, out = tmp_path / "uses", tmp_path / "more"
    build(files[:1], base, model, min_count=3)
    before = contents(base)
    with pytest.raises(ConfigError, match="is what is added to; choose another folder"):
        build(files[1:], base, model, add=base, overwrite=True)
    with pytest.raises(ConfigError, match="has some of these files already"):
        build([files[0]], out, model, add=base)
    with pytest.raises(ConfigError, match="keeps its words"):
        build(files[1:], out, model, add=base, words=["the"])
    with pytest.raises(ResumeError, match="tokenized=True, not False"):
        build(files[1:], out, model, add=base, tokenized=False)
    with pytest.raises(FormatError, match="is not an index"):
        build(files[1:], out, model, add=tmp_path / "none")
    assert contents(base) == before
    os.truncate(base / "uses.npy", 200)
    with pytest.raises(FormatError, match=r"uses\.npy.* has 200 bytes"):
        build(files[1:], out, model, add=base)
    assert not out.exists()


def test_phrases_are_added_too(tmp_path: Path, model: Path) -> None:
    texts = [tmp_path / "0.txt", tmp_path / "1.txt"]
    for path in texts:
        path.write_text("My cell phone rang .\nThe cell is here .\n", "utf-8")
        path.write_text(f"{path.read_text('utf-8')}{path.stem}\n", "utf-8")
    words = ["cell phone", "cell"]
    build(texts[:1], tmp_path / "uses", model, words=words)
    added = build(texts[1:], tmp_path / "more", model, add=tmp_path / "uses")
    assert added.words == {"cell": 4, "cell phone": 2}
    build(texts, tmp_path / "all", model, words=words)
    assert contents(tmp_path / "more") == contents(tmp_path / "all")


@posix
@pytest.mark.parametrize("where", ["before", "during", "after"])
def test_a_kill_while_text_is_added(
    files: list[Path], tmp_path: Path, model: Path, where: str
) -> None:
    base, out = tmp_path / "uses", tmp_path / "more"
    words = list(build(files[:2], base, model, min_count=3).words)
    before = contents(base)
    code = f"""
import os, signal
from elmore.base.journal import JournalFolder
from elmore.senses import build_index, indexing
def kill(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
if {where!r} == "before":
    JournalFolder.begin = kill
elif {where!r} == "during":
    begin = JournalFolder.begin
    def killed(*args):
        begin(*args)
        kill()
    JournalFolder.begin = killed
else:
    indexing.write_rest = kill
build_index([{str(files[2])!r}], {str(out)!r}, model={str(model)!r}, add={str(base)!r},
            tokenized=True, shard_bytes=300)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert contents(base) == before
    if where == "after":  # the same index, so it may be finished either way
        build(files, out, model, words=words)
    else:
        build(files[2:], out, model, add=base)
    build(files, tmp_path / "all", model, words=words)
    assert contents(out) == contents(tmp_path / "all")


def test_what_is_known_about_documents(tmp_path: Path, model: Path) -> None:
    for name, n in (("old/letters/a.txt", 2), ("old/b.txt", 3), ("new/c.txt", 4)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("the virus\n" * n, "utf-8")
    (tmp_path / "old" / ".hidden.txt").write_text("the virus\n", "utf-8")
    (tmp_path / "meta.tsv").write_text("file\tdate\nb\t1901\nc.txt\t2006-09-25\n", "utf-8")
    lines: list[str] = []
    index = build(
        [tmp_path / "old", tmp_path / "new"],
        tmp_path / "uses",
        model,
        words=["virus"],
        metadata=tmp_path / "meta.tsv",
        report=lines.append,
    )
    assert "no metadata for" in lines[0]
    assert "a.txt" in lines[0]
    assert index.documents.values == {
        "corpus": ["old", "old", "new"],
        "date": ["1901", "", "2006-09-25"],
        "folder": ["", "letters", ""],
    }
    assert index.n_words.tolist() == [6, 4, 8]
    assert index.counts("virus").tolist() == [3, 2, 4]
    new = index.where("date>=1950")
    assert (len(new), new.words, len(new.rows("virus"))) == (4, {"virus": 4}, 4)
    assert repr(new) == "Index('date>=1950', 1 words, 4 uses)"
    assert len(index.where("corpus=old", "folder!=letters")) == 3
    assert len(index.where("corpus=old,new", "date<2006")) == 3
    assert {name: len(one) for name, one in index.groups("date", 50).items()} == {
        "1900-1949": 3,
        "2000-2049": 4,
    }
    assert list(index.where("corpus=old").groups("date")) == ["1901"]
    for wrong, message in (
        ("colour=red", "has no field 'colour'; use corpus, date, folder, file"),
        ("date", "is not a condition"),
    ):
        with pytest.raises(ConfigError, match=message):
            index.where(wrong)
    with pytest.raises(InputError, match="no document has date>=2100"):
        index.where("date>=2100")
    with pytest.raises(ResumeError, match="other metadata"):
        build([tmp_path / "old", tmp_path / "new"], tmp_path / "uses", model, words=["virus"])


def test_records_are_documents(tmp_path: Path, model: Path) -> None:
    rows = [("the virus . A virus .", 1901), ("no virus .", 1901), ("virus\n\nit is", None)]
    text = "\n".join(json.dumps({"t": t, "date": date}) for t, date in rows)
    (tmp_path / "a.jsonl").write_text(text, "utf-8")
    index = build(
        [tmp_path / "a.jsonl"],
        tmp_path / "uses",
        model,
        **{"words": ["virus"], "column": "t", "fields": ["date"]},
        **{"tokenized": False, "split_sentences": True},
    )
    assert index.documents.values["date"] == ["1901", ""]
    assert index.counts("virus").tolist() == [3, 1]
    uses = [index.use(row) for row in index.rows("virus")]
    assert [use.line for use in uses] == [1, 1, 2, 3]
    assert [use.source for use in uses] == [f"{tmp_path}/a.jsonl#{n}" for n in (1, 1, 1, 3)]
    assert uses[0].place == "a.jsonl:1"


def test_phrases_patterns_and_lemmas(tmp_path: Path, model: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "My cell phone rang .\nThe phone is Cell phone .\nHe stopped , stops , stop it\n", "utf-8"
    )
    words = ["cell phone", "lemma:stop", "r*g"]
    index = build([tmp_path / "a.txt"], tmp_path / "uses", model, words=words)
    assert index.words == {"cell phone": 2, "rang": 1, "stop": 1, "stopped": 1, "stops": 1}
    uses = [index.use(row) for row in index.rows("cell phone")]
    assert [use.context() for use in uses] == [
        ("My", "cell phone", "rang ."),
        ("The phone is", "Cell phone", "."),
    ]
    assert len(index.rows("lemma:stop")) == 3
    both = index.space.vectors([])  # a phrase is described by what could replace all of it
    assert len(both) == 0
    build([tmp_path / "a.txt"], tmp_path / "tags", model, words="phone", tagger=tag)
    index = Index.open(tmp_path / "tags")
    assert [index.use(row).position for row in index.rows("phone/NOUN")] == [2]
    assert len(index.rows("*/verb")) == 2
    with pytest.raises(ElmoreError, match="make it with --tags"):
        Index.open(tmp_path / "uses").rows("rang/VERB")
    np.testing.assert_array_equal(index.rows("/ph.*/"), index.rows("phone"))


def tag(sentences: list[tuple[str, ...]]) -> list[list[str]]:
    """Nouns follow *cell*."""
    return [["VERB" if k != 2 else "NOUN+NN" for k, _ in enumerate(one)] for one in sentences]
