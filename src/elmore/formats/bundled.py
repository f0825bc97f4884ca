"""The model that ships inside the package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["BUNDLED", "bundled_model"]

# What to call it in `Elmo.load` and on the command line.
BUNDLED = "english"


def bundled_model() -> Path:
    """Give the folder of the bundled English model; see its model card in docs/english.md."""
    return Path(__file__).resolve().parents[1] / "models" / BUNDLED
