"""The package without what only POSIX systems have: modules, functions and signals.

Nothing here runs on Windows. The child process hides what Windows does not have, tells elmore that
it is there, and brings the one Windows module that elmore uses.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from contract.test_ladder import FILES

# There, it is the complete suite that runs without them.
pytestmark = pytest.mark.skipif(os.name == "nt", reason="simulates Windows")

SOURCE = Path(__file__).parents[2] / "src"
TESTS = Path(__file__).parents[1]
# Other people's modules come first: they have their own ways on Windows.
HIDE = """
import asyncio, importlib, logging.handlers, mmap, os, shutil, signal, subprocess, sys, tempfile
import types
for name in ("h5py", "numpy", "torch", "tqdm.auto", "pyarrow.parquet", "scipy.stats", "fastapi",
             "sklearn.linear_model", "sklearn.metrics", "uvicorn", "spacy", "pandas", "matplotlib",
             "safetensors", "torch.distributed", "huggingface_hub", "filelock", "msgspec", "click",
             "concurrent.futures.process", "multiprocessing.spawn"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "spwd", "nis",
             "crypt", "posix", "readline", "curses"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "sched_getaffinity", "sched_setaffinity", "sysconf", "getuid",
             "geteuid", "getgid", "getegid", "getpgid", "killpg", "setsid", "uname", "getloadavg",
             "mkfifo", "mknod", "chown", "fchown", "lchown", "fchmod", "pread", "pwrite", "nice",
             "register_at_fork", "O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "sync",
             "posix_fadvise", "posix_fallocate", "sendfile", "openpty", "ttyname", "getgroups"):
    vars(os).pop(name, None)
for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGCHLD",
             "alarm", "setitimer", "pthread_kill", "pthread_sigmask", "sigwait", "pause"):
    vars(signal).pop(name, None)
for name in [name for name in vars(mmap) if name.startswith(("MAP_", "MADV_", "PROT_"))]:
    delattr(mmap, name)
# They exist on Windows, and do something else: end at once, and return to the shell.
os.kill = os.execv = None
import filelock
filelock.FileLock = filelock.SoftFileLock  # its lock of this system needs fcntl
msvcrt = types.ModuleType("msvcrt")
msvcrt.locking, msvcrt.LK_NBLCK = lambda *_: None, 2
sys.modules["msvcrt"] = msvcrt
sys.platform = "win32"
"""
CORE = """
from pathlib import Path
from elmore import Elmo
from elmore.errors import Stopped
from elmore.training.bilm.pretrain import pretrain
from elmore.training.run import Run
from small_training import small_data, small_recipe

folder = Path(sys.argv[1])
elmo = Elmo.load(sys.argv[2])
elmo.embed(["She fell.", "It rains."])
elmo.save(folder / "copy")
elmo.save(folder / "copy", overwrite=True)
Elmo.load(folder / "copy").encode(["Once more."])
data = small_data(folder / "corpus")
def stop(line):
    if line["step"] == 4:
        signal.raise_signal(signal.SIGTERM)
try:
    pretrain(data, folder / "run", recipe=small_recipe(), threads=1, progress=stop)
except Stopped:
    print("stopped at", Run(folder / "run").log()[-1]["step"])
pretrain(data, folder / "run", recipe=small_recipe(), threads=1, resume=True)
print(Run(folder / "run").elmo().embed("wa wb").shape)
"""


# As on a machine without git, bash, Java or compilers. pytest's own plugins come first, too.
COLLECT = """
import io, pytest, _pytest.capture, hypothesis
shutil.which = lambda *_, **__: None
io._WindowsConsoleIO = type("_WindowsConsoleIO", (), {})
arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
sys.exit(pytest.main([*arguments, "-W", "ignore", "--rootdir", sys.argv[1], sys.argv[1]]))
"""


def run(code: str, *arguments: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HIDE + code, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, TESTS)))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported() -> None:
    missing = [] if find_spec("spacy") else ["elmore.integrations.spacy"]  # needs it at import
    modules = [name for name in FILES if not name.endswith("__main__") and name not in missing]
    out = run(f"for name in {modules!r}: importlib.import_module(name)\nprint(len({modules!r}))")
    print(f"{out.strip()} modules imported")
    assert int(out) == len(modules) > 200


def test_the_core_runs(tiny_folder: Path, tmp_path: Path) -> None:
    assert run(CORE, tmp_path, tiny_folder) == "stopped at 4\n(2, 12)\n"
    # What is written has the same bytes on every system.
    for name in ("run/log.jsonl", "run/recipe.json", "copy/config.json", "copy/manifest.json"):
        assert b"\r" not in (tmp_path / name).read_bytes()


def test_the_suite_can_be_collected() -> None:
    """Only a test that runs may need what Windows does not have, and it is skipped there."""
    counts = re.findall(r"^\S+\.py: (\d+)$", run(COLLECT, TESTS), re.MULTILINE)
    assert len(counts) > 100
    assert sum(map(int, counts)) > 3000


def test_signals_end_a_command() -> None:
    """A process cannot end by a signal there; and os.kill would skip every `finally`."""
    code = """
import time
from elmore.cli import main
def later():
    try:
        main._thread.start_new_thread(main._send_later, (signal.SIGTERM,))
        for _ in range(3000):  # interrupt_main() ends no sleep
            time.sleep(0.01)
    finally:
        sys.stderr.write("cleaned")
with main._terminable():
    try:
        later()
    except main._Terminated:
        code = main._end_by(signal.SIGTERM)
sys.exit(code - 143 if code else 1)
"""
    run(code)
