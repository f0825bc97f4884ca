"""What all tasks promise alike."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_tasks import NAMES, make, quick_recipe, task_class, write_data

from elmore import Elmo
from elmore.errors import ConfigError, ElmoreError, FormatError, InputError
from elmore.report import Report
from elmore.tasks import SentimentExample
from elmore.tasks.folder import bilm_of, read_task
from elmore.text.word_vectors import WordVectors

Trained = tuple[Any, Path, Report]
Knows = Callable[[str], Trained]


@pytest.fixture(scope="module")
def knows(tiny_elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Knows:
    """A model of a task that knows its eight examples; made when it is first asked for."""
    made: dict[str, Trained] = {}

    def get(name: str) -> Trained:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            data = write_data(name, folder)
            task = make(name, tiny_elmo)
            made[name] = (task, folder, task.fit(data, dev=data, out=folder / "run"))
        return made[name]

    return get


NOTHING = {
    "tag": ["", []],
    "classify": ["", []],
    "ner": ["", []],
    "sentiment": ["", []],
    "nli": [("", ""), ("A man .", ""), ("", "A man .")],
    "srl": ["", [], ([], [])],
    "qa": [("", ""), ("What ?", ""), ("", "Rain fell .")],
    "coref": ["", [], [[]], [["Rain"], [], ["It"]]],
}
# One token, and words that no training text has.
ODD = {
    "tag": ["Rome", ["Rome"], "Zürich 東京 \x00 antidisestablishmentarianism" * 3],
    "classify": ["Film", ["Film"], "naïve 🦊 film. \x00 東京"],
    "ner": ["Rome", ["Rome"], "Zürich 東京 \x00 antidisestablishmentarianism" * 3],
    "sentiment": ["Film", "naïve 🦊 film"],
    "nli": [("Yes", "No"), ("Ünïcode 東京", "🦊")],
    "srl": ["Go", (["Go"], [0]), "🦊 sold 東京"],
    "qa": [("Who", "Bo"), ("Where 🦊 ?", "A 🦊 lives in 東京 .")],
    "coref": ["Bo", [["Bo"]], "🦊 ran. It hid."],
}


@pytest.mark.parametrize("name", NAMES)
def test_eight_examples_are_learned_by_heart(name: str, knows: Knows) -> None:
    task, folder, report = knows(name)
    assert report.metrics[task.metric] == pytest.approx(100.0)
    again = task.evaluate(folder / f"{name}.data")
    assert again.metrics == report.metrics


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("items", [NOTHING, ODD], ids=["nothing", "odd"])
def test_any_text_is_survived(name: str, items: dict[str, list[Any]], knows: Knows) -> None:
    task, _, _ = knows(name)
    alone = [task.predict([item])[0] for item in items[name]]
    assert task.predict(items[name]) == alone
    assert task.predict([]) == []
    for item, found in zip(items[name], alone, strict=True):
        example = task.parse(item)
        shown = task.show(example, found, colour=True)
        assert "\x00" not in shown
        json.dumps(task.to_json(example, found))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_nothing_can_be_learned_from(name: str, knows: Knows) -> None:
    """Empty sentences in the training data: a finite loss and finite gradients."""
    task, folder, _ = knows(name)
    example = task.parse(NOTHING[name][0])
    if name == "qa":
        example = type(example)(example.paragraph, example.question, ("x",), (0, 0))
    real = task.examples(folder / f"{name}.data")[:1]
    if name in ("classify", "sentiment", "nli"):
        example = dataclasses.replace(example, label=real[0].label)
    task.network.zero_grad()
    with task.layers([example, *real]):
        loss = task.loss([example, *real])
    loss.backward()
    assert bool(torch.isfinite(loss))
    for weight in task.network.parameters():
        assert weight.grad is None or bool(weight.grad.isfinite().all())
    task.network.zero_grad()


@pytest.mark.parametrize("name", NAMES)
def test_save_and_load_give_the_same_predictions(name: str, knows: Knows, tmp_path: Path) -> None:
    task, folder, report = knows(name)
    data = folder / f"{name}.data"
    examples = task.examples(data)
    expected = task.predict_examples(examples)
    task.save(tmp_path / "saved")
    for place in (tmp_path / "saved", folder / "run", folder / "run" / "checkpoint"):
        loaded = task_class(name).load(place)
        assert loaded.predict_examples(examples) == expected
        assert loaded.scores == report.metrics
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert names == {"task.json", "model.safetensors", "words.txt", "elmo"}
    with pytest.raises(ElmoreError, match="saved"):
        task.save(tmp_path / "saved")
    task.save(tmp_path / "saved", overwrite=True, with_elmo=False)
    with pytest.raises(ConfigError, match="pass the right elmo="):
        task_class(name).load(tmp_path / "saved")
    own = task_class(name).load(tmp_path / "saved", elmo=task.elmo)
    assert own.predict_examples(examples) == expected


@pytest.mark.parametrize("start", ["zeros", "warm"])
@pytest.mark.parametrize("stored", ["float32", "float16", "int8"])
@pytest.mark.parametrize("computed", [None, "int8"])
def test_a_bilm_of_any_precision_is_found_again(
    stored: Any, computed: Any, start: Any, tiny_elmo: Elmo, tmp_path: Path
) -> None:
    tiny_elmo.save(tmp_path / "model", precision=stored)
    data = write_data("ner", tmp_path)
    elmo = Elmo.load(tmp_path / "model", precision=computed, start=start)
    task = make("ner", elmo, schedule__epochs="1")
    task.fit(data, dev=data, out=tmp_path / "run")
    loaded = task_class("ner").load(tmp_path / "run")
    assert loaded.elmo.precision == elmo.precision == (computed or stored)
    assert loaded.elmo.engine.compute.start == start
    assert loaded.predict(["Ada lives in Rome ."]) == task.predict(["Ada lives in Rome ."])
    # Inside it is stored as it was.
    inside = tmp_path / "run" / "checkpoint" / "elmo" / "model.safetensors"
    assert inside.stat().st_size < 1.1 * (tmp_path / "model" / inside.name).stat().st_size
    facts = tmp_path / "run" / "checkpoint" / "task.json"
    facts.write_text(facts.read_text().replace(f'"{elmo.precision}"', '"float7"'))
    with pytest.raises(FormatError, match="precision='float7' is unknown"):
        task_class("ner").load(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "places", "n_layers"),
    [
        ({"elmo__input": "true", "elmo__output": "true"}, ["input", "output"], 3),
        ({"elmo__input": "false", "elmo__output": "true"}, ["output"], 3),
        ({"elmo__layers": '"top"', "elmo__output": "false"}, ["input"], 1),
        ({"elmo__layer_norm": '"batch"', "elmo__output": "false"}, ["input"], 3),
        ({"elmo__layer_norm": '"sentence"', "elmo__output": "false"}, ["input"], 3),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_elmo_enters_where_the_recipe_says(
    name: str,
    changes: dict[str, str],
    places: list[str],
    n_layers: int,
    tiny_elmo: Elmo,
    tmp_path: Path,
) -> None:
    data = write_data(name, tmp_path)
    if name in ("tag", "classify") and changes.get("elmo__output") == "true":
        with pytest.raises(ConfigError, match="at its input only"):
            make(name, tiny_elmo, **changes)
        return
    task = make(name, tiny_elmo, schedule__steps="2", **changes)
    report = task.fit(data)
    rows = report.tables["mix"]
    assert [row["place"] for row in rows] == places
    for row in rows:
        assert len([key for key in row if key.startswith("layer ")]) == n_layers
        assert row["gamma"] != 1.0  # it learned
    for mix in task.network.features.elmo.mixes:
        if n_layers > 1:
            assert bool((mix.weights != 0).any())


def test_a_strong_penalty_keeps_the_mix_equal(tiny_elmo: Elmo, tmp_path: Path) -> None:
    data = write_data("ner", tmp_path)

    def spread(penalty: str) -> float:
        task = make("ner", tiny_elmo, elmo__penalty=penalty, schedule__epochs="10")
        task.fit(data)
        return float(task.network.features.elmo.mixes[0].weights.detach().abs().max())

    assert spread("10.0") < 0.3 * spread("0.0")


def test_frozen_layers_are_computed_once(tiny_elmo: Elmo, tmp_path: Path) -> None:
    data, recipe = write_data("ner", tmp_path), quick_recipe("ner", schedule__epochs="3")
    seen = set()
    for _ in range(2):
        task = task_class("ner")(tiny_elmo, recipe=recipe, cache=tmp_path / "layers")
        task.fit(data, dev=data)
        task.evaluate(data)
        seen |= {(path, path.stat().st_mtime_ns) for path in (tmp_path / "layers").iterdir()}
    assert len(seen) == 1  # one file, for all epochs of both trainings


def test_int8_stays_on_the_cpu(tiny_elmo: Elmo, tmp_path: Path) -> None:
    """The rest of a task can be on a GPU, which has no int8; "meta" stands for one."""
    tiny_elmo.save(tmp_path / "model", precision="int8")
    task = make("ner", Elmo.load(tmp_path / "model", precision="int8"), schedule__epochs="1")
    task.fit(write_data("ner", tmp_path), out=tmp_path / "run")
    content = read_task(tmp_path / "run")
    assert bilm_of(content, None, "run", device="meta").engine.device == "cpu"
    exact = dataclasses.replace(content, precision="float32")
    with pytest.raises(FormatError, match="not the biLM"):  # another precision, another digest
        bilm_of(exact, None, "run", device="cpu")


@pytest.mark.parametrize("stored", ["float32", "float16", "int8"])
def test_a_bilm_can_be_trained_too(stored: Any, tiny_elmo: Elmo, tmp_path: Path) -> None:
    tiny_elmo.save(tmp_path / "model", precision=stored)
    tiny_elmo = Elmo.load(tmp_path / "model")
    data = write_data("ner", tmp_path)
    before = {n: w.clone() for n, w in tiny_elmo.engine.bilm.named_parameters()}
    task = make("ner", tiny_elmo, elmo__trainable="true", schedule__epochs="2")
    task.fit(data, dev=data, out=tmp_path / "run")
    after = dict(task.elmo.engine.bilm.named_parameters())
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(
        torch.equal(before[name], weight)
        for name, weight in tiny_elmo.engine.bilm.named_parameters()
    )
    # What it computes with is what was learned, whatever was stored before.
    sentence = [["Ada", "lives", "in", "Rome"]]
    with torch.no_grad():
        (mean,) = task.elmo.layer(dropout=0)(task.elmo.layer().batch(sentence))
    np.testing.assert_allclose(task.elmo.embed(sentence, tokenized=True)[0], mean[0], atol=1e-5)
    assert np.abs(mean[0].numpy() - tiny_elmo.embed(sentence, tokenized=True)[0]).max() > 1e-3
    loaded = task_class("ner").load(tmp_path / "run")
    np.testing.assert_array_equal(
        loaded.elmo.embed(sentence, tokenized=True)[0], task.elmo.embed(sentence, tokenized=True)[0]
    )
    examples = task.examples(data)
    assert loaded.predict_examples(examples) == task.predict_examples(examples)


def test_word_vectors_from_a_file(tmp_path: Path) -> None:
    """Trained ones move, others stay; unseen words of the file are known later."""
    data = write_data("ner", tmp_path)
    (tmp_path / "v.txt").write_text("rome 1 0 0\nbo 0 1 0\nzebra 0 0 1\nrome 5 5 5\nzoo 1 1 1\n")

    def fit(**changes: str) -> Any:
        task = task_class("ner")(
            None,
            recipe=quick_recipe("ner", schedule__epochs="1", **changes),
            vectors=tmp_path / "v.txt",
        )
        task.fit(data)
        return task

    fixed = fit(words__trainable="false", words__most="3")  # of two vectors, the first
    assert fixed.network.features.words.trained is None
    assert fixed._words == ("rome", "bo", "zebra")  # zoo is beyond `most`
    np.testing.assert_array_equal(
        fixed.network.features.words.fixed, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    )
    tokens = fixed.index.batch([["Rome", "zebra", "zoo", "rome"]])
    assert tokens.words.tolist() == [[2, 4, 1, 2]]
    trained = fit(words__trainable="true", words__min_count="2")
    table = trained.network.features.words
    assert trained._words[:2] == ("rome", "bo")
    assert "Ada" in trained._words  # twice there, without a vector
    assert "hired" not in trained._words
    assert not np.array_equal(table.trained.detach().numpy()[0], [1, 0, 0])
    unit = fit(words__trainable="false", words__unit="true", words__most="4")
    np.testing.assert_allclose(unit.network.features.words.fixed.norm(dim=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    "word",
    ["\ud800", "x" * 70_000, "a\nb", "a\r", "\ufeff"],
    ids=["surrogate", "long", "two lines", "return", "mark"],
)
@pytest.mark.parametrize("from_file", [False, True])
def test_words_that_a_folder_cannot_hold_are_unknown(
    word: str, from_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = WordVectors([word, "b"], np.ones((2, 12), np.float32))
    monkeypatch.setattr("elmore.tasks.task.read_word_vectors", lambda path: vectors)
    data = [
        SentimentExample(((word, "b"),), "positive"),
        SentimentExample(((word, "c"),), "negative"),
    ]
    (tmp_path / "v.txt").write_text("")  # only its digest is taken
    task = task_class("sentiment")(
        None,
        recipe=quick_recipe("sentiment", schedule__epochs="1"),
        vectors=tmp_path / "v.txt" if from_file else None,
    )
    task.fit(data)
    task.save(tmp_path / "saved")
    loaded = task_class("sentiment").load(tmp_path / "saved")
    assert set(loaded._words) == {"b", "c"}
    assert loaded.index.batch([[word, "b"]]).words.tolist() == [[1, 2]]
    assert loaded.predict_examples(data) == task.predict_examples(data)


def test_a_model_needs_some_input(tmp_path: Path) -> None:
    data = write_data("sentiment", tmp_path)
    with pytest.raises(ConfigError, match="no input"):
        make("sentiment", words__dim="0").fit(data)


MISFITS: dict[str, list[Any]] = {
    "nli": ["ab", (None, "alone"), ("a", "b", "c")],
    "qa": ["ab", (None, "alone"), (["What", "?"], "alone")],
    "srl": [
        ("She sold", [1]),
        (["She", "sold"], 1),
        *((["She"], [place]) for place in (7, -1, "x")),
    ],
    "coref": [["Ada met Bo .", "She left ."], [["Ada"], None]],
}


@pytest.mark.parametrize("name", NAMES)
def test_misuse(name: str, knows: Knows, tmp_path: Path) -> None:
    task, folder, _ = knows(name)
    with pytest.raises(ConfigError, match="not trained yet"):
        make(name).predict(NOTHING[name])
    with pytest.raises(ConfigError, match="takes a list"):
        task.predict("text")
    for item in (None, 3, b"text", [None, "a", "b"], {"text": "a"}, *MISFITS.get(name, ())):
        with pytest.raises(
            ConfigError, match=rf"{name} cannot read .*; pass |^srl has no token at"
        ):
            task.predict([item])
    other = "sentiment" if name == "ner" else "ner"
    with pytest.raises(ConfigError, match=f"is a model for {name}"):
        task_class(other).load(folder / "run")
    with pytest.raises(ConfigError, match="is not a recipe of"):
        task_class(other)(None, recipe=task.recipe)
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(InputError, match="empty"):
        make(name).fit(empty)
    with pytest.raises(InputError, match="no example to learn from"):
        make(name).fit([])
    with pytest.raises(InputError, match="no example to score"):
        task.evaluate([])
    with pytest.raises(ConfigError, match=rf"objects of {task.example.__name__}, not \(\['a'"):
        make(name).fit([(["a", "b"], ["O", "O"])])
    with pytest.raises(ConfigError, match="ELMo enters nowhere"):
        make(name, task.elmo, elmo__input="false", elmo__output="false")
    with pytest.raises(ConfigError, match="leave one out"):
        task_class(name)(None, recipe=quick_recipe(name, words__dim="0"), vectors="glove.txt")
    with pytest.raises(FormatError, match="holds no trained task"):
        task_class(name).load(tmp_path)


@pytest.mark.parametrize("file", ["model.safetensors", "words.txt"])
def test_damaged_files_are_refused(file: str, knows: Knows, tmp_path: Path) -> None:
    _, folder, _ = knows("sentiment")
    place = damaged(folder, tmp_path / "x")
    data = bytearray((place / file).read_bytes())
    data[len(data) // 2] ^= 1
    (place / file).write_bytes(data)
    with pytest.raises(FormatError, match="damaged"):
        task_class("sentiment").load(place)


def damaged(folder: Path, place: Path, **changes: Any) -> Path:
    """Copy a model without its biLM, and change its task.json."""
    shutil.copytree(folder / "run" / "checkpoint", place, ignore=shutil.ignore_patterns("elmo"))
    facts = json.loads((place / "task.json").read_text())
    (place / "task.json").write_text(json.dumps({**facts, **changes}))
    return place


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("sentiment", {"format": "x"}, "does not belong to a trained task"),
        ("sentiment", {"recipe": {}}, "model is missing"),
        ("ner", {"labels": {"tags": ["O", 3]}}, "has labels that are none of ner's"),
        ("srl", {"labels": {"tags": ["O"], "predicates": 3}}, "none of srl's"),
        ("sentiment", {"labels": {"classes": []}}, "none of sentiment's"),
        ("ner", {"labels": []}, "labels=[]; use an object"),
        ("ner", {"task": ["ner"]}, "task=['ner']; use a string"),
    ],
)
def test_a_damaged_task_json_is_refused(
    name: str, changes: dict[str, Any], message: str, knows: Knows, tmp_path: Path
) -> None:
    task, folder, _ = knows(name)
    place = damaged(folder, tmp_path / "x", **changes)
    with pytest.raises(ElmoreError) as caught:
        task_class(name).load(place, elmo=task.elmo)
    assert message in str(caught.value)
    assert str(place) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [10**7, 2**53])
@pytest.mark.parametrize(
    ("name", "key"), [("ner", "lstm"), ("nli", "dim"), ("srl", "n_layers"), ("coref", "max_width")]
)
def test_a_gigantic_size_takes_no_memory(
    name: str, key: str, value: int, knows: Knows, tmp_path: Path
) -> None:
    task, folder, _ = knows(name)
    recipe = task.recipe.to_json()
    recipe["model"][key] = [value] if isinstance(recipe["model"][key], tuple) else value
    place = damaged(folder, tmp_path / "x", recipe=recipe)
    with pytest.raises(ElmoreError, match=r"restore it|number <= 64"):
        task_class(name).load(place, elmo=task.elmo)
