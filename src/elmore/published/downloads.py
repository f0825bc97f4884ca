"""Download one file over HTTP: it resumes, and appears under its name only complete and checked.

Until then the bytes are in NAME.download, beside the target. NAME.download.json holds the server's
validator of the version (ETag or date), so that parts of two versions are never joined.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
import logging
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from elmore._version import __version__
from elmore.base.atomic import finish_file, free_bytes, write_error
from elmore.base.io import sha256_file
from elmore.base.messages import SILENT, Progress, shown
from elmore.errors import ElmoreError, FormatError
from elmore.limits import LIMITS

__all__ = ["PATIENT", "Fetched", "Patience", "Reporting", "download", "is_address"]

# Makes a progress report for a file, given its name and its size, if known.
Reporting = Callable[[str, int | None], Progress]

_LOGGER = logging.getLogger(__name__)
_BLOCK = 1 << 18
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
# Worth another attempt: too many requests, or a server in trouble.
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
# First bytes by suffix. Hosts that moved answer with a web page and "200 OK".
_MAGIC = {
    ".hdf5": (b"\x89HDF\r\n\x1a\n",),
    ".zip": (b"PK\x03\x04", b"PK\x05\x06"),
    ".gz": (b"\x1f\x8b",),
    ".tgz": (b"\x1f\x8b",),
    ".bz2": (b"BZh",),
}


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait, and how often to try.

    Attributes:
        timeout: seconds without any answer or byte.
        attempts: attempts in a row that bring no byte.
        pause: seconds before the second attempt; doubled each time.
        max_pause: maximum seconds between two attempts, even if a server asks for more.
    """

    timeout: float = 30.0
    attempts: int = 5
    pause: float = 1.0
    max_pause: float = 60.0


PATIENT = Patience()
# Seconds for a host to accept a connection. Without a network nobody should wait for minutes.
_CONNECT = 4.0
# A server that gives a few bytes at a time must not keep us for ever.
_MAX_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Fetched:
    """A downloaded file: its SHA-256, its size, and where it came from."""

    sha256: str
    size: int
    address: str


class _NotThere(ElmoreError):
    """This address does not have the file; another may."""


