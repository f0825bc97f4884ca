"""Names and values as they appear in messages."""

from __future__ import annotations

__all__ = ["shown"]


def shown(value: object, limit: int = 90) -> str:
    """Make any text fit into a one-line message: escape what does not print, cut the middle.

    Args:
        value: a name, path or value that may come from a hostile file.
        limit: most characters of the result.
    """
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(value)
    )
    if len(text) <= limit:
        return text
    head = (limit - 1) // 3  # the end of a path says more than its start
    return f"{text[:head]}…{text[head + 1 - limit :]}"
