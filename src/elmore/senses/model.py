"""The model of an index: it computes vectors of new text as those of the index were computed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.elmo import Elmo
from elmore.embedding.load import ModelPath
from elmore.errors import ConfigError
from elmore.language_model.sense_vectors import (
    Array,
    SenseSpace,
    SubstituteSpace,
    base_forms,
    make_space,
)
from elmore.options import ComputeOptions
from elmore.published.catalog import BUNDLED, INCLUDED
from elmore.senses.files import IndexFiles, digest_words
from elmore.text.segmenter import (
    Split,
    Tokenizer,
    is_convention,
    split_function,
    tokenizer_name,
)


@dataclass(eq=False)
class IndexModel:
    """Loads the model when it is needed; `Index.open` explains the arguments.

    It is also the space of the stored vectors, whose words an index has without its model.
    """

    files: IndexFiles
    elmo: Elmo | None
    model: ModelPath | None
    tokenizer: Tokenizer | None
    threads: int | None

    @property
    def words(self) -> Sequence[str]:
        """The words that can be substitutes."""
        return self.files.vocabulary

    @property
    def rows(self) -> Array:
        """Their softmax rows."""
        return self.space.rows

    @cached_property
    def bases(self) -> NDArray[np.int32]:
        """The substitute that each one counts as; see `base_forms`."""
        return base_forms(self.words)

    @cached_property
    def space(self) -> SenseSpace:
        """What computes sense vectors of new text."""
        manifest, path = self.files.manifest, self.files.path
        settings, model = manifest["settings"], manifest["model"]
        space = make_space(
            self.elmo or self._loaded(),
            settings["k"],
            candidates=settings["candidates"],
            layers=None if model["softmax"] else model["layers"],
        )
        if (space_digest(space), space.k) != (model["sha256"], model["k"]):
            raise ConfigError(
                f"'{shown(path, 100)}' was made with another model than "
                f"{shown(space.elmo, 100)}; pass that one (--model)"
            )
        return space

    @cached_property
    def split(self) -> Split:
        """What splits a text as that of the index was split."""
        settings = self.files.manifest["settings"]
        stated = settings["tokenizer"]
        if self.tokenizer is not None:
            return split_function(self.tokenizer)
        if settings["tokenized"]:
            return split_function(lambda text: text.split(" "))
        if stated is None:
            return self.space.elmo.tokenize
        if is_convention(stated):
            return split_function(stated)
        # A file may not choose what is imported: the function must come from the caller.
        own = None if self.elmo is None else self.elmo.engine.compute.tokenizer
        if own is None or tokenizer_name(own) != stated:
            raise ConfigError(
                f"'{shown(self.files.path, 100)}' was split by {shown(repr(stated), 60)}, a "
                "function of yours; pass it (tokenizer=, --tokenizer)"
            )
        return split_function(own)

    def _loaded(self) -> Elmo:
        files, stated = self.files, self.files.manifest["settings"]["tokenizer"]
        name = stated_model(files.path, files.manifest) if self.model is None else self.model
        options = compute_settings(files.manifest)
        options["threads"] = self.threads
        options["tokenizer"] = stated if stated is None or is_convention(stated) else None
        # The name alone could be that of a folder here; a folder is stored with its whole path.
        default = name == BUNDLED and self.model is None
        return Elmo.load(None if default else name, **options)


def compute_settings(manifest: Mapping[str, Any]) -> ComputeOptions:
    """How the model of an index computed; another precision or start gives other vectors."""
    settings = manifest["settings"]
    return {"precision": settings["precision"], "start": settings["start"]}


def stated_model(path: Path, manifest: Mapping[str, Any]) -> str | tuple[str, ...]:
    """The model that an index names, if loading it contacts nobody.

    Raises:
        ConfigError: it names none, or one that is neither inside the package nor on this computer.
    """
    name = manifest.get("model_name")
    if name is None:
        raise ConfigError("the index does not name its model; pass it (--model)")
    if isinstance(name, str) and name in INCLUDED:
        return name
    files = [name] if isinstance(name, str) else name
    # Two slashes could be the address of another computer.
    if all(os.path.isabs(one) and one[1:2] not in "/\\" and os.path.exists(one) for one in files):
        return name if isinstance(name, str) else tuple(files)
    raise ConfigError(
        f"'{shown(path, 100)}' was made with the model {shown(repr(name), 80)}, which is not here; "
        "pass it (--model)"
    )


def space_digest(space: SenseSpace) -> str:
    """A digest of all that sense vectors depend on."""
    digest = hashlib.sha256(space.elmo.digest.encode())
    if not isinstance(space, SubstituteSpace):
        return digest.hexdigest()
    for array in (space.softmax.floats(), space.softmax.bias):
        digest.update(np.ascontiguousarray(array, np.float32).data)
    digest.update(digest_words(space.words).encode())
    return digest.hexdigest()
