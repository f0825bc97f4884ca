"""The HTTP service and its demo page."""

from __future__ import annotations

from elmore.base.optional import require

require("fastapi", "serve", "the service")
