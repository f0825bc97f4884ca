"""Numbers and texts as bytes."""

from __future__ import annotations

import numpy as np

from elmore.formats.containers.packing import (
    pack_pairs,
    pack_texts,
    pair_type,
    unpack_pairs,
    unpack_texts,
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
