"""The table of all probes.

The constructor of a probe takes the model and only stores its arguments; every probe takes `cache`
(a folder that keeps the layers), `max_bytes` and `progress`. `run(data)` gives a `Report`.
"""

from __future__ import annotations

from elmore.embedding.layers import LayerChoice, layer_weights

__all__ = ["PROBES", "Views", "layer_views"]

# Name to module, class and what it tells.
PROBES: dict[str, tuple[str, str, str]] = {
    "pos": ("elmore.analysis.pos", "Pos", "how much of the part of speech a linear probe finds"),
    "wsd": ("elmore.analysis.wsd", "Wsd", "which sense of a word is meant, by nearest neighbours"),
    "neighbors": ("elmore.analysis.neighbors", "Neighbors", "like uses of a word in a text"),
    "layers": (
        "elmore.analysis.layer_weighting",
        "LayerWeighting",
        "a task with the last layer, an equal mix, a learned one",
    ),
    "placement": ("elmore.analysis.placement", "Placement", "a task with ELMo below, above, both"),
    "sample-size": ("elmore.analysis.sample_size", "SampleSize", "how much data ELMo saves"),
    "mix": ("elmore.analysis.mixes", "Mixes", "the layers that trained tasks chose"),
}

# Layers to look at, with their names.
Views = list[tuple[str, LayerChoice]]


def layer_views(layers: LayerChoice | str, n_layers: int) -> Views:
    """Name the layers that a probe looks at; "all" means each, and their mean."""
    if isinstance(layers, str) and layers == "all":
        return [*((f"layer {k}", k) for k in range(n_layers)), ("mean", "mean")]
    layer_weights(layers, n_layers)  # type: ignore[arg-type]  # it refuses other texts
    if layers == "top":
        layers = n_layers - 1
    if isinstance(layers, int):
        return [(f"layer {layers}", layers)]
    name = layers if isinstance(layers, str) else ",".join(f"{weight:g}" for weight in layers)
    return [(name, layers)]  # type: ignore[list-item]  # checked above
