"""The cache of published models: downloaded once, checked each time they are opened.

ELMORE_HOME/models/NAME holds the files of a model, ELMORE_HOME/files those of other addresses.
ELMORE_HOME/sums/NAME.json keeps the first SHA-256 seen of each file. It outlives the files, so we
notice a host that changes them later.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elmore.base.atomic import atomic_file, locked, write_error
from elmore.base.json import read_json
from elmore.base.messages import ProgressOption, is_watched, say, shown, wants_reports
from elmore.base.optional import require
from elmore.errors import ConfigError, ElmoreError, FormatError, ModelNotFound
from elmore.options import Fetch
from elmore.published.catalog import Published, find_file
from elmore.published.downloads import WrongChecksum, digest, download

_HUGGING_FACE = "hf://"
_FETCH = Fetch()
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")
# What our formats read; a repository may hold much else.
_WANTED = (
    "*.json *.safetensors *.hdf5 *.h5 *.txt *.txt.gz *.dic *.pkl *.th *.zip *.tar.gz *.index "
    "*.data-* checkpoint"
).split()


def home() -> Path:
    """The folder of downloads: ELMORE_HOME, or the system's place for caches."""
    chosen = os.environ.get("ELMORE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "elmore"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "elmore"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elmore"


def is_offline() -> bool:
    """Whether ELMORE_OFFLINE or HF_HUB_OFFLINE forbids the network."""
    values = (os.environ.get(name, "").lower() for name in ("ELMORE_OFFLINE", "HF_HUB_OFFLINE"))
    return any(value not in ("", "0", "false", "no", "off") for value in values)


def is_downloaded(model: Published) -> bool:
    """Whether all files of a model are in the cache."""
    folder = _folder(model)
    return bool(model.files) and all((folder / name).is_file() for name in model.files)


def fetch_model(model: Published, fetch: Fetch = _FETCH) -> dict[str, Path]:
    """Find the files of a published model; download what is missing.

    Returns:
        file name → path.

    Raises:
        ModelNotFound: it is not in the cache and cannot be downloaded.
        FormatError: a file is not the one that was first seen.
        ElmoreError: its hosts do not give it.
    """
    if fetch.revision is not None:
        raise ConfigError(f"revision={fetch.revision!r} but {model.name!r} has none; leave it out")
    # Every file is checked each time: a damaged cache would give wrong vectors without an
    # error.
    root = home() if fetch.cache_dir is None else Path(fetch.cache_dir)
    size = "of unknown size" if model.megabytes is None else f"about {model.megabytes} MB"
    shelf = _Shelf(root / "models" / model.name)
    return shelf.get(
        model.files, f"model {model.name!r}", model.checksums, f" ({size})", fetch.progress
    )


def fetch_address(address: str) -> Path:
    """Find the file of an address; it is downloaded the first time."""
    known = find_file(address)
    if known is not None:
        model, name = known
        files = {name: model.files[name]}
        return _Shelf(_folder(model)).get(files, f"model {model.name!r}", model.checksums)[name]
    # The name decides how the file is read, so it is kept as far as a file system allows.
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path)).name or "file"
    name = re.sub(r"[^\w.-]", "_", name)[-100:]
    key = hashlib.sha256(address.encode()).hexdigest()[:16]
    shelf = _Shelf(home() / "files" / key)
    return shelf.get({name: (address,)}, f"'{shown(address, 120)}'", {})[name]


def prune(models: Sequence[Published] | None, *, dry_run: bool = False) -> list[Path]:
    """Delete downloads and unfinished ones; the checksums stay. Returns the paths.

    Args:
        models: whose downloads to delete; None for those of all models and of other addresses.
        dry_run: delete nothing.
    """
    folders = [*sorted(home().glob("models/*/")), *sorted(home().glob("files/*/"))]
    names = folders if models is None else [_folder(model) for model in models]
    gone = [folder for folder in folders if folder in names]
    kept = (folder for folder in folders if folder not in names)
    left = [path for folder in kept for path in sorted(folder.glob("*.download*"))]
    for path in () if dry_run else (*gone, *left):
        # The lock waits for a download that is running now.
        with _Shelf(path if path in gone else path.parent).locked():
            if path in gone:
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return [*gone, *left]


