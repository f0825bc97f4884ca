"""From a path or a name to a checkpoint: `published` finds the files, `formats` reads them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError, FormatError, ModelNotFound
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.sources import Source, files_source
from elmore.formats.detect import SUFFIXES, ModelPath, detect, open_path, open_source
from elmore.options import Fetch
from elmore.published.catalog import (
    INCLUDED,
    Form,
    Published,
    assumed_tokens,
    bundled_model,
    catalog,
    find_published,
    find_weights,
)

__all__ = ["ModelPath", "absolute", "open_model", "read_checkpoint", "read_source"]

_FETCH = Fetch()


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
        ConfigError: something else than a name, path or tuple.
    """
    if not isinstance(model, str | os.PathLike | tuple):
        raise ConfigError(
            f"model={shown(repr(model), 60)} is a {type(model).__name__}; pass a name, a path, or "
            "files as a tuple"
        )
    try:
        # What is on the disk wins over a published model of the same name.
        return open_path(model) or _open_published(model, fetch)
    except OSError as error:  # such as a path that is too long, or a file of /proc
        if isinstance(error, ElmoreError):
            raise
        reason = (error.strerror or str(error)).lower()
        raise FormatError(f"'{shown(model, 120)}' cannot be read: {reason}; check it") from None


def _open_published(model: ModelPath, fetch: Fetch) -> Source:
    if isinstance(model, str) and model in INCLUDED:
        return open_source(bundled_model(model))
    from elmore.published import hub  # the network is not needed above

    name = str(model)
    is_path = isinstance(model, Path) or name.endswith(SUFFIXES)
    if not is_path and hub.is_hugging_face(name):
        return open_source(hub.fetch_hugging_face(name, fetch), follow_links=True)
    if is_path or "/" in name:
        raise ModelNotFound(f"'{model}' does not exist; check the path, or see `elmore models`")
    files = hub.fetch_model(find_published(name), fetch)
    if len(files) == 1:
        return open_source(next(iter(files.values())))
    return files_source(files)


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
    if isinstance(model, str) and not os.path.lexists(model):
        return catalog().get(model)
    files = model if isinstance(model, tuple) else (model,)
    found = (find_weights(os.path.basename(file)) for file in files)
    return next((known for known in found if known is not None), None)
