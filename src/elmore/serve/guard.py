"""Middleware: host names, authentication, queue limits, body size, and response headers.

The complete body is received here, within its limits, so that everything behind works on bytes that
have arrived. After that, only a disconnect is awaited from the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import logging
import re
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmore.base.machine import give_back_memory
from elmore.base.messages import shown
from elmore.serve.bodies import ServiceError, error_response
from elmore.serve.metrics import Metrics
from elmore.serve.settings import Settings

__all__ = ["Guard", "Reservation"]

_LOG = logging.getLogger(__name__)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
# Paths without a token: the page, which asks for it, and the health checks.
_OPEN = frozenset(("/", "/page.css", "/page.js", "/health", "/ready", "/openapi.json"))
# Many clients send everything before they read. They see the error only if the rest of the body is
# received and discarded, which is done up to these limits.
_DISCARD_SECONDS = 2.0
_DISCARD_BYTES = 64 << 20
# Memory is given back to the system after so many bytes of responses; less is soon used again.
_TRIM_BYTES = 64 << 20
_TRIM_SECONDS = 0.5


class Guard:
    """Wraps the application.

    Args:
        app: the application.
        settings: limits and token.
        metrics: counts every response.
        routes: known paths; all others are counted as one.
        draining: whether the server is stopping.

    Attributes:
        running: requests in progress.
        pending_bytes: of the numbers of responses that are being computed or sent.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        routes: Sequence[Route],
        draining: Callable[[], bool],
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._routes, self._draining = routes, draining
        self._hosts = frozenset(host.strip("[]").lower() for host in settings.hosts)
        # A service on all addresses of a machine is called by any of them.
        self._any_address = any(map(_is_wildcard, self._hosts))
        self.running = self.pending_bytes = self._sent_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 499  # until there is a response

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = {name for name, _ in message["headers"]}
                extra = [pair for pair in _HEADERS if pair[0] not in named]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        # Health checks and metrics must respond while the queue is full.
        working = _path(scope).startswith("/v1/")
        self.running += working
        reservation = Reservation(self, self._settings.pending_bytes)
        scope = {**scope, "elmore.reservation": reservation}
        route = self._route(scope)
        try:
            await self._handle(scope, receive, respond, working)
            if "elmore.sent" in scope:  # our own server knows when the client has read it
                await scope["elmore.sent"]()
        except ClientDisconnect:
            pass
        except Exception as error:  # the application has answered
            _LOG.error("a request failed with %s", type(error).__name__, exc_info=error)
        finally:
            self.running -= working
            self._release(reservation)
            seconds = time.perf_counter() - start
            self._metrics.request(route, status, seconds)
            if self._settings.access_log:
                _log_access(scope, route, status, seconds)

    def _route(self, scope: Scope) -> str:
        """The path of a route, with its parameters as names: scanners must not fill the memory."""
        found = (r.path for r in self._routes if r.matches(scope)[0] != Match.NONE)
        return next(found, "other")

    def _release(self, reservation: Reservation) -> None:
        """Count a response no longer; a large one leaves memory behind that nobody else gets."""
        reservation.results.clear()
        self.pending_bytes -= reservation.size
        self._sent_bytes += reservation.size
        if self._sent_bytes >= _TRIM_BYTES:
            self._sent_bytes = 0
            loop = asyncio.get_running_loop()
            # Later, when nothing holds the response any more; it takes some milliseconds.
            loop.call_later(_TRIM_SECONDS, loop.run_in_executor, None, give_back_memory)

    async def _handle(self, scope: Scope, receive: Receive, send: Send, working: bool) -> None:
        headers = Headers(scope=scope)
        chunks = Request(scope, receive).stream()
        two_lengths = "transfer-encoding" in headers and "content-length" in headers
        try:
            if two_lengths:
                # A proxy may believe the other one, and take the rest for the next request.
                raise ServiceError(400, "the body has two lengths; send Content-Length alone")
            self._admit(scope, headers, working)
            body = await self._body(headers, chunks)
        except ServiceError as error:
            # With Expect: 100-continue the client has not sent anything yet.
            lost = two_lengths or error.status_code == 408 or "expect" in headers
            close = lost or not await _discard(chunks)
            await error_response(error, close=close)(scope, receive, send)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    def _admit(self, scope: Scope, headers: Headers, working: bool) -> None:
        self._check_host(headers)
        if _path(scope) not in _OPEN and not self._authorized(headers):
            raise ServiceError(401)
        if not working:
            return
        if self._draining():
            raise ServiceError(503, retry_after=5)
        if self.running > self._settings.queue_requests:
            raise ServiceError(429, retry_after=1)
        if scope["method"] != "POST":
            return
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ServiceError(415)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise ServiceError(415, "compressed bodies are not accepted; send plain JSON")

    def _check_host(self, headers: Headers) -> None:
        """Refuse a name that is not ours: a website may let its own name lead to this machine.

        Browsers send the name that they looked up. What sends none is not a browser.
        """
        host = headers.get("host", "").strip().lower()
        if not host or "*" in self._hosts:
            return
        name = re.sub(r":\d*$", "", host).removeprefix("[").removesuffix("]")
        if name not in self._hosts and not (self._any_address and _is_address(name)):
            raise ServiceError(
                400,
                f"the service is not called '{shown(name, 60)}'; use the address that it listens "
                "on, or start it with --allowed-host",
            )

    def _authorized(self, headers: Headers) -> bool:
        token = self._settings.token
        if token is None:
            return True
        sent = headers.getlist("authorization")
        scheme, _, given = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        # As bytes: compare_digest accepts only ASCII text.
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode("ascii"))
        return same and scheme.lower() == "bearer"

    async def _body(self, headers: Headers, chunks: AsyncIterator[bytes]) -> bytes:
        limit = self._settings.body_bytes
        too_large = ServiceError(413, f"the body has more than {limit} bytes; send less at a time")
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                async for chunk in chunks:
                    body += chunk
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise ServiceError(408) from None
        return bytes(body)


