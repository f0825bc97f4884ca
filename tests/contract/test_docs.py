"""Every code block of the documentation runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_models import DATA, make_options, write_pair
from small_tasks import write_data

from elmore import Elmo

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)

WORDS = "the plant bank river fell grew rain stocks she it a of on and then rates money old".split()


def prepare_place(place: Path) -> None:
    """Put everything into a folder that the pages speak of."""
    write_pair(place, make_options(), seed=3)
    lines = [
        " ".join(WORDS[(7 * k + j * j) % len(WORDS)] for j in range(4 + k % 9)) + " ."
        for k in range(400)
    ]
    (place / "corpus").mkdir()
    for part in range(4):
        text = "\n".join(
            "\n".join(lines[start : start + 10]) + "\n"
            for start in range(part * 100, part * 100 + 100, 10)
        )
        (place / "corpus" / f"{part}.txt").write_text(text, encoding="utf-8")
    for name in ("sentences.txt", "heldout.txt", "reviews.txt"):
        (place / name).write_text("\n".join(lines[:30]) + "\n", encoding="utf-8")
    for name in ("train.conll", "dev.conll"):
        write_data("ner", place).rename(place / name)
    (place / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *WORDS]) + "\n", "utf-8")
    shutil.copytree(DATA / "tf1_characters", place / "bilm-checkpoint")
    shutil.copytree(DATA / "manylangs_both", place / "manylangs-model")
    shutil.copy(DATA / "allennlp_tagger.tar.gz", place / "tagger.tar.gz")


def run_console(line: str) -> None:
    """Run one line of a console block through a shell, with our own elmore in front."""
    python = shlex.quote(sys.executable)
    command = re.sub(r"(^|\| |=\w+ )elmore ", rf"\1{python} -m elmore ", line)
    command = re.sub(r"^python ", f"{python} ", command)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def prepare_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray and Spark start on this machine alone, and find this very elmore."""
    for engine in ("ray.data", "pyspark"):
        pytest.importorskip(engine, reason=f"{engine} is not installed: elmore[ray,spark]")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later, and none is here")
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_worker_niceness": "0",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # A short life: half the work of starting Java is for speed that would come too late.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*")  # of its own settings
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    assert blocks, "a page starts with an example that runs"
    prepare_place(tmp_path)
    if page.name != "README.md":  # which makes it itself
        Elmo.load((tmp_path / "options.json", tmp_path / "weights.hdf5")).save(
            tmp_path / "my-model"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    if page.name == "distributed.md":
        prepare_engines(monkeypatch)
    space: dict[str, object] = {}
    for kind, code in blocks:
        if kind == "python":
            exec(compile(code, f"{page.name}", "exec"), space)
        else:
            for line in code.split("\n"):
                if line.startswith("$ "):
                    run_console(line[2:])
