"""What a notebook shows of the layers of a sentence: its tokens, and how similar they are."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from elmore.embedding.results import SentenceLayers

__all__ = ["layers_html"]

# A map of more tokens would not fit into a cell of a notebook.
_MAX_TOKENS = 30
_PIXELS = 14
_NEGATIVE, _POSITIVE = np.array([217, 95, 2]), np.array([8, 69, 148])


def layers_html(layers: SentenceLayers) -> str:
    """One map per layer with the cosine of every two tokens; the scale is fixed, -1 to 1."""
    from elmore.embedding.results import cosine

    n_layers, n_tokens, dim = layers.values.shape
    some = min(n_tokens, _MAX_TOKENS)
    shape = f"{n_layers} layers, {n_tokens} tokens, {dim} dimensions"
    if not some:
        return f"<p>{shape}</p>"
    names = "".join(
        # Tokens may come from anyone's files: nothing is left unescaped.
        f'<div style="height:{_PIXELS}px;line-height:{_PIXELS}px">{html.escape(token)}</div>'
        for token in layers.tokens[:some]
    )
    style = f'style="width:{some * _PIXELS}px;height:{some * _PIXELS}px;image-rendering:pixelated"'
    maps = "".join(
        f'<td><img alt="cosines of the tokens in layer {k}" {style} '
        f'src="data:image/png;base64,{_png(np.asarray(cosine(values, values)))}"></td>'
        for k, values in enumerate(layers.values[:, :some])
    )
    heads = "".join(f"<th>layer {k}</th>" for k in range(n_layers))
    more = f"; the first {some} tokens are shown" if some < n_tokens else ""
    return (
        f"<p>{shape}. Cosine of every two tokens: blue is 1, white 0, orange -1{more}.</p>"
        f"<table><tr><th></th>{heads}</tr><tr><td>{names}</td>{maps}</tr></table>"
    )


def _png(cosines: NDArray[np.floating]) -> str:
    """A square of colours as a PNG in base64, one pixel per cosine."""
    share = np.abs(cosines.clip(-1, 1))[..., None]
    ends = np.where(cosines[..., None] < 0, _NEGATIVE, _POSITIVE)
    pixels = np.round(255 + share * (ends - 255)).astype(np.uint8)
    height, width = cosines.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each without a filter
    parts = [
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(rows, 9)),
        _chunk(b"IEND", b""),
    ]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
