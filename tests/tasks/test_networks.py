"""What is particular to each task's network, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_tasks import quick_recipe, task_class, write_data
from torch import Tensor

from elmore import Elmo
from elmore.tasks.data.columns import Predicate
from elmore.tasks.data.tags import Span
from elmore.tasks.features import BiLmLayers
from elmore.tasks.own.classify import ClassifyExample
from elmore.tasks.own.tag import TagExample
from elmore.tasks.paper.coref import CorefExample
from elmore.tasks.paper.qa import QaExample, split_paragraph
from elmore.tasks.paper.srl import SrlExample
from elmore.tasks.predictions import mark_spans


def fitted(name: str, folder: Path, **changes: str) -> Any:
    task = task_class(name)(None, recipe=quick_recipe(name, schedule__steps="1", **changes))
    task.fit(write_data(name, folder))
    return task


def test_each_word_attends_to_the_other_sentence(tmp_path: Path) -> None:
    """ESIM: both softmaxes run over the other sentence's words; swapped axes would train too."""
    task = fitted("nli", tmp_path)
    network = task.network
    a = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]])
    b = torch.tensor([[[3.0, 0.0], [0.0, 1.0]]])
    encoded, seen = iter((a, b)), []
    network._encode = lambda tokens: next(encoded)

    def compose(own: Tensor, other: Tensor, tokens: Any) -> Tensor:
        seen.append((own, other))
        return torch.zeros(1, 4 * task.recipe.model.dim)

    network._compose = compose
    network(task.index.batch([["x", "y", "z"]]), task.index.batch([["u", "v"]]))
    scores = a[0] @ b[0].t()
    torch.testing.assert_close(seen[0][1][0], torch.softmax(scores, dim=1) @ b[0])
    torch.testing.assert_close(seen[1][1][0], torch.softmax(scores.t(), dim=1) @ a[0])


def test_dropout_differs_from_step_to_step(tmp_path: Path) -> None:
    masks: list[Tensor] = []
    task = task_class("sentiment")(
        None, recipe=quick_recipe("sentiment", schedule__steps="3", model__embedding_dropout="0.5")
    )
    build = task.build

    def watched(features: Any) -> Any:
        network = build(features)
        network.embedding_dropout.register_forward_hook(
            lambda module, inputs, output: masks.append((output == 0).float().mean(2)[:, :1])
        )
        return network

    task.build = watched
    task.fit(write_data("sentiment", tmp_path))
    assert len(masks) == 3
    assert not torch.equal(masks[0], masks[1])


def test_phrases_are_learned_from_when_asked(tmp_path: Path) -> None:
    task = task_class("sentiment")(None, recipe=quick_recipe("sentiment", model__phrases_from="2"))
    examples = task.examples(write_data("sentiment", tmp_path))
    chosen = task.for_training(examples)
    whole = {example.tokens for example in examples}
    more = [example for example in chosen if example.tokens not in whole]
    assert len(chosen) > 8
    assert all(len(example.tokens) >= 2 for example in more)
    assert (("true", "joy"), "very positive") in [(e.tokens, e.label) for e in more]
    assert all(not example.phrases for example in chosen)


def test_maxout_is_offered(tmp_path: Path) -> None:
    task = fitted("sentiment", tmp_path, model__output='"maxout"')
    assert len(task.predict(["A joy", ""])) == 2


def test_the_first_of_equal_answers_is_taken() -> None:
    """As among all pairs of start and end: the earliest start, then the shortest."""
    task = task_class("qa")(None)
    words = [f"w{k}" for k in range(40)]
    examples = [task.parse(("What ?", " ".join(words[:n]))) for n in (40, 40, 20, 1, 0)]
    torch.manual_seed(0)
    start, end = (torch.randint(0, 3, (5, 40)).float() for _ in range(2))
    lengths = torch.tensor([40, 40, 20, 1, 0])
    start[1], end[1] = 0.0, 0.0
    over = torch.arange(40) >= lengths[:, None]
    start, end = start.masked_fill(over, -1e7), end.masked_fill(over, -1e7)
    task._scores = lambda examples: (start, end, lengths)
    pairs = start[:, :, None] + end[:, None, :]
    near = torch.ones(40, 40).triu().tril(16).bool()
    best = pairs.masked_fill(~near, -torch.inf).flatten(1).argmax(1).tolist()
    places = [divmod(place, 40) for place in best]
    expected = [" ".join(words[first : last + 1]) for first, last in places]
    assert task.guess(examples) == [*expected[:4], ""]


