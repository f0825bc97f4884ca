"""Taggers and classifiers without torch: the same results as with it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract.test_imports import BLOCK_TORCH
from small_tasks import CLASSIFY, make, write_data

import elmore
from elmore import Elmo
from elmore.errors import ConfigError, FormatError, InputError, ModelNotFound
from elmore.tasks import label_table, load
from elmore.tasks.data.tags import tag_names
from elmore.tasks.own.light import classifier, load_all, tagger
from elmore.tasks.predictions import _marginals, steps_of, tagged

ITEMS = ["Ada lives in Rome .", ["Rome", "“", "fell", "”"], "", "Zürich 東京. It fell.", "Bo"]
LAYERS = [{"elmo__layers": '"each"'}, {"elmo__layers": '"all"'}, {"elmo__layers": '"top"'}]


def trained(name: str, elmo: Elmo, folder: Path, **changes: str) -> Any:
    task = make(name, elmo, schedule__epochs="3", model__dropout="0.2", **changes)
    task.fit(write_data(name, folder), dev=write_data(name, folder))
    task.save(folder / "model")
    return task


CHANGES = [*LAYERS, {"words__dim": "0"}, {"model__context": '"lstm"'}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("name", ["tag", "classify"])
def test_numpy_and_torch_agree(
    name: str, changes: dict[str, str], tiny_elmo: Elmo, tmp_path: Path
) -> None:
    task = trained(name, tiny_elmo, tmp_path, **changes)
    light: Any = (tagger if name == "tag" else classifier)(tmp_path / "model", threads=1)
    exact = light._network.features

    def rounded(layers: Any, tokens: Any) -> Any:
        """With torch, layers come from a cache on disk, in float16."""
        return exact(layers.astype(np.float16).astype(np.float32), tokens)

    assert light.predict(ITEMS) == task.predict(ITEMS)
    light._network.features = rounded
    expected, found = task.predict(ITEMS), light.predict(ITEMS)
    assert found == expected
    for one, other in zip(found, expected, strict=True):
        pairs = (one.probabilities, other.probabilities)
        if name == "classify":
            assert one.probabilities.keys() == other.probabilities.keys()
            pairs = tuple(list(p.values()) for p in pairs)  # type: ignore[assignment]
        np.testing.assert_allclose(*pairs, atol=1e-5)
    assert list(light.pipe(iter(ITEMS))) == found
    assert light.predict([]) == []
    assert light.scores == task.scores


@pytest.mark.parametrize("kind", ["labels", "number"])
def test_the_other_kinds_of_labels(kind: str, tiny_elmo: Elmo, tmp_path: Path) -> None:
    texts = [text for text, _ in CLASSIFY]
    y: list[Any] = [0.5 * k for k in range(8)]
    if kind == "labels":
        y = [("a", "b"), ("b",), (), ("a",), ("a", "b"), ("b",), (), ("a",)]
    task = make("classify", tiny_elmo, schedule__epochs="40", words__dim="24")
    report = task.fit(texts, y, dev=(texts, y))
    assert report.metrics["f1" if kind == "labels" else "correlation"] > 99
    task.save(tmp_path / "m")
    light = classifier(tmp_path / "m")
    for one, other, right in zip(light.predict(texts), task.predict(texts), y, strict=True):
        assert one.label == (pytest.approx(other.label, abs=1e-4) if kind == "number" else right)
        assert other.label == (pytest.approx(right, abs=0.5) if kind == "number" else right)
    assert make("classify").load(tmp_path / "m").predict(texts[:1]) == task.predict(texts[:1])


def test_plain_tags(tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = make("tag", tiny_elmo, schedule__epochs="20")
    task.fit([["Ada", "fell"], ["It", "fell"]] * 4, [["NAME", "VERB"], ["PRON", "VERB"]] * 4)
    task.save(tmp_path / "m")
    (found,) = tagger(tmp_path / "m").predict([["Ada", "fell"]])
    assert [found] == task.predict([["Ada", "fell"]])
    assert (found.tags, found.spans) == (("NAME", "VERB"), ())


def test_a_training_word_adds_its_own_scores(tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = make("classify", tiny_elmo, schedule__epochs="2", words__min_count="1")
    task.fit(["It grew .", "It fell .", "Rain fell .", "She grew ."], ["up", "down", "down", "up"])
    table = task.network.word_scores
    assert table.abs().sum() > 0
    assert not table[:2].any()  # padding and unknown words say nothing
    unknown = task.predict(["rain fell ."])
    with torch.no_grad():
        table[task._words.index("Rain") + 2] = torch.tensor([0.0, 50.0])
    task.save(tmp_path / "m")
    items = ["Rain fell .", "Snow fell . Rain fell ."]
    for some in (task.predict(items), classifier(tmp_path / "m").predict(items)):
        assert [one.label for one in some] == ["up", "up"]
    assert task.predict(["rain fell ."]) == unknown


def test_float16_and_no_bilm_inside(tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = trained("tag", tiny_elmo, tmp_path)
    task.save(tmp_path / "half", with_elmo=False, precision="float16")
    assert not (tmp_path / "half" / "elmo").exists()
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "model")]
    assert sizes[0] < 0.7 * sizes[1]
    with pytest.raises(ConfigError, match="another biLM or has none inside; pass the right elmo="):
        tagger(tmp_path / "half")
    half = tagger(tmp_path / "half", elmo=tiny_elmo).predict(ITEMS)
    loaded = type(task).load(tmp_path / "half", elmo=tiny_elmo)
    assert loaded.predict(ITEMS) == half


def test_marginals_are_those_of_all_paths() -> None:
    """Against the sum over every allowed path, written out."""
    tags = tag_names(["A"], "BIOUL")
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(3, len(tags))).astype(np.float32)
    moves = draw.normal(size=(len(tags), len(tags))).astype(np.float32)
    steps = steps_of(tags, "BIOUL", moves)
    total: dict[tuple[int, ...], float] = {}
    for path in np.ndindex(*(len(tags),) * 3):
        value = steps.first[path[0]] + steps.last[path[-1]]
        value += sum(scores[k, tag] for k, tag in enumerate(path))
        value += sum(steps.between[a, b] for a, b in itertools.pairwise(path))
        total[path] = float(np.exp(value))
    norm = sum(total.values())
    wanted = np.zeros((3, len(tags)))
    for path, weight in total.items():
        wanted[np.arange(3), list(path)] += weight / norm
    np.testing.assert_allclose(_marginals(scores, steps), wanted, atol=1e-5)
    # Very certain scores that no allowed path can follow are still probabilities.
    sure = _marginals(np.float32(1000) * np.eye(len(tags), dtype=np.float32)[[2, 2, 2]], steps)
    np.testing.assert_allclose(sure.sum(1), 1, atol=1e-5)
    best = max(total, key=total.__getitem__)
    found = tagged(["x", "y", "z"], scores, tags, steps)
    np.testing.assert_allclose(
        found.probabilities, wanted[np.arange(3), list(best)].tolist(), atol=1e-5
    )


def test_damage_and_misuse(tiny_elmo: Elmo, tmp_path: Path) -> None:
    trained("tag", tiny_elmo, tmp_path)
    facts = tmp_path / "model" / "task.json"
    whole = facts.read_text()
    for change, message in (
        ({"labels": {"kind": "tags", "tags": ["A"]}}, "has no usable weight 'output.weight'"),
        ({"recipe": {}}, "has no section characters in its recipe"),
    ):
        facts.write_text(json.dumps({**json.loads(whole), **change}))
        with pytest.raises(FormatError, match=message):
            tagger(tmp_path / "model")
    facts.write_text(whole)
    with pytest.raises(ConfigError, match=r"is a model for tag; use elmore\.tasks\.load"):
        classifier(tmp_path / "model")
    with pytest.raises(ConfigError, match="put the text in brackets"):
        tagger(tmp_path / "model").predict("Ada")
    with pytest.raises(ConfigError, match="got a dict where texts belong"):
        tagger(tmp_path / "model").predict({"text": ["Ada"]})
    with pytest.raises(ModelNotFound, match="'nothing' is not a trained model; use "):
        elmore.tagger("nothing")


def test_what_only_torch_computes_is_loaded_in_full(tiny_elmo: Elmo, tmp_path: Path) -> None:
    spelling = trained("tag", tiny_elmo, tmp_path, characters__filters="[[3, 4]]")
    plain = make("tag", schedule__steps="1")
    plain.fit([["a", "b"]], [["X", "Y"]])
    plain.save(tmp_path / "plain")
    for task, folder in ((spelling, tmp_path / "model"), (plain, tmp_path / "plain")):
        found = tagger(folder)
        assert isinstance(found, type(task))
        assert found.predict(["Ada fell ."]) == task.predict(["Ada fell ."])
        with pytest.raises(ConfigError, match="is not a tagger or classifier that was trained"):
            load_all([str(folder)], Elmo.load() if folder.name == "plain" else tiny_elmo)


def test_names_of_several_models(tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = trained("tag", tiny_elmo, tmp_path)
    places = [tmp_path / name for name in ("one/checkpoint", "two/checkpoint", "old/one")]
    for place in places:
        place.parent.mkdir()
        task.save(place)
    first, second, other = map(str, places)
    assert list(load_all([first, second], tiny_elmo)) == ["one", "two"]
    with pytest.raises(ConfigError, match="two trained models are called 'one'; rename a folder"):
        load_all([first, other], tiny_elmo)


@pytest.mark.parametrize("context", ["window", "lstm"])
def test_nothing_of_it_needs_torch(context: str, tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = trained("tag", tiny_elmo, tmp_path, model__context=f'"{context}"')
    code = f"""
