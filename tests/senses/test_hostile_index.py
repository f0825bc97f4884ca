"""Index folders from elsewhere: they run nothing, fetch nothing, and never end in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import TEXT, posix

from elmore import Elmo
from elmore.errors import ConfigError, ElmoreError, FormatError
from elmore.senses import Index, build_index
from elmore.senses.files import IndexFiles

LINES = [" ".join(TEXT[k % 40 : k % 40 + 3 + k % 7]) for k in range(40)]


def by_letters(text: str) -> list[str]:
    """A tokenizer that a caller may pass."""
    return text.replace(".", " .").split()


@pytest.fixture
def model(lm: Elmo, tmp_path: Path) -> Path:
    lm.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n", "utf-8")
    return tmp_path / "text.txt"


@pytest.fixture
def uses(model: Path, text: Path, tmp_path: Path) -> Path:
    return build_index([text], tmp_path / "uses", model=model, min_count=3).path


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


@pytest.mark.parametrize("tokenizer", ["intruder:split", "builtins:eval", "os:system"])
def test_nothing_that_an_index_names_is_imported(
    uses: Path, lm: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: str
) -> None:
    done = tmp_path / "done"
    (tmp_path / "intruder.py").write_text(f"open({str(done)!r}, 'w')\nsplit = str.split\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    edit(uses, lambda manifest: manifest["settings"].update(tokenizer=tokenizer))
    question = f"open({str(done)!r}, 'w') [the]"
    for elmo in (None, lm):
        with pytest.raises(ConfigError, match=r"function of yours; pass it \(tokenizer="):
            Index.open(uses, elmo=elmo).find(question)
        with pytest.raises(ConfigError, match="pass it"):
            Index.open(uses, elmo=elmo).senses("the").index.tokenize(question)
    assert not done.exists()
    assert "intruder" not in sys.modules


def test_a_function_comes_from_the_caller(
    model: Path, text: Path, tmp_path: Path, lm: Elmo
) -> None:
    options = {"min_count": 3, "tokenizer": by_letters}
    build_index([text], tmp_path / "own", model=model, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="test_hostile_index:by_letters"):
        Index.open(tmp_path / "own").tokenize("it fell.")
    name = f"{by_letters.__module__}:by_letters"
    asked = [
        Index.open(tmp_path / "own", tokenizer=by_letters),
        Index.open(tmp_path / "own", tokenizer=name),
        Index.open(tmp_path / "own", elmo=Elmo(lm.checkpoint, tokenizer=by_letters)),
        Index.open(tmp_path / "own", elmo=Elmo(lm.checkpoint, tokenizer=name)),
    ]
    for index in asked:
        assert index.tokenize("it fell.").tokens == ("it", "fell", ".")


@pytest.mark.parametrize(
    "name",
    ["hf://someone/model", "someone/model", "original", "no-such-model", ["a", "b"], "//h/x"],
)
def test_no_model_is_fetched_that_nobody_asked_for(
    uses: Path, model: Path, monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("contacted the network")

    monkeypatch.setattr("elmore.published.hub.fetch_model", refuse)
    monkeypatch.setattr("elmore.published.hub.fetch_hugging_face", refuse)
    edit(uses, lambda manifest: manifest.update(model_name=name))
    with pytest.raises(ConfigError, match=r"pass it \(--model"):
        Index.open(uses).find("the [the]")
    assert len(Index.open(uses, model=model).find("the [the]", k=2)) == 2


def test_small_files_are_compared_when_an_index_is_opened(
    uses: Path, model: Path, text: Path
) -> None:
    data = bytearray((uses / "count.npy").read_bytes())
    data[-8] ^= 16
    (uses / "count.npy").write_bytes(data)
    with pytest.raises(FormatError, match=r"count\.npy.*damaged, make it again"):
        Index.open(uses)
    with pytest.raises(FormatError, match=r"count\.npy"):
        build_index([text], uses, model=model, min_count=3)
    assert len(build_index([text], uses, model=model, min_count=3, overwrite=True))


def test_large_files_are_compared_when_asked_and_when_made_again(
    uses: Path, model: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.base.manifest._COMPARED", 0)
    IndexFiles(uses).verify()
    data = bytearray((uses / "vectors.npy").read_bytes())
    data[-1] ^= 1
    (uses / "vectors.npy").write_bytes(data)
    Index.open(uses)
    with pytest.raises(FormatError, match=r"vectors\.npy.*damaged"):
        IndexFiles(uses).verify()
    with pytest.raises(FormatError, match=r"vectors\.npy.*damaged"):
        build_index([text], uses, model=model, min_count=3)


@posix
@pytest.mark.parametrize(
    "name", ["manifest.json", "words.json", "vocabulary.json.gz", "uses.npy", "substitutes.blocks"]
)
@pytest.mark.parametrize("kind", ["link", "device", "fifo", "folder"])
def test_nothing_but_regular_files_is_opened(uses: Path, lm: Elmo, name: str, kind: str) -> None:
    path = uses / name
    path.rename(uses.parent / name)
    match kind:
        case "link":
            path.symlink_to(uses.parent / name)
        case "device":
            path.symlink_to("/dev/zero")
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(FormatError):
        Index.open(uses, elmo=lm).find("the [the]")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["files"].update({"../model/config.json": {"size": 1, "sha256": ""}}),
        lambda m: m["files"].pop("uses.npy"),
        lambda m: m["settings"].update(k="64"),
        lambda m: m["settings"].update(k=-1),
        lambda m: m["settings"].update(k=m["model"]["k"] - 1),
        lambda m: m["settings"].update(k=10**12),
        lambda m: m["settings"].pop("precision"),
        lambda m: m["model"].update(k=0),
        lambda m: m["model"].update(layers_dim=3),
        lambda m: m["settings"].pop("candidates"),
        lambda m: m.update(inputs=[{"path": 3}]),
        lambda m: m.pop("sentences"),
        lambda m: m.update(model_name=[1, {}]),
        lambda m: m["model"].update(layers={"a": 1}),
        lambda m: m["model"].update(softmax=False),
        lambda m: m["model"].update(dim=3),
        lambda m: m["settings"].update(tokenizer=["ptb"]),
        lambda m: m["settings"].update(start="elsewhere"),
        lambda m: m["settings"].update(precision="none"),
    ],
)
def test_a_manifest_with_wrong_values(
    uses: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(uses, change)
    with pytest.raises(ElmoreError):
        Index.open(uses).find("the [the]")


def ask(folder: Path, elmo: Elmo) -> None:
    """Whatever can be asked of an index."""
    index = Index.open(folder, elmo=elmo)
    index.find("the [the] fell", word="*")
    for word in list(index.words)[:3]:
        repr(index.senses(word))
    index.forms()
    for word in list(index._numbers)[:3]:
        assert (index.where("file!=nothing").counts(word) >= 0).all()
    assert index.corpus_counts
    index.source_of(np.arange(len(index)))
    for row in range(len(index)):
        index.use(row)


@pytest.mark.parametrize("compared", [0, 1 << 20])
def test_damage_never_ends_in_a_traceback(
    uses: Path, lm: Elmo, monkeypatch: pytest.MonkeyPatch, compared: int
) -> None:
    # With 0, the checks of types, shapes and numbers are alone, as for large files.
    monkeypatch.setattr("elmore.base.manifest._COMPARED", compared)
    if not compared:
        monkeypatch.setattr("elmore.base.manifest.check_sum", lambda *_, **__: None)
    draws = np.random.default_rng(0)
    refused: list[str] = []
    for path in sorted(uses.iterdir()):
        whole = path.read_bytes()
        for number in range(12):
            data = bytearray(whole)
            if number % 4 == 0:
                del data[int(draws.integers(len(data))) :]
            # The first bytes are headers, where most harm is done.
            end = 130 if number % 2 else len(data)
            for _ in range(1 + number // 4):
                if data:
                    data[int(draws.integers(min(end, len(data))))] = int(draws.integers(256))
            path.write_bytes(data)
            try:
                ask(uses, lm)
            except ElmoreError as error:
                refused.append(str(error))
        path.write_bytes(whole)
    ask(uses, lm)
    assert len(refused) > 40
    assert not any("\n" in line for line in refused)


@posix
def test_a_full_disk_is_one_line(model: Path, text: Path, tmp_path: Path) -> None:
    code = f"""
import resource
from elmore.senses import indexing
from elmore.errors import ElmoreError
merge = indexing._Builder.merge
def limited(*args):
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
    merge(*args)
indexing._Builder.merge = limited
try:
    out = {str(tmp_path / "uses")!r}
    indexing.build_index([{str(text)!r}], out, model={str(model)!r}, min_count=1)
except ElmoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert ".npy" in done.stdout
    resumed = build_index([text], tmp_path / "uses", model=model, min_count=1)
    IndexFiles(resumed.path).verify()


def test_text_of_a_corpus_controls_nothing(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("=cmd the fell\n\x1b[2J the fell\n" * 3, "utf-8")
    index = build_index(
        [tmp_path / "text.txt"], tmp_path / "uses", model=model, words=["the"], tokenized=True
    )
    found, senses = index.find("the [the] fell"), index.senses("the")
    for shown in (repr(found), str(found.report), repr(senses), str(senses.report)):
        assert "\x1b" not in shown
        assert "the" in shown
    cells = [line.split(",") for line in found.to_csv().splitlines()]
    assert "'=cmd" in [row[1] for row in cells]
    assert "\x1b" not in found.to_csv()
