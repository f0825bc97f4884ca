"""The HTTP door: a service, and a page to play with."""

from __future__ import annotations

from elmore._imports import require

require("fastapi", "serve", "the service")
