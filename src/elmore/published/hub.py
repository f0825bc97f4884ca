"""The cache of published models: fetched once, checked each time they are opened.

ELMORE_HOME/models/NAME holds the files of a model, ELMORE_HOME/files those of other addresses.
ELMORE_HOME/sums/NAME.json keeps the SHA-256 first seen of each file; it outlives the files, so that
a host that gives something else later is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elmore._atomic import atomic_file, write_error
from elmore._extras import require
from elmore._io import sha256_file
from elmore._json import read_json
from elmore._locks import hold_lock
from elmore._messages import shown
from elmore._progress import SILENT
from elmore.errors import ConfigError, ElmoreError, FormatError, ModelNotFound
from elmore.published.catalog import Published, PublishedFile, find_file
from elmore.published.downloads import PATIENT, Patience, Reporting, download

__all__ = [
    "fetch_address",
    "fetch_hugging_face",
    "fetch_model",
    "home",
    "is_downloaded",
    "is_hugging_face",
    "is_offline",
    "prune",
    "silent",
]

_LOGGER = logging.getLogger(__name__)
_HUGGING_FACE = "hf://"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")
# What the formats read; a repository may hold much else.
_WANTED = (
    "*.json *.safetensors *.hdf5 *.h5 *.txt *.txt.gz *.dic *.pkl *.th *.zip *.tar.gz *.index "
    "*.data-* checkpoint"
).split()


def silent(name: str, size: int | None) -> Any:
    """Report nothing; the default."""
    return SILENT


def home() -> Path:
    """Give the folder of downloads: ELMORE_HOME, or the system's place for caches."""
    chosen = os.environ.get("ELMORE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "elmore"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "elmore"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elmore"


def is_offline() -> bool:
    """Tell whether ELMORE_OFFLINE forbids the network."""
    return os.environ.get("ELMORE_OFFLINE", "").lower() not in ("", "0", "false", "no", "off")


def is_downloaded(model: Published) -> bool:
    """Tell whether all files of a model are here."""
    folder = _folder(model)
    return bool(model.files) and all((folder / file.name).is_file() for file in model.files)


def fetch_model(
    model: Published, *, reporting: Reporting = silent, patience: Patience = PATIENT
) -> dict[str, Path]:
    """Give the files of a published model, fetching what is not here.

    Args:
        model: a line of the catalogue.
        reporting: makes the reports of progress.
        patience: how long to try.

    Returns:
        name of each file to its path.

    Raises:
        ModelNotFound: it is not here and may not or cannot be fetched.
        FormatError: a file is not the one that was first seen.
        ElmoreError: its hosts do not give it.
    """
    if model.by_hand:
        raise ModelNotFound(
            f"model {model.name!r} has no address to fetch it from; get it by hand from "
            f"{model.page} and pass its path"
        )
    shelf = _Shelf(_folder(model), model.name)
    missing = _missing(model)
    return {
        file.name: shelf.get(file, missing, reporting=reporting, patience=patience)
        for file in model.files
    }


def fetch_address(
    address: str, *, reporting: Reporting = silent, patience: Patience = PATIENT
) -> Path:
    """Give the file at an address, fetching it the first time.

    Args:
        address: that of a published model's file, or any other.
        reporting: makes the report of progress.
        patience: how long to try.
    """
    known = find_file(address)
    if known is not None:
        model, file = known
        shelf, missing = _Shelf(_folder(model), model.name), _missing(model)
    else:
        name = Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path)).name or "file"
        file = PublishedFile(name=re.sub(r"[^\w.-]", "_", name)[-100:], addresses=(address,))
        key = hashlib.sha256(address.encode()).hexdigest()[:16]
        shelf = _Shelf(home() / "files" / key, f"file-{key}")
        missing = f"'{shown(address, 120)}' is not on this machine"
    return shelf.get(file, missing, reporting=reporting, patience=patience)


def prune(models: Sequence[Published], *, dry_run: bool = False) -> list[Path]:
    """Delete the downloads of models, and what unfinished downloads left; the sums stay.

    Args:
        models: which ones.
        dry_run: only tell.

    Returns:
        the folders and files that are deleted.
    """
    gone = [folder for folder in map(_folder, models) if folder.is_dir()]
    left = [
        path
        for path in sorted((home() / "models").glob("*/*.download*"))
        if path.is_file() and path.parent not in gone
    ]
    if not dry_run:
        for path in (*gone, *left):
            folder = path if path.is_dir() else path.parent
            # A download that goes on at this moment is waited for, not torn.
            with _Shelf(folder, folder.name).held():
                if path == folder:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
    return [*gone, *left]


