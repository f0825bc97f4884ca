"""Index folders from elsewhere: they run nothing, fetch nothing, and never end in a traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import TEXT

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.senses import Index, build_index

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


@pytest.mark.parametrize("where", ["manifest", "settings"])
@pytest.mark.parametrize("tokenizer", ["intruder:split", "builtins:eval", "os:system"])
def test_nothing_that_an_index_names_is_imported(
    uses: Path,
    lm: Elmo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    tokenizer: str,
) -> None:
    done = tmp_path / "done"
    (tmp_path / "intruder.py").write_text(f"open({str(done)!r}, 'w')\nsplit = str.split\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    part = (lambda m: m) if where == "manifest" else (lambda m: m["settings"])
    edit(uses, lambda manifest: manifest.pop("tokenizer"))
    edit(uses, lambda manifest: part(manifest).update(tokenizer=tokenizer))
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