class Reservation:
    """What one request has reserved, until the last byte of its response is sent.

    Attributes:
        size: bytes.
        results: what the response is made from, to be forgotten then. Tasks that were cancelled
            because the client disconnected are garbage with cycles, which Python may collect much
            later.
    """

    def __init__(self, guard: Guard, limit: int) -> None:
        self._guard, self._limit = guard, limit
        self.size = 0
        self.results: deque[Any] = deque()

    def reserve(self, numbers: int) -> None:
        """Count a response of so many float32 numbers, before it is computed.

        Raises:
            ServiceError: there is too much under way already.
        """
        pending, size = self._guard.pending_bytes, 4 * numbers
        # Alone, any response is allowed, or a very large one would never be.
        if pending and pending + size > self._limit:
            raise ServiceError(
                429, "too many bytes of responses are under way; try again later", retry_after=1
            )
        self._guard.pending_bytes += size
        self.size += size


async def _discard(chunks: AsyncIterator[bytes]) -> bool:
    """Receive the rest of a refused body; returns whether that was all of it."""
    size = 0
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_DISCARD_SECONDS):
            async for chunk in chunks:
                size += len(chunk)
                if size > _DISCARD_BYTES:
                    return False
            return True
    return False


def _log_access(scope: Scope, route: str, status: int, seconds: float) -> None:
    """Write one line of JSON. Unknown addresses are not repeated: they may hold anything."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": (scope.get("client") or [None])[0],
        "method": scope["method"],
        "route": route,
        "status": status,
        "seconds": round(seconds, 6),
    }
    with contextlib.suppress(OSError, ValueError):  # a reader that went away must not stop us
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


def _is_wildcard(name: str) -> bool:
    return _is_address(name) and ipaddress.ip_address(name).is_unspecified


def _path(scope: Scope) -> str:
    """The path inside this application, wherever it is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
