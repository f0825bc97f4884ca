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
from starlette.types import ASGIApp

from elmore._version import __version__
from elmore.elmo import Elmo
from elmore.language_model.explore import page_file
from elmore.senses.index import Index
from elmore.serve import schemas
from elmore.serve.batcher import Batcher
from elmore.serve.bodies import ARROW, JSON, NPZ, JsonRequest, encode_json
from elmore.serve.corpus import Corpus
from elmore.serve.errors import ServiceError, error_response, from_status, from_validation
from elmore.serve.guard import Guard
from elmore.serve.metrics import Metrics
from elmore.serve.pending import Pending
from elmore.serve.service import Service
from elmore.serve.settings import Settings

__all__ = ["make_app"]

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": what}
    for status, what in {
        400: "the body is not JSON",
        401: "the bearer token is missing or wrong",
        406: "none of the accepted types is available",
        408: "the body did not arrive in time",
        413: "the body or the response is too large",
        415: "the body is not application/json",
        422: "the request does not fit its schema, the model or a limit",
        429: "too much is waiting or being sent; see Retry-After",
        503: "stopping, or the result took too long; see Retry-After",
    }.items()
}
# Name of the path below /v1/ and of the method of `Service`: summary and shape of the response.
_WORK: dict[str, tuple[str, type[BaseModel]]] = {
    "embed": ("Vectors for tokens or sentences", schemas.EmbedResponse),
    "embeddings": ("Sentence vectors in the format of OpenAI's API", schemas.EmbeddingsResponse),
    "score": ("Log probabilities of sentences", schemas.ScoreResponse),
    "substitutes": ("Likely words in context", schemas.SubstitutesResponse),
    "senses": ("Sense vectors: words with weights", schemas.SensesResponse),
    "explore": ("The uses of a word, compared", schemas.ExploreResponse),
}
# The same below /v1/index/, for the methods of `Corpus`.
_INDEX: dict[str, tuple[str, type[BaseModel]]] = {
    "find": ("Uses that are similar to a given one", schemas.IndexFindResponse),
    "senses": ("The uses of a word, grouped by sense", schemas.IndexSensesResponse),
    "uses": ("The sentences of uses", schemas.IndexUsesResponse),
}
_BINARY = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (NPZ, ARROW)}
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
    metrics, stopping = Metrics(), draining
    batcher = Batcher(elmo, settings, metrics)
    service = Service(elmo, settings, batcher)
    corpus = None if index is None else Corpus(index, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.warm_up()
        batcher.start()
        try:
            yield
        finally:
            batcher.close()
            service.close()
            if corpus is not None:
                corpus.close()

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
    _add_work(app, service)
    if corpus is not None:
        _add_index(app, corpus)
    _add_state(app, service, settings, metrics, lambda: batcher.alive and not stopping())
    if settings.page:
        _add_page(app)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_failure)
    # Unknown paths must not become labels of metrics: scanners would fill the memory with them.
    routes = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    pending = Pending(settings)
    guard = Guard(app, settings, pending, metrics, routes, stopping)
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


def _add_work(app: FastAPI, service: Service) -> None:
    for name, (summary, model) in _WORK.items():
        binary = {"content": _BINARY} if name == "embed" else {}
        app.post(
            f"/v1/{name}",
            summary=summary,
            response_model=None,  # the methods encode their responses themselves, faster
            responses={**_ERRORS, 200: {"model": model, **binary}},
        )(getattr(service, name))
    missing = {"model": schemas.ErrorResponse, "description": "there is no such task"}
    app.post(
        "/v1/tasks/{name}",
        summary="Tags of sentences, or labels of texts",
        response_model=None,
        responses={**_ERRORS, 404: missing, 200: {"model": schemas.TaskResponse}},
    )(service.task)


def _add_index(app: FastAPI, corpus: Corpus) -> None:
    app.get(
        "/v1/index",
        summary="The index that is served",
        response_model=None,
        responses={200: {"model": schemas.IndexResponse}, 401: _ERRORS[401], 503: _ERRORS[503]},
    )(corpus.about)
    for name, (summary, model) in _INDEX.items():
        responses = {**_ERRORS, 200: {"model": model}}
        app.post(f"/v1/index/{name}", summary=summary, response_model=None, responses=responses)(
            getattr(corpus, name)
        )


def _add_state(
    app: FastAPI,
    service: Service,
    settings: Settings,
    metrics: Metrics,
    ready: Callable[[], bool],
) -> None:
    denied: dict[int | str, dict[str, Any]] = {401: _ERRORS[401]}

    @app.get(
        "/v1/tasks",
        summary="The taggers and classifiers that are served",
        response_model=None,
        responses={**denied, 200: {"model": schemas.TasksResponse}, 503: _ERRORS[503]},
    )
    async def tasks() -> Response:
        return Response(encode_json({"object": "list", "data": service.tasks}), media_type=JSON)

    @app.get(
        "/v1/models",
        summary="The model that is served",
        response_model=None,
        responses={**denied, 200: {"model": schemas.ModelsResponse}, 503: _ERRORS[503]},
    )
    async def models() -> Response:
        entry = {"id": settings.name, "object": "model", "owned_by": "elmore", **service.facts}
        return Response(encode_json({"object": "list", "data": [entry]}), media_type=JSON)

    @app.get("/health", summary="Whether the process runs")
    async def health() -> schemas.State:
        return schemas.State(status="ok")

    @app.get("/ready", summary="Whether requests are accepted", responses={503: _ERRORS[503]})
    async def readiness() -> schemas.State:
        if not ready():
            raise ServiceError(503, retry_after=5)
        return schemas.State(status="ready")

    if settings.metrics:

        @app.get(
            "/metrics",
            summary="Metrics for Prometheus",
            response_model=None,
            responses={**denied, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
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
