"""`Elmo.explore`: the page with its data inside."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from elmore import Elmo
from elmore.errors import ConfigError, InputError
from elmore.language_model.explore import page_file

BANK = ["I sat on the bank .", "The bank lent money .", "A bank of clouds ."]


def test_what_it_is(lm: Elmo) -> None:
    found = lm.explore(BANK)
    assert repr(found) == "Exploration('bank', 3 uses)"
    assert [use["sentence"] for use in found.answer["uses"]] == [0, 1, 2]
    assert len(found.answer["senses"]) == len(found.answer["products"]) == 3
    assert repr(lm.explore(BANK, word="A")) == "Exploration('A', 1 uses)"


def test_everything_is_inside(lm: Elmo, tmp_path: Path) -> None:
    found = lm.explore(BANK)
    path = tmp_path / "uses.html"
    found.save(path)
    found.save(path, overwrite=True)
    text = path.read_text(encoding="utf-8")
    assert text == found.to_html()
    # A link to the docs is followed by people only; the favicon is inside.
    assert re.findall(r'(?:src|href)="(?!data:|https://elmore|openapi)', text) == []
    assert "default-src 'none'" in text
    [data] = re.findall(r'<script type="application/json" id="answer">(.*?)</script>', text)
    assert json.loads(data) == json.loads(json.dumps(found.answer))
    assert "@" not in page_file("index.html").decode()  # all is filled in


def test_a_text_cannot_leave_its_place(lm: Elmo) -> None:
    bad = "The bank </script><script>alert(1)</script> <!-- bank"
    found = Elmo(lm.checkpoint, tokenizer="spaces").explore([bad])
    text = found.to_html()
    assert "alert(1)</script>" not in text
    [data] = re.findall(r'id="answer">(.*?)</script>', text)
    assert json.loads(data)["sentences"][0]["tokens"] == bad.split(" ")
    frame = found._repr_html_()
    inside = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" .*></iframe>', frame)
    assert inside
    assert html.unescape(inside[1]) == text


def test_the_files_can_be_put_inside() -> None:
    for name in ("page.js", "page.css"):
        assert "</s" not in page_file(name).decode().replace("</svg", "")


def test_a_model_without_a_softmax_compares_layers(tiny_elmo: Elmo) -> None:
    answer = tiny_elmo.explore(BANK).answer
    assert answer["senses"] is None
    assert len(answer["products"]) == 3


def test_what_cannot_be_explored(lm: Elmo) -> None:
    with pytest.raises(InputError, match="no word occurs twice in these sentences; choose one"):
        lm.explore(["One of each ."])
    with pytest.raises(InputError, match="'plays' is in none of the sentences; choose another"):
        lm.explore(BANK, word="plays")
    with pytest.raises(ConfigError, match="text"):
        lm.explore([["tokens"]])  # type: ignore[list-item]
