"""From a path or a name to a checkpoint: find out the format and read it."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ElmoreError, FormatError, ModelNotFound
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.sources import HDF5_SUFFIXES, FilesSource, FolderSource, Source
from elmore.options import Fetch
from elmore.published.catalog import (
    INCLUDED,
    Form,
    Published,
    assumed_tokens,
    bundled_model,
    find_published,
    find_weights,
    published_name,
)
from elmore.published.named_files import (
    NAMED_SUFFIXES,
    is_named_file,
    open_named_file,
    open_named_files,
)

__all__ = [
    "FORMATS",
    "Format",
    "ModelPath",
    "absolute",
    "detect",
    "formats",
    "open_model",
    "open_source",
    "read_checkpoint",
    "read_source",
]

# A name or path, or the files (options, weights[, vocabulary[, softmax]]).
ModelPath = str | Path | tuple[str | Path, ...]
_FETCH = Fetch()


class Format(Protocol):
    """What a module needs to be in `FORMATS`."""

    NAME: str

    def sniff(self, source: Source) -> bool:
        """Whether the file names look like this format."""

    def read(self, source: Source) -> Checkpoint:
        """Read a model."""

    def stored_types(self, source: Source) -> set[str]:
        """The types in which its weights are stored."""


# A name with such a suffix is a path; names of models may contain dots too.
_SUFFIXES = (*NAMED_SUFFIXES, ".zip", ".tar", ".gz", ".tgz", ".safetensors", ".pkl")

# Modules beside this one, tried in this order: of HDF5 weights and a TensorFlow checkpoint in one
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
    found = ", ".join(names[:5]) or "nothing"
    raise FormatError(
        f"'{source.name}' is not a known model (found {found}); expected config.json with "
        "model.safetensors, encoder.pkl or weights.th, or options.json with *.hdf5 or *.index"
    )


def absolute(model: ModelPath) -> str | tuple[str, ...]:
    """Make the paths of files that exist here absolute, for other folders; leave names alone."""
    if isinstance(model, list | tuple):
        return tuple(str(absolute(part)) for part in model)
    return os.path.abspath(model) if os.path.exists(model) else str(model)


def open_model(model: ModelPath, fetch: Fetch = _FETCH) -> Source:
    """Open the files of a model; a published one is downloaded the first time.

    Args:
        model: a path, a tuple of files, a name of `elmore models`, or `hf://owner/name`.
        fetch: how to download it.

    Raises:
        ModelNotFound: no such path, and no published model of that name.
        FormatError: the path cannot be read.
    """
    try:
        return _open_model(model, fetch)
    except OSError as error:  # such as a path that is too long, or a file of /proc
        if isinstance(error, ElmoreError):
            raise
        reason = (error.strerror or str(error)).lower()
        raise FormatError(f"'{shown(model, 120)}' cannot be read: {reason}; check it") from None


def _open_model(model: ModelPath, fetch: Fetch) -> Source:
    if isinstance(model, tuple):
        return open_named_files(model)
    path = Path(model)
    if is_named_file(path):
        return open_named_file(path)
    # What is on the disk wins over a published model of the same name. A dangling link is an
    # error to report, not a name to look up.
    if path.exists() or path.is_symlink():
        return open_source(path)
    name = str(model)
    if name in INCLUDED and isinstance(model, str):
        return open_source(bundled_model(name))
    from elmore.published import hub  # the network is not needed above

    if isinstance(model, str) and path.suffix not in _SUFFIXES and hub.is_hugging_face(name):
        return open_source(hub.fetch_hugging_face(name, fetch), follow_links=True)
    if isinstance(model, Path) or "/" in name or path.suffix in _SUFFIXES:
        raise ModelNotFound(f"'{model}' does not exist; check the path, or see `elmore models`")
    files = hub.fetch_model(find_published(name), fetch)
    if len(files) == 1:
        return open_source(next(iter(files.values())))
    return FilesSource(files)


def open_source(path: Path, *, follow_links: bool = False) -> Source:
    """Open a folder, zip or tar as a source.

    Raises:
        FormatError: missing, none of the three, or broken.
    """
    path = Path(path)
    if path.is_dir():
        return FolderSource(path, follow_links=follow_links)
    with open_checked(path, what="model") as stream:
        head = stream.read(8)
    # By its first bytes: people rename archives. The second is an empty zip.
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        from elmore.formats.containers.archives import ZipSource

        return ZipSource(path)
    if head == b"\x89HDF\r\n\x1a\n":
        raise FormatError(
            f"'{shown(path, 120)}' is an HDF5 file without its options; pass (options, weights)"
        )
    from elmore.formats.containers.tars import TarSource

    return TarSource(path)


def read_checkpoint(model: ModelPath, fetch: Fetch = _FETCH) -> Checkpoint:
    """Read a model from a name, a folder, an archive or single files."""
    with open_model(model, fetch) as source:
        return read_source(source, model)


def read_source(source: Source, model: ModelPath) -> Checkpoint:
    """Read a model that is open, and settle how raw text is split for it."""
    form = detect(source)
    checkpoint = form.read(source)
    if form.NAME == "folder":  # ours: it says so itself
        return checkpoint
    known = _published(model)
    if known is not None:
        convention, note = known.tokens
    else:
        kind: Form = "manylangs" if form.NAME == "manylangs" else "allennlp"
        convention, note = assumed_tokens(kind, checkpoint.notes.get("languages", ()))
    notes = {**checkpoint.notes, "tokenizer": note} if note else checkpoint.notes
    return dataclasses.replace(checkpoint, tokenizer=convention, notes=notes)


def _published(model: ModelPath) -> Published | None:
    """The published model that a name or its files' names mean."""
    files = model if isinstance(model, tuple) else (model,)
    if isinstance(model, str) and not os.path.lexists(model):
        return published_name(model)
    found = (find_weights(os.path.basename(file)) for file in files)
    return next((known for known in found if known is not None), None)