import elmore
from elmore.cli.main import main
print(elmore.tagger({str(tmp_path / "model")!r}, threads=1).predict(["Ada fell ."])[0].tags)
main(["predict", {str(tmp_path / "model")!r}, "Ada fell .", "-q"])
"""
    done = subprocess.run(
        [sys.executable, "-c", BLOCK_TORCH + code], capture_output=True, text=True, check=True
    )
    assert str(task.predict(["Ada fell ."])[0].tags) in done.stdout


def test_ready_models_use_the_included_bilm_beside_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "english").mkdir()
    monkeypatch.chdir(tmp_path)
    assert tagger("pos", threads=1).predict([["Rome"]])[0].tags == ("PROPN+NNP",)


def test_any_trained_folder_is_loaded_by_what_it_says(tiny_elmo: Elmo, tmp_path: Path) -> None:
    for name in ("tag", "classify", "ner"):
        task = make(name, tiny_elmo, schedule__epochs="1")
        task.fit(write_data(name, tmp_path), out=tmp_path / name)
        full, light = load(tmp_path / name), load(tmp_path / name, light=True, threads=1)
        assert type(full) is type(task)
        assert full.name == light.name == name
        assert isinstance(light, type(task)) == (name == "ner")
        expected = task.predict(["Ada fell ."])
        assert full.predict(["Ada fell ."]) == light.predict(["Ada fell ."]) == expected
        for format in light.formats:
            assert list(full.lines(["Ada fell ."], format)) == list(
                light.lines(["Ada fell ."], format)
            )
    with pytest.raises(ConfigError, match="classify writes text, jsonl, not 'conll'"):
        next(load(tmp_path / "classify").lines(["Ada"], "conll"))
    facts = tmp_path / "ner" / "checkpoint" / "task.json"
    facts.write_text(facts.read_text().replace('"task": "ner"', '"task": "os"'))
    with pytest.raises(FormatError, match="a model for 'os', which is not a task"):
        load(tmp_path / "ner")


def test_a_bilm_inside_must_be_the_one_of_the_training(tiny_elmo: Elmo, tmp_path: Path) -> None:
    trained("tag", tiny_elmo, tmp_path)
    inside = tmp_path / "model" / "elmo"
    other = Elmo.load()
    shutil.move(inside, tmp_path / "outside")
    inside.symlink_to(tmp_path / "outside", target_is_directory=True)
    for light in (True, False):
        with pytest.raises(FormatError, match="elmo' is a link out of the folder of the task"):
            load(tmp_path / "model", light=light)
    inside.unlink()
    shutil.copytree(tmp_path / "outside", inside)
    (inside / "config.json").unlink()
    (inside / "config.json").symlink_to(tmp_path / "outside" / "config.json")
    with pytest.raises(FormatError, match=r"config\.json' is a link out of the folder"):
        load(tmp_path / "model", light=True)
    shutil.rmtree(inside)
    other.save(inside)
    for light in (True, False):
        with pytest.raises(FormatError, match="is not the biLM that the task was trained with"):
            load(tmp_path / "model", light=light)


def test_tables_keep_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('id,review,label\n1,"A joy, really.",x\n=2,Awful.,y\n')
    model = load("sentiment", light=True, threads=1)
    rows = list(csv.DictReader(io.StringIO("\n".join(label_table(model, path)))))
    assert list(rows[0]) == ["id", "review", "label", "predicted_label", "probability"]
    assert [row["predicted_label"] for row in rows] == ["positive", "negative"]
    assert [(row["id"], row["review"], row["label"]) for row in rows] == [
        ("1", "A joy, really.", "x"),
        ("=2", "Awful.", "y"),
    ]
    assert 0.5 < float(rows[0]["probability"]) <= 1
    (tmp_path / "d.jsonl").write_text('{"text": "A joy.", "n": [1, 2]}\n')
    (line,) = label_table(model, tmp_path / "d.jsonl", "jsonl")
    assert json.loads(line)["n"] == [1, 2]
    assert json.loads(line)["label"] == "positive"
    tags = label_table(load("pos", light=True, threads=1), path, "tsv", text="review")
    assert [line.split("\t") for line in tags][1] == [
        *("1", "A joy, really.", "x", "A joy , really ."),
        "DET+DT NOUN+NN PUNCT+, ADV+RB PUNCT+.",
    ]
    with pytest.raises(ConfigError, match="written as csv, tsv or jsonl"):
        next(label_table(model, path, "xlsx"))
    with pytest.raises(InputError, match="there is no column 'nowhere'"):
        next(label_table(model, path, text="nowhere"))
