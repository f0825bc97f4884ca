"""`elmore doctor`: extension, threads, extras, cache, network, results and speed here."""

from __future__ import annotations

import os
import platform
import re
import time
import urllib.error
import urllib.request
from importlib import metadata
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from elmore._version import __version__
from elmore.base.machine import allowed_processors, available_threads
from elmore.base.messages import readable_bytes, shown
from elmore.cli import options
from elmore.cli.console import Console
from elmore.compute.native import native
from elmore.embedding.certificate import certify, fixed_text
from elmore.embedding.engine import Engine
from elmore.embedding.load import read_checkpoint
from elmore.errors import ElmoreError
from elmore.formats.checkpoint import CERTIFICATE, Checkpoint
from elmore.options import Compute
from elmore.published.catalog import bundled_model, find_published
from elmore.published.hub import home, is_offline

_EXAMPLES = """\
  elmore doctor
  elmore doctor --offline
  elmore doctor --json > report.json

The exit code is 1 if something failed. Notes are only worth knowing.
"""

# A package of an extra, in the metadata of the installed elmore.
_REQUIREMENT = re.compile(r"([\w.-]+).*; *extra *== *['\"]([\w-]+)['\"]")
_FOR_DEVELOPERS = ("all", "dev", "docs", "test")
# Tokens per second and thread of the English model in bulk, on a server processor with AVX-512.
_EXPECTED = 20_000
# Below this share of it, something is wrong or the machine is busy.
_SLOW = 0.25
_TIMEOUT = 3.0  # of the network
_SECONDS = 1.0  # how long to measure the speed
# The certificate was made on one machine; others round otherwise.
_COSINE, _VALUE = 1e-4, 1e-2


class Check(NamedTuple):
    """One thing that was looked at.

    Attributes:
        ok: whether it works; None for what is only worth knowing.
        text: what was found, and what to do.
        facts: the same as JSON values.
    """

    ok: bool | None
    text: str
    facts: dict[str, Any]


@options.verb(_EXAMPLES)
def doctor(*, offline: bool = options.offline, console: Console) -> None:
    checkpoint = read_checkpoint(bundled_model())
    checks = {
        "versions": _versions(),
        "extension": _extension(),
        "threads": _threads(),
        "extras": _extras(),
        "cache": _cache(),
        "network": _network(),
        "self-test": _self_test(checkpoint),
        "speed": _speed(checkpoint),
    }
    ok = all(check.ok is not False for check in checks.values())
    marks = {True: "ok", False: "FAILED", None: "note"}
    facts = {name: {"ok": c.ok, "text": c.text, **c.facts} for name, c in checks.items()}
    lines = [f"{marks[check.ok]:<8}{name:<11}{check.text}" for name, check in checks.items()]
    console.result({"ok": ok, "checks": facts}, "\n".join(lines))
    if not ok:
        raise click.exceptions.Exit(1)


def _versions() -> Check:
    facts = {"elmore": __version__, "python": platform.python_version()}
    packages = ("torch", "numpy", "h5py", "safetensors")
    facts |= {name: metadata.version(name) for name in packages if _has(name)}
    facts["platform"] = platform.platform()
    return Check(None, ", ".join(f"{k} {v}" for k, v in facts.items()), facts)


def _extension() -> Check:
    try:
        choice = native()
    except ElmoreError as error:
        return Check(False, str(error), {"loaded": False})
    loaded = choice.module is not None
    facts = {"loaded": loaded, "reason": choice.reason, "vectors": choice.vectors}
    advice = "" if loaded else "; embedding works and is slower"
    return Check(True if loaded else None, choice.reason + advice, facts)


def _threads() -> Check:
    used, limit, machine = available_threads(), allowed_processors(), os.cpu_count() or 1
    facts = {"used": used, "machine": machine, "container_limit": limit}
    container = "no container limit" if limit is None else f"container limit {limit:g}"
    return Check(None, f"{used} are used by default; {machine} processors, {container}", facts)


def _extras() -> Check:
    missing: dict[str, list[str]] = {}
    for requirement in metadata.requires("elmore") or () if _has("elmore") else ():
        found = _REQUIREMENT.match(requirement)
        if found and found[2] not in _FOR_DEVELOPERS:
            missing.setdefault(found[2], []).extend([] if _has(found[1]) else [found[1]])
    there = [extra for extra, modules in missing.items() if not modules]
    text = f"installed: {', '.join(there) or 'none'}"
    lacking = [f"{extra} ({', '.join(m)})" for extra, m in missing.items() if m]
    if lacking:
        text += f"; missing: {', '.join(lacking)}"
    return Check(None, text, {"installed": there, "missing": missing})


def _has(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def _cache() -> Check:
    folder = home()
    there = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    facts = {"folder": str(folder), "bytes": size, "writable": os.access(there, os.W_OK)}
    label = f"'{shown(folder, 100)}', {readable_bytes(size)} of downloads"
    if facts["writable"]:
        return Check(True, label, facts)
    return Check(False, f"{label}; not writable, set ELMORE_HOME to a folder", facts)


def _network() -> Check:
    if is_offline():
        reason = "ELMORE_OFFLINE" if os.environ.get("ELMORE_OFFLINE") else "HF_HUB_OFFLINE"
        return Check(None, f"not tried: {reason} is set", {"offline": True})
    host = urlsplit(find_published("original").files["weights.hdf5"][0]).hostname
    request = urllib.request.Request(f"https://{host}/", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310 - https
            answers = True
    except urllib.error.HTTPError:
        answers = True  # it refused, so it is there
    except (OSError, ValueError):
        answers = False
    text = f"{host}, which has the original model, answers"
    if not answers:
        text = f"no answer from {host}, which has the original model; the English one needs none"
    return Check(None, text, {"offline": False, "host": host, "answers": answers})


def _self_test(checkpoint: Checkpoint) -> Check:
    """Compute the certificate of the English model again."""
    recorded = checkpoint.notes[CERTIFICATE]
    found = certify(checkpoint, checkpoint.precision)
    pairs = zip(found["min_cosine"], recorded["min_cosine"], strict=True)
    worst = max(was - now for now, was in pairs)
    pairs = zip(found["max_value"], recorded["max_value"], strict=True)
    value = max(abs(was - now) for now, was in pairs)
    facts = {"cosine_lost": worst, "value_difference": value}
    if worst <= _COSINE and value <= _VALUE:
        return Check(True, "the English model agrees with its certificate", facts)
    text = (
        f"the English model differs from its certificate (cosine by {worst:.2g}, numbers by "
        f"{value:.2g}); set ELMORE_NATIVE=0, and report this with `elmore doctor --json`"
    )
    return Check(False, text, facts)


def _speed(checkpoint: Checkpoint) -> Check:
    # With one thread: how many of them a batch can use depends on its size, not on the machine.
    engine = Engine(checkpoint, Compute(threads=1))
    batch = engine.indexer.batch(fixed_text(checkpoint) * 8)
    engine.run(batch)  # the first run fills the caches
    tokens, runs, start = int(batch.lengths.sum()), 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < _SECONDS or not runs:
        engine.run(batch)
        runs += 1
    found = tokens * runs / max(taken, 1e-9)
    facts = {"tokens_per_second_and_thread": found, "expected": _EXPECTED}
    text = f"{found:,.0f} tokens per second and thread; about {_EXPECTED:,} on a fast, idle server"
    if found < _SLOW * _EXPECTED:
        text += "; slow: is the machine busy, or the extension missing?"
    return Check(None if found < _SLOW * _EXPECTED else True, text, facts)
