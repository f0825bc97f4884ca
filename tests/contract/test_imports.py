"""What an import loads."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from contract.test_ladder import FILES, forbidden_torch, module_name


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_import_elmore_loads_no_torch(record_property: pytest.FixtureRequest) -> None:
    before = time.perf_counter()
    run("pass")
    empty = time.perf_counter() - before
    loaded, seconds = json.loads(
        run(
            "import json, sys, time; t = time.perf_counter(); import elmore;"
            "elmore.ElmoreError, elmore.BiLmConfig, elmore.__version__, dir(elmore);"
            "t = time.perf_counter() - t;"
            "print(json.dumps([sorted(m for m in sys.modules if '.' not in m), t]))"
        )
    )
    record_property("import_elmore_seconds", seconds)
    record_property("empty_python_seconds", empty)
    print(f"import elmore: {seconds * 1000:.0f} ms (an empty python: {empty * 1000:.0f} ms)")
    assert not {"torch", "numpy", "h5py", "safetensors", "tqdm"} & set(loaded)
    assert seconds < 1


def test_the_floors_without_torch_load_none() -> None:
    """Whatever they import, and whatever that imports."""
    modules = [module_name(path) for path in forbidden_torch() if path.stem != "__main__"]
    output = run(
        f"import importlib, sys\nfor name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules:\n        print(name); break"
    )
    assert output == ""


@pytest.mark.parametrize("name", ["Elmo", "cosine"])
def test_a_name_is_loaded_when_it_is_used(name: str) -> None:
    output = run(f"import sys, elmore; elmore.{name}; print('torch' in sys.modules)")
    assert output.strip() == str(name == "Elmo")


def test_importing_everything_changes_nothing_outside() -> None:
    """D9: no environment, no logging, no random state, no threads."""
    modules = [m for m in FILES if not m.endswith("__main__")]
    output = run(
        "import os, logging, random, threading, importlib, warnings\n"
        "import numpy, torch\n"
        "import sklearn.base, spacy.language\n"  # what these do is their own affair
        "def look(): return (dict(os.environ), logging.getLogger().handlers[:], "
        "random.getstate(), torch.get_rng_state().sum().item(), torch.get_num_threads(), "
        "threading.active_count(), os.getcwd(), torch.is_grad_enabled(), warnings.filters[:])\n"
        "before = look()\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print([a == b for a, b in zip(before, look())])"
    )
    assert output.strip() == str([True] * 9)
