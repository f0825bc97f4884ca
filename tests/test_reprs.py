"""What a notebook or a prompt shows of each public object: short, and escaped."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from small_models import needs_torch

from elmore import Elmo, ElmoreError, Run, SentenceLayers, score
from elmore.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def english() -> Elmo:
    return Elmo.load()


def test_they_are_short(english: Elmo, tiny_elmo: Elmo) -> None:
    text = "It fell down the stairs , and then it rose again ."
    things = [
        tiny_elmo,
        english,
        english.checkpoint,
        english.checkpoint.vocabulary,
        english.tokenize(text * 50),
        english.layers(text * 50),
        score(english, text * 50),
        english.senses(text),
        Run("nowhere"),
    ]
    for thing in things:
        assert len(repr(thing)) < 200, repr(thing)
        assert " at 0x" not in repr(thing)
        assert "\n" not in repr(thing)


def test_an_error_in_a_notebook_shows_the_users_code_alone(tiny_elmo: Elmo) -> None:
    with pytest.raises(ElmoreError) as caught:
        tiny_elmo.embed(5)  # type: ignore[call-overload]
    caught.value.add_note("a note")
    *frames, message, note = caught.value._render_traceback_()
    assert message == "ConfigError: got an int where sentences belong; pass a list"
    assert note == "a note"
    assert len(frames) == 1
    assert "tiny_elmo.embed(5)" in frames[0]


def test_what_they_say(english: Elmo) -> None:
    assert repr(english) == f"Elmo('english', dim={english.dim}, n_layers=3)"
    assert repr(Vocabulary(["a", "b"])) == "Vocabulary(('a', 'b'), n_words=2)"
    assert "parameters" in repr(english.checkpoint)
    assert re.search(r"total=-\d+\.\d\d, perplexity=", repr(score(english, "It fell .")))


# --------------------------------------------------------------------------- layers


def maps_of(page: str) -> list[list[list[str]]]:
    """The colours of each map inside a page, row by row."""
    tables = re.findall(r'<table style="border-spacing[^>]*>(.*?)</table>', page)
    rows = [table.split("<tr>")[1:] for table in tables]
    return [[re.findall(r"bgcolor=(#\w{6})", row) for row in table] for table in rows]


def test_a_map_of_each_layer() -> None:
    values = np.array([[[1, 0], [0, 1], [-1, 0]]] * 2, np.float32)
    layers = SentenceLayers(("a", "<b>", "c"), None, values)
    page = layers._repr_html_()
    assert "2 layers, 3 tokens, 2 dimensions" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    maps = maps_of(page)
    assert len(maps) == 2
    assert maps[0][0] == ["#084594", "#ffffff", "#d95f02"]  # itself, at right angles, opposite
    assert maps[0][2] == maps[0][0][::-1]


def test_a_long_sentence_is_cut(tiny_elmo: Elmo) -> None:
    page = tiny_elmo.layers("It fell . " * 100)._repr_html_()
    assert "the first 30 tokens are shown" in page
    (first, *_) = maps_of(page)
    assert {len(first), *map(len, first)} == {30}
    assert len(page) < 100_000
    assert "0 tokens" in tiny_elmo.layers("")._repr_html_()


# --------------------------------------------------------------------------- runs and tasks


def write_run(folder: Path, lines: list[dict[str, object]], **facts: object) -> Run:
    folder.mkdir()
    recipe = {"format": "elmore-run", "version": 1, "recipe": {"name": "<laptop>"}, **facts}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder)


def test_the_curve_of_a_language_model(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    loss = {"forward": 5.0, "backward": 5.0}
    lines: list[dict[str, object]] = [
        {"step": k, "tokens": 1000 * k, "loss": loss, "lr": 0.1} for k in range(1, 1000)
    ]
    found = {"perplexity": 80.25, "loss": 4.4, "without_unknown": 80.25, "oov_rate": 0.0}
    found["forward_perplexity"] = 80.25
    lines.append({"step": 999, "tokens": 999_000, "heldout": found})
    run = write_run(tmp_path / "run", lines)
    assert "<laptop>, 999,000 tokens, perplexity 80.25" in repr(run)
    page = run._repr_html_()
    assert "&lt;laptop&gt;" in page
    assert "<laptop>" not in page
    assert "999,000 tokens" in page
    assert "<svg" in page
    assert "held-out perplexity" in page


def test_the_curve_of_a_task(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines: list[dict[str, object]] = [
        {"step": k, "examples": 10 * k, "heldout": {"f1": 50.0 + k}} for k in range(1, 4)
    ]
    run = write_run(tmp_path / "run", lines, task="ner")
    assert "30 examples, f1 53" in repr(run)
    assert "<svg" in run._repr_html_()


def test_runs_without_a_log_or_with_a_damaged_one(tmp_path: Path) -> None:
    assert "not started" in repr(Run(tmp_path / "none"))
    assert "not started" in Run(tmp_path / "none")._repr_html_()
    run = write_run(tmp_path / "new", [])
    assert "no step yet" in repr(run)
    assert "no step yet" in run._repr_html_()
    (tmp_path / "new" / "recipe.json").write_text("{")
    assert repr(run) == f"<Run '{tmp_path / 'new'}'>"
    assert "<p>" in run._repr_html_()


@needs_torch
def test_tasks(tiny_elmo: Elmo, tmp_path: Path) -> None:
    from small_tasks import make, write_data

    task = make("ner", tiny_elmo)
    assert re.fullmatch(r"<Ner: elmo=Elmo\(.*\), recipe '.*', not trained>", repr(task))
    data = write_data("ner", tmp_path)
    task.fit(data, dev=data, progress=False)
    assert re.search(r", trained, \w+ [\d.]+", repr(task))
