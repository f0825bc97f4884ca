"""The files of the page; nothing in them comes from elsewhere."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

__all__ = ["PAGE", "read_page"]

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FOLDER = Path(__file__).parent / "page"


def read_page() -> dict[str, Response]:
    """Read the files once: address to answer."""
    return {
        address: Response((_FOLDER / name).read_bytes(), 200, _HEADERS, kind)
        for address, (name, kind) in PAGE.items()
    }