def test_predicates_of_plain_text(tmp_path: Path) -> None:
    task = fitted("srl", tmp_path)
    assert "sold" in task.labels["predicates"]
    assert "cars" not in task.labels["predicates"]
    example = task.parse("He SOLD cars .")
    assert [predicate.index for predicate in example.predicates] == [1]
    tokens = tuple("he said she said they said".split())  # each use counts
    said = SrlExample(tokens, tuple(Predicate(place, ()) for place in (1, 3, 5)))
    assert task.find_labels([said])["predicates"] == ["said"]
    given = task.parse((["He", "ran"], [0, 1]))
    assert isinstance(given, SrlExample)
    assert [predicate.index for predicate in given.predicates] == [0, 1]
    for frames in task.predict(["He sold cars daily", "They said it rained"]):
        for frame in frames:
            places = [k for span in frame for k in range(span.first, span.last + 1)]
            assert len(places) == len(set(places))


def test_predicates_in_pieces_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = fitted("srl", tmp_path)
    items = [("He sold cars and said it rained".split(), [1, 4, 6]), "", "Nothing", "He slept"]
    sizes: list[int] = []
    task.network.register_forward_hook(lambda _, inputs, output: sizes.append(len(output)))
    expected = task.predict(items)
    assert [len(frames) for frames in expected] == [3, 0, 0, 1]
    assert sizes == [4]
    monkeypatch.setattr("elmore.tasks.paper.srl._MAX_TOKENS", 14)
    assert task.predict(items) == expected
    assert sizes == [4, 2, 2]


def test_a_span_without_antecedents_belongs_to_none(tmp_path: Path) -> None:
    """The loss of Lee et al. by hand: the mass of all right antecedents, or of none."""
    task = fitted("coref", tmp_path)
    spans = [(0, 0), (2, 2), (4, 4)]
    scores = torch.tensor([[0.0, -9, -9], [0.0, 1, -9], [0.0, 2, 3]])
    scores[0, 1:] = scores[1, 2:] = -torch.inf
    antecedents = torch.tensor([[0, 0], [0, 0], [1, 0]])
    real = torch.tensor([[False, False], [True, False], [True, True]])
    task._rank = lambda example: (spans, scores, antecedents, real)
    example = CorefExample((("a",) * 5,), ("-",), (((0, 0), (2, 2), (4, 4)),))
    log = torch.log_softmax(scores, dim=1)
    expected = -(log[0, 0] + log[1, 1] + torch.logsumexp(log[2, 1:], 0))
    torch.testing.assert_close(task._document_loss(example), expected)
    single = CorefExample((("a",) * 5,), ("-",), (((4, 4),),))  # a cluster of one: none
    torch.testing.assert_close(task._document_loss(single), -log[:, 0].sum())


def test_windows_of_long_documents_keep_their_clusters(tmp_path: Path) -> None:
    task = fitted("coref", tmp_path, model__max_sentences="2")
    sentences = (("a", "b"), ("c",), ("d", "e"), ("f",))
    example = CorefExample(sentences, ("s", "t", "u", "v"), (((0, 0), (3, 4), (5, 5)),))
    task.network.train()
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        window = task._window(example)
        assert len(window.sentences) == 2
        tokens = [token for sentence in window.sentences for token in sentence]
        texts = {"".join(tokens[a : b + 1]) for a, b in window.clusters[0]}
        assert texts <= {"a", "de", "f"}
        assert texts == {t for t in ("a", "de", "f") if t in "".join(tokens)}
        seen.add(window.speakers)
    assert len(seen) == 3
    task.network.eval()
    assert task._window(example) is example


def test_litbanks_singletons_count_when_asked(tmp_path: Path) -> None:
    example = CorefExample((("a", "b"),), ("-",), (((0, 0),), ((0, 1), (1, 1))))
    found = [(((0, 1), (1, 1)),)]
    without = task_class("coref")(None, recipe=quick_recipe("coref"))
    with_them = task_class("coref")(
        None, recipe=quick_recipe("coref", model__keep_singletons="true")
    )
    assert without.measure([example], found).metrics["f1"] == pytest.approx(100)
    assert with_them.measure([example], found).metrics["f1"] < 100
    assert "left out" in without.measure([example], found).notes[0]


def test_lines_for_a_terminal(tmp_path: Path) -> None:
    tokens = ("Ada", "Lovelace", "in", "Rome")
    spans = (Span("PER", 0, 1), Span("LOC", 3, 3))
    assert mark_spans(tokens, spans, colour=False) == "[PER Ada Lovelace] in [LOC Rome]"
    assert mark_spans(tokens, spans, colour=True).count("\x1b[0m") == 2
    hostile = ("\x1b[31m", "x"), [Span("\x1b[31mPER", 0, 0)]
    assert "\x1b" not in mark_spans(*hostile, colour=False)
    coref = task_class("coref")(None)
    document = coref.parse([["Bo", "saw", "his", "dog"]])
    shown = coref.show(document, (((0, 0), (2, 2)), ((2, 3), (3, 3))), colour=False)
    assert shown == "[1 Bo] saw [2 his dog]"


