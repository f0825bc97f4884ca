"""`elmore doctor`."""

from __future__ import annotations

import importlib.util
import json
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from elmore.cli import doctor
from elmore.errors import NativeError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ELMORE_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ELMORE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_diagnosis(cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SECONDS", 0.0)
    asked = fake_network(monkeypatch, urllib.error.URLError("no route"))
    place.mkdir()
    (place / "weights").write_bytes(b"x" * 2500)
    checks = json.loads(cli("doctor", "--json").out)["checks"]
    assert list(checks) == (
        "versions extension threads extras cache network self-test speed".split()
    )
    assert checks["self-test"]["ok"]
    assert checks["cache"]["bytes"] == 2500
    assert checks["speed"]["tokens_per_second_and_thread"] > 0
    assert checks["threads"]["used"] >= 1
    with_torch = importlib.util.find_spec("torch") is not None
    assert ("torch" in checks["extras"]["installed"]) == with_torch
    assert asked == ["https://s3-us-west-2.amazonaws.com/"]
    assert not checks["network"]["answers"]
    assert "no answer from s3-us-west-2.amazonaws.com" in checks["network"]["text"]


def fake_network(monkeypatch: pytest.MonkeyPatch, error: OSError) -> list[str]:
    """Every request fails in this way; the addresses that are asked for."""
    asked: list[str] = []

    def refuse(request: urllib.request.Request, timeout: float) -> None:
        asked.append(request.full_url)
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    return asked


@pytest.mark.parametrize("name", ["ELMORE_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_means_that_no_host_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = urllib.error.HTTPError("", 403, "Forbidden", Message(), None)
    asked = fake_network(monkeypatch, forbidden)
    monkeypatch.setenv(name, "1")
    assert f"{name} is set" in doctor._network().text
    assert not asked
    monkeypatch.setenv(name, "0")
    assert doctor._network().facts["answers"]  # whoever refuses is there
    assert asked


def test_other_numbers_than_those_of_the_certificate_fail(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor.certify

    def wrong(*arguments: Any) -> dict[str, Any]:
        made = real(*arguments)
        return {**made, "max_value": [2 * value for value in made["max_value"]]}

    monkeypatch.setattr(doctor, "certify", wrong)
    monkeypatch.setattr(doctor, "_SECONDS", 0.0)
    done = cli("doctor", "--offline")
    assert done.code == 1
    assert "FAILED  self-test  the English model differs from its certificate" in done.out
    assert "network    not tried: ELMORE_OFFLINE is set" in done.out


def test_an_extension_that_is_required_and_missing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NativeError("ELMORE_NATIVE=require but the extension cannot be loaded")

    monkeypatch.setattr(doctor, "native", missing)
    assert doctor._extension().ok is False
    monkeypatch.undo()
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    assert doctor._extension().ok is None
    assert "switched off" in doctor._extension().text


def test_a_package_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_has", lambda name: name != "ray")
    check = doctor._extras()
    assert check.text.endswith("; missing: ray (ray)")
    assert "sklearn" in check.facts["installed"]
    assert not {"all", "ray", "dev"} & set(check.facts["installed"])


def test_the_speed_is_that_of_one_thread(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch uses two at most, so that a machine with many would seem slow."""
    monkeypatch.setattr(doctor, "_SECONDS", 0.0)
    monkeypatch.setenv("ELMORE_OFFLINE", "1")
    used: list[int | None] = []
    engine = doctor.Engine

    def recorded(checkpoint: Any, compute: Any) -> Any:
        used.append(compute.threads)
        return engine(checkpoint, compute)

    monkeypatch.setattr(doctor, "Engine", recorded)
    cli("doctor")
    assert used[-1] == 1
