"""Open, parse and write files so that a hostile or failing disk does no harm.

Reading: regular files only, sizes checked before memory is taken. Writing: a file or folder
under its final name is complete and synced, or it is the previous version.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, cast

from elmore.errors import ConfigError, ElmoreError, FormatError, InputError
from elmore.limits import LIMITS, Limits

__all__ = [
    "atomic_file",
    "atomic_folder",
    "atomic_path",
    "available_memory",
    "clean_partials",
    "free_bytes",
    "open_checked",
    "parse_json",
    "read_json",
    "read_lines",
    "sha256_file",
    "sha256_stream",
    "shown",
    "write_error",
]

_BOM = b"\xef\xbb\xbf"


def shown(value: object, limit: int = 90) -> str:
    """Make any text fit into a one-line message: escape what does not print, cut the middle.

    Args:
        value: a name, path or value that may come from a hostile file.
        limit: most characters of the result.
    """
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(value)
    )
    if len(text) <= limit:
        return text
    head = (limit - 1) // 3  # the end of a path says more than its start
    return f"{text[:head]}…{text[head + 1 - limit :]}"


# --------------------------------------------------------------------------- reading


def open_checked(path: Path, *, what: str, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; refuse everything else.

    Args:
        path: the file.
        what: its role for messages, such as "options file".
        follow: whether the last component may be a symbolic link. Right for a path that the
            user named, wrong for a name found inside a foreign folder.

    Raises:
        FormatError: missing, unreadable, a folder, link, FIFO, socket or device.
    """
    label = f"{shown(what, 60)} '{shown(path, 140)}'"
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    # O_NONBLOCK: opening a FIFO without a writer would wait for ever.
    flags |= getattr(os, "O_NONBLOCK", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        # Looking first keeps us from opening devices, which may act when opened; the look at
        # the open descriptor is the one that counts, since the name may change in between.
        _refuse_special(os.stat(path, follow_symlinks=follow), label)
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise FormatError(f"{label} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            _refuse_link(label)
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(
            f"{label} cannot be read: {shown(reason.lower(), 60)}; check the path and its rights"
        ) from error
    try:
        _refuse_special(os.fstat(descriptor), label)
        return cast(BinaryIO, os.fdopen(descriptor, "rb"))
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_link(label: str) -> NoReturn:
    raise FormatError(f"{label} is a symbolic link; put the file itself there")


def _refuse_special(status: os.stat_result, label: str) -> None:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        _refuse_link(label)
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
    kind = kinds.get(stat.S_IFMT(mode), "device")
    raise FormatError(f"{label} is a {kind}; a regular file is needed")


# A string, or one character of structure. The lone quote comes last: it matches only where a
# string does not end, and so keeps the scan linear.
_JSON_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)


def _scan_json(text: str, what: str, limits: Limits) -> None:
    """Check depth and node count before the recursive parser sees the text."""
    depth = 0
    nodes = 1
    for match in _JSON_TOKEN.finditer(text):
        mark = match[0]
        if mark in "[{":
            depth += 1
            nodes += 1
            if depth > limits.json_depth:
                raise FormatError(
                    f"{what} nests deeper than the {limits.json_depth} levels allowed; "
                    "check that it is the right file"
                )
        elif mark in "]}":
            depth -= 1
        elif mark == ",":
            nodes += 1
        elif mark == '"':
            raise FormatError(
                f"{what} is not valid JSON: the string at character {match.start()} does not end; "
                "restore or download it again"
            )
        if nodes > limits.json_nodes:
            raise FormatError(
                f"{what} holds more than the {limits.json_nodes} values allowed; "
                "check that it is the right file"
            )


def parse_json(data: bytes, *, what: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Parse a JSON object strictly, within bounded time and memory.

    Args:
        data: UTF-8, a byte order mark in front is dropped.
        what: the file as it should appear in messages.
        limits: sizes allowed.

    Raises:
        FormatError: too large, deep or long; duplicate keys; NaN or infinite numbers; integers
            beyond 2**53; not an object; not UTF-8; not JSON.
    """
    what = shown(what, 140)
    if len(data) > limits.json_bytes:
        raise FormatError(
            f"{what} has {len(data)} bytes, allowed are {limits.json_bytes}; "
            "check that it is the right file"
        )

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value] # add() returns None, which is the point
            raise FormatError(f"{what} has the key '{shown(twice, 40)}' twice; remove one")
        return result

    def integer(digits: str) -> int:
        # The length comes first: int() of a million digits takes quadratic time.
        if len(digits) > 20 or abs(int(digits)) > limits.json_int:
            raise FormatError(
                f"{what} holds the integer {shown(digits, 24)}, allowed are up to 2**53; correct it"
            )
        return int(digits)

    def real(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise FormatError(
                f"{what} holds {shown(digits, 24)}, beyond any float; correct the number"
            )
        return value

    def constant(name: str) -> NoReturn:
        raise FormatError(f"{what} holds {name}, which JSON does not allow; use a finite number")

    try:
        text = data.removeprefix(_BOM).decode("utf-8")
        _scan_json(text, what, limits)
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=integer,
            parse_float=real,
            parse_constant=constant,
        )
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{what} is not UTF-8 at byte {error.start}; restore or download it again"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{what} is not valid JSON: {shown(error, 80)}; restore or download it again"
        ) from None
    if not isinstance(value, dict):
        raise FormatError(
            f"{what} holds a JSON {type(value).__name__}, expected an object {{…}}; "
            "check that it is the right file"
        )
    return value


def read_json(path: Path, limits: Limits = LIMITS, *, follow: bool = True) -> dict[str, Any]:
    """Read and parse a JSON file by the rules of `parse_json`."""
    with open_checked(path, what="JSON file", follow=follow) as stream:
        data = stream.read(limits.json_bytes + 1)
    return parse_json(data, what=f"'{shown(path, 120)}'", limits=limits)


def read_lines(
    stream: BinaryIO,
    *,
    what: str,
    max_line: int,
    errors: Literal["strict", "replace", "skip"] = "strict",
    on_invalid: Callable[[int], object] | None = None,
) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 text with their numbers, in memory bounded by one line.

    Only "\n" ends a line; one "\r" before it is dropped; a byte order mark is dropped at the
    start of the file only. A last line without "\n" counts.

    Args:
        stream: read from its present position, which is taken as the start of the file.
        what: name of the file for messages.
        max_line: most bytes of a line, its ending not counted.
        errors: what to do with invalid UTF-8: raise, put U+FFFD, or leave the line out (its
            number is then missing from the result).
        on_invalid: told the number of each line that was mended or left out.

    Yields:
        (line number from 1, text).

    Raises:
        InputError: invalid UTF-8 (strict), or a line over max_line.
    """
    what = shown(what, 120)
    readline = stream.readline
    most = max_line + 2  # "\r\n"
    number = 0
    dropped = 0
    while data := readline(most + (3 if number == 0 else 0)):  # 3: a byte order mark
        number += 1
        dropped = 0
        if number == 1 and data.startswith(_BOM):
            dropped = len(_BOM)
            data = data[dropped:]
        if data.endswith(b"\n"):
            data = data[: -2 if data.endswith(b"\r\n") else -1]
        if len(data) > max_line:
            raise InputError(
                f"the line is longer than the {max_line} bytes allowed; split it into lines",
                file=what,
                line=number,
            )
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise InputError(
                    f"invalid UTF-8 at byte {error.start + dropped} of the line; convert the file "
                    "to UTF-8 or pass --errors replace or --errors skip",
                    file=what,
                    line=number,
                ) from None
            if on_invalid is not None:
                on_invalid(number)
            if errors == "skip":
                continue
            text = data.decode("utf-8", "replace")
        yield number, text


def sha256_stream(stream: BinaryIO) -> str:
    """Return the SHA-256 of what is left in a stream, as lower-case hex."""
    digest = hashlib.sha256()
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    while count := cast(Any, stream).readinto(buffer):
        digest.update(view[:count])
    return digest.hexdigest()


def sha256_file(path: Path, *, follow: bool = True) -> str:
    """Return the SHA-256 of a regular file, as lower-case hex."""
    with open_checked(path, what="file", follow=follow) as stream:
        return sha256_stream(stream)


# --------------------------------------------------------------------------- writing

# .NAME.<host>-<pid>-<random>.partial: what is being written; .old: a folder being replaced.
_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{12}\.(?P<kind>partial|old)"
)
_NO_SPACE = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
# Errors of a descriptor, not of a name: inside the body of an atomic writer they are ours.
_FAILED_WRITE = _NO_SPACE | {errno.EIO, errno.EROFS}


def _host() -> str:
    # On a shared file system the process ids of another machine say nothing here.
    return hashlib.sha256(platform.node().encode("utf-8", "replace")).hexdigest()[:8]


def _temporary(path: Path, kind: str) -> Path:
    tag = f".{_host()}-{os.getpid()}-{secrets.token_hex(6)}.{kind}"
    name = path.name
    while len(os.fsencode(name)) > 254 - len(tag):  # most file systems allow 255 bytes
        name = name[:-1]
    return path.with_name(f".{name}{tag}")


def free_bytes(folder: Path) -> int | None:
    """Return the bytes free for us on the disk of a folder, or None if it does not say."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def write_error(error: OSError, path: Path) -> ElmoreError:
    """Turn a failed write into one line that names the path and the room left."""
    free = free_bytes(path.parent)
    room = "" if free is None else f", {free} bytes free there"
    if error.errno in _NO_SPACE:
        fix = "free some space or raise the file-size limit, or choose another place"
    else:
        fix = "check the folder and its rights, or choose another place"
    reason = (error.strerror or str(error)).lower()
    return ElmoreError(f"cannot write '{shown(path, 130)}': {shown(reason, 50)}{room}; {fix}")


def _alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # os.kill would end the process there; better to leave its files
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def clean_partials(folder: Path) -> None:
    """Remove what dead writers of this machine left in a folder; bring back what they hid.

    A writer that died between moving an old folder aside and putting the new one in its place
    leaves no folder under the name: the old one is moved back.
    """
    try:
        entries = [entry for entry in os.scandir(folder) if _TEMPORARY.fullmatch(entry.name)]
    except OSError:
        return
    host = _host()
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _TEMPORARY.fullmatch(entry.name)
        if match is None or match["host"] != host or _alive(int(match["pid"])):
            continue
        with contextlib.suppress(OSError):
            target = folder / match["name"]
            if match["kind"] == "old" and not os.path.lexists(target):
                os.rename(entry.path, target)
            else:
                _remove(Path(entry.path))


def _remove(path: Path) -> None:
    """Delete a temporary file or folder of ours without following links; never raise."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _sync(path: Path) -> None:
    """Bring a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    try:
        _sync(folder)
    except OSError as error:
        # Some network file systems cannot sync a folder; they give no better promise.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def _absolute(path: Path) -> Path:
    path = Path(os.path.abspath(path))
    if not path.name:
        raise ConfigError(f"'{shown(path)}' cannot be written to; name a file or folder in it")
    return path


def _check_target(path: Path, overwrite: bool) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write '{shown(path, 160)}': {shown(error, 60)}") from None
    label = f"'{shown(path, 160)}'"
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{label} is a folder; name a file in it")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        # Renaming over /dev/null, as root, would break the machine.
        raise ConfigError(f"{label} is not a regular file; choose another name")
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")


def _create(path: Path, target: Path, private: bool) -> int:
    # O_EXCL never follows a planted link; 0o666 leaves the rights to the umask.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags, 0o600 if private else 0o666)
    except FileNotFoundError:
        raise ElmoreError(
            f"cannot write '{shown(target, 120)}': its folder does not exist; create it first"
        ) from None
    except OSError as error:
        raise write_error(error, target) from error


@contextlib.contextmanager
def _guarded(temporary: Path, target: Path) -> Iterator[None]:
    """Remove the temporary thing after any failure and explain failed writes."""
    try:
        yield
    except OSError as error:
        _remove(temporary)
        ours = error.filename is None and error.errno in _FAILED_WRITE
        if ours and not isinstance(error, ElmoreError):
            raise write_error(error, target) from error
        raise
    except BaseException:
        _remove(temporary)
        raise


def _commit(temporary: Path, target: Path, overwrite: bool) -> None:
    _check_target(target, overwrite)
    try:
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise write_error(error, target) from error


@contextlib.contextmanager
def atomic_file(
    path: Path,
    *,
    overwrite: bool = False,
    mode: Literal["wb", "w+b"] = "wb",
    private: bool = False,
) -> Iterator[BinaryIO]:
    """Write a file so that its name holds the whole new content or the old one.

    Args:
        path: the final name.
        overwrite: whether an existing file may be replaced.
        mode: "wb", or "w+b" for writers that read back.
        private: readable by its owner only, whatever the umask.

    Yields:
        A binary file under a temporary name in the same folder. When the block ends well it is
        synced and renamed; when it does not, it is deleted and the old file stays.

    Raises:
        ConfigError: the file exists and overwrite is false.
        ElmoreError: the disk refused; names the path and the bytes free.
    """
    path = _absolute(path)
    _check_target(path, overwrite)
    clean_partials(path.parent)
    temporary = _temporary(path, "partial")
    descriptor = _create(temporary, path, private)
    with _guarded(temporary, path):
        try:
            stream = os.fdopen(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        try:
            yield stream
            try:
                if stream.closed:
                    _sync(temporary)
                else:
                    stream.flush()
                    os.fsync(stream.fileno())
                    stream.close()
            except OSError as error:
                raise write_error(error, path) from error
        finally:
            # After a failed write, closing tries to write the rest once more and fails again.
            with contextlib.suppress(OSError):
                stream.close()
        _commit(temporary, path, overwrite)


@contextlib.contextmanager
def atomic_path(path: Path, *, overwrite: bool = False, private: bool = False) -> Iterator[Path]:
    """Do what `atomic_file` does for libraries that open files by name (h5py).

    Yields:
        The name of an empty temporary file in the same folder, to be opened and closed again.
    """
    path = _absolute(path)
    _check_target(path, overwrite)
    clean_partials(path.parent)
    temporary = _temporary(path, "partial")
    os.close(_create(temporary, path, private))
    with _guarded(temporary, path):
        yield temporary
        try:
            _sync(temporary)
        except OSError as error:
            raise write_error(error, path) from error
        _commit(temporary, path, overwrite)


def _check_folder(path: Path, overwrite: bool, looks_ours: Callable[[Path], bool] | None) -> bool:
    """Refuse targets that may not be replaced; tell whether a filled folder is in the way."""
    if not os.path.lexists(path):
        return False
    label = f"'{shown(path, 140)}'"
    if path.is_symlink():
        raise ConfigError(f"{label} is a symbolic link; name the folder it points to")
    if not path.is_dir():
        raise ConfigError(f"{label} is not a folder; choose another name")
    try:
        if next(iter(path.iterdir()), None) is None:
            return False
    except OSError as error:
        raise write_error(error, path) from error
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")
    if looks_ours is None or not looks_ours(path):
        raise ConfigError(
            f"{label} holds files that elmore did not write; choose another name or empty it"
        )
    return True


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            file = Path(root, name)
            if not file.is_symlink():
                _sync(file)
        _sync_folder(Path(root))


@contextlib.contextmanager
def atomic_folder(
    path: Path,
    *,
    overwrite: bool = False,
    looks_ours: Callable[[Path], bool] | None = None,
    private: bool = False,
) -> Iterator[Path]:
    """Write a folder so that its name holds the whole new content or the old one.

    Args:
        path: the final name; its parent must exist. An empty folder there is simply used.
        overwrite: whether a filled folder may be replaced.
        looks_ours: decides whether that folder is one of ours; without it none is.
        private: open to its owner only, whatever the umask.

    Yields:
        A temporary folder beside the target, to be filled. When the block ends well it is
        synced and renamed; when it does not, it is deleted and the old folder stays.
    """
    path = _absolute(path)
    _check_folder(path, overwrite, looks_ours)
    clean_partials(path.parent)
    temporary = _temporary(path, "partial")
    try:
        os.mkdir(temporary, 0o700 if private else 0o777)
    except FileNotFoundError:
        raise ElmoreError(
            f"cannot write '{shown(path, 120)}': its folder does not exist; create it first"
        ) from None
    except OSError as error:
        raise write_error(error, path) from error
    with _guarded(temporary, path):
        yield temporary
        filled = _check_folder(path, overwrite, looks_ours)
        try:
            _sync_tree(temporary)
            if filled:
                _exchange(temporary, path)
            else:
                _put(temporary, path)
        except OSError as error:
            raise write_error(error, path) from error


def _put(temporary: Path, path: Path) -> None:
    if os.name != "posix" and path.is_dir():
        path.rmdir()  # only POSIX renames over an empty folder
    os.rename(temporary, path)
    _sync_folder(path.parent)


def _exchange(temporary: Path, path: Path) -> None:
    """Put a folder in the place of a filled one, which is moved aside and then deleted."""
    aside = _temporary(path, "old")
    os.rename(path, aside)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(aside, path)
        raise
    # Should syncing fail, the old one stays aside: a crash may still undo the renames.
    _sync_folder(path.parent)
    _remove(aside)


# --------------------------------------------------------------------------- memory


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None  # absent, or "max"


def _reclaimable(stat_file: Path) -> int:
    """Bytes of file cache that the kernel gives back before it kills."""
    try:
        for line in stat_file.read_text("ascii").split("\n"):
            name, _, value = line.partition(" ")
            if name in ("inactive_file", "total_inactive_file") and value:
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def _cgroup_memory(proc: Path, root: Path) -> int | None:
    """Return what the control groups of this process leave it, or None without a limit."""
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").split("\n")
    except (OSError, ValueError):
        return None
    found: list[int] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, inner = rest.partition(":")
        if controllers == "":
            base, limit, usage = root, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, usage = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # Every ancestor may set a limit; inside a container the path may start elsewhere.
        parts = [part for part in inner.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            folder = base.joinpath(*parts[:depth])
            most, used = _number(folder / limit), _number(folder / usage)
            if most is not None and used is not None:
                found.append(max(0, most - used + _reclaimable(folder / "memory.stat")))
    return min(found, default=None)


def available_memory(*, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes this process may still take: machine, control group and ulimit.

    Args:
        proc: where the kernel tells about processes; another folder in tests.
        cgroup: where it tells about control groups.
    """
    candidates: list[int] = []
    try:
        for line in (proc / "meminfo").read_text("ascii").split("\n"):
            if line.startswith("MemAvailable:"):
                candidates.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    if not candidates:
        try:
            candidates.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
        except (OSError, ValueError, AttributeError):
            candidates.append(1 << 31)  # nothing is known: assume a small machine
    group = _cgroup_memory(proc, cgroup)
    if group is not None:
        candidates.append(group)
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            pages = int((proc / "self" / "statm").read_text("ascii").split()[0])
            candidates.append(max(0, most - pages * resource.getpagesize()))
    except (ImportError, OSError, ValueError, IndexError):
        pass
    return min(candidates)
