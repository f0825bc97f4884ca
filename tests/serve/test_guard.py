"""Tokens, sizes, types, origins: what passes and what does not."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.serve.app import make_app
from elmore.serve.settings import Settings
from serve.running import serving

BODY = b'{"sentences": ["a"], "pooling": "mean"}'
TYPE = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def closed(lm: Elmo) -> Iterator[TestClient]:
    with serving(lm, token="s3cret token!") as client:
        yield client


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("Bearer s3cret token!", 200),
        ("bearer   s3cret token! ", 200),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer s3cret token", 401),
        ("Bearer S3cret token!", 401),
        ("Basic s3cret token!", 401),
        ("s3cret token!", 401),
        (b"Bearer \xff\xfe\xc3\xa9", 401),
    ],
)
def test_the_token(closed: TestClient, value: str | bytes | None, status: int) -> None:
    headers: dict[str, str | bytes] = {**TYPE}
    if value is not None:
        headers["Authorization"] = value
    for method, path in (("POST", "/v1/embed"), ("GET", "/v1/models"), ("GET", "/metrics")):
        content = BODY if method == "POST" else None
        response = closed.request(method, path, content=content, headers=headers)
        assert response.status_code == status
        if status == 401:
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json()["error"]["type"] == "unauthorized"
    twice = [("Authorization", "Bearer s3cret token!")] * 2
    assert closed.get("/v1/models", headers=twice).status_code == 401


def test_the_token_is_not_shown() -> None:
    assert "hunter2" not in repr(Settings(token="hunter2"))


def test_probes_and_page_need_no_token(closed: TestClient) -> None:
    for path in ("/health", "/ready", "/", "/page.js", "/openapi.json"):
        assert closed.get(path).status_code == 200


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413), (50_000, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_body_size(lm: Elmo, size: int, status: int, chunked: bool) -> None:
    body = BODY.ljust(size)
    pieces = (body[k : k + 300] for k in range(0, len(body), 300))
    with serving(lm, body_bytes=1000) as client:
        content = pieces if chunked else body
        response = client.post("/v1/embed", content=content, headers=TYPE)
        assert response.status_code == status
        if status == 413:
            assert "more than 1000 bytes" in response.json()["error"]["message"]
        assert client.post("/v1/embed", content=BODY, headers=TYPE).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/jsonp"},
        {**TYPE, "Content-Encoding": "gzip"},
    ],
)
def test_only_plain_json(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/v1/embed", content=BODY, headers=headers).status_code == 415


def test_origins_are_refused_unless_named(client: TestClient, lm: Elmo) -> None:
    ask = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.options("/v1/embed", headers=ask).headers
    with serving(lm, origins=("https://example.org",)) as other:
        answer = other.options("/v1/embed", headers=ask)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        ask["Origin"] = "https://elsewhere.org"
        answer = other.options("/v1/embed", headers=ask)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        ((), "LOCALHOST:8000", 200),
        ((), "[::1]:8000", 200),
        ((), "192.168.1.5", 200),  # nobody looked it up
        ((), "evil.example:8000", 400),
        ((), "localhost.evil.example", 400),
        ((), "localhost:8000:x", 400),
        (("elmo.example",), "elmo.example:8000", 200),
        (("0.0.0.0",), "evil.example", 400),
        (("*",), "evil.example", 200),
    ],
)
def test_only_our_own_names(lm: Elmo, hosts: tuple[str, ...], host: str, status: int) -> None:
    """A website that lets its name lead here (DNS rebinding) reads nothing."""
    with serving(lm, hosts=(*Settings.hosts, *hosts)) as client:
        for path in ("/v1/models", "/", "/health", "/metrics"):
            response = client.get(path, headers={"Host": host})
            assert response.status_code == status
            if status == 400:
                assert "--allowed-host" in response.json()["error"]["message"]


def test_a_stop_refuses_new_work(lm: Elmo) -> None:
    draining = threading.Event()
    with TestClient(
        make_app(lm, Settings(), draining.is_set), base_url="http://localhost"
    ) as client:
        assert client.get("/ready").status_code == 200
        draining.set()
        for response in (
            client.get("/ready"),
            client.post("/v1/embed", content=BODY, headers=TYPE),
        ):
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
        assert client.get("/health").status_code == 200


def test_parts_can_be_left_out(lm: Elmo) -> None:
    with serving(lm, page=False, metrics=False) as client:
        assert [client.get(path).status_code for path in ("/", "/metrics")] == [404, 404]


def test_what_fails_inside_stays_inside(
    lm: Elmo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret of /home/somebody/models/x.py")

    monkeypatch.setattr("elmore.serve.routes.encode_vectors", fail)
    with serving(lm) as client:
        response = client.post("/v1/embed", content=BODY, headers=TYPE)
        assert response.status_code == 500
        assert "secret" not in response.text
        assert json.loads(response.text)["error"]["type"] == "internal"
        assert client.get("/health").status_code == 200
    assert "RuntimeError" in caplog.text


def test_the_page_allows_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/page.css", "/page.js"):
        response = client.get(path)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        text = response.text.replace("http://www.w3.org/2000/svg", "")
        text = re.sub(r'<a href="https://[^"]*">', "", text)  # people may follow a link
        assert "http:" not in text
        assert "https:" not in text
        assert "//cdn" not in text


@pytest.mark.parametrize(
    "settings",
    [{"batch_tokens": 0}, {"max_wait": -1}, {"max_wait": 11}, {"token": ""}, {"token": "a\nb"}],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"use|choose"):
        Settings(**settings)


def test_more_requests_than_places(lm: Elmo) -> None:
    """The second of two at a time is refused while the first is being received, and not after."""
    app = make_app(lm, Settings(queue_requests=1, metrics=False))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/embed",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"5")],
    }

    async def answer(wait: asyncio.Event | None) -> tuple[int, dict[bytes, bytes]]:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if wait is not None:
                await wait.wait()
            return {"type": "http.request", "body": b"wrong", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await app({**scope}, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"])

    async def work() -> None:
        go = asyncio.Event()
        first = asyncio.ensure_future(answer(go))
        await asyncio.sleep(0.01)
        status, headers = await answer(None)
        assert (status, headers[b"retry-after"]) == (429, b"1")
        go.set()
        assert (await first)[0] == 400
        assert (await answer(None))[0] == 400

    asyncio.run(work())


def test_the_token_is_asked_for_below_a_prefix_too(lm: Elmo) -> None:
    app = make_app(lm, Settings(token="secret"))
    with TestClient(app, root_path="/elmo", base_url="http://localhost") as client:
        for path in ("/v1/embed", "/v1/models", "/metrics", "/nowhere"):
            method = "POST" if path == "/v1/embed" else "GET"
            found = client.request(method, f"/elmo{path}", content=BODY, headers=TYPE)
            assert found.status_code == 401
        assert client.get("/elmo/health").status_code == 200
        headers = {**TYPE, "Authorization": "Bearer secret"}
        assert client.post("/elmo/v1/embed", content=BODY, headers=headers).status_code == 200


def test_the_access_log(lm: Elmo, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lm, access_log=True) as client:
        client.post("/v1/embed", content=BODY.replace(b'"a"', b'"secret"'), headers=TYPE)
        client.get("/secret?text=secret")
        client.post("/v1/embed", content=b"[", headers=TYPE)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [(line["method"], line["route"], line["status"]) for line in lines]
    assert told == [("POST", "/v1/embed", 200), ("GET", "other", 404), ("POST", "/v1/embed", 400)]
    assert "secret" not in str(lines)
    for line in lines:
        assert set(line) == {"time", "client", "method", "route", "status", "seconds"}
        assert line["seconds"] > 0
        assert line["time"].endswith("+00:00")
