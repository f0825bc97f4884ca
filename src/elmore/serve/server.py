"""The server: its socket, its timeouts, and a stop that finishes accepted requests."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h11
import uvicorn
from h11._receivebuffer import ReceiveBuffer
from starlette.types import ASGIApp, Receive, Scope, Send

from elmore.elmo import Elmo
from elmore.errors import ConfigError
from elmore.senses.index import Index
from elmore.serve.app import make_app
from elmore.serve.errors import ServiceError, error_response
from elmore.serve.settings import Settings

__all__ = ["bind", "serve"]

_LOG = logging.getLogger(__name__)
_BACKLOG = 1024
# Files that the process may open while it serves, beyond those that are open when it starts.
_SPARE_FILES = 32
_HEAD_BYTES = 16_384
_HEAD_LINES = 100
# What a client must at least read of its response in the time that `Settings` allows for it.
_STALL_BYTES = 65_536
# A stop waits no longer than this for clients that do not read.
_LAST_STALL_SECONDS = 2.0
# Unsent bytes that the system holds for a connection; else it is megabytes, which nobody counts.
_UNSENT_BYTES = 131_072
_NO_HTTP = "this is not an HTTP request; send one"


def bind(host: str, port: int) -> socket.socket:
    """Open the socket before anything slow is done.

    Raises:
        ConfigError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only if the protocol is named. A response is two writes;
    # otherwise the second would wait 40 ms for the first to be acknowledged.
    listener = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it lets two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"cannot listen on {host} port {port} ({reason}); choose another --host or --port"
        ) from None


class _Listener(socket.socket):
    """Accepts no more connections than the process can hold open, and closes the others at once.

    Without file descriptors, asyncio can neither accept nor refuse what waits, and reports that
    without end.
    """

    open_connections = 0
    max_connections: float = math.inf
    _reported = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection that can be kept; BlockingIOError for none."""
        connection, address = super().accept()
        if self.open_connections < self.max_connections:
            self.open_connections += 1
            accepted = _Accepted(connection.family, connection.type, fileno=connection.detach())
            accepted.listener = self
            return accepted, address
        connection.close()
        if not self._reported:
            self._reported = True
            _LOG.warning(
                "%d connections are open, which is the limit; others are closed (raise it with "
                "ulimit -n; this is reported once)",
                self.open_connections,
            )
        raise BlockingIOError


class _Accepted(socket.socket):
    """A connection that is counted until it is closed."""

    listener: _Listener | None = None

    def close(self) -> None:
        """Close it and count it no longer."""
        if self.listener is not None:
            self.listener.open_connections -= 1
            self.listener = None
        super().close()


def _max_connections() -> float:
    """How many connections may be open: what is left of the limit of the system."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        used = len(os.listdir("/dev/fd"))
    except (ImportError, OSError):  # Windows has no such limit
        return math.inf
    return math.inf if limit == resource.RLIM_INFINITY else max(1, limit - used - _SPARE_FILES)


def serve(
    elmo: Elmo,
    settings: Settings,
    listener: socket.socket,
    *,
    index: Index | None = None,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was accepted.

    Args:
        elmo: the model.
        settings: limits, token, name.
        listener: of `bind`.
        index: uses of words that can be searched too.
        started: called when requests are taken.
    """
    settings = replace(settings, hosts=(*settings.hosts, str(listener.getsockname()[0])))
    if isinstance(listener, _Listener):
        listener.max_connections = _max_connections()
    stopping = _Stopping()
    connections = _Connections(settings, stopping)
    config = uvicorn.Config(
        connections.around(make_app(elmo, settings, stopping, index=index)),
        loop="asyncio",  # which accepts by the listener
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
    config.http_protocol_class = _watching(config.http_protocol_class, connections)
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


class _Connections:
    """Closes connections whose client does not send a head, or does not read, in time.

    It sees what asyncio and ASGI show: when bytes arrive or cannot be sent, and when the
    application is called.
    """

    def __init__(self, settings: Settings, stopping: Callable[[], bool]) -> None:
        self.head_seconds = settings.header_seconds
        self._stall_seconds, self._stopping = settings.stall_seconds, stopping
        self.open: dict[Any, _Connection] = {}

    @property
    def stall_seconds(self) -> float:
        """How long a client may leave its response unread."""
        return min(self._stall_seconds, _LAST_STALL_SECONDS if self._stopping() else math.inf)

    def around(self, app: ASGIApp) -> ASGIApp:
        """Report the requests of an application to the connections they came by."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            connection = self.open.get(tuple(scope.get("client") or ()))
            if connection is None:
                await app(scope, receive, send)
                return
            connection.begin()
            try:
                await app({**scope, "elmore.sent": connection.sent.wait}, receive, send)
            finally:
                connection.end()

        return counted


def _watching(inner: type[asyncio.Protocol], connections: _Connections) -> type[asyncio.Protocol]:
    """The class of connections that pass everything on to uvicorn's."""

    class Watched(_Connection):
        def __init__(self, **given: Any) -> None:
            super().__init__(inner(**given), connections)

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
            or any(line.startswith((b" ", b"\t")) for line in lines)
            or len(lines) > _HEAD_LINES
            or len(head) > _HEAD_BYTES
        ):
            raise h11.RemoteProtocolError(_NO_HTTP)
        return lines


class _Connection(asyncio.Protocol):
    """Wraps a connection of uvicorn: timers for heads and for reading, and errors in our shape."""

    def __init__(self, inner: Any, connections: _Connections) -> None:
        self._inner, self._connections = inner, connections
        self.sent = asyncio.Event()  # whether everything that was written is sent
        self.sent.set()
        inner.conn._receive_buffer = _StrictBuffer()
        self._timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None
        self._requests = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = _Answers(transport)
        self._client = tuple((transport.get_extra_info("peername") or ())[:2])
        self._connections.open[self._client] = self
        # `pause_writing` as soon as anything is not sent, `resume_writing` when everything is.
        transport.set_write_buffer_limits(high=0)
        self._inner.connection_made(self._transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        try:
            self._inner.data_received(data)
        except h11.LocalProtocolError:  # broken in the middle of a response: too late for another
            self._transport.close()
        self._watch()

    def eof_received(self) -> bool | None:
        close: bool | None = self._inner.eof_received()
        return close

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._stop_reading_timer()
        self.sent.set()
        if self._connections.open.get(self._client) is self:
            del self._connections.open[self._client]
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.sent.clear()
        self._read_at, self._unsent = time.monotonic(), self._transport.get_write_buffer_size()
        self._check_reading()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._stop_reading_timer()
        self.sent.set()
        self._inner.resume_writing()

    def _check_reading(self) -> None:
        """Drop a client that reads too little; closing would wait for it for ever."""
        now, unsent = time.monotonic(), self._transport.get_write_buffer_size()
        if self._unsent - unsent >= _STALL_BYTES:
            self._read_at, self._unsent = now, unsent
        left = self._read_at + self._connections.stall_seconds - now
        if left <= 0:
            self._transport.abort()
        else:  # every second, because a stop shortens the time
            loop = asyncio.get_running_loop()
            self._reading_timer = loop.call_later(min(left, 1), self._check_reading)

    def _stop_reading_timer(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

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
            self._timer = loop.call_later(self._connections.head_seconds, self._transport.close)

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
