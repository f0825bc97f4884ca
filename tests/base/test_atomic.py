"""elmore.base.atomic: files and folders complete or not at all, and locks."""

from __future__ import annotations

import builtins
import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import posix

from elmore.base.atomic import atomic_file, atomic_folder, atomic_path, locked, write_error
from elmore.errors import ConfigError, ElmoreError, ResumeError


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_atomic_file(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    with atomic_file(path) as stream:
        stream.write(b"new")
        assert not path.exists()
        (temporary,) = names(tmp_path)
        assert temporary.startswith(".out.bin.")
        assert temporary.endswith(".partial")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["out.bin"]
    with (
        pytest.raises(ConfigError, match=r"exists; pass overwrite=True \(--force\)"),
        atomic_file(path),
    ):
        pass
    with atomic_file(path, overwrite=True) as stream:
        stream.write(b"newer")
        stream.seek(0)
        assert stream.read() == b"newer"
    assert path.read_bytes() == b"newer"


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), OSError(errno.EIO, "x", "f")]
)
def test_failure_keeps_the_old_file(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")

    def write() -> None:
        with atomic_file(path, overwrite=True) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert caught.value is error
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out.bin"]


def test_odd_targets(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="is a folder"), atomic_file(tmp_path / "folder"):
        pass
    for path in (Path("/dev/null"), Path("/")):
        with pytest.raises(ConfigError), atomic_file(path, overwrite=True):
            pass
    with (
        pytest.raises(ElmoreError, match="folder does not exist"),
        atomic_file(tmp_path / "no" / "x"),
    ):
        pass
    long = "ü" * 127  # 254 bytes
    with atomic_file(tmp_path / long) as stream:
        stream.write(b"x")
    with atomic_folder(tmp_path / ("é" * 127)) as folder:
        (folder / "a").write_bytes(b"x")
    assert (tmp_path / long).read_bytes() == b"x"


@pytest.mark.parametrize("number", [errno.ENOTDIR, errno.ENOENT, errno.EINVAL])
def test_a_path_below_a_file_is_a_wrong_name_whatever_the_system_says(
    number: int, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "x", tmp_path / "file" / "no" / "x"):
        error = write_error(OSError(number, "refused"), path)
        assert isinstance(error, ConfigError)
        assert "file' is a file, not a folder; choose another name" in str(error)


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "out").symlink_to("secret")
    with atomic_file(tmp_path / "out", overwrite=True) as stream:
        stream.write(b"new")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "out").is_symlink()


def test_rights_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        with atomic_file(tmp_path / "a"), atomic_folder(tmp_path / "b"):
            pass
    finally:
        os.umask(old)
    rights = [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"]
    assert rights == [0o644, 0o755]


def test_atomic_path(tmp_path: Path) -> None:
    path = tmp_path / "out.hdf5"
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(ElmoreError), atomic_path(path, overwrite=True) as temporary:
        temporary.unlink()
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["out.hdf5"]


def test_atomic_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def ours(folder: Path) -> bool:
        return (folder / "manifest").exists()

    def write(content: bytes, **options: Any) -> None:
        with atomic_folder(path, **options) as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / "weights").write_bytes(content)
            (folder / "manifest").write_bytes(content)

    write(b"1")
    with pytest.raises(ConfigError, match="overwrite=True"):
        write(b"2", looks_ours=ours)
    with pytest.raises(ConfigError, match="did not write"):
        write(b"2", overwrite=True)
    write(b"2", overwrite=True, looks_ours=ours)
    assert (path / "sub" / "weights").read_bytes() == b"2"
    (path / "manifest").unlink()
    with pytest.raises(ConfigError, match="did not write"):
        write(b"3", overwrite=True, looks_ours=ours)
    assert (path / "sub" / "weights").read_bytes() == b"2"
    assert names(tmp_path) == ["model"]


