"""The application: which address answers what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from elmore._version import __version__
from elmore.embedding.elmo import Elmo
from elmore.serve import schemas
from elmore.serve.answers import ARROW, NPZ, encode_json
from elmore.serve.batcher import Batcher
from elmore.serve.bodies import JsonRequest
from elmore.serve.errors import ServiceError, error_response, from_status, from_validation
from elmore.serve.guard import Guard
from elmore.serve.metrics import Metrics
from elmore.serve.service import Service
from elmore.serve.settings import Settings
from elmore.serve.static import read_page

__all__ = ["make_app"]

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": what}
    for status, what in {
        400: "the body is no JSON",
        401: "the bearer token is missing or wrong",
        406: "none of the accepted types can be made",
        408: "the body did not arrive in time",
        413: "the body is too large",
        415: "the body is not application/json",
        422: "the request does not fit its schema, the model or a limit",
        429: "too much is waiting; see Retry-After",
        503: "stopping, or the result took too long; see Retry-After",
    }.items()
}
_BINARY = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (NPZ, ARROW)}


class _Route(APIRoute):
    """Reads bodies as strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return strict


class Draining:
    """Whether a stop was asked for; the server sets it."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


def make_app(elmo: Elmo, settings: Settings, draining: Draining | None = None) -> ASGIApp:
    """Make the application around a loaded model.

    Args:
        elmo: the model.
        settings: limits, token, name.
        draining: set when the server stops.

    Returns:
        an ASGI application; its thread lives from lifespan startup to shutdown.
    """
    metrics, stopping = Metrics(), draining or Draining()
    batcher = Batcher(elmo, settings, metrics)
    service = Service(elmo, settings, batcher)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.warm_up()
        batcher.start()
        try:
            yield
        finally:
            batcher.close()
            service.close()

    app = FastAPI(
        title="elmore",
        version=__version__,
        description="Contextual word vectors (ELMo) over HTTP.",
        docs_url=None,  # its pages come from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.router.route_class = _Route
    _add_work(app, service)
    _add_state(app, service, settings, metrics, lambda: batcher.alive and not stopping())
    if settings.page:
        _add_page(app)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_failure)
    routes = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    guard = Guard(app, settings, metrics, routes, stopping)
    metrics.watch("elmore_running_requests", "requests being worked on", lambda: guard.running)
    metrics.watch(
        "elmore_waiting_requests", "requests in the queue", lambda: batcher.waiting_requests
    )
    metrics.watch("elmore_waiting_tokens", "tokens in the queue", lambda: batcher.waiting_tokens)
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
    answers: dict[int | str, dict[str, Any]] = {**_ERRORS}

    @app.post(
        "/v1/embed",
        summary="Vectors for tokens or sentences",
        response_model=None,
        responses={**answers, 200: {"model": schemas.EmbedResponse, "content": _BINARY}},
    )
    async def embed(body: schemas.EmbedRequest, request: Request) -> Response:
        return await service.embed(body, request)

    @app.post(
        "/v1/embeddings",
        summary="Sentence vectors in the OpenAI shape",
        response_model=None,
        responses={**answers, 200: {"model": schemas.EmbeddingsResponse}},
    )
    async def embeddings(body: schemas.EmbeddingsRequest, request: Request) -> Response:
        return await service.embeddings(body, request)

    @app.post(
        "/v1/score",
        summary="Log probabilities",
        response_model=None,
        responses={**answers, 200: {"model": schemas.ScoreResponse}},
    )
    async def score(body: schemas.ScoreRequest, request: Request) -> Response:
        return await service.score(body, request)

    @app.post(
        "/v1/substitutes",
        summary="Likely words in context",
        response_model=None,
        responses={**answers, 200: {"model": schemas.SubstitutesResponse}},
    )
    async def substitutes(body: schemas.SubstitutesRequest, request: Request) -> Response:
        return await service.substitutes(body, request)

    @app.post(
        "/v1/explore",
        summary="The uses of a word, compared",
        response_model=None,
        responses={**answers, 200: {"model": schemas.ExploreResponse}},
    )
    async def explore(body: schemas.ExploreRequest, request: Request) -> Response:
        return await service.explore(body, request)


def _add_state(
    app: FastAPI,
    service: Service,
    settings: Settings,
    metrics: Metrics,
    ready: Callable[[], bool],
) -> None:
    denied: dict[int | str, dict[str, Any]] = {401: _ERRORS[401]}

    @app.get(
        "/v1/models",
        summary="What is served",
        response_model=None,
        responses={**denied, 200: {"model": schemas.ModelsResponse}, 503: _ERRORS[503]},
    )
    async def models() -> Response:
        entry = {"id": settings.name, "object": "model", "owned_by": "elmore", **service.facts}
        return Response(
            encode_json({"object": "list", "data": [entry]}), media_type="application/json"
        )

    @app.get("/health", summary="Whether the process is well")
    async def health() -> schemas.State:
        return schemas.State(status="ok")

    @app.get("/ready", summary="Whether requests are taken", responses={503: _ERRORS[503]})
    async def readiness() -> schemas.State:
        if not ready():
            raise ServiceError(503, retry_after=5)
        return schemas.State(status="ready")

    if settings.metrics:

        @app.get(
            "/metrics",
            summary="For Prometheus",
            response_model=None,
            responses={**denied, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        )
        async def show_metrics() -> Response:
            return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    def giving(response: Response) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def give(_: Request) -> Response:
            return response

        return give

    for address, response in read_page().items():
        app.add_route(address, giving(response), methods=["GET"])


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
    return error_response(ServiceError(500))  # the guard logs it
