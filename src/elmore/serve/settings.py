"""What an operator can choose, and the limits that protect the service."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from elmore.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the service.

    Attributes:
        name: of the model in responses; never a path.
        batch_tokens: tokens per batch, over all clients.
        max_wait: seconds that a single request waits for others to share its batch.
        body_bytes: largest body.
        sentences: limit per request; /v1/embeddings takes more, in parts of this size.
        tokens: limit per request.
        pending_bytes: limit of the numbers (float32) of all responses that are being computed or
            sent.
        uses: limit of the uses of a word that are compared.
        index_uses: limit of the uses of a word in an index that are grouped.
        index_lines: limit of the sentences of an index per request.
        queue_requests: limit of requests in progress.
        queue_tokens: limit of tokens in the queue.
        body_seconds: how long a client may take to send a body.
        header_seconds: how long a client may take to send the head of a request.
        stall_seconds: how long a client may leave its response unread.
        idle_seconds: how long a connection may be kept without a request.
        request_seconds: how long an accepted request waits for its result.
        drain_seconds: how long a stop waits for accepted requests.
        token: clients must send it as `Authorization: Bearer`; None for no check.
        hosts: names and addresses by which clients may call the service (the `Host` of a request),
            in addition to the address that it listens on; "*" for any. Without this check a page
            of any website could point its own name at this machine and read the responses.
        origins: web origins whose pages may use the service.
        metrics: whether /metrics exists.
        page: whether the demo page exists.
        tasks: folders of trained taggers and classifiers to serve, in addition to those that ship
            with elmore and fit the model.
        access_log: whether each request is one line of JSON on stdout.
    """

    name: str = "elmo"
    batch_tokens: int = 4096
    max_wait: float = 0.002
    body_bytes: int = 2_000_000
    sentences: int = 256
    tokens: int = 16_384
    pending_bytes: int = 1_000_000_000
    uses: int = 60
    index_uses: int = 20_000
    index_lines: int = 500
    queue_requests: int = 512
    queue_tokens: int = 262_144
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    stall_seconds: float = 10.0
    idle_seconds: float = 60.0
    request_seconds: float = 30.0
    drain_seconds: float = 30.0
    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")
    origins: tuple[str, ...] = ()
    metrics: bool = True
    page: bool = True
    tasks: tuple[str, ...] = ()
    access_log: bool = False

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type in ("int", "float") and not value > 0 and one.name != "max_wait":
                raise ConfigError(f"{one.name}={value}; use more than 0")
        if not 0 <= self.max_wait <= 10:
            raise ConfigError(f"max_wait={self.max_wait}; use 0 to 10 seconds")
        if self.token is not None and (
            not self.token or not self.token.isascii() or not self.token.isprintable()
        ):
            raise ConfigError("the token is empty or not printable ASCII; choose another")