def test_atomic_folder_uses_an_empty_one_and_refuses_others(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with atomic_folder(tmp_path / "empty") as folder:
        (folder / "a").write_bytes(b"x")
    assert names(tmp_path / "empty") == ["a"]
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("empty")
    for name in ("file", "link"):
        with (
            pytest.raises(ConfigError),
            atomic_folder(tmp_path / name, overwrite=True, looks_ours=lambda path: True),
        ):
            pass
    assert names(tmp_path) == ["empty", "file", "link"]


# ----------------------------------------------------------------- fail the n-th call


class Faults:
    """Let the n-th call of any wrapped function fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int, code: int) -> None:
        self.left, self.code, self.fired = n, code, ""
        for name in ("fsync", "replace", "open", "mkdir"):
            monkeypatch.setattr(os, name, self.wrap(name, getattr(os, name)))
        real = builtins.open
        monkeypatch.setattr(builtins, "open", lambda *a, **o: _Failing(real(*a, **o), self))

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.count(name, args[0])
            return real(*args, **options)

        return call

    def count(self, name: str, path: object = None) -> None:
        self.left -= 1
        if self.left == 0:
            self.fired = name
            named = isinstance(path, str | os.PathLike)
            raise OSError(self.code, os.strerror(self.code), *([path] if named else []))


class _Failing:
    """A file whose writes and closings are counted as calls."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, data: bytes) -> None:
        self._faults.count("write")
        self._file.write(data)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._faults.count("close")


def _write_file(folder: Path) -> None:
    with atomic_file(folder / "out", overwrite=True) as stream:
        for part in (b"n", b"e", b"w"):
            stream.write(part)


def _write_folder(folder: Path) -> None:
    with atomic_folder(folder / "out", overwrite=True, looks_ours=lambda path: True) as temporary:
        for name in ("a", "b"):
            (temporary / name).write_bytes(b"new")


def _content(path: Path) -> list[bytes] | None:
    if not path.exists():
        return None
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file.read_bytes() for file in files]


WRITERS = {"file": _write_file, "folder": _write_folder}


def _prepare(writer: str, target: Path, old: bool) -> None:
    for item in target.parent.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()
    if old and writer == "folder":
        target.mkdir()
        (target / "a").write_bytes(b"old")
        (target / "b").write_bytes(b"old")
    elif old:
        target.write_bytes(b"old")


@pytest.mark.parametrize("writer", list(WRITERS))
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_fail_the_nth_call(
    writer: str, old: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    n_files = 2 if writer == "folder" else 1
    before, after = [b"old"] * n_files if old else None, [b"new"] * n_files
    fired: list[str] = []
    for n in range(1, 100):
        _prepare(writer, target, old)
        error: Exception | None = None
        with monkeypatch.context() as patch:
            faults = Faults(patch, n, code)
            try:
                WRITERS[writer](tmp_path)
            except (ElmoreError, OSError) as caught:
                error = caught
        if not faults.fired:
            break
        fired.append(faults.fired)
        found = _content(target)
        assert found in (before, after), (n, faults.fired)
        if error is None:
            # Only clearing up, and a folder that the system does not let us sync, may be silent.
            assert found == after
            assert faults.fired == "open" or (faults.fired, code) == ("fsync", errno.EACCES)
        elif code == errno.ENOSPC or faults.fired in ("mkdir", "replace"):
            assert isinstance(error, ElmoreError), (n, faults.fired)
            assert re.fullmatch(r"cannot write '.*out'.* bytes free there; .{,200}", str(error))
        rest = [name for name in names(tmp_path) if name != "out"]
        if rest:  # the old folder stays aside when syncing or deleting it fails; never a partial
            assert found == after
            assert all(name.endswith(".old") for name in rest)
    else:
        pytest.fail("never succeeded")
    assert error is None
    assert _content(target) == after
    assert names(tmp_path) == ["out"]
    assert {"fsync", "open"} <= set(fired)
    assert len(fired) >= 4, fired


@pytest.mark.parametrize("writer", list(WRITERS))
def test_data_is_synced_before_the_name_and_the_folder_after(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.fstat(fd).st_ino), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("named"), replace(a, b)))
    WRITERS[writer](tmp_path)
    target = tmp_path / "out"
    inodes = {target.stat().st_ino}
    if target.is_dir():
        inodes |= {item.stat().st_ino for item in target.iterdir()}
    named = events.index("named")
    assert inodes <= set(events[:named])
    assert events[named + 1 :] == [tmp_path.stat().st_ino]


