"""The catalogue of published models: what they are, and where to download them.

They are in catalog.toml, which is read when a name is looked up.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from elmore.errors import ModelNotFound
from elmore.text.tokenizer import Convention

# Name of the bundled model that is used when none is named.
BUNDLED = "english"
# All that are inside the package.
INCLUDED = (BUNDLED, "korean")


def bundled_model(name: str = BUNDLED) -> Path:
    """The folder of a model inside the package, one of `INCLUDED`."""
    return Path(__file__).resolve().parents[1] / "models" / name


# What the files are.
Form = Literal["elmore", "allennlp", "tensorflow", "manylangs", "tfhub"]


class Tokenization(NamedTuple):
    """How raw text is split for a model; `note` says why that may not fit, and is empty if it does.

    See `Checkpoint.notes`.
    """

    convention: Convention
    note: str = ""


_ENGLISH_NAMES = frozenset(("en", "eng", "english"))
# Words are written without spaces between them, or (Vietnamese) with spaces inside.
_SEGMENTED = frozenset(
    ("zh", "zho", "chi", "chinese", "ja", "jpn", "japanese", "vi", "vie", "vietnamese")
)
_NOT_STATED = "nobody states how its training text was tokenized"
_LEMMAS = "it was trained on lemmas, not on words as they are written"


def assumed_tokens(form: Form, languages: Collection[str] = ()) -> Tokenization:
    """What to assume of a model that does not say how its text was tokenized.

    Args:
        form: what its files are. All ELMoForManyLangs models were trained on tokens of UDPipe.
        languages: ISO 639 codes or English names; empty if they are not known.
    """
    names = {name.lower() for name in languages}
    english = names <= _ENGLISH_NAMES
    if form != "manylangs":
        # What can be downloaded without a language is the English of the paper, as a rule.
        return Tokenization("billion-word" if english else "unicode", _NOT_STATED)
    if not names:
        return Tokenization("unicode", "it was trained on words of UDPipe in an unnamed language")
    if names & _SEGMENTED:
        return Tokenization("unicode", "it was trained on words of UDPipe, which need a dictionary")
    return Tokenization("ptb" if english else "unicode")


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published model.

    Attributes:
        name: its name in `elmore models`.
        language: ISO 639 code; "zxx" for what is not a language.
        form: what its files are.
        trained_on: the text.
        licence: as its host states it.
        files: what is downloaded: names in the cache and addresses, of which the first is the
            original and the others are mirrors. Empty for a model inside the package.
        checksums: "sha256:…" or "sha1:…" of those files of which it is known for certain.
        page: where people read about it; its card for a model inside the package.
        parameters: size of the biLM, if known.
        dim: size of a token's vector in each layer, if known.
        megabytes: size of the download, if known or estimated.
        tokenizer: the convention of its training text, if known.
        lemmas: whether it was trained on lemmas.
    """

    name: str
    language: str
    form: Form
    trained_on: str
    licence: str = "not stated"
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    page: str
    parameters: int | None = None
    dim: int | None = None
    megabytes: int | None = None
    tokenizer: Convention | None = None
    lemmas: bool = False

    @property
    def tokens(self) -> Tokenization:
        """How raw text is split for it."""
        if self.lemmas:
            return Tokenization("unicode", _LEMMAS)
        if self.tokenizer is not None:
            return Tokenization(self.tokenizer)
        return assumed_tokens(self.form, (self.language,))


@functools.cache
def catalog() -> dict[str, Published]:
    """All models, by name."""
    with Path(__file__).with_name("catalog.toml").open("rb") as stream:
        return {name: Published(name=name, **row) for name, row in tomllib.load(stream).items()}


def find_published(name: str) -> Published:
    """The model of that name.

    Raises:
        ModelNotFound: with the nearest names.
    """
    if name in catalog():
        return catalog()[name]
    near = difflib.get_close_matches(name, catalog(), 3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ModelNotFound(
        f"no file, folder or known model is called {name!r}; {hint}`elmore models` lists the names"
    )


def find_file(address: str) -> tuple[Published, str] | None:
    """The published model at an address and the name of the file, if it is a known one."""
    for model in catalog().values():
        for name, addresses in model.files.items():
            if address in addresses:
                return model, name
    return None


def find_weights(name: str) -> Published | None:
    """The published model whose weights have this file name, if no other model's have."""
    # Only the files of the English models have names that nobody else uses.
    if not (name.startswith("elmo_2x") and name.endswith(".hdf5")):
        return None
    for model in catalog().values():
        addresses = (address for several in model.files.values() for address in several)
        if any(address.endswith(f"/{name}") for address in addresses):
            return model
    return None
