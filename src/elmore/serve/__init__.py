"""The HTTP service and its demo page."""

from __future__ import annotations

from elmore._imports import require

require("fastapi", "serve", "the service")
