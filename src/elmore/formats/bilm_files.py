"""What lies beside the weights of bilm-tf's models: options, vocabulary."""

from __future__ import annotations

import gzip
import zlib
from contextlib import closing
from typing import Any

from elmore._json import parse_json
from elmore.errors import FormatError
from elmore.formats.sources import Source
from elmore.limits import LIMITS
from elmore.text.vocabulary import Vocabulary

__all__ = ["find_options", "find_vocabulary", "read_languages", "read_options", "read_vocabulary"]

_META = "meta.json"


def find_options(source: Source) -> str | None:
    """Name the options file, if there is one and no doubt which."""
    names = source.names()
    if "options.json" in names:
        return "options.json"
    found = sorted(name for name in names if name.endswith("options.json"))
    return found[0] if len(found) == 1 else None


def read_options(source: Source, name: str) -> dict[str, Any]:
    """Read an options file."""
    data = source.read(name, LIMITS.json_bytes + 1)
    if data.startswith(b"\x89HDF"):
        raise FormatError(f"'{name}' is an HDF5 file, not options; pass (options, weights)")
    return parse_json(data, what=name)


def find_vocabulary(names: tuple[str, ...]) -> str | None:
    """Name the vocabulary among some files, if there is one and no doubt which."""
    for usual in ("vocab.txt.gz", "vocab.txt"):  # simple_elmo prefers the packed one
        if usual in names:
            return usual
    found = [n for n in names if n.startswith("vocab") and n.endswith((".txt", ".txt.gz"))]
    return found[0] if len(found) == 1 else None


def read_vocabulary(source: Source) -> Vocabulary | None:
    """Read the vocabulary beside a model, packed or not."""
    name = find_vocabulary(source.names())
    if name is None:
        return None
    with closing(source.open(name)) as stream:
        if not name.endswith(".gz"):
            return Vocabulary.from_stream(stream, what=name)
        try:
            with gzip.GzipFile(fileobj=stream) as unpacked:
                return Vocabulary.from_stream(unpacked, what=name)  # type: ignore[arg-type]  # GzipFile reads like a BinaryIO
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"'{name}' cannot be unpacked ({error}); re-download it") from None


def read_languages(source: Source) -> list[str]:
    """Give the languages that NLPL's `meta.json` names; none where it is missing or unreadable.

    Its layout is nowhere fixed and no model depends on it, so what cannot be read is passed over.
    """
    if _META not in source.names():
        return []
    try:
        meta = parse_json(source.read(_META, LIMITS.json_bytes + 1), what=_META)
    except FormatError:
        return []
    corpora = meta.get("corpus")
    entries = [meta, *(corpora if isinstance(corpora, list) else [corpora])]
    found = [entry.get("language") for entry in entries if isinstance(entry, dict)]
    return sorted({name for name in found if isinstance(name, str) and 0 < len(name) <= 40})
