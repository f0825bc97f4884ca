"""The server: its socket, its timeouts, and a stop that finishes accepted requests.

uvicorn has no timeout for the head of a request and no hook for its own 400 responses. Both need a
subclass of its h11 protocol, which is not a documented interface: tests/serve/test_server.py
fails when a new version of uvicorn changes it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from elmore.embedding.elmo import Elmo
from elmore.errors import ConfigError
from elmore.serve.app import make_app
from elmore.serve.errors import ServiceError, error_response
from elmore.serve.settings import Settings

__all__ = ["bind", "serve"]

_BACKLOG = 1024
_HEAD_BYTES = 16_384
_NO_HTTP = "this is not an HTTP request; send one"


def bind(host: str, port: int) -> socket.socket:
    """Open the socket, before anything slow is done.

    Raises:
        ConfigError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only if the protocol is named. A response is two writes;
    # otherwise the second would wait 40 ms for the first to be acknowledged.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it lets two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"cannot listen on {host} port {port} ({reason}); choose another --host or --port"
        ) from None


def serve(
    elmo: Elmo,
    settings: Settings,
    listener: socket.socket,
    *,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was accepted.

    Args:
        elmo: the model.
        settings: limits, token, name.
        listener: from `bind`.
        started: called when requests are accepted.
    """
    draining = threading.Event()
    config = uvicorn.Config(
        make_app(elmo, settings, draining),
        http=_timed(settings.header_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # malformed requests of scanners are not worth a line
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=int(settings.idle_seconds) or 1,
        timeout_graceful_shutdown=int(settings.drain_seconds) or 1,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    _Server(config, draining, started).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, draining: threading.Event, started: Callable[[], None] | None
    ) -> None:
        super().__init__(config)
        self._draining, self._on_start = draining, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_start is not None:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._draining.set()


def _timed(seconds: float) -> type[asyncio.Protocol]:
    """A protocol that closes connections whose next head does not arrive in time."""

    class TimedProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            """Respond to what is not HTTP in the format of every other error."""
            self._stop()
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                body = bytes(error_response(ServiceError(400, _NO_HTTP)).body)
                kind = (b"content-type", b"application/json")
                size = (b"content-length", str(len(body)).encode("ascii"))
                head = [kind, size, (b"connection", b"close")]
                for event in (
                    h11.Response(status_code=400, headers=head, reason=b"Bad Request"),
                    h11.Data(data=body),
                    h11.EndOfMessage(),
                ):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def _watch(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self._stop()
            elif self._timer is None:
                self._timer = self.loop.call_later(seconds, self._give_up)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            # Between two requests uvicorn has its own timer for the connection.
            if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
                self.transport.close()

    return TimedProtocol
