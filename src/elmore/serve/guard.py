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
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmore.base.messages import shown
from elmore.serve.errors import ServiceError, error_response
from elmore.serve.metrics import Metrics
from elmore.serve.pending import Pending, Reservation
from elmore.serve.settings import Settings

__all__ = ["Guard"]

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


class _Gone(Exception):
    """The client disconnected while it was sending."""


class Guard:
    """Wraps the application.

    Args:
        app: the application.
        settings: limits and token.
        pending: counts the bytes of responses; a request finds its `Reservation` in the scope.
        metrics: counts every response.
        routes: known paths, with the patterns that requests match; all others are counted as one.
        draining: whether the server is stopping.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        pending: Pending,
        metrics: Metrics,
        routes: Mapping[str, re.Pattern[str]],
        draining: Callable[[], bool],
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._pending, self._routes, self._draining = pending, routes, draining
        self._hosts = frozenset(host.strip("[]").lower() for host in settings.hosts)
        # A service on all addresses of a machine is called by any of them.
        self._any_address = any(_is_wildcard(host) for host in self._hosts)
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 499  # until there is a response
        path = _path(scope)
        route = self._route(path)

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = {name for name, _ in message["headers"]}
                extra = [pair for pair in _HEADERS if pair[0] not in named]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        # Health checks and metrics must respond while the queue is full.
        working = path.startswith("/v1/")
        self.running += working
        reservation = Reservation(self._pending)
        scope = {**scope, "elmore.reservation": reservation}
        try:
            await self._handle(scope, receive, respond, working, lambda: status != 499)
            if "elmore.sent" in scope:  # our own server knows when the client has read it
                await scope["elmore.sent"]()
        except _Gone:
            pass
        finally:
            self.running -= working
            reservation.release()
            seconds = time.perf_counter() - start
            self._metrics.request(route, status, seconds)
            if self._settings.access_log:
                _log_access(scope, route, status, seconds)

    async def _handle(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        working: bool,
        answered: Callable[[], bool],
    ) -> None:
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy may believe the other one, and take the rest for the next request.
            error = ServiceError(400, "the body has two lengths; send Content-Length alone")
            await error_response(error, close=True)(scope, receive, send)
            return
        try:
            self._admit(scope, headers, working)
            body = await self._body(headers, receive) if _has_body(headers) else b""
        except ServiceError as error:
            complete = error.status_code != 408 and await self._discard(headers, receive)
            await error_response(error, close=not complete)(scope, receive, send)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await self._app(scope, replay, send)
        except Exception as error:
            _LOG.error("a request failed with %s", type(error).__name__, exc_info=error)
            if not answered():
                await error_response(ServiceError(500))(scope, receive, send)

    def _route(self, path: str) -> str:
        """The path of a route, with its parameters as names: scanners must not fill the memory."""
        if path in self._routes:
            return path
        found = (route for route, pattern in self._routes.items() if pattern.match(path))
        return next(found, "other")

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
        name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
        name = name.removeprefix("[").removesuffix("]")
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

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        limit = self._settings.body_bytes
        too_large = ServiceError(413, f"the body has more than {limit} bytes; send less at a time")
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ServiceError(408) from None

    async def _discard(self, headers: Headers, receive: Receive) -> bool:
        """Receive the rest of a refused body; returns whether that was all of it."""
        if not _has_body(headers):
            return True
        if "expect" in headers:
            return False  # with Expect: 100-continue it has not sent anything yet
        size = 0
        try:
            async with asyncio.timeout(_DISCARD_SECONDS):
                while size <= _DISCARD_BYTES:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if message["type"] == "http.disconnect":
                        return False
                    if not message.get("more_body", False):
                        return True
        except TimeoutError:
            pass
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


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
