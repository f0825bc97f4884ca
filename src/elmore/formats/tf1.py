"""Checkpoints of bilm-tf and TF-Hub's ELMo, read without TensorFlow.

The files are `checkpoint`, `model.ckpt-N.index`, `model.ckpt-N.data-*`, options.json and the
vocabulary. The softmax is read too, so that such a model can score text and be fine-tuned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from elmore.base.messages import shown
from elmore.config import BiLmConfig
from elmore.errors import FormatError
from elmore.formats.bilm_options import find_options, options_from_shapes
from elmore.formats.bilm_weights import canonical_name, read_bilm
from elmore.formats.checkpoint import Checkpoint, Mix
from elmore.formats.containers.arrays import Arrays
from elmore.formats.containers.sources import Source
from elmore.formats.containers.tf_bundles import find_prefixes, open_bundle
from elmore.limits import LIMITS

NAME = "tensorflow"

Shapes = Mapping[str, tuple[int, ...]]

# Training graphs put `lm/` before the names, inference graphs `bilm/`, and TF-Hub `module/`.
_SCOPE = re.compile(r"^(?:module/)?(?:lm|bilm)/")
_MIX, _SCALE = "aggregation/weights", "aggregation/scaling"


def sniff(source: Source) -> bool:
    """Whether there is an index with its data."""
    return bool(find_prefixes(source))


def read(source: Source) -> Checkpoint:
    """Read options, weights and, if the vocabulary is there, the softmax."""
    prefix = _choose(source)
    bundle = open_bundle(source, prefix)
    arrays = bundle.renamed(_canonical_names(bundle.shapes, prefix))
    options_name = find_options(source.names)
    if options_name is not None:
        options = source.read_json(options_name)
    elif any(name.endswith(_MIX) for name in bundle.shapes):
        options, options_name = _hub_options(arrays.shapes, prefix), "TF-Hub's ELMo"
    else:
        raise FormatError(
            f"'{source.name}' has a TensorFlow checkpoint but no options.json; put it into the "
            "folder or pass (options, checkpoint)"
        )
    softmax = arrays if "softmax/b" in arrays.shapes else None
    checkpoint = read_bilm(source, arrays, options, options_name, softmax=softmax)
    notes = {**checkpoint.notes, "checkpoint": prefix}
    return replace(checkpoint, mixes=_read_mixes(bundle, checkpoint.config), notes=notes)


def _choose(source: Source) -> str:
    """The checkpoint to read: the newest according to `checkpoint`, else the highest step."""
    prefixes = find_prefixes(source)
    if "checkpoint" in source.names:
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
    # By the N of `model.ckpt-N`; without one it comes last.
    steps = (re.search(r"-(\d{1,18})$", prefix) for prefix in prefixes)
    return max((int(n[1]) if n else -1, p) for n, p in zip(steps, prefixes, strict=True))[1]


def _canonical_names(names: Collection[str], prefix: str) -> dict[str, str]:
    """The canonical name of each variable -> its name in the checkpoint."""
    found: dict[str, str] = {}
    for key in names:
        if key.rpartition("/")[0] in names:
            continue  # the optimizer stores its sums as VARIABLE/Adagrad
        name = canonical_name(_SCOPE.sub("", key))
        if found.setdefault(name, key) != key:
            raise FormatError(
                f"'{prefix}.index' has {shown(found[name], 60)} and {shown(key, 60)} for one "
                "weight; keep one model in a checkpoint"
            )
    return found


def _hub_options(shapes: Shapes, prefix: str) -> dict[str, Any]:
    """Options of TF-Hub's model: sizes from its arrays, the rest as in the original model."""
    filters = [shapes[name] for k in range(len(shapes)) if (name := f"CNN/W_cnn_{k}") in shapes]
    return options_from_shapes(
        f"{prefix}.index",
        embedding=shapes.get("char_embed", ()),
        # In the other order: (dim, projection_dim), and (1, width, char_dim, count).
        projections=[s[::-1] for n, s in shapes.items() if re.match(r"RNN_0/.*/W_P_0$", n)],
        filters=[shape[:0:-1] for shape in filters],
        n_highway=sum(n.endswith("/W_carry") for n in shapes),
    )


def _read_mixes(bundle: Arrays, config: BiLmConfig) -> tuple[Mix, ...]:
    """Read the mix of TF-Hub's model."""
    mix, scale = (
        next((name for name in bundle.shapes if name.endswith(end)), None) for end in (_MIX, _SCALE)
    )
    if mix is None or scale is None:
        return ()
    weights, gamma = bundle.floats(mix), bundle.floats(scale)
    if weights.shape != (config.n_layers,) or gamma.size != 1:
        raise FormatError(
            f"'{bundle.what}': {_MIX} is not a mix of {config.n_layers} layers; its files do not "
            "belong together"
        )
    return (Mix(tuple(map(float, weights)), float(gamma.reshape(()))),)
