"""What only a process of its own shows: imports, signals, pipes, limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_models import posix

COMMAND = [sys.executable, "-m", "elmore"]


def run(*arguments: object, **options) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, **options)


@pytest.mark.parametrize(
    "line",
    "--help|embed --help|serve --help|train --help|analyze wsd --help|models|info {m}|"
    "embed --model {m} --layers 9".split("|"),
)
def test_no_torch(line: str, tiny_folder: Path):
    words = [word.format(m=tiny_folder) for word in line.split()]
    heavy = {"torch", "fastapi", "uvicorn"}
    if words[-1] == "--help":
        heavy |= {"h5py", "numpy"}
    code = (
        "import sys; from elmore.cli.main import main\n"
        f"main({words!r})\n"
        f"sys.exit(3 if {heavy!r} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, timeout=60)
    assert done.returncode == 0, done


@posix
def test_head_ends_it_quietly(tiny_folder, tmp_path):
    text = tmp_path / "long.txt"
    text.write_text("It fell .\n" * 20_000)
    with subprocess.Popen(
        [*COMMAND, "embed", "--model", str(tiny_folder), str(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline().startswith(b'{"tokens"')
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_no_file(number, tiny_folder, tmp_path):
    out = tmp_path / "out.hdf5"
    with subprocess.Popen(
        [*COMMAND, "embed", "--model", str(tiny_folder), "-o", str(out)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b"It fell .\n" * 3000)
        process.stdin.flush()
        deadline = time.monotonic() + 50
        # The first records are on their way when the unfinished file has grown.
        while not any(path.stat().st_size > 100_000 for path in tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(30) == -number
        assert b"Traceback" not in process.stderr.read()
    assert list(tmp_path.iterdir()) == []


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_a_destructor_is_not_lost(number):
    code = f"""
import signal, time
from elmore.cli import main, models

class Dying:
    def __del__(self):
        signal.raise_signal({int(number)})  # Python drops the exception that this raises here

def run(**given):
    Dying()
    time.sleep(50)

models.models.callback = run
main.main(["models"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == -number
    assert done.stderr == b""


# In the HDF5 library a failed write used to end the process when it was about to end well.
@posix
@pytest.mark.parametrize("suffix", ["jsonl", "npz", "hdf5", "parquet"])
def test_a_full_disk_is_one_line_and_no_file(suffix, cli, tiny_folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"It{k} fell{k} .\n" for k in range(3000)))  # hard to pack
    arguments = ["embed", text, "--model", tiny_folder, "-o", tmp_path / f"out.{suffix}"]
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 300_000, before[1]
    if suffix == "hdf5":
        done = run(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        code, said = done.returncode, done.stderr.decode()
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        try:
            code, _, said = cli(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 1, said
    assert said.count("\n") == 1, said
    assert "file too large" in said
    assert "bytes free" in said
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_a_full_stdout(tiny_folder, text):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "embed", str(text), "--model", str(tiny_folder)],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"no space left" in done.stderr


@posix
def test_closed_streams(tiny_folder, text):
    command = " ".join([*COMMAND, "embed", "--model", str(tiny_folder)])
    done = subprocess.run(f"{command} {text} >&-", shell=True, capture_output=True)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    done = subprocess.run(f"{command} <&-", shell=True, capture_output=True)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


@posix
def test_pipes_of_the_shell_and_odd_names(tiny_folder, tmp_path):
    (tmp_path / "-x.txt").write_text("One\n")
    command = " ".join([*COMMAND, "embed", "--model", str(tiny_folder), "--pool", "mean"])
    line = f"{command} -- -x.txt <(echo Two)"
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=tmp_path)
    assert done.stdout.count(b"\n") == 2, done


def test_same_bytes_in_any_locale(cli, tiny_folder):
    text = "Ταχίστη ἀλώπηξ 🦊\n".encode()
    plain = cli("embed", "--model", tiny_folder, "--pool", "mean", stdin=text).records()
    odd = {**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    other = run("embed", "--model", tiny_folder, "--pool", "mean", input=text, env=odd)
    assert other.returncode == 0
    assert json.loads(other.stdout.decode("utf-8"))["tokens"] == plain[0]["tokens"]
