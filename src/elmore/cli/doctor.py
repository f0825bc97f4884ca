"""`elmore doctor`: extension, threads, extras, cache, network, results and speed here."""

from __future__ import annotations

import dataclasses
import os
import platform
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import click

from elmore._version import __version__
from elmore.base.machine import allowed_processors, available_threads
from elmore.base.messages import readable_bytes, shown
from elmore.cli import options
from elmore.cli.console import Console
from elmore.compute.native import native
from elmore.embedding.certificate import CERTIFICATE, certify, fixed_text
from elmore.embedding.engine import Engine
from elmore.embedding.load import read_checkpoint
from elmore.errors import ElmoreError
from elmore.formats.checkpoint import Checkpoint
from elmore.options import Compute
from elmore.published.catalog import bundled_model, catalog
from elmore.published.hub import home, is_offline

__all__ = ["EXTRAS", "Check", "Diagnosis", "diagnose", "doctor"]

_EXAMPLES = """\
  elmore doctor
  elmore doctor --offline
  elmore doctor --json > report.json

The exit code is 1 if something failed. Notes are only worth knowing.
"""

# What each extra brings, by import name.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "train": ("torch", "zstandard", "tensorboard"),
    "plot": ("matplotlib",),
    "analyze": ("matplotlib", "sklearn"),
    "hub": ("huggingface_hub",),
    "parquet": ("pyarrow",),
    "tasks": ("torch", "sklearn", "seqeval"),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "sklearn": ("sklearn", "pandas"),
    "spacy": ("spacy",),
    "ray": ("ray",),
    "spark": ("pyspark",),
}
# Tokens per second and thread of the English model in bulk, on a server processor with AVX-512.
_EXPECTED = 8_000
# Below this share of it, something is wrong or the machine is busy.
_SLOW = 0.25
_TIMEOUT = 3.0
# The certificate was made on one machine; others round otherwise.
_COSINE, _VALUE = 1e-4, 1e-2


