"""AllenNLP's task models (`model.tar.gz`, or a folder with weights.th): the ELMo inside them.

The state dict has the weights of the biLM and the trained mixes of layers, but not the options.
They come from the copy of the options file in the archive, or else from the shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elmore.base.messages import shown
from elmore.config import BiLmConfig
from elmore.errors import FormatError
from elmore.formats.bilm_options import config_from_options, options_from_sizes
from elmore.formats.bilm_weights import check_arrays, linked_weights
from elmore.formats.checkpoint import Checkpoint, Mix
from elmore.formats.containers.sources import Source
from elmore.formats.containers.torch_files import StateDict, read_state_dict
from elmore.formats.torch_layout import TorchNames, torch_links
from elmore.text.characters import ByteAlphabet

__all__ = ["NAME", "read", "sniff", "stored_types"]

NAME = "allennlp-archive"

Shapes = Mapping[str, tuple[int, ...]]

# Archives have `weights.th`, training folders the others.
_WEIGHTS = ("weights.th", "best.th", "model.th")
_ELMO = "_elmo."  # attribute of the module in models
_BILM = "_elmo_lstm."
_CHARACTERS = f"{_BILM}_token_embedder._char_embedding_weights"
_NAMES = TorchNames(
    characters=_CHARACTERS,
    first_character=1,
    words="",
    convolution=f"{_BILM}_token_embedder.char_conv_{{}}",
    highway=f"{_BILM}_token_embedder._highways._layers.{{}}",
    projection=f"{_BILM}_token_embedder._projection",
    lstm=f"{_BILM}_elmo_lstm.{{}}_layer_{{}}",
)


def sniff(source: Source) -> bool:
    """Whether there are weights of a task model."""
    return _find(source) is not None


def read(source: Source) -> Checkpoint:
    """Read the one ELMo of a task model, with its mixes."""
    name = _find(source) or _WEIGHTS[0]
    state = read_state_dict(source, name)
    prefix = _find_elmo(state, name)
    inside = {key.removeprefix(prefix): key for key in state.tensors if key.startswith(prefix)}
    shapes = {short: state.tensors[key].shape for short, key in inside.items()}
    notes: dict[str, Any] = {"inside": prefix.rstrip(".") or "the file itself"}
    options, what = _read_options(source, shapes, prefix, name, notes)
    config = config_from_options(options, bidirectional=True, n_words=0, what=what)
    if not config.lstm.projected:
        raise FormatError(
            f"'{what}': lstm.dim equals projection_dim, yet AllenNLP's modules project; this is "
            "not supported, pass the (options, weights) of the model"
        )
    table = torch_links(config, _NAMES)
    bilm = {
        short: shape
        for short, shape in shapes.items()
        if short.startswith(_BILM) and not short.startswith(f"{_BILM}_word_embedding")
    }
    check_arrays(table, bilm, what, name, all_known=True)
    return Checkpoint(
        config=config,
        weights=linked_weights(config, table, lambda short: state.read(inside[short])),
        alphabet=ByteAlphabet(config.tokens.max_chars),
        mixes=_read_mixes(state, inside, config, name),
        notes=notes,
        origin=source.name,
    )


def stored_types(source: Source) -> set[str]:
    """The types in which the weights of the biLM are stored."""
    name = _find(source) or _WEIGHTS[0]
    state = read_state_dict(source, name)
    prefix = _find_elmo(state, name)
    return {t.type_name for key, t in state.tensors.items() if key.startswith(prefix + _BILM)}


def _find(source: Source) -> str | None:
    names = source.names()
    for usual in _WEIGHTS:
        if usual in names:
            return usual
    found = [name for name in names if name.endswith(".th")]
    return found[0] if len(found) == 1 else None


def _find_elmo(state: StateDict, what: str) -> str:
    """The prefix of the names of the only ELMo in a state dict."""
    found = [key.removesuffix(_CHARACTERS) for key in state.tensors if key.endswith(_CHARACTERS)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(prefix.rstrip(".") for prefix in found)
        raise FormatError(
            f"'{what}' has {len(found)} ELMo models ({shown(names, 120)}); load the (options, "
            "weights) of one of them"
        )
    if any("transformer" in key.lower() for key in state.tensors):
        raise FormatError(
            f"'{what}' is a transformer language model; only ELMo models with LSTMs can be loaded"
        )
    raise FormatError(f"'{what}' has no ELMo (no {_CHARACTERS}); pass a model with ELMo")


def _read_options(
    source: Source, shapes: Shapes, prefix: str, weights: str, notes: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Find the options: a copy in the archive, a file that config.json names, or the shapes."""
    # AllenNLP copied the files that a config names into its archives, under the path of the
    # key.
    candidates = [name for name in source.names() if name.endswith(".options_file")]
    if len(candidates) > 1:
        # fta/model.text_field_embedder.token_embedders.NAME.options_file
        match = re.search(r"token_embedder_(.+?)\._elmo\.$", prefix)
        wanted = f".{match[1]}.options_file" if match else ""
        candidates = [name for name in candidates if wanted and name.endswith(wanted)]
    if not candidates and "config.json" in source.names():
        config = source.read_json("config.json")
        named = {path.replace("\\", "/").rpartition("/")[2] for path in _option_files(config)}
        candidates = [name for name in sorted(named) if name in source.names()]
    if len(candidates) == 1:
        name = candidates[0]
        return source.read_json(name), name
    notes["options"] = (
        "from the shapes; clips of 3, relu and 50 characters are assumed, as in all published "
        "models"
    )
    return _options_from_shapes(shapes, weights), weights


