"""Download one file over HTTPS: it resumes, and appears under its name only complete and checked.

Until then the bytes are in NAME.download, next to the target. NAME.download.version holds the
server's name of the version (ETag or date), so that parts of two versions are never joined.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore._version import __version__
from elmore.base.atomic import finish_file, write_error
from elmore.base.messages import ProgressOption, progress_of, shown
from elmore.errors import ElmoreError, FormatError
from elmore.limits import LIMITS

_LOGGER = logging.getLogger(__name__)
_BLOCK = 1 << 18
_TIMEOUT = 10.0  # seconds without an answer or a byte
_ATTEMPTS = 5  # in a row that bring no byte
_PAUSE = 1.0  # seconds before the second attempt; doubled each time
# Worth another attempt: too many requests, or a server in trouble.
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
# First bytes by suffix. Hosts that moved answer with a web page and "200 OK".
_MAGIC = {
    ".hdf5": (b"\x89HDF\r\n\x1a\n",),
    ".zip": (b"PK\x03\x04", b"PK\x05\x06"),
    ".gz": (b"\x1f\x8b",),
}


class WrongChecksum(ElmoreError):
    """An address gave another file than expected."""


class _NotThere(ElmoreError):
    """This address does not have the file; another may."""


class _Interrupted(Exception):
    """The connection failed; the bytes so far are kept."""


def is_address(text: object) -> bool:
    """Whether a text is an address and not a path."""
    return isinstance(text, str) and text.startswith(("https://", "http://"))


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, in hex."""
    with path.open("rb") as stream:
        # Not for security: systems that forbid SHA-1 for that still allow it as a checksum.
        made = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return made.hexdigest()


def download(
    addresses: Sequence[str],
    target: Path,
    *,
    checksum: str | None = None,
    progress: ProgressOption = None,
) -> None:
    """Download a file from the first address that has it.

    Args:
        addresses: of the same file; tried in order.
        target: where it goes; its folder must exist.
        checksum: the checksum that it must have, if known: "sha256:…" or "sha1:…", in hex.
        progress: what to report bytes to.

    Raises:
        WrongChecksum: no address gave the file, and one gave another file.
        ElmoreError: no address gave the file; says what each one answered.
        FormatError: the file is too large.
    """
    part = target.with_name(f"{target.name}.download")
    problems: list[ElmoreError] = []
    for address in addresses:
        try:
            _fetch(address, part, progress)
            _check(address, part, checksum)
        except (_NotThere, WrongChecksum) as error:
            problems.append(error)
            _LOGGER.info("%s", error)
            continue
        try:
            finish_file(part, target)
        except OSError as error:
            raise write_error(error, target) from error
        _version(part).unlink(missing_ok=True)
        return
    kind = WrongChecksum if any(isinstance(p, WrongChecksum) for p in problems) else ElmoreError
    if len(problems) == 1:
        raise kind(str(problems[0]))
    # Each with its own end, which says why; their starts are in the list of addresses.
    raise kind(
        f"none of {len(problems)} addresses gave '{shown(target.name, 60)}' "
        f"({'; '.join(shown(problem, 70) for problem in problems)})"
    )


def _fetch(address: str, part: Path, option: ProgressOption) -> None:
    """Download from one address, in as many attempts as it takes."""
    _check_address(address)
    failures = 0
    while True:
        before = _arrived(part)
        try:
            return _attempt(address, part, option)
        except _Interrupted as error:
            # A slow line that keeps giving bytes may break any number of times.
            failures = 0 if _arrived(part) > before else failures + 1
            if failures >= _ATTEMPTS:
                raise _NotThere(f"{shown(address, 130)}: {shown(error, 100)}") from None
            _LOGGER.info("%s: %s; trying again", shown(address, 130), error)
            if failures:
                time.sleep(_PAUSE * 2 ** (failures - 1))


def _arrived(part: Path) -> int:
    """Number of bytes that can be continued."""
    return part.stat().st_size if part.is_file() and _version(part).is_file() else 0


