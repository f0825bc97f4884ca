"""Numbers and texts as bytes."""

from __future__ import annotations

import numpy as np

from elmore.formats.containers.packing import (
    pack_pairs,
    pack_texts,
    pack_two_bits,
    pair_type,
    unpack_pairs,
    unpack_texts,
    unpack_two_bits,
)


def test_pairs_come_back_by_row_and_number() -> None:
    draws = np.random.default_rng(0)
    for n, k in ((1, 1), (3, 5), (256, 64)):
        some = np.zeros(n, pair_type(k))
        some["ids"] = [draws.choice(1 << 16, k, replace=False) for _ in range(n)]
        some["weights"] = draws.integers(256, size=(n, k))
        data, order = pack_pairs(some), np.argsort(some["ids"], axis=1)
        found = unpack_pairs(k, data, n)
        assert found is not None
        for name in ("ids", "weights"):
            expected = np.take_along_axis(some[name], order, axis=1)
            np.testing.assert_array_equal(found[name], expected)
        assert unpack_pairs(k, data[:-1], n) is None
        assert unpack_pairs(k, data, n + 1) is None
    assert unpack_pairs(64, bytes(4 * 256 * 64), 256) is None  # all of one row


def test_texts_come_back() -> None:
    texts = [b"one", b"", b"a\nb\n"]
    data = pack_texts(texts)
    assert unpack_texts(data, 3) == texts
    for damaged in (data[:-1], data[:5], b"\xff" * 4 + data[4:]):
        assert unpack_texts(damaged, 3) is None


def test_two_bits_keep_signs_and_most_of_the_direction() -> None:
    values = np.random.default_rng(0).normal(0, 3, (50, 37)).astype(np.float32)
    codes = pack_two_bits(values)
    assert codes.shape == (50, 10)
    found = unpack_two_bits(codes, 37)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(values))
    cosines = (found * values).sum(axis=1)
    cosines /= np.linalg.norm(found, axis=1) * np.linalg.norm(values, axis=1)
    assert cosines.min() > 0.85
    assert cosines.mean() > 0.92
    # What is packed again stays the same.
    np.testing.assert_array_equal(pack_two_bits(found), codes)
    assert unpack_two_bits(pack_two_bits(values[:0]), 37).shape == (0, 37)
