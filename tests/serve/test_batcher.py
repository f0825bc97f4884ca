"""Many clients, one thread: each gets its own, and what is refused, dropped or broken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from small_models import TEXT

from elmore import Elmo
from elmore.embedding.results import all_layers
from elmore.embedding.stream import finish_of
from elmore.options import Output
from elmore.serve import batcher as batching
from elmore.serve.batcher import Batcher, Item, likely, scores, vectors
from elmore.serve.bodies import ServiceError
from elmore.serve.metrics import Metrics
from elmore.serve.settings import Settings
from elmore.text.tokenizer import Sentence


class Watched(Metrics):
    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, int]] = []

    def batch(self, sentences: int, tokens: int, seconds: float) -> None:
        self.batches.append((sentences, tokens))

    @property
    def lost(self) -> float | None:
        return self.registry.get_sample_value("elmore_cancelled_total")


def sentence(k: int, length: int | None = None) -> Sentence:
    count = 1 + k % 9 if length is None else length
    return Sentence(tuple(f"{TEXT[(k + j) % 40]}" for j in range(count)))


def use(
    elmo: Elmo,
    work: Callable[[Batcher], Coroutine[Any, Any, Any]],
    metrics: Metrics | None = None,
    **settings: Any,
) -> Any:
    """Run a coroutine on a batcher of its own."""
    batcher = Batcher(elmo, Settings(**settings), metrics or Metrics())
    batcher.start()
    try:
        return asyncio.run(work(batcher))
    finally:
        batcher.close()
        assert not batcher.alive


class Gate:
    """Holds up the computing thread until it is opened, and notes what it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        self.seen: list[list[Item]] = []
        real = batching.compute

        def compute(elmo: Elmo, items: list[Item], batch_tokens: int) -> list[Any]:
            self.seen.append(list(items))
            self.reached.set()
            assert self.open.wait(30)
            return real(elmo, items, batch_tokens)

        monkeypatch.setattr(batching, "compute", compute)

    async def wait(self) -> None:
        await asyncio.to_thread(self.reached.wait, 30)


async def settled(batcher: Batcher, requests: int) -> None:
    while batcher.waiting_requests != requests:
        await asyncio.sleep(0.002)


