"""Checkpoints of bilm-tf and TF-Hub's ELMo, read without TensorFlow.

The files are `checkpoint`, `model.ckpt-N.index`, `model.ckpt-N.data-*`, options.json and the
vocabulary. The softmax is read too, so that such a model can score text and be fine-tuned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.config import BiLmConfig
from elmore.errors import FormatError
from elmore.formats.bilm_options import (
    N_CHARACTERS,
    config_from_options,
    find_options,
    options_from_sizes,
    read_languages,
    read_options,
    read_vocabulary,
)
from elmore.formats.bilm_weights import (
    check_arrays,
    dump_names,
    linked_weights,
    links,
    read_softmax,
)
from elmore.formats.checkpoint import Checkpoint, Mix, Softmax
from elmore.formats.containers.sources import Source
from elmore.formats.containers.tf_bundles import Bundle, checkpoint_step, find_prefixes, open_bundle
from elmore.limits import LIMITS
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary

__all__ = ["NAME", "read", "sniff", "stored_types"]

NAME = "tensorflow"

Array = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]

# Training graphs put `lm/` before the names, inference graphs `bilm/`, and TF-Hub `module/`.
_SCOPE = re.compile(r"^(?:module/)?(?:lm|bilm)/")
_PLAIN = re.compile(
    r"char_embed|embedding|CNN/[Wb]_cnn_\d+|CNN_high_\d+/[Wb]_(?:carry|transform)|"
    r"CNN_proj/[Wb]_proj|softmax/[Wb]"
)
# TensorFlow's spellings through the years, in training graphs and in inference graphs.
_LSTM = re.compile(
    r"(?:RNN_(?P<direction>\d+)/)?(?:RNN|rnn)/"
    r"(?:(?:MultiRNNCell|multi_rnn_cell)/(?:Cell|cell_)(?P<layer>\d+)/)?"
    r"(?:rnn/)?(?:LSTMCell|lstm_cell)/(?P<leaf>.+)"
)
_LEAVES = {
    **dict.fromkeys(("kernel", "weights", "W_0"), ("W_0", "kernel")),
    **dict.fromkeys(("bias", "biases", "B"), ("B", "bias")),
    **dict.fromkeys(
        ("projection/kernel", "projection/weights", "W_P_0"), ("W_P_0", "projection/kernel")
    ),
}
_MIX, _SCALE = "aggregation/weights", "aggregation/scaling"


def sniff(source: Source) -> bool:
    """Whether there is an index with its data."""
    return bool(find_prefixes(source))


def read(source: Source) -> Checkpoint:
    """Read options, weights and, if the vocabulary is there, the softmax.

    Names and shapes are compared with the options before any array is read. The arrays are read
    on request, and each is compared with its checksum.
    """
    prefix = _choose(source)
    bundle = open_bundle(source, prefix)
    names = _canonical_names(bundle, prefix)
    arrays = _Arrays(bundle, names)
    options_name = find_options(source)
    if options_name is not None:
        options = read_options(source, options_name)
    elif any(name.endswith(_MIX) for name in bundle.variables):
        options, options_name = _hub_options(arrays.shapes, prefix), "TF-Hub's ELMo"
    else:
        raise FormatError(
            f"'{source.name}' has a TensorFlow checkpoint but no options.json; put it into the "
            "folder or pass (options, checkpoint)"
        )
    config = config_from_options(
        options,
        # The options do not say it; only models of one direction have these names.
        bidirectional=not any(name.startswith("rnn/") for name in names),
        n_words=(arrays.shapes.get("embedding") or (0,))[0],
        what=options_name,
    )
    table = links(config, dump_names(config, names))
    weights_name = f"{prefix}.index"
    # The softmax is compared with the vocabulary below, not with the options.
    shapes = {name: shape for name, shape in arrays.shapes.items() if "softmax" not in name}
    check_arrays(table, shapes, options_name, weights_name)
    vocabulary = read_vocabulary(source)
    notes: dict[str, Any] = {"checkpoint": prefix}
    softmax = _read_softmax(arrays, config, vocabulary, weights_name, notes)
    if languages := read_languages(source):
        notes["languages"] = languages
    # Byte models run without a vocabulary, and one in the folder may belong to something
    # else.
    needs_words = bool(config.tokens.n_words) or softmax is not None
    return Checkpoint(
        config=config,
        weights=linked_weights(config, table, arrays.read),
        alphabet=ByteAlphabet(config.tokens.max_chars) if config.tokens.n_characters else None,
        vocabulary=vocabulary if needs_words else None,
        softmax=softmax,
        mixes=_read_mixes(bundle, config, prefix),
        notes=notes,
        origin=source.name,
    )


def stored_types(source: Source) -> set[str]:
    """The types in which the weights are stored."""
    prefix = _choose(source)
    bundle = open_bundle(source, prefix)
    return {bundle.variables[name].type_name for name in _canonical_names(bundle, prefix).values()}


class _Arrays:
    """The arrays of a checkpoint under the names of bilm-tf's HDF5 dump."""

    def __init__(self, bundle: Bundle, names: Mapping[str, str]) -> None:
        self._bundle = bundle
        self._names = names
        self.shapes = {name: bundle.variables[key].shape for name, key in names.items()}
        # Inference graphs put a row of zeros before the characters, for padded positions.
        self._padded = (self.shapes.get("char_embed") or (0,))[0] == N_CHARACTERS + 1
        if self._padded:
            self.shapes["char_embed"] = (N_CHARACTERS, *self.shapes["char_embed"][1:])

    def read(self, name: str) -> Array:
        array = self._bundle.read(self._names[name])
        return array[1:] if self._padded and name == "char_embed" else array