def _version(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version(part).unlink(missing_ok=True)


def _attempt(address: str, part: Path, option: ProgressOption) -> None:
    # identity: ranges count bytes of the file, not of a compressed transfer.
    headers = {"User-Agent": f"elmore/{__version__}", "Accept-Encoding": "identity"}
    arrived = _arrived(part)
    if arrived:
        # With another version than this one, the server sends the complete file.
        headers["Range"] = f"bytes={arrived}-"
        headers["If-Range"] = _version(part).read_text(encoding="utf-8")
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 (checked by the caller)
    opener = urllib.request.build_opener(_CheckedRedirects)
    try:
        with opener.open(request, timeout=_TIMEOUT) as response:
            _receive(response, part, arrived, option)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and arrived:  # nothing after our last byte: complete, or changed
            if error.headers.get("Content-Range") == f"bytes */{arrived}":
                return
            _discard(part)
            raise _Interrupted("the file has changed on the server") from None
        what = f"{error.code} {shown(error.reason, 40)}".strip()
        if error.code in _TEMPORARY:
            raise _Interrupted(what) from None
        raise _NotThere(f"{shown(address, 130)} answers {what}") from None
    except urllib.error.URLError as error:  # no connection was made: hardly worth another attempt
        raise _NotThere(f"{shown(address, 130)}: {shown(_reason(error.reason), 100)}") from None
    except ElmoreError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(_reason(error)) from None


def _receive(response: Any, part: Path, arrived: int, option: ProgressOption) -> None:
    """Append the answer to the bytes that are here."""
    headers = response.headers
    size = 0  # 200: the server does not support ranges, or the file has changed
    if response.status == 206:
        if not re.match(rf"bytes {arrived}-", headers.get("Content-Range", "")):
            _discard(part)
            raise _Interrupted("the server sent other bytes than asked for")
        size = arrived
    length = headers.get("Content-Length", "")
    total = size + int(length) if length.isdigit() else None
    name = part.name.removesuffix(".download")
    progress = progress_of(option, unit="B", total=total, name=name, delay=0)
    progress.update(size)
    try:
        if not size:
            _discard(part)
            tag = headers.get("ETag", "")  # a weak one does not identify bytes
            if version := headers.get("Last-Modified") if tag.startswith("W/") or not tag else tag:
                _write(_version(part), version.encode(), "wb")
            _write(part, b"", "wb")
        # read() would lose the bytes before a timeout.
        while block := response.read1(_BLOCK):
            size += len(block)
            if max(size, total or 0) > LIMITS.model_bytes:
                raise FormatError(
                    f"'{shown(name, 60)}' has over {LIMITS.model_bytes} bytes, more than any "
                    "model; is it the right address?"
                )
            _write(part, block, "ab")
            progress.update(len(block))
    finally:
        progress.close()
    if total is not None and size < total:
        raise _Interrupted(f"the connection ended after {size} of {total} bytes")


def _write(path: Path, data: bytes, mode: str) -> None:
    """Write and close, so that the bytes survive if we are killed."""
    try:
        with path.open(mode) as stream:
            stream.write(data)
    except OSError as error:
        raise write_error(error, path) from error


def _check(address: str, part: Path, checksum: str | None) -> None:
    """Compare a complete file with its checksum, and its start with its suffix."""
    suffix = Path(part.stem).suffix
    with part.open("rb") as stream:
        head = stream.read(8)
    if suffix in _MAGIC and not head.startswith(_MAGIC[suffix]):
        _discard(part)
        raise _NotThere(
            f"{shown(address, 130)} gives a file that starts with {head!r}, which is not a valid "
            f"{suffix} file"
        )
    if checksum is None:
        return
    algorithm, _, expected = checksum.partition(":")
    found = digest(part, algorithm)
    if found != expected:
        _discard(part)
        raise WrongChecksum(
            f"{shown(address, 130)} gives a file of {algorithm} {found[:16]}…, expected "
            f"{expected[:16]}…: a different or damaged file"
        )


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect only to an address that we would open ourselves."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        with fp:
            # A remote host must not send us to a service of this machine.
            _check_address(newurl, local=_is_local(req.full_url))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_address(address: str, *, local: bool = True) -> None:
    """Refuse addresses that others could tamper with; plain http only inside this machine."""
    is_https = address.startswith("https://") and urllib.parse.urlsplit(address).hostname
    if not is_https and not (local and _is_local(address)):
        raise _NotThere(f"'{shown(address, 120)}' is not an https address; only https is allowed")


def _is_local(address: str) -> bool:
    local = ("localhost", "127.0.0.1", "::1")
    return address.startswith("http://") and urllib.parse.urlsplit(address).hostname in local


def _reason(error: object) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()
