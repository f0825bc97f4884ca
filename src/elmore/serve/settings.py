"""What an operator may choose, and the limits that protect the service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from elmore.errors import ConfigError

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the service.

    Attributes:
        name: what the model is called in answers; never a path.
        batch_tokens: token budget of a batch, over all clients.
        max_wait: seconds that a lone request waits for company.
        body_bytes: largest body.
        sentences: most sentences of a request.
        tokens: most tokens of a request.
        answer_numbers: most numbers of an answer.
        uses: most uses of a word that are compared.
        queue_requests: most requests that are being received or worked on.
        queue_tokens: most tokens that wait to be computed.
        body_seconds: how long a client may take to send a body.
        header_seconds: how long a client may take to send the head of a request.
        idle_seconds: how long a connection may be kept without a request.
        request_seconds: how long an accepted request may wait for its result.
        drain_seconds: how long a stop waits for what was accepted.
        token: what clients must send as `Authorization: Bearer`, or None.
        origins: web origins whose pages may call the service.
        metrics: whether there is a /metrics.
        page: whether there is a page at /.
        access_log: whether each request is one line of JSON on stdout.
    """

    name: str = "elmo"
    batch_tokens: int = 4096
    max_wait: float = 0.002
    body_bytes: int = 2_000_000
    sentences: int = 256
    tokens: int = 16_384
    answer_numbers: int = 16_000_000
    uses: int = 60
    queue_requests: int = 512
    queue_tokens: int = 262_144
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    idle_seconds: float = 60.0
    request_seconds: float = 30.0
    drain_seconds: float = 30.0
    token: str | None = None
    origins: tuple[str, ...] = ()
    metrics: bool = True
    page: bool = True
    access_log: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", "float") and not value > 0 and field.name != "max_wait":
                raise ConfigError(f"{field.name}={value}; use more than 0")
        if not 0 <= self.max_wait <= 10:
            raise ConfigError(f"max_wait={self.max_wait}; use 0 to 10 seconds")
        if self.token is not None and (
            not self.token or not self.token.isascii() or not self.token.isprintable()
        ):
            raise ConfigError(
                "the token is empty or holds more than printable ASCII; choose another"
            )
