"""Middleware: host names, authentication, queue limits, body size, and response headers."""

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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmore.base.machine import give_back_memory
from elmore.base.messages import shown
from elmore.serve.bodies import ServiceError, error_response
from elmore.serve.metrics import Metrics
from elmore.serve.settings import Settings

_LOG = logging.getLogger(__name__)
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Paths without a token: the page, which asks for it, and the health checks.
_OPEN = frozenset(("/", "/page.css", "/page.js", "/health", "/ready", "/openapi.json"))
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
        settings: limits and token.
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
        self._app, self.settings, self._metrics = app, settings, metrics
        self._routes, self._draining = routes, draining
        self._hosts = frozenset(host.strip("[]").lower() for host in settings.hosts)
        self.running = self.pending_bytes = self._sent_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        start, status = time.perf_counter(), 499  # until there is a response

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"]]}
                extra = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    extra.setdefault(name, value)
                # The rest of the body may still come.
                if status in (400, 408) or (status >= 400 and "expect" in headers):
                    extra["Connection"] = "close"
            await send(message)

        # Health checks and metrics must respond while the queue is full.
        working = _path(scope).startswith("/v1/")
        self.running += working
        reservation = Reservation(self)
        scope = {**scope, "elmore.reservation": reservation}
        route = self._route(scope)
        try:
            try:
                self._admit(scope, headers, working)
            except ServiceError as error:
                await error_response(error)(scope, receive, respond)
            else:
                await self._app(scope, self._limited(receive), respond)
            if "elmore.sent" in scope:  # our own server signals when the client has read it
                await scope["elmore.sent"]()
        except Exception as error:  # the application has answered
            _LOG.error("a request failed with %s", type(error).__name__, exc_info=error)
        finally:
            self.running -= working
            self._release(reservation)
            seconds = time.perf_counter() - start
            self._metrics.request(route, status, seconds)
            if self.settings.access_log:
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

    def _admit(self, scope: Scope, headers: Headers, working: bool) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy may believe the other one, and take the rest for the next request.
            raise ServiceError(400, "the body has two lengths; send Content-Length alone")
        self._check_host(headers)
        if _path(scope) not in _OPEN and not self._authorized(headers):
            raise ServiceError(401)
        if not working:
            return
        if self._draining():
            raise ServiceError(503, retry_after=5)
        if self.running > self.settings.queue_requests:
            raise ServiceError(429, retry_after=1)
        if scope["method"] != "POST":
            return
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ServiceError(415)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise ServiceError(415, "compressed bodies are not accepted; send plain JSON")
        if int(headers.get("content-length", 0)) > self.settings.body_bytes:
            raise self._too_large()

    def _check_host(self, headers: Headers) -> None:
        """Refuse a name that is not ours: a website may let its own name lead to this machine.

        Browsers send the name that they looked up; an address is not looked up, so it is ours. What
        sends none is not a browser.
        """
        host = headers.get("host", "").strip().lower()
        if not host or "*" in self._hosts:
            return
        name = re.sub(r":\d*$", "", host).removeprefix("[").removesuffix("]")
        if name in self._hosts:
            return
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise ServiceError(
                400,
                f"the service is not called '{shown(name, 60)}'; use the address that it listens "
                "on, or start it with --allowed-host",
            ) from None

    def _authorized(self, headers: Headers) -> bool:
        token = self.settings.token
        if token is None:
            return True
        scheme, _, given = ",".join(headers.getlist("authorization")).partition(" ")
        # As bytes: compare_digest accepts only ASCII text.
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode("ascii"))
        return same and scheme.lower() == "bearer"

    def _limited(self, receive: Receive) -> Receive:
        """The same `receive`, as long as the body is within its limits."""
        deadline = asyncio.get_running_loop().time() + self.settings.body_seconds
        size, complete = 0, False

        async def limited() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()  # when the client disconnects
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise ServiceError(408) from None
            if message["type"] == "http.disconnect":
                raise ServiceError(499)
            size += len(message.get("body", b""))
            if size > self.settings.body_bytes:
                raise self._too_large()
            complete = not message.get("more_body", False)
            return message

        return limited

    def _too_large(self) -> ServiceError:
        limit = self.settings.body_bytes
        return ServiceError(413, f"the body has more than {limit} bytes; send less at a time")


class Reservation:
    """What one request has reserved, until the last byte of its response is sent.

    Attributes:
        size: bytes.
        results: what the response is made from, to be forgotten then. Tasks that were cancelled
            because the client disconnected are garbage with cycles, which Python may collect much
            later.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.size = 0
        self.results: deque[Any] = deque()

    def reserve(self, numbers: int) -> None:
        """Count a response of so many float32 numbers, before it is computed.

        Raises:
            ServiceError: there is too much under way already.
        """
        pending, size = self._guard.pending_bytes, 4 * numbers
        # Alone, any response is allowed, or a very large one would never be.
        if pending and pending + size > self._guard.settings.pending_bytes:
            raise ServiceError(
                429, "too many bytes of responses are under way; try again later", retry_after=1
            )
        self._guard.pending_bytes += size
        self.size += size


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


def _path(scope: Scope) -> str:
    """The path inside this application, wherever it is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
