"""Which folder `embed_parquet` may replace: none that holds its input, or files of anybody else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from elmore.base.messages import shown
from elmore.errors import ConfigError

__all__ = ["check_folder", "check_overlap"]


def check_overlap(inputs: Iterable[str], out: str) -> None:
    """Refuse an output folder that is, holds or is in one of the inputs.

    Args:
        inputs: absolute paths or addresses of one kind; of local paths, links are followed.
        out: the folder, in the same form.

    Raises:
        ConfigError: two of them overlap.
    """
    target = _parts(out)
    for path in inputs:
        mine = _parts(path)
        shared = min(len(mine), len(target))
        if mine[:shared] == target[:shared]:
            raise ConfigError(
                f"the output '{shown(out)}' and the input '{shown(path)}' overlap, so that writing "
                "one would change the other; choose another folder"
            )


def check_folder(names: Sequence[str], pattern: re.Pattern[str], out: object) -> None:
    """Refuse to replace a folder that holds anything but files of earlier output.

    Args:
        names: of everything in the folder.
        pattern: of the names that are written there.
        out: the folder, as the caller named it.

    Raises:
        ConfigError: something else is in it.
    """
    for name in names:
        if not pattern.fullmatch(name):
            raise ConfigError(
                f"'{shown(out)}' holds '{shown(name)}', which is not a file of earlier output; "
                "choose another folder, or delete this one yourself"
            )


def _parts(path: str) -> list[str]:
    if "://" not in path:
        path = os.path.realpath(path)
    return [part for part in path.split("/") if part not in ("", ".")]
