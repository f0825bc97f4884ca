"""Errors of one process, told to another as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmore import errors
from elmore.errors import ElmoreError, InputError

__all__ = ["error_facts", "rebuilt_error"]


def error_facts(error: ElmoreError) -> dict[str, Any]:
    """Describe an error, with the key "error"."""
    return {
        "error": type(error).__name__,
        "message": str(error),
        "file": getattr(error, "file", None),
        "line": getattr(error, "line", None),
    }


def rebuilt_error(facts: Mapping[str, Any]) -> ElmoreError:
    """Make the error of another process again."""
    kind = getattr(errors, facts["error"], ElmoreError)
    error: ElmoreError = kind(facts["message"])
    if isinstance(error, InputError):
        error.file, error.line = facts["file"], facts["line"]
    return error
