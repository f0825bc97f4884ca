"""`elmore serve`: its flags; what it serves is tested in tests/serve."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from slow_language_model import load_both

from elmore.senses import Index, build_index
from elmore.serve import server
from elmore.serve.settings import Settings


class Served(list[Settings]):
    index: Index | None = None
    elmo: Any = None


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Take the settings instead of serving."""
    taken = Served()

    def serve(elmo: Any, settings: Settings, listener: Any, *, index: Any, started: Any) -> None:
        taken.append(settings)
        taken.index, taken.elmo = index, elmo
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


FLAGS = {
    "port": "0",
    "name": "mine",
    "cors": "https://a.org https://b.org",
    "max-wait-ms": "5",
    "max-body-bytes": "10",
    "max-tokens": "11",
    "max-sentences": "12",
    "max-requests": "13",
    "max-queue-tokens": "14",
    "allowed-host": "elmo.example",
    "max-pending-bytes": "17",
    "max-stall-seconds": "18",
    "batch-tokens": "15",
}
SWITCHES = ("no-page", "no-metrics", "access-log", "quiet")


@pytest.mark.parametrize("variables", [False, True])
def test_every_flag(cli, served, tiny_folder, tmp_path, monkeypatch, variables):
    token = tmp_path / "token"
    token.write_text("  abc \n")
    flags = {**FLAGS, "model": str(tiny_folder), "token-file": str(token)}
    line = [part for name in flags for word in flags[name].split() for part in (f"--{name}", word)]
    line += [f"--{name}" for name in SWITCHES]
    if variables:
        for name, value in {**flags, **dict.fromkeys(SWITCHES, "yes"), "verbose": "0"}.items():
            monkeypatch.setenv(f"ELMORE_SERVE_{name.replace('-', '_').upper()}", value)
        line = []
    result = cli("serve", *line)
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
            hosts=(*Settings.hosts, "elmo.example"),
            pending_bytes=17,
            stall_seconds=18,
            batch_tokens=15,
            page=False,
            metrics=False,
            access_log=True,
        )
    ]


def test_an_index_is_opened_with_its_model(cli, served, tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("The bank fell .\nA bank .\n")
    elmo = load_both(tmp_path)[0]
    elmo.save(tmp_path / "lm")
    build_index([text], tmp_path / "uses", model=tmp_path / "lm", words=["bank"])
    assert cli("serve", "--port", "0", "--index", tmp_path / "uses", "--quiet").code == 0
    assert served[-1].name == "lm"  # the model that the index was made with
    assert len(served.index) == 2
    result = cli("serve", "--model", "english", "--port", "0", "--index", tmp_path / "uses")
    assert result.code == 2
    assert "was made with another model" in result.err
    result = cli("serve", "--port", "0", "--index", tmp_path)
    assert result.code == 1
    assert "is not an index; make one with `elmore index`" in result.err
    build_index([text], tmp_path / "int8", model=tmp_path / "lm", words="bank", precision="int8")
    assert cli("serve", "--port", "0", "--index", tmp_path / "int8").code == 0
    assert served.index.space.elmo.precision == "int8"
    monkeypatch.setenv("ELMORE_SERVE_INDEX", str(tmp_path / "uses"))
    assert cli("serve", "--port", "0").code == 0


def test_it_computes_as_the_model_is_stored(cli, served, tmp_path, monkeypatch):
    load_both(tmp_path)[0].save(tmp_path / "lm", precision="int8")
    monkeypatch.setenv("ELMORE_NATIVE", "0")  # elsewhere the default is then float32
    assert cli("serve", "--model", tmp_path / "lm", "--port", "0").code == 0
    assert served.elmo.precision == "int8"


def test_a_token_from_the_environment(cli, served, tiny_folder, monkeypatch):
    monkeypatch.setenv("ELMORE_SERVE_TOKEN", "xyz")
    assert cli("serve", "--model", tiny_folder, "--port", "0").code == 0
    assert served[0].token == "xyz"


def test_an_open_door_is_warned_of(cli, served, tiny_folder):
    result = cli("serve", "--model", tiny_folder, "--port", "0", "--host", "0.0.0.0")
    assert "anyone who can reach this machine" in result.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max-tokens", "0"], "not in the range"),
        (["--host", "999.1.1.1"], "cannot listen on 999.1.1.1"),
        (["--token-file", "EMPTY"], "contains no token"),
    ],
)
def test_what_is_refused(cli, served, tiny_folder, tmp_path, flags, message):
    (tmp_path / "empty").write_text("\n")
    flags = [str(tmp_path / "empty") if flag == "EMPTY" else flag for flag in flags]
    result = cli("serve", "--model", tiny_folder, *flags)
    assert result.code == 2
    assert message in result.err
    assert served == []


def test_without_the_extra(cli, tiny_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = cli("serve", "--model", tiny_folder)
    assert result.code == 1
    assert "elmore serve needs uvicorn; install elmore[serve]" in result.err