class _Shelf:
    """The files of one model, with their sums and their lock."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._sums_path = home() / "sums" / f"{name}.json"

    def get(
        self, file: PublishedFile, missing: str, *, reporting: Reporting, patience: Patience
    ) -> Path:
        """Give a file, checked; `missing` says in messages what is not here."""
        path = self._folder / file.name
        if path.is_file() and file.name in self._sums():
            self._check(file, path)
            return path
        if not path.is_file() and is_offline():
            raise ModelNotFound(
                f"{missing} and elmore is offline (--offline or ELMORE_OFFLINE); load it once "
                f"without, or get {shown(file.addresses[0], 110)} and pass its path"
            )
        with self.held() as held:
            if not path.is_file():
                self._fetch(file, path, held, reporting, patience)
            elif file.name not in self._sums():  # put there by hand, or before a crash
                self._check(file, path)
                self._record(file.name, sha256_file(path), path.stat().st_size, None)
        return path

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Keep other processes from these files."""
        locks = home() / "locks"
        try:
            for folder in (locks, self._folder, self._sums_path.parent):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, self._folder) from error

        def tell() -> None:
            _LOGGER.info("waiting for another process that fetches %s", self._name)

        with hold_lock(locks / f"{self._name}.lock", on_wait=tell) as held:
            yield held

    def _fetch(
        self, file: PublishedFile, path: Path, held: bool, reporting: Reporting, patience: Patience
    ) -> None:
        known = self._sums().get(file.name)
        expected = file.checksum or (known and f"sha256:{known}")
        _LOGGER.info("fetching %s", file.addresses[0])
        try:
            fetched = download(
                file.addresses,
                path,
                checksum=expected,
                reporting=reporting,
                patience=patience,
                # Without locks two processes must not write into one file.
                partial=None if held else path.with_name(f"{path.name}.download-{os.getpid()}"),
            )
        except ElmoreError as error:
            if known and not file.checksum and "expected" in str(error):
                raise ElmoreError(
                    f"{error}; the first sum seen is in '{shown(self._sums_path, 120)}', delete "
                    "that file to trust the new one"
                ) from None
            raise
        self._record(file.name, fetched.sha256, fetched.size, fetched.address)

    def _check(self, file: PublishedFile, path: Path) -> None:
        expected = self._sums().get(file.name)
        if expected is None and (file.checksum or "").startswith("sha256:"):
            expected = (file.checksum or "").removeprefix("sha256:")
        if expected is not None and sha256_file(path) != expected:
            raise FormatError(
                f"'{shown(path, 120)}' is not the file that was downloaded: its SHA-256 has "
                f"changed; delete it and load the model again"
            )

    def _sums(self) -> dict[str, str]:
        if not self._sums_path.is_file():
            return {}
        files = read_json(self._sums_path).get("files")
        found = files if isinstance(files, dict) else {}
        return {
            name: str(entry["sha256"])
            for name, entry in found.items()
            if isinstance(entry, dict) and "sha256" in entry
        }

    def _record(self, name: str, sha256: str, size: int, address: str | None) -> None:
        found = read_json(self._sums_path) if self._sums_path.is_file() else {"files": {}}
        found["files"][name] = {"sha256": sha256, "bytes": size, "address": address}
        with atomic_file(self._sums_path, overwrite=True) as stream:
            stream.write((json.dumps(found, indent=2) + "\n").encode())


def _folder(model: Published) -> Path:
    return home() / "models" / model.name


def _missing(model: Published) -> str:
    return f"model {model.name!r} is not on this machine"


# Hugging Face ------------------------------------------------------------------------------------


def is_hugging_face(name: str) -> bool:
    """Tell whether a name is `hf://owner/name`, or looks like `owner/name`."""
    if name.startswith(_HUGGING_FACE):
        return True
    return _REPOSITORY.fullmatch(name) is not None


def fetch_hugging_face(name: str) -> Path:
    """Give the folder of a model on the Hugging Face hub; its files are links into a cache.

    Args:
        name: `owner/name` or `hf://owner/name`, with `@revision` at the end for a certain one.
    """
    repository, _, revision = name.removeprefix(_HUGGING_FACE).partition("@")
    if _REPOSITORY.fullmatch(repository) is None:
        raise ConfigError(f"'{shown(name)}' is no model on the hub; write hf://owner/name")
    if name.startswith(_HUGGING_FACE):
        hub = require("huggingface_hub", "hub", f"'{shown(name)}'")
    else:
        try:
            hub = require("huggingface_hub", "hub", f"'{shown(name)}'")
        except ElmoreError:
            raise ModelNotFound(
                f"'{shown(name)}' does not exist; check the path, or install elmore[hub] if it "
                "is a model on the Hugging Face hub"
            ) from None
    offline = is_offline()
    try:
        folder = hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(_WANTED),
            local_files_only=offline,
        )
    except Exception as error:  # its errors have no common base, and change with its versions
        first = str(error).strip().split("\n")[0]
        where = "is not on this machine and elmore is offline" if offline else "cannot be had"
        raise ModelNotFound(
            f"'{shown(name)}' does not exist here, and from the Hugging Face hub it {where} "
            f"({shown(first, 120)}); check the name, or see `elmore models`"
        ) from None
    return Path(folder)
