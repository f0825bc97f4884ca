"""The notebooks run.

ELMORE_DOCS=write pytest tests/contract/test_notebooks.py    # run them and keep their outputs
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub, serve_hub

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install nbclient")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: elmore[dev]")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: elmore[dev]")

pytestmark = pytest.mark.integration
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
WRITE = os.environ.get("ELMORE_DOCS") == "write"


def read(name: str) -> Any:
    return nbformat.read(FOLDER / name, 4)


def run(name: str, place: Path) -> Any:
    """Run a notebook in a folder of its own, beside its data."""
    for path in FOLDER.glob("*.txt"):
        shutil.copy(path, place)
    notebook = read(name)
    where = {"metadata": {"path": str(place)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
    return notebook


def tidied(notebook: Any) -> Any:
    """Without bars, times and counters, which differ from run to run."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        kept: list[Any] = []
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                continue
            if kept and output.output_type == "stream" == kept[-1].output_type:
                kept[-1].text += output.text
                continue
            if "execution_count" in output:
                output.execution_count = None
            kept.append(output)
        cell.outputs = kept
    notebook.metadata.pop("language_info", None)
    return notebook


def kinds(notebook: Any) -> list[list[str]]:
    """What each cell shows: text on stdout, or values, as text or HTML."""
    return [
        [
            output.output_type if output.output_type == "stream" else "/".join(sorted(output.data))
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub on this machine, which the kernel takes for the real one."""
    for name in ("ELMORE_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with serve_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        yield running


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(name: str, tmp_path: Path, hub: FakeHub) -> None:
    done = tidied(run(name, tmp_path))
    if WRITE:
        nbformat.write(done, FOLDER / name)
    assert kinds(done) == kinds(read(name)), "run ELMORE_DOCS=write pytest on this file"
    if name == "own-model.ipynb":  # it pushes the model, and loads it again
        assert "model.safetensors" in hub.repositories["your-name/harbour"]["main"]
        assert done.cells[-2].outputs[-1].text == "the same vectors: True\n"