def test_each_of_many_clients_gets_its_own(lm: Elmo) -> None:
    watched = Watched()
    finish = finish_of(lm.engine, Output())

    async def work(batcher: Batcher) -> list[list[Any]]:
        async def client(k: int) -> list[Any]:
            return await batcher.run(
                [Item(vectors, sentence(k + j), finish) for j in range(1 + k % 3)]
            )

        return await asyncio.gather(*(client(k) for k in range(200)))

    found = use(lm, work, watched, batch_tokens=256)
    for k, own in enumerate(found):
        wanted = lm.embed([sentence(k + j).tokens for j in range(1 + k % 3)], tokenized=True)
        for one, other in zip(own, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    assert sum(n for n, _ in watched.batches) == sum(1 + k % 3 for k in range(200))
    assert len(watched.batches) < 60  # together, not one by one
    assert max(tokens for _, tokens in watched.batches) <= 256


def test_kinds_of_work_mix(lm: Elmo) -> None:
    async def work(batcher: Batcher) -> Any:
        one, two, three = sentence(3), sentence(4), sentence(5)
        return await asyncio.gather(
            batcher.run([Item(scores, one)]),
            batcher.run([Item(vectors, two, all_layers), Item(likely, three, (0, 2))]),
            batcher.run([Item(likely, one, (1, 4)), Item(scores, two)]),
            batcher.run([]),
        )

    [[scored], [layers, two_words], [four_words, other], nothing] = use(lm, work)
    assert scored.tokens == sentence(3).tokens
    assert other.tokens == sentence(4).tokens
    np.testing.assert_allclose(
        layers.values, lm.layers([sentence(4).tokens], tokenized=True)[0].values, atol=1e-5
    )
    assert (len(two_words), len(four_words), nothing) == (2, 4, [])


def test_a_long_request_does_not_hold_up_a_short_one(
    lm: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    finished: list[str] = []

    async def work(batcher: Batcher) -> None:
        async def client(name: str, count: int) -> None:
            await batcher.run([Item(vectors, sentence(k, 30), all_layers) for k in range(count)])
            finished.append(name)

        first = asyncio.ensure_future(client("first", 1))
        await gate.wait()
        long = asyncio.ensure_future(client("long", 200))
        await settled(batcher, 1)
        short = asyncio.ensure_future(client("short", 1))
        await settled(batcher, 2)
        gate.open.set()
        await asyncio.gather(first, long, short)

    use(lm, work, batch_tokens=1024)
    assert finished == ["first", "short", "long"]
    assert [len(items) for items in gate.seen][:2] == [1, 32]  # 16, the short one, 15 more


def test_more_than_the_queue_holds_is_refused(lm: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def work(batcher: Batcher) -> None:
        first = asyncio.ensure_future(batcher.run([Item(vectors, sentence(0, 8), all_layers)]))
        await gate.wait()
        # Nothing is waiting now, so even what is larger than the queue is taken.
        large = asyncio.ensure_future(batcher.run([Item(vectors, sentence(1, 98), all_layers)]))
        await settled(batcher, 1)
        with pytest.raises(ServiceError) as refused:
            await batcher.run([Item(vectors, sentence(2, 8), all_layers)])
        assert refused.value.status_code == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        gate.open.set()
        await asyncio.gather(first, large)
        assert (batcher.waiting_tokens, batcher.waiting_requests) == (0, 0)
        assert (
            len(await batcher.run([Item(vectors, sentence(2, 8), all_layers)])) == 1
        )  # it has recovered

    use(lm, work, queue_tokens=50)


def test_a_client_that_goes_frees_its_place(lm: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, watched = Gate(monkeypatch), Watched()

    async def work(batcher: Batcher) -> None:
        first = asyncio.ensure_future(batcher.run([Item(vectors, sentence(0, 8), all_layers)]))
        await gate.wait()
        going = asyncio.ensure_future(batcher.run([Item(vectors, sentence(1, 38), all_layers)]))
        await settled(batcher, 1)
        assert batcher.waiting_tokens == 40
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        assert (batcher.waiting_tokens, batcher.waiting_requests) == (0, 0)
        gate.open.set()
        await first

    use(lm, work, watched)
    assert watched.lost == 1
    assert len(gate.seen) == 1  # it was never computed


def test_what_takes_too_long_is_given_up(lm: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def work(batcher: Batcher) -> None:
        with pytest.raises(ServiceError) as late:
            await batcher.run([Item(vectors, sentence(0), all_layers)])
        assert late.value.status_code == 503
        assert "Retry-After" in late.value.headers
        gate.open.set()

    watched = Watched()
    use(lm, work, watched, request_seconds=0.05)
    assert watched.lost == 0  # no client disconnected


def test_one_bad_sentence_harms_no_other(lm: Elmo, caplog: pytest.LogCaptureFixture) -> None:
    async def work(batcher: Batcher) -> Any:
        return await asyncio.gather(
            batcher.run([Item(vectors, sentence(3), all_layers)]),
            batcher.run(
                [Item(vectors, sentence(4), all_layers), Item(likely, sentence(1, 2), (99, 3))]
            ),
            batcher.run([Item(scores, sentence(5))]),
            return_exceptions=True,
        )

    good, bad, other = use(lm, work, max_wait=0.2)
    assert len(good) == len(other) == 1
    assert isinstance(bad, ServiceError)
    assert bad.status_code == 500
    assert "ConfigError" in caplog.text


def test_closing_finishes_what_waits_and_takes_no_more(lm: Elmo) -> None:
    async def work() -> None:
        batcher = Batcher(lm, Settings(batch_tokens=64), Metrics())
        batcher.start()
        futures = [
            asyncio.ensure_future(batcher.run([Item(vectors, sentence(k), all_layers)]))
            for k in range(50)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.close)
        assert len(await asyncio.gather(*futures)) == 50
        with pytest.raises(ServiceError) as refused:
            await batcher.run([Item(vectors, sentence(0), all_layers)])
        assert refused.value.status_code == 503

    asyncio.run(work())
