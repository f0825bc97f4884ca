"""AllenNLP's task models (`model.tar.gz`, or a folder with weights.th): the ELMo inside them.

The state dict has the weights of the biLM and the trained mixes of layers, but not the options.
They come from the copy of the options file in the archive, or else from the shapes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from elmore.base.messages import shown
from elmore.config import BiLmConfig
from elmore.errors import FormatError
from elmore.formats.bilm_options import config_from_options, options_from_shapes
from elmore.formats.bilm_weights import Layout, cell_names, read_weights
from elmore.formats.checkpoint import Checkpoint, Mix
from elmore.formats.containers.arrays import Arrays
from elmore.formats.containers.sources import Source
from elmore.formats.containers.torch_files import read_state_dict
from elmore.text.characters import ByteAlphabet

NAME = "allennlp-archive"

Shapes = Mapping[str, tuple[int, ...]]

# Archives have `weights.th`, training folders the others.
_WEIGHTS = ("weights.th", "best.th", "model.th")
_ELMO = "_elmo."  # attribute of the module in models
_BILM = "_elmo_lstm."
_TOKENS = f"{_BILM}_token_embedder."
_LAYER = f"{_BILM}_elmo_lstm.{{}}_layer_{{}}"
_CHARACTERS = f"{_TOKENS}_char_embedding_weights"
_NAMES = {
    r"tokens\.characters": _CHARACTERS,
    r"tokens\.convolutions\.(.*)": rf"{_TOKENS}char_conv_\1",
    r"tokens\.highways\.(.*)": rf"{_TOKENS}_highways._layers.\1",
    r"tokens\.projection\.(.*)": rf"{_TOKENS}_projection.\1",
    **cell_names(_LAYER.format(r"\1", r"\2")),
}


def sniff(source: Source) -> bool:
    """Whether there are weights of a task model."""
    return _find(source) is not None


def read(source: Source) -> Checkpoint:
    """Read the one ELMo of a task model, with its mixes."""
    name = _find(source) or _WEIGHTS[0]
    state = read_state_dict(source, name)
    prefix = _find_elmo(state.shapes, name)
    inside = {key.removeprefix(prefix): key for key in state.shapes if key.startswith(prefix)}
    notes: dict[str, Any] = {"inside": prefix.rstrip(".") or "the file itself"}
    options, what = _read_options(source, state.renamed(inside).shapes, prefix, name, notes)
    config = config_from_options(options, bidirectional=True, n_words=0, what=what)
    if not config.lstm.projected:
        raise FormatError(
            f"'{what}': lstm.dim equals projection_dim, yet AllenNLP's modules project; this is "
            "not supported, pass the (options, weights) of the model"
        )
    bilm = state.renamed(
        {
            short: key
            for short, key in inside.items()
            if short.startswith(_BILM) and not short.startswith(f"{_BILM}_word_embedding")
        }
    )
    layout = Layout(names=_NAMES, first_character=1)
    weights, types = read_weights(config, layout, bilm, what)
    return Checkpoint(
        config=config,
        weights=weights,
        alphabet=ByteAlphabet(config.tokens.max_chars),
        mixes=_read_mixes(state, inside, config, name),
        notes=notes,
        origin=source.name,
        stored_types=types,
    )


def _find(source: Source) -> str | None:
    names = source.names
    for usual in _WEIGHTS:
        if usual in names:
            return usual
    found = [name for name in names if name.endswith(".th")]
    return found[0] if len(found) == 1 else None


def _find_elmo(keys: Collection[str], what: str) -> str:
    """The prefix of the names of the only ELMo in a state dict."""
    found = [key.removesuffix(_CHARACTERS) for key in keys if key.endswith(_CHARACTERS)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(prefix.rstrip(".") for prefix in found)
        raise FormatError(
            f"'{what}' has {len(found)} ELMo models ({shown(names, 120)}); load the (options, "
            "weights) of one of them"
        )
    raise FormatError(f"'{what}' has no ELMo (no {_CHARACTERS}); pass a model with ELMo")


def _read_options(
    source: Source, shapes: Shapes, prefix: str, weights: str, notes: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Find the options: a copy in the archive, a file that config.json names, or the shapes."""
    # AllenNLP copied the files that a config names into its archives, under the path of the
    # key.
    candidates = [name for name in source.names if name.endswith(".options_file")]
    if len(candidates) > 1:
        # fta/model.text_field_embedder.token_embedders.NAME.options_file
        match = re.search(r"token_embedder_(.+?)\._elmo\.$", prefix)
        wanted = f".{match[1]}.options_file" if match else ""
        candidates = [name for name in candidates if wanted and name.endswith(wanted)]
    if not candidates and "config.json" in source.names:
        config = source.read_json("config.json")
        named = {path.replace("\\", "/").rpartition("/")[2] for path in _option_files(config)}
        candidates = [name for name in sorted(named) if name in source.names]
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
    def numbered(name: str) -> list[tuple[int, ...]]:
        """The shapes of name.format(0), name.format(1) and so on."""
        found: list[tuple[int, ...]] = []
        while (shape := shapes.get(name.format(len(found)))) is not None:
            found.append(shape)
        return found

    return options_from_shapes(
        what,
        embedding=shapes[_CHARACTERS],
        projections=numbered(f"{_LAYER.format('forward', '{}')}.state_projection.weight"),
        filters=numbered(f"{_TOKENS}char_conv_{{}}.weight"),
        n_highway=len(numbered(f"{_TOKENS}_highways._layers.{{}}.weight")),
    )


def _read_mixes(
    state: Arrays, inside: Mapping[str, str], config: BiLmConfig, what: str
) -> tuple[Mix, ...]:
    mixes: list[Mix] = []
    known: set[str] = set()
    while f"scalar_mix_{len(mixes)}.gamma" in inside:
        start = f"scalar_mix_{len(mixes)}."
        names = [f"{start}scalar_parameters.{k}" for k in range(config.n_layers)]
        names.append(f"{start}gamma")
        values = [state.floats(inside[name]) for name in names if name in inside]
        floats = [float(value.reshape(())) for value in values if value.size == 1]
        if len(floats) != len(names):
            raise FormatError(
                f"'{what}': scalar_mix_{len(mixes)} is not a mix of {config.n_layers} layers; "
                "copy the file again"
            )
        mixes.append(Mix(tuple(floats[:-1]), floats[-1]))
        known.update(names)
    for short, name in inside.items():
        # An Elmo module has the biLM and mixes: anything else is a mix that would be lost.
        own = short.startswith("scalar_mix") or name.removesuffix(short).endswith(_ELMO)
        if own and not short.startswith(_BILM) and short not in known:
            raise FormatError(
                f"'{what}' has {shown(name, 100)}, which is not part of a mix of "
                f"{config.n_layers} layers; copy the file again"
            )
    return tuple(mixes)
