"""The input of task models."""

from __future__ import annotations

import torch

from elmore.tasks.layers.features import SpellingCnn, TokenFeatures, Tokens, WordTable
from elmore.tasks.paper.coref import SpanScorer, SpanVectors, distance_buckets, prune


def test_rows_of_the_table() -> None:
    trained, fixed = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    table = WordTable(trained, fixed)
    with torch.no_grad():
        table.unknown.fill_(9)
    ids = torch.tensor([[0, 1, 2, 3, 4]])
    found = table(ids)
    assert found.tolist() == [[[0, 0], [9, 9], [1, 2], [3, 4], [5, 6]]]
    found.sum().backward()
    assert table.unknown.grad.tolist() == [1, 1]
    assert table.trained.grad.tolist() == [[1, 1]]
    assert [name for name, _ in table.named_parameters()] == ["unknown", "trained"]
    assert WordTable(trained[:0], fixed)(torch.tensor([[2, 1]])).tolist() == [[[3, 4], [0, 0]]]
    assert WordTable(trained, fixed[:0])(torch.tensor([[2]])).tolist() == [[[1, 2]]]


def test_a_words_spelling_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    cnn = SpellingCnn([(3, 5), (5, 4)], 6, 0.0)
    with torch.no_grad():
        for convolution in cnn.convolutions:
            convolution.bias.fill_(1.0)  # a window of padding alone would win
    short = torch.tensor([[5, 6]])
    long = torch.tensor([[5, 6, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7]])
    torch.testing.assert_close(cnn(short)[0], cnn(long)[0])
    assert cnn(short).shape == (1, 9)
    assert cnn(torch.zeros(1, 1, dtype=torch.long)).tolist() == [[0] * 9]
    assert cnn(torch.zeros(0, 1, dtype=torch.long)).shape == (0, 9)


def test_features_in_their_order() -> None:
    words = WordTable(torch.ones(1, 2), torch.zeros(0, 2))
    cnn = SpellingCnn([(1, 3)], 2, 0.0)
    features = TokenFeatures(words, cnn, None)
    tokens = Tokens(
        lengths=torch.tensor([1]),
        mask=torch.tensor([[True, False]]),
        words=torch.tensor([[2, 0]]),
        spellings=torch.tensor([[5]]),
        spelled=torch.tensor([[0, 0]]),
    )
    x, above = features(tokens)
    assert features.dim == 5
    assert x[0, 0, :2].tolist() == [1, 1]
    assert x[0, 1].tolist() == [0] * 5  # padding
    assert above.shape == (1, 2, 0)
    assert features.penalty(0.1) == 0


def test_distances_are_bucketed() -> None:
    distances = torch.tensor([1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 1000])
    assert distance_buckets(distances).tolist() == [1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]


def test_pruning_skips_what_crosses_and_lets_nest() -> None:
    first, last = [0, 2, 1, 4, 0], [2, 4, 1, 4, 4]
    #            a-c  c-e  b   e   a-e
    assert prune([5, 4, 3, 2, 1], first, last, 10) == [0, 4, 2, 3]  # 1 crosses 0
    assert prune([4, 5, 3, 2, 1], first, last, 10) == [4, 2, 1, 3]  # 0 crosses 1
    assert prune([5, 4, 3, 2, 1], first, last, 2) == [0, 2]
    assert prune([], [], [], 3) == []


def test_heads_stay_inside_their_span() -> None:
    torch.manual_seed(0)
    spans = SpanVectors(4, 3, 2, 0.0)
    context, inputs = torch.randn(5, 4), torch.randn(5, 3)
    first, last = torch.tensor([0, 3, 4]), torch.tensor([1, 4, 4])
    found = spans(context, inputs, first, last)
    assert found.shape == (3, 4 + 4 + 3 + 2)
    weights = torch.softmax(spans.head(context[:2]).squeeze(1), 0)
    torch.testing.assert_close(found[0, 8:11], weights @ inputs[:2])
    torch.testing.assert_close(found[2, 8:11], inputs[4])
    torch.testing.assert_close(found[1, :4], context[3])
    torch.testing.assert_close(found[1, 4:8], context[4])


def test_pairs_part_by_part_are_the_whole() -> None:
    torch.manual_seed(0)
    scorer = SpanScorer(3 * 4 + 2, 5, 0.0)
    vectors, features = torch.randn(3, 4), torch.randn(3, 2, 2)
    others = torch.tensor([[0, 0], [0, 1], [1, 0]])
    found = scorer.pairs(vectors, others, features)
    for i in range(3):
        for j in range(2):
            g, h = vectors[i], vectors[others[i, j]]
            torch.testing.assert_close(
                found[i, j], scorer(torch.cat([g, h, g * h, features[i, j]]))
            )
