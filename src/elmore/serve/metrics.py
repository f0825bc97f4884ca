"""Metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from elmore.serve.batcher import Observer

__all__ = ["Metrics"]

_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16_384)


class Metrics(Observer):
    """Counters of one service, with their own registry: two in a process do not mix."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "elmore_requests", "responses", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "elmore_request_seconds",
            "time from request to response",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "elmore_batch_tokens", "tokens per batch", buckets=_SIZES, registry=registry
        )
        self._sentences = Histogram(
            "elmore_batch_sentences", "sentences per batch", buckets=_SIZES, registry=registry
        )
        self._computing = Counter(
            "elmore_compute_seconds", "time spent computing", registry=registry
        )
        self._tokens = Counter(
            "elmore_tokens", "tokens computed, including markers", registry=registry
        )
        self._cancelled = Counter(
            "elmore_cancelled", "requests whose client disconnected", registry=registry
        )

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Add a value that is read when the metrics are."""
        Gauge(name, what, registry=self._registry).set_function(value)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a response."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, sentences: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self._batches.observe(tokens)
        self._sentences.observe(sentences)
        self._computing.inc(seconds)
        self._tokens.inc(tokens)

    def cancelled(self) -> None:
        """Count a request whose client disconnected."""
        self._cancelled.inc()

    def text(self) -> bytes:
        """All metrics."""
        return generate_latest(self._registry)
