"""What people are shown: values in messages, and progress."""

from __future__ import annotations

from typing import Protocol

__all__ = ["SILENT", "Progress", "Silent", "readable_bytes", "readable_time", "shown"]


def shown(value: object, limit: int = 90) -> str:
    """Make any text fit into a one-line message: escape what does not print, cut the middle.

    Args:
        value: a name, path or value that may come from a hostile file.
        limit: the maximum number of characters of the result.
    """
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
