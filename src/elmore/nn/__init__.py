"""Torch modules, losses and autograd code: what learns, and what runs on a GPU."""

from elmore._extras import require_torch

require_torch("elmore.nn")