class _Interrupted(Exception):
    """The connection failed; the bytes so far are kept.

    Args:
        reason: for the message.
        wait: seconds that the server asks us to wait.
        unreachable: whether no connection was made at all.
    """

    def __init__(self, reason: str, wait: float = 0.0, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.unreachable = wait, unreachable


def is_address(text: object) -> bool:
    """Whether a text is an address and not a path."""
    return isinstance(text, str) and text.startswith(("https://", "http://"))


def download(
    addresses: Sequence[str],
    target: Path,
    *,
    checksum: str | None = None,
    reporting: Reporting = lambda name, size: SILENT,
    patience: Patience | None = None,
) -> Fetched:
    """Download a file from the first address that has it.

    Args:
        addresses: the same file in several places; tried in order.
        target: where it goes; its folder must exist.
        checksum: the checksum that it must have, if known: "sha256:…" or "sha1:…", in hex.
        reporting: makes the progress report, which counts bytes.
        patience: how long to try; `PATIENT` by default.

    Raises:
        ElmoreError: no address gave the file; says what each one answered.
        FormatError: the file is too large.
    """
    transfer = _Transfer(
        target,
        target.with_name(f"{target.name}.download"),
        checksum,
        reporting,
        patience or PATIENT,
    )
    refusals: list[str] = []
    for address in addresses:
        try:
            return transfer.fetch(address)
        except _NotThere as error:
            refusals.append(str(error))
            _LOGGER.info("%s", error)
    if len(refusals) == 1:
        raise ElmoreError(refusals[0])
    # Each with its own end, which says why; their starts are in the list of addresses.
    raise ElmoreError(
        f"none of {len(refusals)} addresses gave '{shown(target.name, 60)}' "
        f"({'; '.join(shown(refusal, 70) for refusal in refusals)})"
    )


class _Transfer:
    """The download of one file."""

    def __init__(
        self,
        target: Path,
        partial: Path,
        checksum: str | None,
        reporting: Reporting,
        patience: Patience,
    ) -> None:
        self._target, self._partial, self._checksum = target, partial, checksum
        self._mark = partial.with_name(f"{partial.name}.json")
        self._reporting, self._patience = reporting, patience
        self._answered = False
        self._unreachable: dict[str, str] = {}  # host -> why

    def fetch(self, address: str) -> Fetched:
        """Download from one address, in as many attempts as it takes."""
        _check_address(address)
        host = urllib.parse.urlsplit(address).netloc
        if host in self._unreachable:
            raise _NotThere(f"{_short(address)}: {self._unreachable[host]}")
        failures, pause = 0, self._patience.pause
        for _ in range(_MAX_ATTEMPTS):
            before = self._arrived(address)
            try:
                self._try(address, before)
                return self._finish(address)
            except _Interrupted as error:
                # A connection that breaks may come back; a host that was never
                # reached, hardly.
                if error.unreachable and not self._answered:
                    self._unreachable[host] = shown(error, 100)
                    raise _NotThere(f"{_short(address)}: {shown(error, 100)}") from None
                # A slow line that keeps giving bytes may break any number of
                # times; only silence counts.
                gained = self._arrived(address) > before
                failures, pause = (0, self._patience.pause) if gained else (failures + 1, pause)
                if failures >= self._patience.attempts:
                    raise _NotThere(f"{_short(address)}: {shown(error, 100)}") from None
                _LOGGER.info("%s: %s; trying again", _short(address), error)
                if not gained or error.wait:
                    time.sleep(min(max(pause, error.wait), self._patience.max_pause))
                    pause *= 2
        raise _NotThere(f"{_short(address)}: the connection broke {_MAX_ATTEMPTS} times")

    def _arrived(self, address: str) -> int:
        """Number of bytes that are here and of use for this address."""
        try:
            size = self._partial.stat().st_size
        except OSError:
            return 0
        # With a checksum, bytes of any address may be continued: the result is checked.
        return size if self._checksum or self._validator(address) else 0

    def _validator(self, address: str) -> str | None:
        """The validator of the version that the bytes so far belong to."""
        try:
            mark = json.loads(self._mark.read_text(encoding="utf-8"))
            known = mark["validator"] if mark["address"] == address else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known if isinstance(known, str) else None

    def _try(self, address: str, arrived: int) -> None:
        # identity: ranges count bytes of the file, not of a compressed transfer.
        headers = {"User-Agent": f"elmore/{__version__}", "Accept-Encoding": "identity"}
        if arrived:
            headers["Range"] = f"bytes={arrived}-"
            validator = self._validator(address)
            if validator is not None:
                headers["If-Range"] = validator
        request = urllib.request.Request(address, headers=headers)  # noqa: S310 (checked above)
        try:
            with _opener().open(request, timeout=self._patience.timeout) as response:
                self._answered = True
                self._receive(response, address, arrived)
        except urllib.error.HTTPError as error:
            error.close()
            self._answered = True
            self._refused(error, address, arrived)
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise _NotThere(f"{_short(address)}: its certificate is not valid") from None
            raise _Interrupted(_reason(error.reason), unreachable=True) from None
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ElmoreError):
                raise
            raise _Interrupted(_reason(error)) from None

    def _refused(self, error: urllib.error.HTTPError, address: str, arrived: int) -> None:
        if error.code == 416 and arrived:  # nothing after our last byte: complete, or changed
            total = _RANGE.fullmatch(error.headers.get("Content-Range", ""))
            if total is not None and total[2] == str(arrived):
                return
            self._discard()
            raise _Interrupted("the file has changed on the server")
        what = f"{error.code} {shown(error.reason, 40)}".strip()
        if error.code in _TEMPORARY:
            raise _Interrupted(what, _seconds(error.headers.get("Retry-After")))
        raise _NotThere(f"{_short(address)} answers {what}")

    def _receive(self, response: Any, address: str, arrived: int) -> None:
        """Append the answer to the bytes that are here."""
        start = self._start(response, arrived)
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None and length.isdigit() else None
        self._check_space(total, start)
        if start == 0:
            headers = response.headers
            self._note(address, _strong(headers.get("ETag")) or headers.get("Last-Modified"))
        progress = self._reporting(self._target.name, total)
        progress.update(start)
        try:
            with self._open(start) as stream:
                self._copy(response, stream, start, total, progress)
        finally:
            progress.close()

    def _start(self, response: Any, arrived: int) -> int:
        if response.status != 206:
            return 0  # the server does not support ranges, or the file has changed
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or found[1] != str(arrived):
            self._discard()
            raise _Interrupted("the server sent other bytes than asked for")
        return arrived

    def _open(self, start: int) -> BinaryIO:
        try:
            stream = self._partial.open("r+b" if start else "wb")
            stream.truncate(start)
            stream.seek(start)
        except OSError as error:
            raise write_error(error, self._partial) from error
        return stream

    def _copy(
        self, response: Any, stream: BinaryIO, start: int, total: int | None, progress: Progress
    ) -> None:
        size = start
        while True:
            block = response.read1(_BLOCK)  # read() would lose the bytes before a timeout
            if not block:
                break
            size += len(block)
            if size > LIMITS.model_bytes:
                raise self._too_large(size)
            try:
                stream.write(block)
                stream.flush()  # so that it survives if we are killed
            except OSError as error:
                raise write_error(error, self._partial) from error
            progress.update(len(block))
        if total is not None and size < total:
            raise _Interrupted(f"the connection ended after {size} of {total} bytes")

    def _check_space(self, total: int | None, start: int) -> None:
        if total is None:
            return
        if total > LIMITS.model_bytes:
            raise self._too_large(total)
        # Before the first byte, not after gigabytes of them.
        free = free_bytes(self._target.parent)
        if free is not None and total - start > free:
            raise ElmoreError(
                f"'{shown(self._target.name, 60)}' needs {total - start} bytes, but only {free} "
                f"are free in '{shown(self._target.parent, 100)}'; free some space, or set "
                "ELMORE_HOME to another disk"
            )

    def _too_large(self, size: int) -> FormatError:
        return FormatError(
            f"'{shown(self._target.name, 60)}' has {size} bytes or more, allowed are "
            f"{LIMITS.model_bytes}; is it the right address?"
        )

    def _note(self, address: str, validator: str | None) -> None:
        text = json.dumps({"address": address, "validator": validator})
        try:
            self._mark.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise write_error(error, self._mark) from error

    def _discard(self) -> None:
        self._partial.unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)

    def _finish(self, address: str) -> Fetched:
        """Check the complete file, and give it its name."""
        size = self._partial.stat().st_size
        with self._partial.open("rb") as stream:
            head = stream.read(8)
        magic = _MAGIC.get(self._target.suffix)
        if magic is not None and not head.startswith(magic):
            self._discard()
            raise _NotThere(
                f"{_short(address)} gives a file that starts with {head!r}, which is not a valid "
                f"{self._target.suffix} file"
            )
        self._check_sum(address)
        # Whatever the catalogue has, the record of what was first seen is SHA-256.
        found = sha256_file(self._partial)
        finish_file(self._partial, self._target)
        self._mark.unlink(missing_ok=True)
        return Fetched(found, size, address)

    def _check_sum(self, address: str) -> None:
        if self._checksum is None:
            return
        algorithm, _, expected = self._checksum.partition(":")
        with self._partial.open("rb") as stream:
            # Not for security: systems that forbid SHA-1 for that still allow it as a checksum.
            found = hashlib.file_digest(
                stream, lambda: hashlib.new(algorithm, usedforsecurity=False)
            ).hexdigest()
        if found != expected:
            self._discard()
            raise _NotThere(
                f"{_short(address)} gives a file of {algorithm} {found[:16]}…, expected "
                f"{expected[:16]}…: a different or damaged file"
            )


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect only to an address that we would open ourselves."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        # A remote host must not send us to a service of this machine.
        _check_address(newurl, local=_is_local(req.full_url))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _connect(
    address: tuple[str, int], timeout: float | None = None, source_address: object = None
) -> socket.socket:
    """Connect within `_CONNECT` seconds, however many numbers the host has.

    `socket.create_connection` gives each of them the complete time.
    """
    # A few are enough: each gets an equal share of the time, and large hosts have many.
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[:4]
    problem: OSError = OSError(f"{address[0]} has no number")
    for *_, number in found:
        try:
            made = socket.create_connection((str(number[0]), address[1]), _CONNECT / len(found))
        except OSError as error:
            problem = error
        else:
            made.settimeout(timeout)
            return made
    raise problem


class _QuickConnection(http.client.HTTPConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._create_connection = _connect  # the base class sets its own


class _TlsConnection(_QuickConnection, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_QuickConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req, context=ssl.create_default_context())


def _opener() -> urllib.request.OpenerDirector:
    """An opener for HTTP only: no files, no FTP; proxies are those of the environment."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(),
        _Https(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _CheckedRedirects(),
    ):
        opener.add_handler(handler)
    return opener


def _check_address(address: str, *, local: bool = True) -> None:
    """Refuse addresses that others could tamper with; plain http only inside this machine."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and local and _is_local(address):
        return
    raise _NotThere(f"'{shown(address, 120)}' is not an https address, and only https is allowed")


def _is_local(address: str) -> bool:
    host = urllib.parse.urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _short(address: str) -> str:
    return shown(address, 130)


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    strerror = getattr(error, "strerror", None)
    return str(strerror or error or type(error).__name__).lower()


def _strong(tag: str | None) -> str | None:
    """Drop a weak ETag, which does not identify bytes."""
    return None if tag is None or tag.startswith("W/") else tag


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdigit() and len(text) < 6 else 0.0
