"""What an operator watches, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from elmore.serve.batcher import Observer

__all__ = ["Metrics"]

_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16_384)


class Metrics(Observer):
    """Counters of one service; two in a process do not mix."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "elmore_requests", "requests answered", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "elmore_request_seconds",
            "time from head to answer",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "elmore_batch_tokens", "tokens of a batch", buckets=_SIZES, registry=registry
        )
        self._sentences = Histogram(
            "elmore_batch_sentences", "sentences of a batch", buckets=_SIZES, registry=registry
        )
        self._computing = Counter(
            "elmore_compute_seconds", "time spent computing", registry=registry
        )
        self._tokens = Counter("elmore_tokens", "tokens computed, with markers", registry=registry)
        self._cancelled = Counter(
            "elmore_cancelled", "requests whose client went away or gave up", registry=registry
        )

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Show a value that is read when it is asked for."""
        Gauge(name, what, registry=self._registry).set_function(value)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, sentences: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self._batches.observe(tokens)
        self._sentences.observe(sentences)
        self._computing.inc(seconds)
        self._tokens.inc(tokens)

    def cancelled(self) -> None:
        """Count a request that was given up."""
        self._cancelled.inc()

    def text(self) -> bytes:
        """Give all of them."""
        return generate_latest(self._registry)
