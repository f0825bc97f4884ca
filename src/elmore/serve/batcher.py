"""Dynamic batching: sentences of many clients are computed together, by one thread.

A request is a list of sentences. The thread takes a few from each waiting request in turn until the
token budget is reached, so that a long request does not delay the others. New requests queue up
while it computes. Only a single request waits on purpose, for `max_wait` at most.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from elmore.elmo import Elmo
from elmore.embedding.results import Array
from elmore.embedding.stream import embed_stream
from elmore.errors import ElmoreError
from elmore.language_model.likely_words import substitutes_at
from elmore.language_model.scores import pipe_scores
from elmore.serve.bodies import ServiceError
from elmore.serve.metrics import Metrics
from elmore.serve.settings import Settings

if TYPE_CHECKING:
    from elmore.text.tokenizer import Sentence

_LOG = logging.getLogger(__name__)
# Tokens that a request may put into a batch before it is the turn of the next one.
_TURN = 512
# Tokens per second, until something is measured; only for the first Retry-After.
_FIRST_RATE = 5000.0


class Item(NamedTuple):
    """One sentence, and what to make of it.

    `kind` is one of the functions below. `choice` is what it needs to know for this sentence.
    """

    kind: Kind
    sentence: Sentence
    choice: Any = None


Kind = Callable[[Elmo, Sequence[Item], int], Iterable[Any]]


def vectors(elmo: Elmo, items: Sequence[Item], batch_tokens: int) -> Iterable[Any]:
    """Whatever the `Finish` that was chosen makes of the layers of a sentence."""
    # Each sentence is finished in its own way; two clients may send equal ones.
    finishes = {id(item.sentence): item.choice for item in items}

    def finish(sentence: Sentence, values: Array, /) -> Any:
        return finishes[id(sentence)](sentence, values)

    sentences = [item.sentence for item in items]
    found = embed_stream(elmo.engine, sentences, finish, batch_tokens=batch_tokens)
    return (result for _, result in found)


def scores(elmo: Elmo, items: Sequence[Item], batch_tokens: int) -> Iterable[Any]:
    """Log probabilities."""
    return pipe_scores(elmo, [item.sentence for item in items], batch_tokens=batch_tokens)


def likely(elmo: Elmo, items: Sequence[Item], batch_tokens: int) -> Iterable[Any]:
    """The likely words; chosen are the position and how many."""
    places = [(item.sentence, item.choice[0]) for item in items]
    most = max(item.choice[1] for item in items)
    words = substitutes_at(elmo, places, most, batch_tokens=batch_tokens)
    return (some[: item.choice[1]] for item, some in zip(items, words, strict=True))


def senses(elmo: Elmo, items: Sequence[Item], batch_tokens: int) -> Iterable[Any]:
    """Sense vectors; chosen are the positions and a function of their `SenseVectors`."""
    asked = ((item.sentence, item.choice[0]) for item in items)
    found = elmo.sense_space.pipe(asked, batch_tokens=batch_tokens)
    return (item.choice[1](one) for item, one in zip(items, found, strict=True))


def compute(elmo: Elmo, items: Sequence[Item], batch_tokens: int) -> list[Any]:
    """Compute items of all kinds, those of a kind together; the results are in their order."""
    results: list[Any] = [None] * len(items)
    for kind in dict.fromkeys(item.kind for item in items):
        rows = [k for k, item in enumerate(items) if item.kind is kind]
        found = kind(elmo, [items[k] for k in rows], batch_tokens)
        for k, result in zip(rows, found, strict=True):
            results[k] = result
    return results


class _Request:
    """Sentences of one client, and where their results go."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.results: list[Any] = [None] * len(items)
        self.taken = 0  # how many are computed or being computed
        self.missing = len(items)
        # With <S> and </S>, which are computed too.
        self.tokens = [len(item.sentence) + 2 for item in items]
        self.waiting = sum(self.tokens)
        self.future: Future[list[Any]] = Future()