def _option_files(value: Any) -> list[str]:
    """Every `options_file` in a config, at any depth."""
    if isinstance(value, list):
        return [path for item in value for path in _option_files(item)]
    if not isinstance(value, dict):
        return []
    found = [path for item in value.values() for path in _option_files(item)]
    path = value.get("options_file")
    return [*found, path] if isinstance(path, str) else found


def _options_from_shapes(shapes: Shapes, what: str) -> dict[str, Any]:
    embedding = shapes[_CHARACTERS]
    filters: list[tuple[int, ...]] = []
    while (shape := shapes.get(f"{_NAMES.convolution.format(len(filters))}.weight")) is not None:
        filters.append(shape)
    layers = 0
    while f"{_NAMES.lstm.format('forward', layers)}.state_projection.weight" in shapes:
        layers += 1
    projection = shapes.get(f"{_NAMES.lstm.format('forward', 0)}.state_projection.weight", ())
    fine = len(embedding) == len(projection) == 2 and all(len(shape) == 3 for shape in filters)
    if not fine or not filters:
        raise FormatError(
            f"'{what}' has an ELMo of unknown shapes; put its options file into the folder "
            "and name it in config.json"
        )
    highways = 0
    while f"{_NAMES.highway.format(highways)}.weight" in shapes:
        highways += 1
    return options_from_sizes(
        dim=projection[1],
        projection_dim=projection[0],
        n_layers=layers,
        char_dim=embedding[1],
        filters=[[shape[2], shape[0]] for shape in filters],
        n_highway=highways,
    )


def _read_mixes(
    state: StateDict, inside: Mapping[str, str], config: BiLmConfig, what: str
) -> tuple[Mix, ...]:
    mixes: list[Mix] = []
    while (gamma := inside.get(f"scalar_mix_{len(mixes)}.gamma")) is not None:
        names = [f"scalar_mix_{len(mixes)}.scalar_parameters.{k}" for k in range(config.n_layers)]
        numbers = [state.read(inside[n]) if n in inside else None for n in names]
        values = [*numbers, state.read(gamma)]
        floats = [float(v.reshape(())) for v in values if v is not None and v.size == 1]
        if len(floats) != len(values):
            raise FormatError(
                f"'{what}': scalar_mix_{len(mixes)} is not a mix of {config.n_layers} layers; "
                "copy the file again"
            )
        mixes.append(Mix(tuple(floats[:-1]), floats[-1]))
    known = {f"scalar_mix_{r}.gamma" for r in range(len(mixes))} | {
        f"scalar_mix_{r}.scalar_parameters.{k}"
        for r in range(len(mixes))
        for k in range(config.n_layers)
    }
    for short, name in inside.items():
        # An Elmo module has the biLM and mixes: anything else is a mix that would be lost.
        own = short.startswith("scalar_mix") or name.removesuffix(short).endswith(_ELMO)
        if own and not short.startswith(_BILM) and short not in known:
            raise FormatError(
                f"'{what}' has {shown(name, 100)}, which is not part of a mix of "
                f"{config.n_layers} layers; copy the file again"
            )
    return tuple(mixes)