def test_a_paragraph_is_read_sentence_by_sentence_or_whole(tiny_elmo: Elmo, tmp_path: Path) -> None:
    """The task sees one paragraph; what the biLM saw of it is the recipe's choice."""
    paragraph = split_paragraph("It fell. “Rain fell,” she said. Then snow.")
    assert [len(sentence) for sentence in paragraph.sentences] == [3, 8, 3]
    alone = [s.values for s in tiny_elmo.layers(paragraph.sentences, tokenized=True)]
    whole = tiny_elmo.layers([paragraph.tokens], tokenized=True)[0].values
    data = write_data("qa", tmp_path)
    for by_sentence, expected in (("true", np.concatenate(alone, axis=1)), ("false", whole)):
        recipe = quick_recipe("qa", schedule__steps="1", model__by_sentence=by_sentence)
        task = task_class("qa")(tiny_elmo, recipe=recipe)
        task.fit(data)
        example = QaExample(paragraph, ("Who", "?"))
        assert task.length(example) == 14
        with task.layers([example]):
            tokens = task.index.batch([paragraph.tokens], [task._parts(paragraph)])
        np.testing.assert_allclose(tokens.layers[:, 0].numpy(), expected, atol=2e-3)
    assert np.abs(np.concatenate(alone, axis=1) - whole).max() > 0.01


@pytest.mark.parametrize("name", ["qa", "classify"])
def test_a_bilm_that_is_trained_reads_sentence_by_sentence(
    name: str, tiny_elmo: Elmo, tmp_path: Path
) -> None:
    """As it does in prediction, when its layers are frozen."""
    task = task_class(name)(tiny_elmo, recipe=quick_recipe(name, schedule__steps="1"))
    task.fit(write_data(name, tmp_path))
    parts = [[("It", "fell", "."), ("Ada", "saw", "it", "."), ("Yes",)], [], [("No", "."), ()]]
    texts = [[token for part in text for token in part] for text in parts]
    with task.layers([]):
        expected = task.index.batch(texts, parts).layers
        live = BiLmLayers(task.index.layers.cache, tiny_elmo.engine.bilm)
    task.index.layers = live
    for some in (slice(0, 3), slice(1, 2)):  # all of them; one without a sentence
        tokens = task.index.batch(texts[some], parts[some])
        found = tokens.layers.detach() * tokens.mask[:, :, None]
        wanted = expected[:, some, : found.shape[2]]
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=2e-3)
        assert found.shape[1] == len(texts[some])


def test_the_bilm_sees_quotes_as_it_learned_them(tiny_elmo: Elmo, tmp_path: Path) -> None:
    task = task_class("ner")(tiny_elmo, recipe=quick_recipe("ner", schedule__steps="1"))
    task.fit(write_data("ner", tmp_path))
    curly, plain = ["“", "It", "’s", "``", "so"], ['"', "It", "'s", '"', "so"]
    with task.layers([]):
        found = task.index.batch([curly])
    expected = tiny_elmo.layers([plain], tokenized=True)[0].values
    np.testing.assert_allclose(found.layers[:, 0].numpy(), expected, atol=2e-3)
    assert found.spellings[0, 0] == "“".encode()[0] + 1  # the task itself sees what stands there


def test_spans_in_many_sentences_are_read_by_a_bilstm() -> None:
    spans = TagExample(("Ada", "fell"), ("B-PER", "O"))
    plain = TagExample(("Ada", "fell"), ("NOUN", "VERB"))
    for example, n, wanted in (
        (spans, 1000, "lstm"),
        (spans, 999, "window"),
        (plain, 1000, "window"),
    ):
        task = task_class("tag")(None, recipe=quick_recipe("tag", model__context='"auto"'))
        assert task.fitted([example] * n).model.context == wanted
    asked = task_class("tag")(None, recipe=quick_recipe("tag", model__context='"window"'))
    assert asked.fitted([spans] * 1000).model.context == "window"


def test_many_texts_are_read_by_a_bilstm_and_few_by_their_words() -> None:
    text = ClassifyExample((("It", "fell"),), "down")
    for number, context, bag in ((1999, "window", "on"), (2000, "lstm", "off")):
        sizes = task_class("classify")(None).fitted([text] * number).model
        assert (sizes.context, sizes.bag) == (context, bag)
