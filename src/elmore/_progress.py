"""Progress as an argument: whoever works reports, whoever calls decides whether it shows."""

from __future__ import annotations

from typing import Protocol

__all__ = ["SILENT", "Progress", "Silent"]


class Progress(Protocol):
    """What long work reports to."""

    def update(self, n: int) -> object:
        """Count `n` more pieces of work."""

    def close(self) -> object:
        """End the report."""


class Silent:
    """Shows nothing; the default everywhere."""

    def update(self, n: int) -> None:
        """Count nothing."""

    def close(self) -> None:
        """End nothing."""


SILENT = Silent()
