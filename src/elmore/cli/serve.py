"""`elmore serve`: the HTTP service and its demo page."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from elmore.base.io import open_checked
from elmore.base.optional import require
from elmore.cli import options
from elmore.cli.console import Console
from elmore.config import ComputePrecision
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath

_EXAMPLES = """\
  elmore serve
  elmore serve --model my-model --port 8080 --threads 2
  elmore serve --index uses/
  elmore serve --host 0.0.0.0 --token-file token.txt --cors https://example.org
  curl -s localhost:8000/v1/embed -H 'Content-Type: application/json' \\
    -d '{"sentences": ["The bank lent money ."], "pooling": "mean"}'

Open http://127.0.0.1:8000/ for the demo page. /openapi.json describes the service, /metrics is for
Prometheus. Every flag is also an environment variable, such as ELMORE_SERVE_PORT=8080; flags win.
ELMORE_SERVE_TOKEN may hold the token instead of a file. Texts are never logged.
"""

_TOKEN_BYTES = 4096  # a wrong path, such as a model, must not be read completely


def _limit(flag: str, default: int, what: str) -> Any:
    """A limit of `Settings`."""
    return options.count(default, what, names=f"--max-{flag}")


@options.verb(_EXAMPLES, json=False)
def serve(
    *,
    host: str = options.option(
        "Address to listen on; the default is for this machine only.",
        "ADDRESS",
        default="127.0.0.1",
    ),
    port: int = options.count(8000, "Port; 0 for a free one.", type=click.IntRange(0, 65535)),
    index: Path | None = options.path("An index of uses to search, made by elmore index.", "PATH"),
    name: str | None = options.option("Name of the model in responses, by default from its path."),
    token_file: Path | None = options.path(
        "File with the bearer token that clients must send.", "PATH"
    ),
    cors: tuple[str, ...] = options.repeated(
        "A web origin whose pages may use the service", "ORIGIN"
    ),
    allowed_host: tuple[str, ...] = options.repeated(
        "Another name by which clients call the service, besides localhost and --host; * for any",
        "NAME",
    ),
    max_wait_ms: float = options.option(
        "How long a single request waits for others to share its batch.",
        "N",
        type=click.FloatRange(0, 10_000),
        default=2.0,
    ),
    task: tuple[str, ...] = options.repeated(
        "A trained tagger or classifier to serve at /v1/tasks, besides those that are included "
        "with the English model",
        "NAME|FOLDER",
    ),
    limits: dict[str, int] = options.keywords(
        body_bytes=_limit("body-bytes", 2_000_000, "Per request."),
        tokens=_limit("tokens", 16_384, "Per request."),
        sentences=_limit("sentences", 256, "Per request."),
        queue_requests=_limit("requests", 512, "At a time; more get a 429 response."),
        queue_tokens=_limit("queue-tokens", 262_144, "That wait; more get a 429 response."),
        pending_bytes=_limit(
            "pending-bytes",
            1_000_000_000,
            "Of the vectors that are computed or sent; more get a 429.",
        ),
        stall_seconds=_limit(
            "stall-seconds",
            10,
            "That a client may leave its response unread before it is disconnected.",
        ),
    ),
    no_page: bool = options.flag("Leave out the demo page at /."),
    no_metrics: bool = options.flag("Leave out /metrics."),
    access_log: bool = options.flag("One line of JSON per request on stdout."),
    tokenizer: str | None = options.tokenizer(),
    model: options.ModelChoice = options.group(
        options.ModelChoice,
        precision=options.choice(
            get_args(ComputePrecision),
            None,
            "Precision of the computation, by default the one the model is stored in; bfloat16 "
            "needs a GPU.",
        ),
    ),
    console: Console,
) -> None:
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require(module, "serve", "elmore serve")
    from elmore.senses.index import Index
    from elmore.serve import server
    from elmore.serve.settings import Settings

    if index is not None:
        model = _as_indexed(index, model)
    if model.precision is None and model.device == "cpu":
        # Also where float32 is faster than int8: trained tasks, such as the included ones, belong
        # to the precision that they were trained with.
        model = dataclasses.replace(model, precision=model.checkpoint.precision)
    if model.batch_tokens is not None:
        limits["batch_tokens"] = model.batch_tokens
    settings = Settings(
        name=name or _name(model.model),
        max_wait=max_wait_ms / 1000,
        token=_token(token_file),
        origins=cors,
        hosts=tuple(dict.fromkeys((*Settings.hosts, host, *allowed_host))),
        page=not no_page,
        tasks=task,
        metrics=not no_metrics,
        access_log=access_log,
        **limits,
    )
    _ = model.checkpoint
    # The port is taken before the slow part, so that a wrong one fails at once.
    with server.bind(host, port) as listener:
        elmo = model.load(tokenizer)
        opened = None if index is None else Index.open(index, elmo=elmo, tokenizer=tokenizer)
        if opened is not None:
            # Refuse another model, or a tokenizer that must be passed, before the first request.
            _ = opened.space, opened.tokenize("a")
        number, port = listener.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        if settings.token is None and not ipaddress.ip_address(number).is_loopback:
            console.say(
                "elmore: warning: anyone who can reach this machine can use the service; "
                "set --token-file, or --host 127.0.0.1"
            )
        ready = f"serving {settings.name} at {address} (stop with Ctrl-C)"
        started = functools.partial(console.say, ready)
        server.serve(elmo, settings, listener, index=opened, started=started)


def _as_indexed(path: Path, model: options.ModelChoice) -> options.ModelChoice:
    """The model of an index, and how it must compute: with other settings its vectors differ."""
    from elmore.senses.files import read_manifest
    from elmore.senses.model import compute_settings, stated_model

    manifest = read_manifest(path)
    settings = compute_settings(manifest)
    return dataclasses.replace(
        model,
        model=stated_model(path, manifest) if model.model is None else model.model,
        precision=model.precision or settings["precision"],
        start=settings["start"] if model.start == "zeros" else model.start,
    )


def _name(model: ModelPath | None) -> str:
    """The name of a model without its path, which clients must not see."""
    if isinstance(model, tuple):
        return "elmo"
    return "english" if model is None else Path(str(model)).name or "elmo"


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("ELMORE_SERVE_TOKEN") or None
    with open_checked(path, what="token file") as stream:
        text = stream.read(_TOKEN_BYTES).decode("utf-8", "replace").strip()
    if not text:
        raise ConfigError(f"'{path}' contains no token; write one into it")
    return text
