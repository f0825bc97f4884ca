"""Corrections of senses by hand: merged, divided or named, in a small file beside the index.

The file is called after the folder of the index, with `.senses.json` at its end. It is read as
data alone, and checked. Corrections refer to the senses as `elmore senses` lists them; if the
grouping has changed since, they no longer apply, and a warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from elmore.base.atomic import atomic_file
from elmore.base.json import read_json
from elmore.base.messages import shown
from elmore.embedding.centroids import first_centres, k_means
from elmore.errors import ConfigError, FormatError
from elmore.language_model.sense_vectors import unit
from elmore.senses.groups import WordSenses, describe

if TYPE_CHECKING:
    from elmore.senses.index import Index, Rows

_Number = Annotated[int, msgspec.Meta(ge=1)]
_MAX_BYTES = 1 << 24
_MAX_NAME = 200


class Step(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One correction, of senses by their numbers from 1.

    Attributes:
        merge: senses to make one of.
        split: a sense to divide in two.
        rename: a sense to call `name`.
        name: its new name.
    """

    merge: list[_Number] = []
    split: _Number | None = None
    rename: _Number | None = None
    name: Annotated[str, msgspec.Meta(max_length=_MAX_NAME)] = ""


class _Word(msgspec.Struct, forbid_unknown_fields=True):
    """Corrections of a word, and the sizes of the senses that they were made for."""

    sizes: list[int]
    steps: list[Step]


def corrections_file(index: Index) -> Path:
    """Where the corrections of an index are."""
    path = index.path.absolute()
    return path.with_name(f"{path.name}.senses.json")


def corrected(found: WordSenses, more: Sequence[Step] = (), *, forget: bool = False) -> WordSenses:
    """The senses of a word with the corrections that are kept for it.

    Args:
        found: of `Index.senses(word, corrected=False)`.
        more: further ones to keep, in order; each refers to the senses that the last one left.
        forget: all that are kept.

    Raises:
        ConfigError: there is no such sense.
        FormatError: the file is damaged.
    """
    path = corrections_file(found.index)
    words = _read(path) if path.exists() else {}
    sizes = [len(sense.rows) for sense in found.senses]
    word = found.word.lower()  # case does not matter to an index
    kept = words.pop(word, None)
    if forget or kept is None:
        kept = _Word(sizes, [])
    elif kept.sizes != sizes:
        warnings.warn(
            f"the corrections of '{shown(found.word, 40)}' were made for other senses and do not "
            "apply; correct it again, or forget them with --forget",
            stacklevel=3,
        )
        kept = _Word(sizes, [])
    steps = [*kept.steps, *more]
    result = _apply(found, steps) if steps else found
    if more or forget:
        words |= {word: _Word(sizes, steps)} if steps else {}
        if words:
            with atomic_file(path, overwrite=True) as stream:
                stream.write(msgspec.json.format(msgspec.json.encode(words), indent=1) + b"\n")
        else:
            path.unlink(missing_ok=True)
    return result


def _read(path: Path) -> dict[str, _Word]:
    try:
        data = read_json(path, max_bytes=_MAX_BYTES, follow=False)
        return msgspec.convert(data, dict[str, _Word])
    except (FormatError, msgspec.ValidationError) as error:
        raise FormatError(
            f"'{shown(path, 100)}' is damaged ({shown(error, 80)}); correct or remove it"
        ) from None


def _apply(found: WordSenses, steps: Sequence[Step]) -> WordSenses:
    """Make the groups and names that corrections ask for."""
    index = found.index
    groups: list[Rows] = [sense.rows for sense in found.senses]
    names: list[str] = [""] * len(groups)
    for step in steps:
        for number in (*step.merge, step.split, step.rename):
            if number is not None and not 1 <= number <= len(groups):
                raise ConfigError(
                    f"'{shown(found.word, 40)}' has no sense {number}; use 1 to {len(groups)}"
                )
        if step.merge:
            if len(set(step.merge)) < 2:
                raise ConfigError(f"sense {step.merge[0]} alone cannot be merged; name two or more")
            kept, *others = sorted({number - 1 for number in step.merge})
            groups[kept] = np.sort(np.concatenate([groups[k] for k in (kept, *others)]))
            groups = [rows for k, rows in enumerate(groups) if k not in others]
            names = [name for k, name in enumerate(names) if k not in others]
        if step.split:
            rows = groups[step.split - 1]
            vectors = unit(index.vectors(rows))
            halves = k_means(vectors, first_centres(vectors, 2, np.random.default_rng(0)))
            if not 0 < halves.sum() < len(halves):
                raise ConfigError(f"sense {step.split} cannot be divided: its uses are the same")
            groups[step.split - 1 : step.split] = [rows[halves == 0], rows[halves == 1]]
            names[step.split - 1 : step.split] = ["", ""]
        if step.rename:
            if len(step.name) > _MAX_NAME:
                raise ConfigError(
                    f"the name of sense {step.rename} has {len(step.name)} characters; use at most "
                    f"{_MAX_NAME}"
                )
            names[step.rename - 1] = step.name
    rows = np.sort(np.concatenate(groups))
    memberships = np.stack([np.isin(rows, mine) for mine in groups], axis=1)  # a person was sure
    return describe(index, found.word, rows, memberships.astype(np.float32), names)