@options.verb(_EXAMPLES)
def doctor(*, offline: bool = options.offline, console: Console) -> None:
    """What works on this machine, and what does not."""
    found = diagnose()
    console.result(found.to_dict(), str(found))
    if not found.ok:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        ok: whether it works; None for what is only worth knowing.
        text: what was found, and what to do.
        facts: the same as JSON values.
    """

    name: str
    ok: bool | None
    text: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Diagnosis:
    """All checks; `ok` is whether none failed."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; what is only worth knowing does not count."""
        return all(check.ok is not False for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {"ok": self.ok, "checks": {c.name: _as_json(c) for c in self.checks}}

    def __str__(self) -> str:
        marks = {True: "ok", False: "FAILED", None: "note"}
        return "\n".join(f"{marks[c.ok]:<8}{c.name:<11}{c.text}" for c in self.checks)


def _as_json(check: Check) -> dict[str, Any]:
    return {"ok": check.ok, "text": check.text, **check.facts}


def diagnose(
    *,
    timeout: float = _TIMEOUT,
    seconds: float = 1.0,
    reach: Callable[[str, float], bool] | None = None,
) -> Diagnosis:
    """Look at everything that decides whether elmore works well here.

    Args:
        timeout: seconds to wait for the network.
        seconds: how long to measure the speed.
        reach: whether a host answers within a time; by default it is asked over HTTPS.
    """
    checkpoint = read_checkpoint(bundled_model())
    return Diagnosis(
        (
            _versions(),
            _extension(),
            _threads(),
            _extras(),
            _cache(),
            _network(timeout, reach or _answers),
            _self_test(checkpoint),
            _speed(checkpoint, seconds),
        )
    )


def _versions() -> Check:
    facts = {
        "elmore": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    return Check("versions", None, ", ".join(f"{k} {v}" for k, v in facts.items()), facts)


def _extension() -> Check:
    try:
        choice = native()
    except ElmoreError as error:
        return Check("extension", False, str(error), {"loaded": False})
    loaded = choice.module is not None
    facts = {"loaded": loaded, "reason": choice.reason, "vectors": choice.vectors}
    advice = "" if loaded else "; embedding works and is slower"
    return Check("extension", True if loaded else None, choice.reason + advice, facts)


def _threads() -> Check:
    used, limit, machine = available_threads(), allowed_processors(), os.cpu_count() or 1
    facts = {"used": used, "machine": machine, "container_limit": limit}
    container = "no container limit" if limit is None else f"container limit {limit:g}"
    return Check(
        "threads", None, f"{used} are used by default; {machine} processors, {container}", facts
    )


def _extras() -> Check:
    missing = {
        extra: [module for module in modules if find_spec(module) is None]
        for extra, modules in EXTRAS.items()
    }
    there = [extra for extra, modules in missing.items() if not modules]
    text = f"installed: {', '.join(there) or 'none'}"
    lacking = [f"{extra} ({', '.join(m)})" for extra, m in missing.items() if m]
    if lacking:
        text += f"; missing: {', '.join(lacking)}"
    return Check("extras", None, text, {"installed": there, "missing": missing})


def _cache() -> Check:
    folder = home()
    facts: dict[str, Any] = {"folder": str(folder), "bytes": 0, "writable": True}
    try:
        if folder.exists():
            facts["bytes"] = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        place = folder
        while not place.exists():
            place = place.parent
        facts["writable"] = os.access(place, os.W_OK)
    except OSError:
        facts["writable"] = False
    label = f"'{shown(folder, 100)}', {readable_bytes(facts['bytes'])} of downloads"
    if facts["writable"]:
        return Check("cache", True, label, facts)
    return Check("cache", False, f"{label}; not writable, set ELMORE_HOME to a folder", facts)


def _network(timeout: float, reach: Callable[[str, float], bool]) -> Check:
    hub = os.environ.get("HF_HUB_OFFLINE", "").lower() not in ("", "0", "false", "no", "off")
    if is_offline() or hub:
        reason = "HF_HUB_OFFLINE" if hub else "ELMORE_OFFLINE"
        return Check("network", None, f"not tried: {reason} is set", {"offline": True, "hosts": {}})
    hosts = sorted(
        {
            urlsplit(address).hostname or ""
            for model in catalog().values()
            for file in model.files
            for address in file.addresses
        }
        - {""}
    )
    found = dict.fromkeys(hosts, False)

    def ask(host: str) -> None:
        found[host] = reach(host, timeout)

    # Not a pool: looking up a name cannot be interrupted, and a pool would wait for it.
    threads = [threading.Thread(target=ask, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout + 0.5
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    answers = dict(found)
    silent = [host for host, answered in answers.items() if not answered]
    text = f"{len(hosts) - len(silent)} of {len(hosts)} hosts of published models answer"
    if silent:
        text += f"; no answer from {', '.join(silent)}. The English model needs no network"
    return Check("network", None, text, {"offline": False, "hosts": answers})


def _answers(host: str, timeout: float) -> bool:
    request = urllib.request.Request(f"https://{host}/", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310 - https
            return True
    except urllib.error.HTTPError:
        return True  # it refused, so it is there
    except (OSError, ValueError):
        return False


def _self_test(checkpoint: Checkpoint) -> Check:
    """Compute the certificate of the English model again."""
    recorded = checkpoint.notes.get(CERTIFICATE)
    if not isinstance(recorded, dict):
        return Check("self-test", None, "the English model has no certificate", {})
    found = certify(checkpoint, checkpoint.precision)
    pairs = zip(found["min_cosine"], recorded["min_cosine"], strict=True)
    worst = max(was - now for now, was in pairs)
    pairs = zip(found["max_value"], recorded["max_value"], strict=True)
    value = max(abs(was - now) for now, was in pairs)
    facts = {"cosine_lost": worst, "value_difference": value}
    if worst <= _COSINE and value <= _VALUE:
        return Check("self-test", True, "the English model agrees with its certificate", facts)
    text = (
        f"the English model differs from its certificate (cosine by {worst:.2g}, numbers by "
        f"{value:.2g}); set ELMORE_NATIVE=0, and report this with `elmore doctor --json`"
    )
    return Check("self-test", False, text, facts)


def _speed(checkpoint: Checkpoint, seconds: float) -> Check:
    # With one thread: how many of them a batch can use depends on its size, not on the machine.
    engine = Engine(checkpoint, Compute(threads=1))
    batch = engine.indexer.batch(fixed_text(checkpoint) * 8)
    engine.run(batch)  # the first run fills the caches
    tokens, runs, start = int(batch.lengths.sum()), 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds or not runs:
        engine.run(batch)
        runs += 1
    found = tokens * runs / max(taken, 1e-9)
    facts = {"tokens_per_second_and_thread": found, "expected": _EXPECTED}
    text = f"{found:,.0f} tokens per second and thread; about {_EXPECTED:,} on a fast, idle server"
    if found < _SLOW * _EXPECTED:
        text += "; slow: is the machine busy, or the extension missing?"
    return Check("speed", None if found < _SLOW * _EXPECTED else True, text, facts)
