"""Requests that no client should send: each gets one clear answer, and none an inside view."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import elmore
from elmore import Elmo

PATHS = ("/v1/embed", "/v1/embeddings", "/v1/score", "/v1/substitutes", "/v1/senses", "/v1/explore")
# What a message must not hold: paths, names of modules, classes and files, traces.
LEAKS = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|/home|/tmp|/usr|secret-place|elmore\.|fastapi|"
    r"starlette|pydantic|uvicorn|torch|numpy|0x[0-9a-f]{6}|Error\(|Exception|errors\.|<class",
    re.IGNORECASE,
)
RAW: list[bytes] = [
    b"",
    b"{",
    b"null",
    b'"text"',
    b"[{}]",
    b"NaN",
    b'{"sentences": [NaN]}',
    b'{"layers": [1e999, 0, 0], "sentences": ["a"]}',
    b"{'sentences': ['a']}",
    b'{"sentences": ["a"]} {}',
    b'{"sentences": ["\\ud8"]}',
    b'{"sentences": ["\x00"]}',
    b"\xff\xfe{\x00}\x00",
    b'{"sentences": ["\xff"]}',
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    b"[" * 50_000,
    b'{"a":' * 20_000,
    b"[" * 900 + b"]" * 900,
    b"1" * 10_000,
    b"sentences=a",
]
VALUES: list[Any] = [None, True, 10**30, 1.5, "text", {}, [None], [1], [["a", None]], [["a"], "a"]]
BAD_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embed", {"sentences": ["a"], "tokens": [["a"]]}),
    ("/v1/embed", {"sentences": ["a"], "layers": "bottom"}),
    ("/v1/embed", {"sentences": ["a"], "layers": 3}),
    ("/v1/embed", {"sentences": ["a"], "layers": -1}),
    ("/v1/embed", {"sentences": ["a"], "layers": True}),
    ("/v1/embed", {"sentences": ["a"], "layers": []}),
    ("/v1/embed", {"sentences": ["a"], "layers": [1, 2, 3, 4]}),
    ("/v1/embed", {"sentences": ["a"], "layers": [1e38, 1e38, 1e38]}),
    ("/v1/embed", {"sentences": ["a"], "layers": [0.1] * 10_000}),
    ("/v1/embed", {"sentences": ["a"], "pooling": "sum"}),
    ("/v1/embed", {"sentences": ["a"], "pool": "mean"}),
    ("/v1/embed", {"sentences": ["a"] * 257}),
    ("/v1/embed", {"tokens": [["a"] * 20_000]}),
    ("/v1/embeddings", {"input": ["a"], "encoding_format": "hex"}),
    ("/v1/embeddings", {"input": ["a"], "dimensions": 3}),
    ("/v1/embeddings", {"input": ["a"] * 2049}),
    ("/v1/score", {"sentences": ["a"], "per_token": "yes"}),
    ("/v1/substitutes", {"sentences": ["a"]}),
    ("/v1/substitutes", {"sentences": ["a"], "positions": [0, 0]}),
    ("/v1/substitutes", {"sentences": ["a"], "positions": [1]}),
    ("/v1/substitutes", {"sentences": ["a"], "positions": [-1]}),
    ("/v1/substitutes", {"sentences": ["a"], "positions": [0], "k": 101}),
    ("/v1/senses", {"sentences": ["a"], "positions": []}),
    ("/v1/senses", {"sentences": ["a"], "positions": [[1]]}),
    ("/v1/senses", {"sentences": ["a"], "k": 201}),
    ("/v1/embed", {"sentences": ["a"], "view": "senses", "layers": "top"}),
    ("/v1/explore", {"sentences": ["a"], "word": "x" * 201}),
]


def check_error(response: Any, statuses: tuple[int, ...] = (400, 413, 422)) -> None:
    assert response.status_code in statuses, response.text[:300]
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"type", "message", "param"}
    message = answer["error"]["message"]
    assert "\n" not in message
    assert 10 < len(message) < 600
    assert not LEAKS.search(response.text.replace("/openapi.json", "")), message
    assert str(Path(elmore.__file__).parent) not in response.text


@pytest.mark.parametrize("path", PATHS)
def test_bodies_that_are_no_request(client: TestClient, path: str) -> None:
    for body in RAW:
        response = client.post(path, content=body, headers={"Content-Type": "application/json"})
        check_error(response)


@pytest.mark.parametrize("path", PATHS)
def test_values_of_the_wrong_kind(client: TestClient, path: str) -> None:
    field = "input" if path == "/v1/embeddings" else "tokens"
    for value in VALUES:
        if (field, value) != ("input", "text"):  # one text is no mistake there
            place = {"positions": [0]} if path == "/v1/substitutes" else {}
            check_error(client.post(path, json={field: value, **place}))


@pytest.mark.parametrize(("path", "body"), BAD_FIELDS)
def test_fields_that_do_not_fit(client: TestClient, path: str, body: dict[str, Any]) -> None:
    response = client.post(path, json=body)
    check_error(response, (422,))


ODD = [
    "\x00",
    "\u2028\u2029\x85",
    "\u202e abc",
    "e" + "\u0301" * 500,
    "x" * 30_000,
    "<S> </S> <UNK>",
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_texts_are_texts(client: TestClient, text: str) -> None:
    for path in PATHS:
        body: dict[str, Any] = {"input": text} if path == "/v1/embeddings" else {"tokens": [[text]]}
        body |= {"positions": [0]} if path == "/v1/substitutes" else {}
        response = client.post(path, json=body)
        assert response.status_code == 200, response.text
        json.loads(response.content.decode("utf-8"), parse_constant=pytest.fail)


def test_lone_surrogates_are_read_as_in_the_library(client: TestClient, lm: Elmo) -> None:
    text = "a\ud800b \udfff c 🦊"
    kind = {"Content-Type": "application/json"}
    wanted = lm.layers(text)
    body = json.dumps({"sentences": [text], "layers": "all"}).encode()
    found = client.post("/v1/embed", content=body, headers=kind).json()["results"][0]
    assert tuple(found["tokens"]) == wanted.tokens
    assert tuple(map(tuple, found["spans"])) == wanted.spans
    np.testing.assert_allclose(found["layers"], wanted.values, atol=1e-6)
    for path in ("/v1/score", "/v1/explore"):
        body = json.dumps({"sentences": [text]}).encode()
        assert client.post(path, content=body, headers=kind).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/embed", 405),
        ("PUT", "/v1/embed", 415),
        ("POST", "/", 405),
        ("GET", "/v1/", 404),
        ("GET", "/docs", 404),
        ("GET", "/page/../../settings.py", 404),
        ("GET", "/" + "a" * 2000, 404),
    ],
)
def test_addresses_and_methods(client: TestClient, method: str, path: str, status: int) -> None:
    check_error(client.request(method, path), (status, 405) if status == 415 else (status,))


def test_it_is_still_well(client: TestClient) -> None:
    assert client.get("/ready").status_code == 200
    assert client.post("/v1/embed", json={"sentences": ["a"]}).status_code == 200
    assert 'status="500"' not in client.get("/metrics").text
