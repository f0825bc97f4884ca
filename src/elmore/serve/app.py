"""The application: which path is served by what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
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
from elmore.serve.bodies import NPZ, JsonRequest
from elmore.serve.errors import ServiceError, error_response, from_status, from_validation
from elmore.serve.guard import Guard
from elmore.serve.index_routes import IndexRoutes
from elmore.serve.metrics import Metrics
from elmore.serve.pending import Pending
from elmore.serve.routes import Routes
from elmore.serve.settings import Settings

__all__ = ["make_app"]

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": what}
    for status, what in {
        400: "the body is not JSON",
        401: "the bearer token is missing or wrong",
        406: "none of the accepted types is available",
        408: "the body did not arrive in time",
        413: "the body is too large",
        415: "the body is not application/json",
        422: "the request does not fit its schema, the model or a limit",
        429: "too much is waiting or being sent; see Retry-After",
        503: "stopping, or the result took too long; see Retry-After",
    }.items()
}
# Name of the path below /v1/ and of the method of `Routes`: summary and shape of the response.
_WORK: dict[str, tuple[str, type[BaseModel]]] = {
    "embed": ("Vectors for tokens or sentences", schemas.EmbedResponse),
    "embeddings": ("Sentence vectors in the format of OpenAI's API", schemas.EmbeddingsResponse),
    "score": ("Log probabilities of sentences", schemas.ScoreResponse),
    "substitutes": ("Likely words in context", schemas.SubstitutesResponse),
    "senses": ("Sense vectors: words with weights", schemas.SensesResponse),
    "explore": ("The uses of a word, compared", schemas.ExploreResponse),
}
# The same below /v1/index/, for the methods of `IndexRoutes`.
_INDEX: dict[str, tuple[str, type[BaseModel]]] = {
    "find": ("Uses that are similar to a given one", schemas.IndexFindResponse),
    "senses": ("The uses of a word, grouped by sense", schemas.IndexSensesResponse),
    "uses": ("The sentences of uses", schemas.IndexUsesResponse),
}
_BINARY = {NPZ: {"schema": {"type": "string", "format": "binary"}}}
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


class _Route(APIRoute):
    """Reads bodies as strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return strict


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

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        routes.warm_up()
        batcher.start()
        try:
            yield
        finally:
            batcher.close()
            routes.close()
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
    app.router.route_class = _Route  # before any route is added
    _add_work(app, routes)
    if index_routes is not None:
        _add_index(app, index_routes)
    _add_state(app, lambda: batcher.alive and not draining())
    if settings.metrics:
        _add_metrics(app, metrics)
    if settings.page:
        _add_page(app)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_failure)
    known = {route.path: route.path_regex for route in app.routes if isinstance(route, Route)}
    pending = Pending(settings)
    guard = Guard(app, settings, pending, metrics, known, draining)
    metrics.watch("elmore_pending_bytes", "bytes of responses under way", lambda: pending.bytes)
    metrics.watch("elmore_running_requests", "requests in progress", lambda: guard.running)
    metrics.watch(
        "elmore_waiting_requests", "requests in the queue", lambda: batcher.waiting_requests
    )
    metrics.watch("elmore_waiting_tokens", "tokens in the queue", lambda: batcher.waiting_tokens)
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


def _add_work(app: FastAPI, routes: Routes) -> None:
    for name, (summary, model) in _WORK.items():
        binary = {"content": _BINARY} if name == "embed" else {}
        app.post(
            f"/v1/{name}",
            summary=summary,
            response_model=None,  # the methods encode their responses themselves, faster
            responses={**_ERRORS, 200: {"model": model, **binary}},
        )(getattr(routes, name))
    missing = {"model": schemas.ErrorResponse, "description": "there is no such task"}
    app.post(
        "/v1/tasks/{name}",
        summary="Tags of sentences, or labels of texts",
        response_model=None,
        responses={**_ERRORS, 404: missing, 200: {"model": schemas.TaskResponse}},
    )(routes.task)
    _add_list(app, "/v1/tasks", routes.tasks, schemas.TasksResponse)
    _add_list(app, "/v1/models", routes.models, schemas.ModelsResponse)


def _add_index(app: FastAPI, routes: IndexRoutes) -> None:
    _add_list(app, "/v1/index", routes.about, schemas.IndexResponse)
    for name, (summary, model) in _INDEX.items():
        responses = {**_ERRORS, 200: {"model": model}}
        app.post(f"/v1/index/{name}", summary=summary, response_model=None, responses=responses)(
            getattr(routes, name)
        )


def _add_list(
    app: FastAPI,
    path: str,
    function: Callable[[], Coroutine[Any, Any, Response]],
    model: type[BaseModel],
) -> None:
    """Add a path without a body; the docstring of the function is its summary."""
    app.get(
        path,
        summary=(function.__doc__ or "").removesuffix("."),
        response_model=None,
        responses={200: {"model": model}, 401: _ERRORS[401], 503: _ERRORS[503]},
    )(function)


def _add_state(app: FastAPI, ready: Callable[[], bool]) -> None:
    @app.get("/health", summary="Whether the process runs")
    async def health() -> schemas.State:
        return schemas.State(status="ok")

    @app.get("/ready", summary="Whether requests are accepted", responses={503: _ERRORS[503]})
    async def readiness() -> schemas.State:
        if not ready():
            raise ServiceError(503, retry_after=5)
        return schemas.State(status="ready")


def _add_metrics(app: FastAPI, metrics: Metrics) -> None:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}

    @app.get(
        "/metrics",
        summary="Metrics for Prometheus",
        response_model=None,
        responses={401: _ERRORS[401], 200: text},
    )
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    def always(response: Response) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def respond(_: Request) -> Response:
            return response

        return respond

    for path, kind in _PAGE.items():
        content = page_file(path.removeprefix("/") or "index.html")
        response = Response(content, 200, _PAGE_HEADERS, f"{kind}; charset=utf-8")
        app.add_route(path, always(response), methods=["GET"])


async def _on_http(_: Request, error: Exception) -> Response:
    if isinstance(error, ServiceError):
        return error_response(error)
    status = error.status_code if isinstance(error, HTTPException) else 500
    response = error_response(from_status(status))
    allow = (getattr(error, "headers", None) or {}).get("Allow")
    if allow:
        response.headers["Allow"] = allow
    return response


async def _on_validation(_: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    return error_response(from_validation(found))


async def _on_failure(_: Request, __: Exception) -> Response:
    return error_response(ServiceError(500))  # the guard logs the cause