class Batcher:
    """The queue and the thread that computes."""

    def __init__(self, elmo: Elmo, settings: Settings, metrics: Metrics) -> None:
        self._elmo, self._settings, self._metrics = elmo, settings, metrics
        self._changed = threading.Condition()
        self._queue: deque[_Request] = deque()
        self._tokens = 0
        self._closed = False
        self._rate = _FIRST_RATE
        self._thread: threading.Thread | None = None

    @property
    def waiting_tokens(self) -> int:
        """Tokens in the queue."""
        return self._tokens

    @property
    def waiting_requests(self) -> int:
        """Requests in the queue, including those that are partly computed."""
        return len(self._queue)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive() and not self._closed

    def start(self) -> None:
        """Start the thread; works again after `close`."""
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="elmore-batches", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Compute what is in the queue, then stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    async def run(self, items: Sequence[Item]) -> list[Any]:
        """Compute items, in batches with those of other clients.

        Raises:
            ServiceError: the queue is full, or it took too long.
        """
        if not items:
            return []
        request = _Request(items)
        self._enter(request)
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                return await asyncio.wrap_future(request.future)
        except TimeoutError:
            raise ServiceError(
                503,
                "the result took too long; try again later or send less",
                retry_after=self._seconds_ahead(),
            ) from None
        except asyncio.CancelledError:
            self._metrics.cancelled.inc()
            raise
        finally:
            self._leave(request)

    def _enter(self, request: _Request) -> None:
        with self._changed:
            if not self.alive:
                raise ServiceError(503, retry_after=5)
            # An empty queue accepts any request, or a very large one would never be accepted.
            if self._tokens and self._tokens + request.waiting > self._settings.queue_tokens:
                raise ServiceError(429, retry_after=self._seconds_ahead())
            self._queue.append(request)
            self._tokens += request.waiting
            self._changed.notify()

    def _leave(self, request: _Request) -> None:
        """Remove a request that nobody waits for any more; a finished one is not in the queue."""
        with self._changed:
            if request in self._queue:
                self._queue.remove(request)
                self._tokens -= request.waiting

    def _seconds_ahead(self) -> float:
        return self._tokens / self._rate

    # ----------------------------------------------------------------------- the thread

    def _work(self) -> None:
        while (batch := self._gather()) is not None:
            if batch:
                self._answer(batch)
            del batch  # an idle thread must not keep the memory of finished requests

    def _answer(self, batch: list[tuple[_Request, int]]) -> None:
        tokens = sum(request.tokens[k] for request, k in batch)
        start = time.perf_counter()
        results = self._compute([request.items[k] for request, k in batch])
        seconds = time.perf_counter() - start
        # A moving average, so that one odd batch does not change Retry-After much.
        self._rate += 0.2 * (tokens / max(seconds, 1e-6) - self._rate)
        self._metrics.batch(len(batch), tokens, seconds)
        for (request, k), result in zip(batch, results, strict=True):
            request.results[k] = result
            request.missing -= 1
            # A future that was cancelled takes no result.
            if request.missing or not request.future.set_running_or_notify_cancel():
                continue
            failed = next((one for one in request.results if isinstance(one, ServiceError)), None)
            if failed is None:
                request.future.set_result(request.results)
            else:
                request.future.set_exception(failed)

    def _gather(self) -> list[tuple[_Request, int]] | None:
        """Wait for requests and take a batch of them; None when closed and empty."""
        settings = self._settings
        with self._changed:
            while not self._queue:
                if self._closed:
                    return None
                self._changed.wait()
            if len(self._queue) == 1 and settings.max_wait and not self._closed:
                end = time.monotonic() + settings.max_wait
                while self._queue and self._tokens < settings.batch_tokens and not self._closed:
                    left = end - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        break
            batch: list[tuple[_Request, int]] = []
            left_over = settings.batch_tokens
            while self._queue and left_over > 0:
                request = self._queue.popleft()
                turn = min(_TURN, left_over)
                while request.taken < len(request.items) and turn > 0:
                    size = request.tokens[request.taken]
                    if size > left_over and batch:
                        # Too long for the rest of this batch: it starts the next one.
                        left_over = 0
                        break
                    batch.append((request, request.taken))
                    request.taken += 1
                    request.waiting -= size
                    self._tokens -= size
                    left_over -= size
                    turn -= size
                if request.taken < len(request.items):
                    (self._queue.append if left_over > 0 else self._queue.appendleft)(request)
            return batch

    def _compute(self, items: list[Item]) -> list[Any]:
        """Compute together; if that fails, one by one, so that only the bad sentence fails."""
        try:
            return compute(self._elmo, items, self._settings.batch_tokens)
        except Exception as error:
            # What elmore refuses names the sentence, which goes to the client but not to the log.
            if len(items) == 1 and isinstance(error, ElmoreError):
                _LOG.error("a sentence failed with %s", type(error).__name__)
                return [ServiceError(500, str(error))]
            if len(items) == 1:
                _LOG.error("a sentence failed with %s", type(error).__name__, exc_info=error)
                return [ServiceError(500)]
        return [result for item in items for result in self._compute([item])]
