"""`elmore serve`: the HTTP service and its demo page."""

from __future__ import annotations

import argparse
import ipaddress
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from elmore.base.io import open_checked
from elmore.base.optional import require
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.senses.index import Index
    from elmore.serve.settings import Settings

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
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

# Flag to the field of `Settings` and its help.
_LIMITS = {
    "--max-body-bytes": ("body_bytes", "per request (default: 2000000)"),
    "--max-tokens": ("tokens", "per request (default: 16384)"),
    "--max-sentences": ("sentences", "per request (default: 256)"),
    "--max-requests": ("queue_requests", "at a time; more get a 429 response (default: 512)"),
    "--max-queue-tokens": ("queue_tokens", "that wait; more get a 429 response (default: 262144)"),
    "--max-pending-bytes": (
        "pending_bytes",
        "of the vectors that are computed or sent; more get a 429 (default: 1000000000)",
    ),
    "--max-stall-seconds": (
        "stall_seconds",
        "that a client may leave its response unread before it is disconnected (default: 10)",
    ),
}
_SWITCHES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser, positional=True)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, only this machine)",
    )
    parser.add_argument(
        "--port", type=_port, default=8000, metavar="N", help="port (default: 8000; 0: a free one)"
    )
    parser.add_argument(
        "--index", metavar="PATH", help="an index of uses to search, made by elmore index"
    )
    parser.add_argument("--name", help="name of the model in responses (default: from its path)")
    parser.add_argument(
        "--token-file", metavar="PATH", help="file with the bearer token that clients must send"
    )
    parser.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a web origin whose pages may use the service; may be repeated (default: none)",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name by which clients call the service, * for any; may be repeated "
        "(default: localhost and the address of --host)",
    )
    parser.add_argument(
        "--max-wait-ms",
        type=_milliseconds,
        default=2.0,
        metavar="N",
        help="how long a single request waits for others to share its batch (default: 2)",
    )
    parser.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="NAME|FOLDER",
        help="a trained tagger or classifier to serve at /v1/tasks, in addition to those that "
        "are included with the English model; may be repeated",
    )
    for flag, (field, what) in _LIMITS.items():
        parser.add_argument(flag, dest=field, type=flags.parse_count, metavar="N", help=what)
    parser.add_argument("--no-page", action="store_true", help="leave out the demo page at /")
    parser.add_argument("--no-metrics", action="store_true", help="leave out /metrics")
    parser.add_argument(
        "--access-log", action="store_true", help="one line of JSON per request on stdout"
    )
    flags.add(parser, "--tokenizer", "--start")
    flags.add_compute(parser)
    flags.add_common(parser, json=False)
    _take_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Load the model, then serve until a signal."""
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require(module, "serve", "elmore serve")
    from elmore.serve.server import bind, serve

    if not args.model and not args.model_words:
        try:
            args.model = shlex.split(os.environ.get("ELMORE_SERVE_MODEL", ""))
        except ValueError as error:
            raise ConfigError(f"ELMORE_SERVE_MODEL: {error}; close the quotes") from None
    if args.index and not args.model and not args.model_words:
        args.model = _model_of_index(Path(args.index))
    if args.index:
        _compute_as(args, Path(args.index))
    model = flags.chosen_model(args)
    settings = _settings(args, model)
    checkpoint = flags.read_model(model)
    # The port is taken before the slow part, so that a wrong one fails at once.
    with bind(args.host, args.port) as listener:
        elmo = flags.make_elmo(args, checkpoint)
        index = _index(args.index, elmo) if args.index else None
        host = f"[{args.host}]" if ":" in args.host else args.host
        address = f"http://{host}:{listener.getsockname()[1]}/"
        if settings.token is None and not _is_loopback(args.host) and not args.quiet:
            say(
                "elmore: warning: anyone who can reach this machine can use the service; "
                "set --token-file, or --host 127.0.0.1"
            )

        def started() -> None:
            if not args.quiet:
                say(f"serving {settings.name} at {address} (stop with Ctrl-C)")

        serve(elmo, settings, listener, index=index, started=started)
    return 0


class _Replaceable(list[str]):
    """The default of a flag that may be repeated: argparse adds to a copy, which is empty."""

    def __copy__(self) -> list[str]:
        return []


def _take_environment(parser: argparse.ArgumentParser) -> None:
    """Let ELMORE_SERVE_... set the defaults of flags; `run` takes the model from there.

    Raises:
        ConfigError: a variable has a value that its flag would refuse.
    """
    for action in parser._actions:
        # The first two concern one call. A default of the model would be a second model beside
        # the one that is named, which is refused.
        if action.dest in ("help", "debug", "model", "model_words"):
            continue
        # By the flag, not by the field of `Settings` it sets: --max-tokens is ..._MAX_TOKENS.
        flag = max(action.option_strings, key=len)
        name = f"ELMORE_SERVE_{flag.lstrip('-').replace('-', '_').upper()}"
        text = os.environ.get(name, "").strip()
        if not text:
            continue
        try:
            action.default = _value(action, text)
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise ConfigError(f"{name}: {error}") from None


def _value(action: argparse.Action, text: str) -> object:
    """Read a variable as its flag would read the word."""
    if action.nargs == 0:
        if text.lower() not in _SWITCHES:
            raise ValueError(f"'{text}' is not a switch; use 1 or 0")
        return _SWITCHES[text.lower()]
    if isinstance(action.default, list):
        return _Replaceable(text.split())
    if action.choices is not None and text not in action.choices:
        raise ValueError(f"'{text}' is not one of {', '.join(action.choices)}")
    return action.type(text) if callable(action.type) else text


def _settings(args: argparse.Namespace, model: ModelPath) -> Settings:
    from elmore.serve.settings import Settings

    fields = [*(field for field, _ in _LIMITS.values()), "batch_tokens"]
    given = {field: getattr(args, field) for field in fields}
    # Limits that are not given keep the defaults of `Settings`.
    return Settings(
        name=args.name or _name(model),
        max_wait=args.max_wait_ms / 1000,
        token=_token(args.token_file),
        hosts=tuple(dict.fromkeys((*Settings.hosts, args.host, *args.allowed_host))),
        origins=tuple(args.cors),
        page=not args.no_page,
        tasks=tuple(args.task),
        metrics=not args.no_metrics,
        access_log=args.access_log,
        **{name: value for name, value in given.items() if value is not None},
    )


def _model_of_index(path: Path) -> list[str]:
    """The model that an index was made with, if it is on this computer."""
    from elmore.senses.index import read_manifest, stated_model

    name = stated_model(path, read_manifest(path))
    return [name] if isinstance(name, str) else list(name)


def _compute_as(args: argparse.Namespace, path: Path) -> None:
    """Take precision and start from the index: with others the model has other vectors."""
    from elmore.senses.index import compute_settings, read_manifest

    settings = compute_settings(read_manifest(path))
    args.precision = args.precision or settings["precision"]
    if args.start == "zeros":  # the default
        args.start = settings["start"]


def _index(path: str, elmo: Elmo) -> Index:
    from elmore.senses.index import Index

    index = Index.open(path, elmo=elmo)
    # Refuse another model, and a tokenizer that must be passed, now and not at the first request.
    _ = index.space, index.tokenize("a")
    return index


def _name(model: ModelPath) -> str:
    """The name of a model without its path, which clients must not see."""
    first = model if isinstance(model, str | Path) else "elmo"
    return Path(str(first)).name or "elmo"


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get("ELMORE_SERVE_TOKEN") or None
    with open_checked(Path(path), what="token file") as stream:
        text = stream.read(_TOKEN_BYTES).decode("utf-8", "replace").strip()
    if not text:
        raise ConfigError(f"'{path}' contains no token; write one into it")
    return text


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port < 1 << 16:
        raise argparse.ArgumentTypeError(f"'{text}' is not a valid port; use 0 to 65535")
    return port


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 10_000:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a valid time; use 0 to 10000 milliseconds"
        )
    return value