class _Shelf:
    """The files of one model or address, with their checksums and their lock.

    Args:
        folder: ROOT/models/NAME or ROOT/files/KEY.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, root = folder, folder.parents[1]
        self._name = folder.name if folder.parent.name == "models" else f"file-{folder.name}"
        self._lock_path = root / "locks" / f"{self._name}.lock"
        self._sums_path = root / "sums" / f"{self._name}.json"

    def get(
        self,
        files: Mapping[str, Sequence[str]],
        what: str,
        checksums: Mapping[str, str],
        size: str = "",
        progress: ProgressOption = None,
    ) -> dict[str, Path]:
        """Find files and check them.

        Args:
            files: names and addresses.
            what: the model or address, for messages.
            checksums: of the catalogue.
            size: of what is downloaded, for messages.
            progress: what to report bytes to.
        """
        paths = {name: self.folder / name for name in files}
        gone = [name for name, path in paths.items() if not path.is_file()]
        try:
            if gone and is_offline():
                raise ModelNotFound(
                    f"{what} is not on this machine and elmore is offline (--offline, "
                    "ELMORE_OFFLINE or HF_HUB_OFFLINE); load it online once, or download it by hand"
                )
            if gone and wants_reports():
                place = files[gone[-1]][0].rpartition("/")[0]
                say(f"downloading {what}{size} from {place} to {self.folder}")
            # The usual case needs no lock: all are here, none put here by hand or before a crash.
            usual = not gone and files.keys() <= self._sums().keys()
            with contextlib.nullcontext() if usual else self.locked():
                for name, path in paths.items():
                    self._get(files[name], path, checksums.get(name), progress)
            return paths
        except ElmoreError as error:
            left = [name for name in gone if not paths[name].is_file()]
            # As notes: addresses are too long for a line of an error.
            if left and not isinstance(error, FormatError):
                error.add_note("To download by hand, save")
                for name in left:
                    places = "\n    or ".join(files[name])
                    error.add_note(f"  {places}\n    as {paths[name]}")
            raise

    def _get(
        self, addresses: Sequence[str], path: Path, checksum: str | None, progress: ProgressOption
    ) -> None:
        """Download a file, or compare it with its checksum or with the first one seen."""
        sums = self._sums()
        seen = sums.get(path.name)
        expected = checksum or (seen and f"sha256:{seen}")
        if not path.is_file():
            try:
                download(addresses, path, checksum=expected, progress=progress)
            except WrongChecksum as error:
                if checksum:
                    raise
                raise WrongChecksum(
                    f"{error}; the first checksum seen is in '{shown(self._sums_path, 120)}', "
                    "delete that file to trust the new one"
                ) from None
        elif expected:
            algorithm, _, known = expected.partition(":")
            if digest(path, algorithm) != known:
                raise FormatError(
                    f"'{shown(path, 120)}' is not the file that was published: its {algorithm} "
                    "differs; delete it and load the model again"
                )
        if seen is None:
            found = {**sums, path.name: digest(path)}
            with atomic_file(self._sums_path, overwrite=True) as stream:
                stream.write((json.dumps(found, indent=2) + "\n").encode())

    def _sums(self) -> dict[str, str]:
        return read_json(self._sums_path) if self._sums_path.is_file() else {}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes away from these files."""
        try:
            for folder in (self._lock_path.parent, self.folder, self._sums_path.parent):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, self.folder) from error
        busy = f"waiting for another process that is downloading {self._name}"
        with locked(self._lock_path, busy, wait=True):
            yield


def _folder(model: Published) -> Path:
    return home() / "models" / model.name


# Hugging Face ------------------------------------------------------------------------------------


def is_hugging_face(name: str) -> bool:
    """Whether a name is `hf://owner/name`, or looks like `owner/name`."""
    return name.startswith(_HUGGING_FACE) or _REPOSITORY.fullmatch(name) is not None


def fetch_hugging_face(name: str, fetch: Fetch = _FETCH) -> Path:
    """Download a model from the Hugging Face hub; return its folder of links into a cache.

    Args:
        name: `owner/name` or `hf://owner/name`; `@revision` at the end chooses a revision.
        fetch: how to download it.
    """
    repository, _, revision = name.removeprefix(_HUGGING_FACE).partition("@")
    if revision and fetch.revision not in (None, revision):
        raise ConfigError(
            f"'{shown(name)}' names another revision than revision={fetch.revision!r}; give one"
        )
    if _REPOSITORY.fullmatch(repository) is None:
        raise ConfigError(
            f"'{shown(name)}' is not a valid name of a model on the hub; write hf://owner/name"
        )
    try:
        hub = require("huggingface_hub", "hub", f"'{shown(name)}'")
    except ElmoreError:
        if name.startswith(_HUGGING_FACE):
            raise
        # A path with a typing error looks like owner/name, too.
        raise ModelNotFound(
            f"'{shown(name)}' does not exist; check the path, or install elmore[hub] if it "
            "is a model on the Hugging Face hub"
        ) from None
    offline = is_offline()
    try:
        folder = hub.snapshot_download(
            repository,
            revision=revision or fetch.revision,
            token=fetch.token,
            cache_dir=fetch.cache_dir,
            allow_patterns=list(_WANTED),
            local_files_only=offline,
            tqdm_class=_hub_bar(fetch.progress),
        )
    except Exception as error:  # its errors have no common base and change between versions
        first = str(error).strip().split("\n")[0]
        where = "elmore is offline" if offline else "cannot be downloaded from the Hugging Face hub"
        raise ModelNotFound(
            f"'{shown(name)}' does not exist on this machine and {where} ({shown(first, 120)}); "
            "check the name, or see `elmore models`"
        ) from None
    return Path(folder)


def _hub_bar(progress: ProgressOption) -> Any:
    """The bars of the hub: its own where they are wanted (None), else some that show nothing."""
    if progress is True or (progress is None and is_watched()):
        return None
    from tqdm.auto import tqdm

    class Hidden(tqdm):  # type: ignore[misc]  # tqdm has no types
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

    return Hidden
