"""The application: which path is served by what."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from elmore._version import __version__
from elmore.elmo import Elmo
from elmore.language_model.explore import page_file
from elmore.senses.index import Index
from elmore.serve import schemas
from elmore.serve.batcher import Batcher
from elmore.serve.bodies import ERRORS, JSON, NPZ, ServiceError, on_error
from elmore.serve.guard import Guard
from elmore.serve.index_routes import IndexRoutes
from elmore.serve.metrics import Metrics
from elmore.serve.routes import Routes
from elmore.serve.settings import Settings

_BINARY = {NPZ: {"schema": {"type": "string", "format": "binary"}}}
_THREADS = 2  # few, because each keeps memory of its own for what it has encoded
_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}
# Nothing in the files is loaded from elsewhere.
_PAGE = {"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(
    elmo: Elmo,
    settings: Settings,
    draining: Callable[[], bool] = lambda: False,
    *,
    index: Index | None = None,
) -> ASGIApp:
    """The ASGI application around a loaded model; its thread runs from startup to shutdown.

    Args:
        elmo: the model.
        settings: limits, token, name.
        draining: whether the server is stopping: no new requests are accepted from then on.
        index: uses of words that can be searched too, made with the same model.
    """
    metrics = Metrics()
    batcher = Batcher(elmo, settings, metrics)
    routes = Routes(elmo, settings, batcher, has_index=index is not None)
    index_routes = None if index is None else IndexRoutes(index, settings)
    routes.warm_up()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        batcher.start()
        try:
            yield
        finally:
            batcher.close()
            if index_routes is not None:
                index_routes.close()

    app = FastAPI(
        title="elmore",
        version=__version__,
        description="Contextual word vectors (ELMo) over HTTP.",
        docs_url=None,  # its pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # a redirect would lead to whatever host the request names
        lifespan=lifespan,
    )
    _add_work(app, routes, index_routes)
    registry = metrics.registry if settings.metrics else None
    _add_state(app, lambda: batcher.alive and not draining(), registry)
    for path, kind in _PAGE.items() if settings.page else ():
        content = page_file(path.removeprefix("/") or "index.html")
        page = Response(content, 200, _PAGE_HEADERS, f"{kind}; charset=utf-8")
        app.router.routes.append(Route(path, page, methods=["GET"]))
    for kind_of_error in (HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind_of_error, on_error)
    known = [route for route in app.routes if isinstance(route, Route)]
    guard = Guard(app, settings, metrics, known, draining)
    for name, what, value in (
        ("elmore_pending_bytes", "bytes of responses under way", lambda: guard.pending_bytes),
        ("elmore_running_requests", "requests in progress", lambda: guard.running),
        ("elmore_waiting_requests", "requests in the queue", lambda: batcher.waiting_requests),
        ("elmore_waiting_tokens", "tokens in the queue", lambda: batcher.waiting_tokens),
    ):
        metrics.gauge(name, what).set_function(value)
    # Outside the guard, so that error responses carry the CORS headers too.
    if not settings.origins:
        return guard
    return CORSMiddleware(
        guard,
        allow_origins=list(settings.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
    )


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The descriptions of error responses."""
    return {
        status: {"model": schemas.ErrorResponse, "description": ERRORS[status][1]}
        for status in statuses
    }


def _add_work(app: FastAPI, routes: Routes, index: IndexRoutes | None) -> None:
    """Add what the model does; the methods encode their answers, which is faster."""
    answers = json.loads(Path(__file__).with_name("answers.json").read_bytes())

    def add(
        method: Callable[..., Any], path: str, function: Callable[..., Any], *more: int
    ) -> None:
        content = {JSON: {"example": answers[path]}, **(_BINARY if path == "/v1/embed" else {})}
        answer: dict[int | str, dict[str, Any]] = {200: {"content": content}}
        method(path, responses={**answer, **_errors(401, 503, *more)})(function)

    facts, work = dict(routes.facts), dict(routes.work)
    if index is not None:
        facts["index"] = index.about
        work |= {"index/find": index.find, "index/senses": index.senses, "index/uses": index.uses}
    for name, function in facts.items():
        add(app.get, f"/v1/{name}", function)
    for name, function in work.items():
        unknown = (404,) if name == "tasks/{name}" else ()
        add(app.post, f"/v1/{name}", function, 400, *unknown, 406, 408, 413, 415, 422, 429)


def _add_state(app: FastAPI, ready: Callable[[], bool], registry: CollectorRegistry | None) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Whether the process runs."""
        return {"status": "ok"}

    @app.get("/ready", responses=_errors(503))
    async def readiness() -> dict[str, str]:
        """Whether requests are accepted."""
        if not ready():
            raise ServiceError(503, retry_after=5)
        return {"status": "ready"}

    if registry is None:
        return

    @app.get("/metrics", responses={200: _TEXT, **_errors(401)})
    async def show_metrics() -> Response:
        """Metrics for Prometheus."""
        content = generate_latest(registry)
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")
