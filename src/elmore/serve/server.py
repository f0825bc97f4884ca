"""The server: its socket, its timeouts, and a stop that finishes accepted requests."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from h11._receivebuffer import ReceiveBuffer
from starlette.types import ASGIApp, Receive, Scope, Send

from elmore.embedding.elmo import Elmo
from elmore.errors import ConfigError
from elmore.serve.app import make_app
from elmore.serve.errors import ServiceError, error_response
from elmore.serve.settings import Settings

__all__ = ["bind", "serve"]

_BACKLOG = 1024
_HEAD_BYTES = 16_384
_HEAD_LINES = 100
_NO_HTTP = "this is not an HTTP request; send one"


def bind(host: str, port: int) -> socket.socket:
    """Open the socket before anything slow is done.

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
        listener: of `bind`.
        started: called when requests are taken.
    """
    stopping, heads = _Stopping(), _Heads(settings.header_seconds)
    config = uvicorn.Config(
        heads.around(make_app(elmo, settings, stopping)),
        http="h11",
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
    config.load()
    config.http_protocol_class = _watching(config.http_protocol_class, heads)
    stopping.server = server = _Server(config, started)
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_start is not None:
            self._on_start()


class _Stopping:
    """Whether the server was asked to stop. The application needs it before there is a server."""

    server: uvicorn.Server | None = None

    def __call__(self) -> bool:
        return self.server is not None and self.server.should_exit


class _Heads:
    """Closes connections whose next request does not get as far as the application in time.

    It sees what asyncio and ASGI show: when bytes arrive, and when the application is called.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.connections: dict[Any, _Connection] = {}

    def around(self, app: ASGIApp) -> ASGIApp:
        """Report the requests of an application to the connections they came by."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            connection = self.connections.get(tuple(scope.get("client") or ()))
            if connection is None:
                await app(scope, receive, send)
                return
            connection.begin()
            try:
                await app(scope, receive, send)
            finally:
                connection.end()

        return counted


def _watching(inner: type[asyncio.Protocol], heads: _Heads) -> type[asyncio.Protocol]:
    """The class of connections that pass everything on to uvicorn's."""

    class Watched(_Connection):
        def __init__(self, **given: Any) -> None:
            super().__init__(inner(**given), heads)

    return Watched


class _StrictBuffer(ReceiveBuffer):
    """Refuses heads that a proxy in front might read in another way than h11, and endless ones.

    h11 takes a line feed for the end of a line, joins folded lines, and limits only heads that
    arrive in several packets. All of it is gone when the application sees the request.
    """

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Extract the lines of a head or of a trailer, once it is complete."""
        before = bytes(self._data)
        lines = super().maybe_extract_lines()
        if lines is None:
            return None
        head = before[: len(before) - len(self._data)]
        if (
            head.count(b"\n") != head.count(b"\r\n")
            or any(line[:1] in (b" ", b"\t") for line in lines)
            or len(lines) > _HEAD_LINES
            or len(head) > _HEAD_BYTES
        ):
            raise h11.RemoteProtocolError(_NO_HTTP)
        return lines


class _Connection(asyncio.Protocol):
    """Wraps a connection of uvicorn: a timer for heads, and errors in our shape."""

    def __init__(self, inner: Any, heads: _Heads) -> None:
        self._inner, self._heads = inner, heads
        inner.conn._receive_buffer = _StrictBuffer()
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = _Answers(transport)
        self._client = tuple((transport.get_extra_info("peername") or ())[:2])
        self._heads.connections[self._client] = self
        self._inner.connection_made(self._transport)  # type: ignore[arg-type]
        self._watch()

    def data_received(self, data: bytes) -> None:
        try:
            self._inner.data_received(data)
        except h11.LocalProtocolError:  # broken in the middle of a response: too late for another
            self._transport.close()
        self._watch()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self._heads.connections.get(self._client) is self:
            del self._heads.connections[self._client]
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def begin(self) -> None:
        """A request has reached the application."""
        self._requests += 1
        self._stop()

    def end(self) -> None:
        """Its answer is complete. What waits for the next one is uvicorn's timer of idle ones."""
        self._requests -= 1

    def _watch(self) -> None:
        if self._requests == 0 and self._timer is None and not self._transport.is_closing():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._heads.seconds, self._transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Answers:
    """A transport that answers what is not HTTP in the shape of every other error."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._replaced = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Replace uvicorn's own 400, which is plain text; ours are JSON."""
        if data.startswith(b"HTTP/1.1 400 ") and b"application/json" not in data:
            self._replaced = True
            body = bytes(error_response(ServiceError(400, _NO_HTTP)).body)
            head = (
                "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            data = head.encode("ascii") + body
        elif self._replaced:
            return
        self._transport.write(data)
