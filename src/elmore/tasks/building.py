"""From a recipe to the part of a network that all tasks share, and weights into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from elmore._messages import shown
from elmore.embedding.elmo import Elmo
from elmore.errors import ConfigError, FormatError
from elmore.report import Row
from elmore.tasks.folder import TaskFolder
from elmore.tasks.layers.features import ElmoMixes, SpellingCnn, TokenFeatures, WordTable
from elmore.tasks.recipe import TaskRecipe

__all__ = ["build_features", "check_weights", "mix_rows", "put_weights", "word_vectors_of"]

Vectors = NDArray[np.float32] | None


def build_features(
    recipe: TaskRecipe, elmo: Elmo | None, trained: Vectors, fixed: Vectors
) -> TokenFeatures:
    """Make what a task model sees of a token.

    Args:
        recipe: of the task.
        elmo: the biLM whose layers enter, or None.
        trained: word vectors that learn, (n, dim), or None for no words at all.
        fixed: word vectors that stay, (m, dim), or None.

    Raises:
        ConfigError: nothing goes in.
    """
    characters, use = recipe.characters, recipe.elmo
    words = spelling = mixes = None
    if trained is not None and fixed is not None:
        words = WordTable(torch.from_numpy(trained), torch.from_numpy(fixed))
    if characters.filters:
        spelling = SpellingCnn(characters.filters, characters.dim, characters.dropout)
    if elmo is not None and (use.input or use.output):
        mixes = ElmoMixes(
            elmo.n_layers,
            elmo.dim,
            places=use.input + use.output,
            layers=use.layers,
            dropout=use.dropout,
            layer_norm=use.layer_norm,
        )
    if words is None and spelling is None and not (mixes is not None and use.input):
        raise ConfigError(
            "the model has no input: neither words, characters nor ELMo; set words.dim or pass "
            "vectors"
        )
    return TokenFeatures(words, spelling, mixes, elmo_input=use.input, elmo_output=use.output)


def word_vectors_of(content: TaskFolder, what: str) -> tuple[Vectors, Vectors]:
    """Give the trained and the fixed word vectors of a saved task, None where it has no words."""
    if content.words is None:
        return None, None
    name = "features.words."
    fixed, unknown = content.weights.get(f"{name}fixed"), content.weights.get(f"{name}unknown")
    if fixed is None or unknown is None or fixed.ndim != 2:
        raise FormatError(f"'{what}' lacks the vectors of its words; restore it")
    none = np.zeros((0, fixed.shape[1]), np.float32)
    trained = content.weights.get(f"{name}trained", none)
    counts = content.words.n_trained, len(content.words.words)
    if trained.ndim != 2 or (len(trained), len(trained) + len(fixed)) != counts:
        raise FormatError(
            f"'{what}' has {counts[1]} words, {counts[0]} of them trained, but vectors of shapes "
            f"{trained.shape} and {fixed.shape}; restore it"
        )
    return trained.astype(np.float32, copy=False), fixed.astype(np.float32, copy=False)


class _Unfilled(TorchFunctionMode):
    """Leaves out random numbers: without memory to put them in, they would load half of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ == "normal_":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def check_weights(
    build: Callable[[], nn.Module], weights: Mapping[str, NDArray[Any]], what: str
) -> None:
    """Check that saved weights are those of a network, before it takes memory.

    Args:
        build: makes the network.
        weights: name to array.
        what: the folder, for messages.

    Raises:
        FormatError: names or shapes are not those of the network.
    """
    try:
        with torch.device("meta"), _Unfilled():
            own = build().state_dict()
    except RuntimeError as error:  # sizes beyond what torch can count
        raise FormatError(
            f"'{what}' has an impossible recipe: {shown(error, 60)}; restore it"
        ) from None
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())[0]
        raise FormatError(f"'{what}' does not fit its recipe at {shown(odd, 60)!r}; restore it")
    for name, value in own.items():
        if tuple(value.shape) != weights[name].shape:
            raise FormatError(f"'{what}' has a wrong shape at {name!r}; restore it")


def put_weights(network: nn.Module, weights: Mapping[str, NDArray[Any]]) -> None:
    """Put saved weights into a network that they fit."""
    for name, value in network.state_dict().items():
        value.copy_(torch.from_numpy(weights[name]))
    network.eval()


def mix_rows(features: TokenFeatures) -> list[Row]:
    """Give the mix of each place where ELMo enters: softmax of its weights, and gamma."""
    if features.elmo is None:
        return []
    places = [
        *(["input"] if features.elmo_input else []),
        *(["output"] if features.elmo_output else []),
    ]
    rows: list[Row] = []
    for place, mix in zip(places, features.elmo.mixes, strict=True):
        scores, gamma = (weight.detach() for weight in mix.parameters())
        weights = torch.softmax(scores, 0).tolist()
        named = {
            f"layer {k}": float(weight) for k, weight in enumerate(weights, features.elmo.first)
        }
        rows.append({"place": place, **named, "gamma": float(gamma)})
    return rows
