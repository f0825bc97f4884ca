"""Configs: checked when they are made, and JSON and back."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import FIXTURES, needs_originals

from elmore.base.json import from_json
from elmore.config import (
    BiLmConfig,
    LstmConfig,
    TokenEncoderConfig,
    count_parameters,
    weight_shapes,
)
from elmore.errors import ConfigError
from elmore.formats.bilm_options import config_from_options

clips = st.none() | st.floats(1e-3, 1e3)


@st.composite
def configs(draw: st.DrawFn) -> BiLmConfig:
    dim = draw(st.integers(1, 64))
    words = draw(st.booleans())
    characters = draw(st.booleans()) or not words
    parts: dict[str, Any] = {"projected": True}
    if words:
        parts |= {"n_words": draw(st.integers(1, 999)), "word_dim": draw(st.integers(1, 99))}
    if characters:
        pair = st.tuples(st.integers(1, 7), st.integers(1, 99))
        parts |= {
            "n_characters": draw(st.integers(1, 300)),
            "char_dim": draw(st.integers(1, 32)),
            "max_chars": draw(st.integers(7, 60)),
            "filters": tuple(draw(st.lists(pair, min_size=1, max_size=7))),
            "activation": draw(st.sampled_from(["relu", "tanh"])),
            "n_highway": draw(st.integers(0, 3)),
        }
    lstm = LstmConfig(
        dim=draw(st.integers(dim, 128)),
        projection_dim=dim,
        n_layers=draw(st.integers(1, 5)),
        cell_clip=draw(clips),
        proj_clip=draw(clips),
        skip_connections=draw(st.booleans()),
        bidirectional=draw(st.booleans()),
    )
    return BiLmConfig(tokens=TokenEncoderConfig(**parts), lstm=lstm)


@given(configs())
def test_json_and_back(config: BiLmConfig) -> None:
    text = json.dumps(dataclasses.asdict(config))
    assert from_json(BiLmConfig, json.loads(text), what="config.json") == config


@given(configs())
def test_sizes(config: BiLmConfig) -> None:
    assert config.dim == len(config.directions) * config.lstm.projection_dim
    assert config.n_layers == config.lstm.n_layers + 1
    total = 0
    for shape in weight_shapes(config).values():
        size = 1
        for n in shape:
            size *= n
        total += size
    assert count_parameters(config) == total


@needs_originals
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("2x1024_128_2048cnn_1xhighway", 13_593_296),
        ("2x2048_256_2048cnn_1xhighway", 28_027_728),
        ("2x4096_512_2048cnn_2xhighway", 93_600_848),
        ("2x4096_512_2048cnn_2xhighway_5.5B", 93_600_848),
    ],
)
def test_published_models_have_the_published_size(name: str, parameters: int) -> None:
    path = FIXTURES / "options" / f"elmo_{name}_options.json"
    options = json.loads(path.read_text(encoding="utf-8"))
    config = config_from_options(options, bidirectional=True, n_words=0, what="options.json")
    assert count_parameters(config) == parameters


GOOD = {
    "tokens": {"n_characters": 261, "char_dim": 4, "filters": [[1, 4], [2, 8]], "n_highway": 1},
    "lstm": {"dim": 16, "projection_dim": 8},
}
NUMBERS = [
    ("tokens", "n_characters"),
    ("tokens", "char_dim"),
    ("tokens", "max_chars"),
    ("tokens", "n_highway"),
    ("tokens", "n_words"),
    ("tokens", "word_dim"),
    ("lstm", "dim"),
    ("lstm", "projection_dim"),
    ("lstm", "n_layers"),
]
VALUES = [-1, 2**31, 2**63, 1e308, "12", None, True, 1.5]


@pytest.mark.parametrize(("where", "value"), list(itertools.product(NUMBERS, VALUES)))
def test_tampered_numbers_are_refused_in_one_line(where: tuple[str, str], value: Any) -> None:
    section, name = where
    data = {k: dict(v) for k, v in GOOD.items()}
    data[section][name] = value
    with pytest.raises(ConfigError) as caught:
        from_json(BiLmConfig, data, what="config.json")
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) <= 300
    assert name in message or name.replace("_", " ") in message
    assert "config.json" in message


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("lstm", {"projection_dim": 17}, "projection_dim=17 is larger than dim=16"),
        ("lstm", {"cell_clip": 0}, r"cell_clip=0\.0 must be a positive number"),
        ("lstm", {"proj_clip": -1.0}, r"proj_clip=-1\.0 must be a positive number"),
        ("lstm", {"cell_clip": True}, "cell_clip=True; use a number"),
        ("lstm", {"skip_connections": 1}, "skip_connections=1; use true or false"),
        ("lstm", {"dim": "x" * 5000}, r"dim='x+…x+'; use a whole number"),
        ("lstm", {"y" * 5000: 2}, r"lstm has an unknown key 'y+…y+'"),
        ("tokens", {"activation": "z\n" * 5000}, "is unknown"),
        ("lstm", {"n_layer": 2}, "unknown key 'n_layer'; did you mean 'n_layers'"),
        ("tokens", {"activation": "gelu"}, "activation='gelu' is unknown"),
        ("tokens", {"filters": []}, "0 filters, allowed are 1..64"),
        ("tokens", {"filters": [[1, 4]] * 65}, "65 filters"),
        ("tokens", {"filters": [[51, 4]]}, "filter width=51"),
        ("tokens", {"filters": [[0, 4]]}, "filter width=0"),
        ("tokens", {"filters": [[1, 0]]}, "filter count=0"),
        (
            "tokens",
            {"filters": [[1, 4, 2]]},
            r"filters\[0\]=\[1, 4, 2\]; use a list of length 2",
        ),
        ("tokens", {"filters": "all"}, "filters='all'; use a list"),
        ("tokens", {"n_characters": 0, "n_words": 5, "word_dim": 2}, "belong to characters"),
        ("tokens", {"n_characters": 0}, "needs characters or words"),
        ("tokens", {"word_dim": 5}, "word_dim=5 needs a word table"),
        ("tokens", {"projected": False}, "gives 12 features without a projection"),
    ],
)
def test_refusals(section: str, changes: dict[str, Any], message: str) -> None:
    data = {k: dict(v) for k, v in GOOD.items()}
    data[section] |= changes
    with pytest.raises(ConfigError, match=message) as caught:
        from_json(BiLmConfig, data, what="config.json")
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_missing_parts() -> None:
    with pytest.raises(ConfigError, match=r"config\.json: lstm is missing"):
        from_json(BiLmConfig, {"tokens": GOOD["tokens"]}, what="config.json")
    with pytest.raises(ConfigError, match=r"lstm\.projection_dim is missing"):
        from_json(BiLmConfig, GOOD | {"lstm": {"dim": 4}}, what="config.json")


def test_configs_do_not_change() -> None:
    config = from_json(BiLmConfig, GOOD, what="config.json")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lstm.dim = 5  # type: ignore[misc]
