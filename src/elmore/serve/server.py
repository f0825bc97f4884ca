"""The server: its socket, its timeouts, and a stop that finishes accepted requests."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from h11._receivebuffer import ReceiveBuffer
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from elmore.elmo import Elmo
from elmore.errors import ConfigError
from elmore.senses.index import Index
from elmore.serve.app import make_app
from elmore.serve.settings import Settings

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


class Listener(socket.socket):
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
            self.open_connections += 1  # until `_Connection.connection_lost`
            return connection, address
        connection.close()
        if not self._reported:
            self._reported = True
            _LOG.warning(
                "%d connections are open, which is the limit; others are closed (raise it with "
                "ulimit -n; this is reported once)",
                self.open_connections,
            )
        raise BlockingIOError


def bind(host: str, port: int) -> Listener:
    """Open the socket before anything slow is done.

    Raises:
        ConfigError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only if the protocol is named. A response is two writes;
    # otherwise the second would wait 40 ms for the first to be acknowledged.
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
    listener: Listener,
    *,
    index: Index | None = None,
    started: Callable[[], object] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was accepted.

    Args:
        elmo: the model.
        settings: limits, token, name.
        listener: of `bind`.
        index: uses of words that can be searched too.
        started: called when requests are about to be taken; those that come earlier wait.
    """
    listener.max_connections = _max_connections()

    def stopping() -> bool:
        return server.should_exit

    config = uvicorn.Config(
        make_app(elmo, settings, stopping, index=index),
        loop="asyncio",  # which accepts by the listener
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # malformed requests of scanners are not worth a line
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(settings.idle_seconds) or 1,
        timeout_graceful_shutdown=int(settings.drain_seconds) or 1,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    config.load()
    connection: Any = partial(_Connection, settings, listener, stopping)
    config.http_protocol_class = connection
    server = uvicorn.Server(config)
    started()
    server.run(sockets=[listener])


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
            raise h11.RemoteProtocolError("a head that can be read in two ways")
        return lines


class _Connection(H11Protocol):
    """Closes connections whose client does not send a head, or does not read, in time."""

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        stopping: Callable[[], bool],
        config: uvicorn.Config,
        **given: Any,
    ) -> None:
        super().__init__(config, **given)
        self._settings, self._listener, self._stopping = settings, listener, stopping
        self.conn._receive_buffer = _StrictBuffer()
        self._sent = asyncio.Event()  # whether everything that was written is sent
        self._sent.set()
        self._head_timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None
        application: Any = config.loaded_app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await application({**scope, "elmore.sent": self._sent.wait}, receive, send)

        self.app: Any = app

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # `pause_writing` as soon as anything is not sent, `resume_writing` when everything is.
        transport.set_write_buffer_limits(high=0)
        self._check_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._check_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.open_connections -= 1
        for timer in (self._head_timer, self._reading_timer):
            if timer is not None:
                timer.cancel()
        self._sent.set()
        super().connection_lost(exc)

    def _check_head(self) -> None:
        """Limit the time for a head; what waits for the next one is uvicorn's timer."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._head_timer is None and not self.transport.is_closing():
            seconds = self._settings.header_seconds
            self._head_timer = self.loop.call_later(seconds, self.transport.close)

    def pause_writing(self) -> None:
        self._sent.clear()
        self._read_at, self._unsent = time.monotonic(), self.transport.get_write_buffer_size()
        self._check_reading()
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
        self._sent.set()
        super().resume_writing()

    def _check_reading(self) -> None:
        """Drop a client that reads too little; closing would wait for it for ever."""
        now, unsent = time.monotonic(), self.transport.get_write_buffer_size()
        if self._unsent - unsent >= _STALL_BYTES:
            self._read_at, self._unsent = now, unsent
        seconds = self._settings.stall_seconds
        if self._stopping():
            seconds = min(seconds, _LAST_STALL_SECONDS)
        left = self._read_at + seconds - now
        if left <= 0:
            self.transport.abort()
        else:  # every second, because a stop shortens the time
            self._reading_timer = self.loop.call_later(min(left, 1), self._check_reading)

    def send_400_response(self, msg: str) -> None:
        with suppress(h11.LocalProtocolError):  # in the middle of a response it is too late
            super().send_400_response(msg)
        self.transport.close()