def _choose(source: Source) -> str:
    """The checkpoint to read: the newest according to `checkpoint`, else the highest step."""
    prefixes = find_prefixes(source)
    if prefixes and "checkpoint" in source.names():
        text = source.read("checkpoint", LIMITS.json_bytes).decode("utf-8", "replace")
        match = re.search(r'^model_checkpoint_path: "(.*)"$', text, re.MULTILINE)
        # The path is of the machine that wrote it, often long gone: only its last part counts.
        newest = match[1].replace("\\", "/").rpartition("/")[2] if match else ""
        # Another one than it names may be older, or belong to another model.
        if newest not in prefixes:
            raise FormatError(
                f"'{source.name}': the file `checkpoint` names {shown(newest, 40)!r}, which is "
                f"not there (found {shown(', '.join(prefixes), 80)}); pass one of these by name"
            )
        return newest
    if not prefixes:
        raise FormatError(f"'{source.name}' has no TensorFlow checkpoint; check the path")
    return max(prefixes, key=lambda prefix: (checkpoint_step(prefix), prefix))


def _canonical_names(bundle: Bundle, prefix: str) -> dict[str, str]:
    """Find the weights: name in bilm-tf's dump -> name in the checkpoint."""
    found: dict[str, str] = {}
    others: list[str] = []
    for key in bundle.variables:
        name = _canonical_name(_SCOPE.sub("", key))
        if name is None:
            others.append(key)
        elif name in found:
            raise FormatError(
                f"'{prefix}.index' has {shown(found[name], 60)} and {shown(key, 60)} for one "
                "weight; keep one model in a checkpoint"
            )
        else:
            found[name] = key
    if not any(name.startswith(("RNN_", "rnn/")) for name in found):
        raise FormatError(
            f"'{prefix}.index' has no biLM (no variable lm/RNN_0/…); is it a checkpoint of bilm-tf?"
        )
    weights = set(found.values())
    for key in others:
        # The optimizer stores its sums as VARIABLE/Adagrad.
        inner = _SCOPE.sub("", key)
        if key.rpartition("/")[0] not in weights and inner.startswith(("CNN", "RNN", "rnn/")):
            raise FormatError(
                f"'{prefix}.index' has {shown(key, 80)}, which bilm-tf does not write; is it a "
                "checkpoint of bilm-tf?"
            )
    return found


def _canonical_name(name: str) -> str | None:
    if _PLAIN.fullmatch(name):
        return name
    match = _LSTM.fullmatch(name)
    leaves = _LEAVES.get(match["leaf"]) if match else None
    if match is None or leaves is None:
        return None
    cell = f"MultiRNNCell/Cell{int(match['layer'] or 0)}/LSTMCell"
    if match["direction"] is None:
        return f"rnn/{cell}/{leaves[1]}"
    return f"RNN_{match['direction']}/RNN/{cell}/{leaves[0]}"


def _hub_options(shapes: Shapes, prefix: str) -> dict[str, Any]:
    """Options of TF-Hub's model: sizes from its arrays, the rest as in the original model."""
    kernels = {n: s for n, s in shapes.items() if re.match(r"RNN_0/.*/W_0$", n)}
    filters = [shapes[name] for k in range(len(shapes)) if (name := f"CNN/W_cnn_{k}") in shapes]
    embedding = shapes.get("char_embed", ())
    kernel = next(iter(kernels.values()), ())
    if len(kernel) != 2 or len(embedding) != 2 or not all(len(shape) == 4 for shape in filters):
        raise FormatError(f"'{prefix}.index' is not a byte model; pass (options, checkpoint)")
    # A kernel is (2 * projection_dim, 4 * dim), a filter (1, width, char_dim, count).
    return options_from_sizes(
        dim=kernel[1] // 4,
        projection_dim=kernel[0] // 2,
        n_layers=len(kernels),
        char_dim=embedding[1],
        filters=[[shape[1], shape[3]] for shape in filters],
        n_highway=sum(n.endswith("/W_carry") for n in shapes),
    )


def _read_softmax(
    arrays: _Arrays,
    config: BiLmConfig,
    vocabulary: Vocabulary | None,
    what: str,
    notes: dict[str, Any],
) -> Softmax | None:
    """Read the output layer; if it is shared with the input, the word table is its weight."""
    shapes = arrays.shapes
    bias = shapes.get("softmax/b")
    if bias is None:
        return None
    weight = "softmax/W" if "softmax/W" in shapes else "embedding"
    if vocabulary is None:
        notes["softmax"] = "left out: there is no vocabulary with the checkpoint"
        return None
    shape = (len(vocabulary), config.lstm.projection_dim)
    return read_softmax(shapes, arrays.read, shape, what, weight=weight)


def _read_mixes(bundle: Bundle, config: BiLmConfig, prefix: str) -> tuple[Mix, ...]:
    """Read the mix of TF-Hub's model."""
    names = {
        key: next((name for name in bundle.variables if name.endswith(key)), None)
        for key in (_MIX, _SCALE)
    }
    mix, scale = names[_MIX], names[_SCALE]
    if mix is None or scale is None:
        return ()
    if bundle.variables[mix].shape != (config.n_layers,):
        raise FormatError(
            f"'{prefix}.index': {_MIX} has shape {bundle.variables[mix].shape}, the model "
            f"{config.n_layers} layers; its files do not belong together"
        )
    if bundle.variables[scale].shape not in ((), (1,)):
        raise FormatError(f"'{prefix}.index': {_SCALE} is not a single number; copy it again")
    weights = tuple(float(value) for value in bundle.read(mix))
    return (Mix(weights, float(bundle.read(scale).reshape(()))),)
