"""What an import loads."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from contract.test_ladder import FILES, without_torch

# Modules that need a library at their first line, which not every environment has.
NEEDS = {"elmore.integrations.spacy": "spacy"}


def installed(module: str) -> bool:
    return module not in NEEDS or find_spec(NEEDS[module]) is not None


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_import_elmore_loads_nothing_heavy() -> None:
    out = run(
        "import sys, elmore; elmore.ElmoreError, elmore.BiLmConfig, dir(elmore);"
        "print({'torch', 'numpy', 'h5py', 'safetensors', 'tqdm'} & set(sys.modules))"
    )
    assert out == "set()\n"


# Installed or not, nobody can import it after this.
BLOCK_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Blocked())
"""


def test_all_that_needs_no_torch_can_be_imported_without_it() -> None:
    """Whatever they import, and whatever that imports."""
    modules = [m for m in without_torch() if not m.endswith("__main__") and installed(m)]
    code = f"import importlib\nfor name in {modules!r}: importlib.import_module(name)"
    assert run(BLOCK_TORCH + code) == ""


def test_the_others_say_which_extra_brings_torch() -> None:
    names = ["ElmoLayer", "ScalarMix", "pretrain", "fine_tune"]
    code = f"""
import elmore
for name in {names!r}:
    try:
        getattr(elmore, name)
    except elmore.ElmoreError as error:
        print(error)
"""
    lines = run(BLOCK_TORCH + code).splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"elmore.{name}" for name in names]
    for line in lines:
        assert "needs torch; install elmore[torch]" in line
        assert "/whl/cpu" in line


def test_using_a_model_loads_no_torch() -> None:
    code = """
import sys
from elmore import Elmo, score
elmo = Elmo.load()
assert elmo.embed("It fell .").shape == (3, elmo.dim)
score(elmo, "It fell .")
print("torch" in sys.modules)
"""
    assert run(code).strip() == "False"


def test_importing_everything_changes_nothing_outside() -> None:
    """No environment, no logging, no random state, no threads."""
    modules = [m for m in FILES if not m.endswith("__main__") and installed(m)]
    output = run(
        "import os, logging, random, threading, importlib, warnings\n"
        "import numpy, torch\n"
        "import importlib.util, sklearn.base\n"  # what these do is their own affair
        "if importlib.util.find_spec('spacy'): import spacy.language\n"
        "def look(): return (dict(os.environ), logging.getLogger().handlers[:], "
        "random.getstate(), torch.get_rng_state().sum().item(), torch.get_num_threads(), "
        "threading.active_count(), os.getcwd(), torch.is_grad_enabled(), warnings.filters[:])\n"
        "before = look()\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print([a == b for a, b in zip(before, look())])"
    )
    assert output.strip() == str([True] * 9)
