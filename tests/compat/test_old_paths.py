"""Old code runs when the package name is replaced, or unedited."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from elmore.compat import allennlp, bilm, manylangs, simple_elmo

# The imports that scripts have, as AllenNLP 0.9 and 2.10, bilm-tf and the others offered them.
IMPORTS = """
from allennlp.modules.elmo import Elmo, batch_to_ids, _ElmoBiLm, _ElmoCharacterEncoder
from allennlp.modules import Elmo, ScalarMix
from allennlp.modules.scalar_mix import ScalarMix
from allennlp.modules.elmo_lstm import ElmoLstm
from allennlp.modules.token_embedders import ElmoTokenEmbedder
from allennlp.modules.token_embedders.elmo_token_embedder import ElmoTokenEmbedder
from allennlp.commands.elmo import ElmoEmbedder, DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper
from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from bilm import Batcher, BidirectionalLanguageModel, weight_layers, dump_bilm_embeddings
from bilm.data import Batcher, UnicodeCharsVocabulary, TokenBatcher
from bilm.model import BidirectionalLanguageModel, dump_token_embeddings
from bilm.elmo import weight_layers
from simple_elmo import ElmoModel
from simple_elmo.elmo_helpers import ElmoModel
from elmoformanylangs import Embedder
from elmoformanylangs.elmo import Embedder
"""

SCRIPT = """
import sys
import allennlp.commands.elmo
from allennlp.modules.elmo import Elmo, batch_to_ids
elmo = Elmo(sys.argv[1], sys.argv[2], 1, dropout=0)
print(tuple(elmo(batch_to_ids([["It", "fell"]]))["elmo_representations"][0].shape))
print(allennlp.commands.elmo.ElmoEmbedder(*sys.argv[1:]).embed_sentence(["It"]).shape)
print(__name__, len(sys.argv))
from beside import NAME
print(NAME)
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})


@pytest.mark.parametrize("line", IMPORTS.strip().split("\n"))
def test_replacing_the_package_name_is_enough(line: str) -> None:
    space: dict[str, object] = {}
    exec(line.replace("from ", "from elmore.compat."), space)
    for name in line.partition(" import ")[2].split(", "):
        assert space[name] is not None


def test_an_old_path_gives_our_own_classes() -> None:
    module = importlib.import_module("elmore.compat.allennlp.modules.elmo")
    assert module.Elmo is allennlp.Elmo
    assert allennlp.modules.elmo is module
    assert "batch_to_ids" in dir(module)
    assert importlib.import_module("elmore.compat.bilm.elmo").weight_layers is bilm.weight_layers
    helpers = importlib.import_module("elmore.compat.simple_elmo.elmo_helpers")
    assert helpers.ElmoModel is simple_elmo.ElmoModel
    assert importlib.import_module("elmore.compat.elmoformanylangs").Embedder is manylangs.Embedder


def test_what_is_not_there_is_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"elmore\.compat\.allennlp\.modules\.maxout"):
        importlib.import_module("elmore.compat.allennlp.modules.maxout")
    with pytest.raises(ImportError, match="cannot import name 'Seq2Seq'"):
        exec("from elmore.compat.allennlp.modules import Seq2Seq")


def test_unedited_imports_after_install() -> None:
    """In a process of its own: this one must not be left with a package `allennlp`."""
    code = (
        f"from elmore.compat import install; install(){IMPORTS}"
        "import allennlp, elmore.compat.allennlp as ours\n"
        "print(allennlp is ours, Elmo is ours.Elmo)"
    )
    done = run("-c", code)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_a_script_runs_unedited(small_pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n", encoding="utf-8")
    script = tmp_path / "old.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = run("-m", "elmore.compat", "run", script, *small_pair)
    assert done.stderr == ""
    assert done.stdout == "(1, 2, 32)\n(3, 1, 32)\n__main__ 3\nbeside\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("from bilm.training import train", "No module named 'bilm.training'"),
        ("from allennlp.modules import Seq2SeqEncoder", "cannot import name 'Seq2SeqEncoder'"),
    ],
)
def test_a_script_that_needs_more_than_elmo(line: str, says: str, tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text(line, encoding="utf-8")
    done = run("-m", "elmore.compat", "run", script)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert "docs/coming-from.md" in done.stderr