CHILD = """
import resource, signal, sys
from pathlib import Path
from elmore.base.atomic import atomic_file, atomic_folder
from elmore.errors import ElmoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
folder = Path(sys.argv[1])
try:
    with atomic_file(folder / "out", overwrite=True) as stream:
        for _ in range(3000):
            stream.write(bytes(1000))
except ElmoreError as error:
    print(error)
"""


def _old_outputs(folder: Path) -> None:
    (folder / "out").write_bytes(b"old")
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_bytes(b"old")


def _check_old_outputs(folder: Path) -> None:
    assert (folder / "out").read_bytes() == b"old"
    assert (folder / "model" / "weights").read_bytes() == b"old"


@posix
def test_file_size_limit(tmp_path: Path) -> None:
    _old_outputs(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "file too large" in done.stdout
    assert "bytes free" in done.stdout
    _check_old_outputs(tmp_path)
    assert names(tmp_path) == ["model", "out"]


KILLED = """
import os, sys
from pathlib import Path
from elmore.base.atomic import atomic_file, atomic_folder
folder = Path(sys.argv[1])
if sys.argv[2] == "file":
    with atomic_file(folder / "out", overwrite=True) as stream:
        stream.write(b"half")
        stream.flush()
        os.kill(os.getpid(), 9)
with atomic_folder(folder / "model", overwrite=True, looks_ours=lambda path: True) as t:
    (t / "weights").write_bytes(b"new")
    os.kill(os.getpid(), 9)
"""


@posix
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_next_owner_of_the_lock_cleans_up_after_a_killed_writer(
    kind: str, tmp_path: Path
) -> None:
    _old_outputs(tmp_path)
    (tmp_path / "mine.partial").write_bytes(b"not ours")
    (tmp_path / f".link.{'0' * 12}.partial").symlink_to("model")  # planted: only the link goes
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), kind], timeout=60)
    assert done.returncode == -9
    assert len(names(tmp_path)) >= 4
    with locked(tmp_path / "lock", "busy"):
        assert names(tmp_path) == ["lock", "mine.partial", "model", "out"]
    _check_old_outputs(tmp_path)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_kill_while_a_folder_is_replaced_leaves_one(replaced: bool, tmp_path: Path) -> None:
    old = tmp_path / f".model.{'0' * 12}.old"
    for folder, text in [(old, "old"), (tmp_path / "model", "new")][: 1 + replaced]:
        folder.mkdir()
        (folder / "file").write_text(text)
    with locked(tmp_path / "lock", "busy"):
        assert names(tmp_path) == ["lock", "model"]
    assert (tmp_path / "model" / "file").read_text() == ("new" if replaced else "old")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for error in (ElmoreError, ResumeError):
        with (
            locked(path, "in use; wait"),
            pytest.raises(error, match="in use; wait"),
            locked(path, "in use; wait", error=error),
        ):
            pass
    with pytest.raises(ZeroDivisionError), locked(path, "in use"):
        raise ZeroDivisionError
    with locked(path, "still held after a failure"):
        pass
    (tmp_path / "file").write_bytes(b"not ours")
    (tmp_path / "link").symlink_to("file")  # planted
    for bad in (path / "no" / "lock", tmp_path / "link"):
        with pytest.raises(ElmoreError, match="cannot write"), locked(bad, ""):
            pass
    assert (tmp_path / "file").read_bytes() == b"not ours"
