"""`elmore serve`: its flags; what it serves is tested in tests/serve."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from elmore.serve import server
from elmore.serve.settings import Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Take the settings instead of serving."""
    taken: list[Settings] = []

    def serve(elmo: Any, settings: Settings, listener: Any, *, started: Any) -> None:
        taken.append(settings)
        started()

    monkeypatch.setattr(server, "serve", serve)
    return taken


def test_the_defaults_are_safe(cli, served):
    result = cli("serve", "--port", "0")
    assert result.code == 0
    assert "serving english at http://127.0.0.1:" in result.err
    assert "warning" not in result.err
    assert served[0] == Settings(name="english")
    assert (served[0].token, served[0].origins) == (None, ())


def test_every_flag(cli, served, tiny_folder, tmp_path):
    token = tmp_path / "token"
    token.write_text("  abc \n")
    flags = (
        f"--port 0 --name mine --token-file {token} --cors https://a.org --cors https://b.org "
        "--max-wait-ms 5 --max-body-bytes 10 --max-tokens 11 --max-sentences 12 --max-requests 13 "
        "--max-queue-tokens 14 --batch-tokens 15 --no-page --no-metrics --quiet"
    ).split()
    result = cli("serve", tiny_folder, *flags)
    assert (result.code, result.err) == (0, "")
    assert served == [
        Settings(
            name="mine",
            token="abc",
            origins=("https://a.org", "https://b.org"),
            max_wait=0.005,
            body_bytes=10,
            tokens=11,
            sentences=12,
            queue_requests=13,
            queue_tokens=14,
            batch_tokens=15,
            page=False,
            metrics=False,
        )
    ]


def test_a_token_from_the_environment(cli, served, tiny_folder, monkeypatch):
    monkeypatch.setenv("ELMORE_SERVE_TOKEN", "xyz")
    assert cli("serve", tiny_folder, "--port", "0").code == 0
    assert served[0].token == "xyz"


def test_an_open_door_is_warned_of(cli, served, tiny_folder):
    result = cli("serve", tiny_folder, "--port", "0", "--host", "0.0.0.0")
    assert "anyone who can reach this machine" in result.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "70000"], "not a valid port"),
        (["--port", "x"], "not a valid port"),
        (["--max-wait-ms", "-1"], "not a valid time"),
        (["--max-tokens", "0"], "not a number from 1"),
        (["--host", "999.1.1.1"], "cannot listen on 999.1.1.1"),
        (["--token-file", "EMPTY"], "contains no token"),
    ],
)
def test_what_is_refused(cli, served, tiny_folder, tmp_path, flags, message):
    (tmp_path / "empty").write_text("\n")
    flags = [str(tmp_path / "empty") if flag == "EMPTY" else flag for flag in flags]
    result = cli("serve", tiny_folder, *flags)
    assert result.code == 2
    assert message in result.err
    assert served == []


def test_without_the_extra(cli, tiny_folder, monkeypatch):
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "uvicorn":
            raise ModuleNotFoundError("no", name="uvicorn")
        return real(name, *args, **kwargs)

    monkeypatch.setattr("importlib.import_module", lambda name: missing(name))
    from elmore.cli import serve

    with pytest.raises(ImportError, match=r"elmore serve needs uvicorn; install elmore\[serve\]"):
        serve.run(None)  # type: ignore[arg-type]
