"""Every code block of the documentation runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import click
import flair_stand_in
import pytest
from doc_blocks import Block, blocks_of, run_block
from small_models import DATA, make_options, write_pair
from small_tasks import write_data

from elmore import Elmo
from elmore.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
# The reference is made of docstrings, whose examples other tests run.
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name != "reference.md"),
]
# These have no code that runs, but name files and flags, too.
TEXTS = [*PAGES, *sorted({*ROOT.glob("*.md")} - {*PAGES}), ROOT / "benchmarks/README.md"]

WORDS = "the plant bank river fell grew rain stocks she it a of on and then rates money old".split()


def prepare_place(place: Path) -> None:
    """Put the files that the pages use into a folder."""
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
    shutil.copytree(ROOT / "docs/assets/uses", place / "docs/assets/uses")
    shutil.copytree(ROOT / "docs/assets/uses", place, dirs_exist_ok=True)
    shutil.copytree(DATA / "tf1_characters", place / "bilm-checkpoint")
    shutil.copytree(DATA / "manylangs_both", place / "manylangs-model")
    shutil.copy(DATA / "allennlp_tagger.tar.gz", place / "tagger.tar.gz")


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


def missing_libraries(blocks: list[Block]) -> list[str]:
    """Libraries that the Python blocks of a page import and that are not installed.

    flair is replaced by a stand-in; a block that begins with `# needs X` is left out by itself.
    """
    code = "".join(block.code for block in blocks if block.kind == "python")
    names = set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))
    needed = names - set(re.findall(r"# needs (\w+)", code)) - {"flair"}
    return [name for name in sorted(needed) if importlib.util.find_spec(name) is None]


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*")  # of its own settings
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = blocks_of(page)
    assert blocks, "a page starts with an example that runs"
    for missing in missing_libraries(blocks):
        pytest.skip(f"{missing} is not installed: elmore[dev]")
    prepare_place(tmp_path)
    pair = tmp_path / "options.json", tmp_path / "weights.hdf5"
    Elmo.load(pair, tokenizer="billion-word").save(tmp_path / "my-model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
    if page.name == "libraries.md" and importlib.util.find_spec("flair") is None:
        for name, module in flair_stand_in.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
    if page.name == "distributed.md":
        prepare_engines(monkeypatch)
    space: dict[str, object] = {}
    for block in blocks:
        run_block(page, block, space)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?!bin/)(?:[a-z_]+/)+[\w-]+\.(?:py|c|h|toml|json|sh))`", text))
    named |= set(re.findall(r"`(?:python )?((?:benchmarks|tools|examples)/[^\s`]+\.\w+)", text))
    for name in named:
        places = [ROOT / name, ROOT / "src/elmore" / name, ROOT / "native" / name]
        assert any(path.exists() for path in places), f"{page.name} names {name}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_flags_that_a_page_names_exist(page: Path) -> None:
    """Also of commands that do not run here: in text, and in blocks for a shell."""
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"(?:^|`|\$ )elmore ([a-z-]+ [^`\n#|]*--[^`\n#|]*)", text, re.MULTILINE):
        command: click.Command = cli
        words = line.split()
        for word in words:
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"{page.name}: elmore {line}"
            command = found
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        for word in words[: words.index("--") if "--" in words else None]:
            if word.startswith("--"):
                assert word.partition("=")[0] in {*known, "--help"}, f"{page.name}: elmore {line}"
