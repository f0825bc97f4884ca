"""From a path or a name to a checkpoint: which format is it?"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from elmore._io import open_checked
from elmore._messages import shown
from elmore.errors import ConfigError, FormatError, ModelNotFound
from elmore.formats import allennlp_hdf5, folder
from elmore.formats.bundled import BUNDLED, bundled_model
from elmore.formats.catalog import find_published
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.sources import FilesSource, FolderSource, Source
from elmore.formats.tars import TarSource
from elmore.formats.zips import ZipSource
from elmore.limits import LIMITS, Limits

__all__ = [
    "FORMATS",
    "Format",
    "ModelPath",
    "detect",
    "open_model",
    "open_source",
    "read_checkpoint",
]

# A name or path, or the files (options, weights) or (options, weights, vocabulary).
ModelPath = str | Path | tuple[str | Path, ...]


class Format(Protocol):
    """What a module must offer to be a line of `FORMATS`."""

    NAME: str

    def sniff(self, source: Source) -> bool:
        """Tell from the file names whether this format may fit."""

    def read(self, source: Source) -> Checkpoint:
        """Read a model."""


# A name that ends so is meant as a path; names of models may hold dots too.
_SUFFIXES = (".zip", ".tar", ".gz", ".tgz", ".hdf5", ".h5", ".json", ".safetensors")

# Tried in this order.
FORMATS: tuple[Format, ...] = (folder, allennlp_hdf5)


def detect(source: Source) -> Format:
    """Find the format of some files.

    Raises:
        FormatError: none fits; says what was found.
    """
    for form in FORMATS:
        if form.sniff(source):
            return form
    names = sorted(source.names())
    if any(name.endswith("options.json") for name in names):
        raise FormatError(
            f"'{source.name}' holds options.json but no *.hdf5 weights; "
            "pass (options, weights) or re-download it"
        )
    if any(name.endswith((".hdf5", ".h5")) for name in names):
        raise FormatError(
            f"'{source.name}' holds HDF5 but no options.json; pass (options, weights)"
        )
    found = ", ".join(names[:5]) or "nothing"
    raise FormatError(
        f"'{source.name}' is no known model (found {found}); expected config.json + "
        "model.safetensors, or options.json + *.hdf5"
    )


def open_model(model: ModelPath) -> Source:
    """Open the files of a model.

    Raises:
        ModelNotFound: no such path, and no published model of that name is at hand.
    """
    if isinstance(model, tuple):
        return _open_files(model)
    path = Path(model)
    if path.exists() or path.is_symlink():
        if path.is_file() and path.suffix in (".hdf5", ".h5", ".json"):
            return _open_neighbours(path)
        return open_source(path)
    if isinstance(model, Path) or "/" in str(model) or path.suffix in _SUFFIXES:
        raise ModelNotFound(f"'{model}' does not exist; check the path, or see `elmore models`")
    if model == BUNDLED:
        return open_source(bundled_model())
    published = find_published(str(model))
    raise ModelNotFound(
        f"model {published.name!r} is not on this machine; download {published.options} and "
        f"{published.weights} and pass (options, weights)"
    )


def open_source(path: Path, *, follow_links: bool = False, limits: Limits = LIMITS) -> Source:
    """Open a folder, zip or tar as a source.

    Args:
        path: what the user named.
        follow_links: see `FolderSource`.
        limits: sizes allowed.

    Raises:
        FormatError: missing, neither of the three, or broken.
    """
    path = Path(path)
    if path.is_dir():
        return FolderSource(path, follow_links=follow_links, limits=limits)
    with open_checked(path, what="model") as stream:
        head = stream.read(8)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return ZipSource(path, limits=limits)
    if head == b"\x89HDF\r\n\x1a\n":
        raise FormatError(
            f"'{shown(path, 120)}' is an HDF5 file without its options; pass (options, weights)"
        )
    return TarSource(path, limits=limits)


def read_checkpoint(model: ModelPath) -> Checkpoint:
    """Read a model from a name, a folder, an archive or single files."""
    with open_model(model) as source:
        return detect(source).read(source)


def _open_files(files: tuple[str | Path, ...]) -> Source:
    if len(files) not in (2, 3):
        raise ConfigError(
            f"a model of {len(files)} files; pass (options, weights) or "
            "(options, weights, vocabulary)"
        )
    names = ("options.json", "weights.hdf5", "vocab.txt")
    paths = [Path(file) for file in files]
    if paths[0].suffix in (".hdf5", ".h5") and paths[1].suffix == ".json":
        raise ConfigError(
            f"'{paths[0]}' comes first but is no options file; pass (options, weights)"
        )
    return FilesSource(dict(zip(names, paths, strict=False)))


def _open_neighbours(path: Path) -> Source:
    """A single file was named: find its partner in the same folder."""
    if path.suffix == ".json":
        weights = path.with_name(path.name.replace("options", "weights")).with_suffix(".hdf5")
        options = path
    else:
        options = path.with_name(path.name.replace("weights", "options")).with_suffix(".json")
        if not options.exists():
            options = path.with_name("options.json")
        weights = path
    if not (options.is_file() and weights.is_file()):
        raise ModelNotFound(
            f"'{path}' is one of two files and the other is not beside it; pass (options, weights)"
        )
    return FilesSource({"options.json": options, "weights.hdf5": weights})
