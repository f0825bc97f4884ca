"""The models that people may name: what they are and where they live."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from elmore.errors import ModelNotFound

__all__ = ["CATALOG", "Published", "find_published"]

_ALLENNLP = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published model.

    Attributes:
        name: what to call it.
        language: ISO 639 code.
        parameters: size of the biLM.
        dim: size of a token's vector in each layer.
        megabytes: size of the download.
        licence: as its host states it.
        trained_on: the text.
        options: address of options.json.
        weights: address of the HDF5 weights.
        sha256: of the weights, where the sum is known for certain.
    """

    name: str
    language: str
    parameters: int
    dim: int
    megabytes: int
    licence: str
    trained_on: str
    options: str
    weights: str
    sha256: str | None = None


def _english(
    name: str, stem: str, parameters: int, dim: int, trained_on: str, sha256: str | None = None
) -> Published:
    address = f"{_ALLENNLP}/{stem}/elmo_{stem}"
    return Published(
        name=name,
        language="en",
        parameters=parameters,
        dim=dim,
        megabytes=round(parameters * 4 / 1e6),
        licence="not stated (code: Apache-2.0)",
        trained_on=trained_on,
        options=f"{address}_options.json",
        weights=f"{address}_weights.hdf5",
        sha256=sha256,
    )


_BILLION = "1 Billion Word Benchmark"
# Peters et al. 2018; the addresses are those of AllenNLP's own page. The one checksum comes from
# a Git-LFS pointer to the very file; for the others none was ever published.
CATALOG: tuple[Published, ...] = (
    _english(
        "small",
        "2x1024_128_2048cnn_1xhighway",
        13_593_296,
        256,
        _BILLION,
        "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229",
    ),
    _english("medium", "2x2048_256_2048cnn_1xhighway", 28_027_728, 512, _BILLION),
    _english("original", "2x4096_512_2048cnn_2xhighway", 93_600_848, 1024, _BILLION),
    _english(
        "original-5.5b",
        "2x4096_512_2048cnn_2xhighway_5.5B",
        93_600_848,
        1024,
        "Wikipedia and WMT news, 5.5 G tokens",
    ),
)


def find_published(name: str) -> Published:
    """Look a name up.

    Raises:
        ModelNotFound: with the nearest names.
    """
    for model in CATALOG:
        if model.name == name:
            return model
    near = difflib.get_close_matches(name, [model.name for model in CATALOG], 3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ModelNotFound(
        f"no file, folder or known model is called {name!r}; {hint}`elmore models` lists the names"
    )
