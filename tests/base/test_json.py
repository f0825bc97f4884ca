"""elmore.base.json: strict parsing, and dataclasses from what was parsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from elmore.base.json import Count, Positive, from_json, json_digest, parse_json
from elmore.errors import ConfigError, FormatError


def test_parse_json() -> None:
    data = b'\xef\xbb\xbf{"a": [1, -2.5e3, true, null, "\\u00e9{[,"], "b": {"c": 9007199254740992}}'
    assert parse_json(data, what="x") == {
        "a": [1, -2500.0, True, None, "é{[,"],
        "b": {"c": 2**53},
    }
    assert parse_json(b'{"a":' * 32 + b"1" + b"}" * 32, what="x")
    assert len(parse_json(b'{"a":[' + b",".join([b"1"] * 99_997) + b"]}", what="x")["a"]) == 99_997


def test_json_digest() -> None:
    assert json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": 2})


# Dataclasses --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    name: str
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int
    kind: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ConfigError(f"size={self.size}; use 0 or more")


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    rate: Positive = 0.5
    clip: Count | None = None
    flag: bool = False
    sizes: tuple[tuple[int, int], ...] = ()
    pairs: tuple[Pair, ...] = ()
    rows: dict[str, Pair] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    label: str | None = "x"


def test_a_dataclass_from_json() -> None:
    assert from_json(Outer, {"inner": {"size": 3}}, what="x") == Outer(inner=Inner(size=3))
    data = {
        "inner": {"size": 3, "kind": "b"},
        "rate": 2,
        "clip": None,
        "flag": True,
        "sizes": [[1, 2], [3, 4]],
        "pairs": [{"name": "p"}, {"name": "q", "weight": 3}],
        "notes": {"any": [None]},
        "label": "none",
    }
    found = from_json(Outer, data, what="x")
    assert found.pairs == (Pair("p"), Pair("q", 3.0))
    assert (found.rate, type(found.rate), found.clip) == (2.0, float, None)
    assert (found.sizes, found.notes) == (((1, 2), (3, 4)), {"any": [None]})
    assert found.label == "none"  # a string like any other
    assert from_json(Outer, {**data, "newer": 1}, what="x", extra=True) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inner": None}, "x: inner is missing; copy it"),
        ({"inner": 3}, "x: inner=3; use an object"),
        ({"inner": {}}, "x: inner.size is missing; copy it"),
        ({"inner": {"size": True}}, "x: inner.size=True; use a whole number"),
        ({"inner": {"size": 1.0}}, "x: inner.size=1.0; use a whole number"),
        ({"inner": {"size": -1}}, "x: size=-1; use 0 or more"),
        ({"inner": {"size": 1, "kind": ["a"]}}, "x: inner.kind=['a'] is unknown; use one of 'a'"),
        ({"inner": {"size": 1, "sise": 1}}, "x: inner has an unknown key 'sise'; did you mean"),
        ({"rat": 1}, "x: an unknown key 'rat'; did you mean 'rate'?"),
        ({"rate": "1"}, "x: rate='1'; use a number"),
        ({"rate": None}, "x: rate is missing; copy it"),
        ({"rate": 0}, "x: rate=0; use a number > 0"),
        ({"rate": float("nan")}, "x: rate=nan; use a number"),
        ({"rate": float("inf")}, "x: rate=inf; use a number"),
        ({"clip": 0}, "x: clip=0; use a whole number >= 1"),
        ({"clip": "none"}, "x: clip='none'; use a whole number or null"),
        ({"flag": 1}, "x: flag=1; use true or false"),
        ({"sizes": [[1]]}, "x: sizes[0]=[1]; use a list of length 2"),
        ({"sizes": {"1": 2}}, "x: sizes={'1': 2}; use a list"),
        ({"pairs": [{"name": 3}]}, "x: pairs[0].name=3; use a string"),
        ({"rows": {"a": {"name": 3}}}, "x: rows[...].name; use a string"),
        ({"rows": {"a": {"nam": 3}}}, "x: rows.a has an unknown key 'nam'; did you mean 'name'"),
        ({"notes": []}, "x: notes=[]; use an object"),
    ],
)
def test_values_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    data = {"inner": {"size": 3}, **change}
    for error in (ConfigError, FormatError):
        with pytest.raises(error) as raised:
            from_json(Outer, data, what="x", error=error, fix="copy it")
        assert message in str(raised.value)
