"""Options and weights as AllenNLP names them: paths or addresses."""

from __future__ import annotations

from pathlib import Path

from elmore.errors import ConfigError
from elmore.errors import ConfigError as ConfigurationError  # AllenNLP's name
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.detect import read_checkpoint
from elmore.published.catalog import find_published
from elmore.published.downloads import is_address
from elmore.published.hub import fetch_address

__all__ = ["OPTIONS", "WEIGHTS", "ConfigurationError", "FileName", "local_file", "read_files"]

FileName = str | Path

# AllenNLP's default: the original model, which is downloaded when it is first used.
OPTIONS, WEIGHTS = (file.addresses[0] for file in find_published("original").files)


def read_files(options_file: FileName | None, weight_file: FileName | None) -> Checkpoint:
    """Read a model.

    Args:
        options_file: options.json; a path, or an address that is downloaded once.
        weight_file: the HDF5 weights; the same.
    """
    if options_file is None or weight_file is None:
        raise ConfigError("a model has two files; pass options_file and weight_file")
    checkpoint = read_checkpoint((local_file(options_file), local_file(weight_file)))
    if checkpoint.alphabet is None:
        raise ConfigError(
            f"'{weight_file}' reads words and not characters, which AllenNLP's ELMo needs; use "
            "elmore.Elmo.load((options, weights, vocabulary))"
        )
    return checkpoint


def local_file(name: FileName) -> Path:
    """Give the path of a file, which is downloaded if its name is an address."""
    return fetch_address(str(name)) if is_address(name) else Path(name)
