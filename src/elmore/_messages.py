"""What people are shown: values in messages, and progress."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Protocol

__all__ = [
    "SILENT",
    "Progress",
    "Silent",
    "download_progress",
    "readable_bytes",
    "readable_time",
    "say_download",
    "shown",
]


def shown(value: object, limit: int = 90) -> str:
    """Make any text fit into a one-line message: escape what does not print, cut the middle."""
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(value)
    )
    if len(text) <= limit:
        return text
    head = (limit - 1) // 3  # the end of a path says more than its start
    return f"{text[:head]}…{text[head + 1 - limit :]}"


def readable_bytes(n: float) -> str:
    """A size for people: 3.1 MB."""
    for unit in ("bytes", "kB", "MB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:,.1f} GB"


def readable_time(seconds: float) -> str:
    """A length of time for people: 2.5 hours."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"


class Progress(Protocol):
    """What long work reports to. The caller decides whether anything is shown."""

    def update(self, n: int) -> object:
        """Count `n` more items."""

    def close(self) -> object:
        """End the report."""


class Silent:
    """Shows nothing; the default everywhere."""

    def update(self, n: int) -> None:
        """Count nothing."""

    def close(self) -> None:
        """End nothing."""


SILENT = Silent()


def _wants_reports() -> bool:
    # `elmore --quiet` raises the level, and so can a program that wants silence.
    return sys.stderr is not None and logging.getLogger("elmore").isEnabledFor(logging.WARNING)


def say_download(line: str) -> None:
    """Write a line about a download on stderr; nobody should wait for minutes without knowing."""
    if _wants_reports():
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")


def download_progress(name: str, size: int | None) -> Progress:
    """A bar that counts bytes, in a terminal or a notebook."""
    if not _wants_reports() or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return SILENT
    from tqdm.auto import tqdm

    bar: Progress = tqdm(total=size, unit="B", unit_scale=True, desc=name, leave=False)
    return bar
