"""Metrics in the text format of Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16_384)


class Metrics:
    """What is counted in one service, with its own registry: two in a process do not mix.

    Attributes:
        gauge: makes a value that is read when the metrics are, by `set_function`.
        cancelled: requests whose client disconnected.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.gauge = partial(Gauge, registry=registry)
        self.cancelled = counter("elmore_cancelled", "requests whose client disconnected")
        self._requests = counter("elmore_requests", "responses", ["route", "status"])
        self._seconds = histogram(
            "elmore_request_seconds", "time from request to response", ["route"], buckets=_SECONDS
        )
        self._batches = histogram("elmore_batch_tokens", "tokens per batch", buckets=_SIZES)
        self._sentences = histogram("elmore_batch_sentences", "sentences per batch", buckets=_SIZES)
        self._computing = counter("elmore_compute_seconds", "time spent computing")
        self._tokens = counter("elmore_tokens", "tokens computed, including markers")

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
