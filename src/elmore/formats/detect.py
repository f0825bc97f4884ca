"""From a path to the files of a model, and to the module that reads their format."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.sources import HDF5_SUFFIXES, Source, folder_source
from elmore.formats.named_files import (
    NAMED_SUFFIXES,
    is_named_file,
    open_named_file,
    open_named_files,
)

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "Format",
    "ModelPath",
    "detect",
    "formats",
    "open_path",
    "open_source",
]

# A name or path, or the files (options, weights[, vocabulary[, softmax]]).
ModelPath = str | Path | tuple[str | Path, ...]


class Format(Protocol):
    """What a module needs to be in `FORMATS`."""

    NAME: str

    def sniff(self, source: Source) -> bool:
        """Whether the file names look like this format."""

    def read(self, source: Source) -> Checkpoint:
        """Read a model."""


# A name with such a suffix is a path; names of models may contain dots too.
SUFFIXES = (*NAMED_SUFFIXES, ".zip", ".tar", ".gz", ".tgz", ".safetensors", ".pkl")

# Modules of this package, tried in this order: of HDF5 weights and a TensorFlow checkpoint in one
# folder, HDF5 is read. Each is imported when those before it do not fit, so that the usual model
# waits neither for h5py nor for anything else that it does not need.
FORMATS = ("elmore_folder", "manylangs_folder", "allennlp_hdf5", "tf1", "allennlp_archive")


def formats() -> Iterator[Format]:
    """The formats in the order in which they are tried."""
    for name in FORMATS:
        yield cast(Format, importlib.import_module(f"elmore.formats.{name}"))


def detect(source: Source) -> Format:
    """Find the format of a model's files.

    Raises:
        FormatError: no format fits; says what was found.
    """
    for form in formats():
        if form.sniff(source):
            return form
    names = sorted(source.names())
    if any(name.endswith("options.json") for name in names):
        raise FormatError(
            f"'{source.name}' has options.json but no *.hdf5 weights and no TensorFlow "
            "checkpoint; pass (options, weights) or download it again"
        )
    if any(name.endswith(HDF5_SUFFIXES) for name in names):
        raise FormatError(
            f"'{source.name}' has an HDF5 file but no options.json; pass (options, weights)"
        )
    found = shown(", ".join(names[:5]), 100) or "nothing"  # names of an archive may be anything
    raise FormatError(
        f"'{source.name}' is not a known model (found {found}); expected config.json with "
        "model.safetensors, encoder.pkl or weights.th, or options.json with *.hdf5 or *.index"
    )


def open_path(model: ModelPath) -> Source | None:
    """Open the files of a model on this disk; None if a path does not exist."""
    if isinstance(model, tuple):
        return open_named_files(model)
    path = Path(model)
    if is_named_file(path):
        return open_named_file(path)
    # A dangling link is an error to report, not a name to look up.
    return open_source(path) if path.exists() or path.is_symlink() else None


def open_source(path: Path, *, follow_links: bool = False) -> Source:
    """Open a folder, zip or tar as a source.

    Raises:
        FormatError: missing, none of the three, or broken.
    """
    path = Path(path)
    if path.is_dir():
        return folder_source(path, follow_links=follow_links)
    stream = open_checked(path, what="model")
    head = stream.read(8)
    stream.seek(0)
    if head == b"\x89HDF\r\n\x1a\n":
        stream.close()
        raise FormatError(
            f"'{shown(path, 120)}' is an HDF5 file without its options; pass (options, weights)"
        )
    from elmore.formats.containers.archives import tar_source, zip_source  # folders need neither

    # By its first bytes: people rename archives. The second is an empty zip.
    is_zip = head[:4] in (b"PK\x03\x04", b"PK\x05\x06")
    return (zip_source if is_zip else tar_source)(stream, str(path))
