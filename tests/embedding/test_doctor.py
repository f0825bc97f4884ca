"""What `elmore doctor` finds."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

from elmore.cli import doctor
from elmore.cli.doctor import EXTRAS, Check, Diagnosis, diagnose
from elmore.embedding.load import read_checkpoint
from elmore.errors import NativeError
from elmore.formats.checkpoint import Checkpoint
from elmore.published.catalog import bundled_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ELMORE_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ELMORE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def bundled() -> Checkpoint:
    return read_checkpoint(bundled_model())


def found(**options: Any) -> dict[str, Check]:
    options = {"seconds": 0.0, "reach": lambda host, timeout: host == "huggingface.co", **options}
    return {check.name: check for check in diagnose(**options).checks}


def test_a_diagnosis(place: Path) -> None:
    place.mkdir()
    (place / "weights").write_bytes(b"x" * 2500)
    checks = found()
    assert list(checks) == (
        "versions extension threads extras cache network self-test speed".split()
    )
    assert checks["self-test"].ok
    assert checks["cache"].facts["bytes"] == 2500
    assert checks["speed"].facts["tokens_per_second_and_thread"] > 0
    assert checks["threads"].facts["used"] >= 1
    with_torch = importlib.util.find_spec("torch") is not None
    assert ("torch" in checks["extras"].facts["installed"]) == with_torch
    hosts = checks["network"].facts["hosts"]
    assert hosts["huggingface.co"]
    assert not hosts["vectors.nlpl.eu"]
    assert f"1 of {len(hosts)} hosts" in checks["network"].text


@pytest.mark.parametrize("name", ["ELMORE_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_means_that_no_host_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(host: str, timeout: float) -> bool:
        raise AssertionError(host)

    monkeypatch.setenv(name, "1")
    assert f"{name} is set" in doctor._network(1.0, never).text
    monkeypatch.setenv(name, "0")
    assert not doctor._network(1.0, lambda *_: False).facts["offline"]


def test_hosts_that_never_answer_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    hang = threading.Event()
    check = doctor._network(0.01, lambda host, timeout: hang.wait(30))
    assert not any(check.facts["hosts"].values())
    hang.set()


def test_other_numbers_than_those_of_the_certificate_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.certify

    def wrong(*arguments: Any) -> dict[str, Any]:
        made = real(*arguments)
        return {**made, "max_value": [2 * value for value in made["max_value"]]}

    monkeypatch.setattr(doctor, "certify", wrong)
    check = doctor._self_test(doctor.read_checkpoint(doctor.bundled_model()))
    assert check.ok is False
    assert "differs from its certificate" in check.text
    assert not Diagnosis((check,)).ok


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
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "ray" else object())
    check = doctor._extras()
    assert "missing: ray (ray)" in check.text
    assert "ray" not in check.facts["installed"]


def test_the_extras_are_those_of_the_package() -> None:
    path = ROOT / "pyproject.toml"
    if not path.is_file():
        pytest.skip("an installed package has no pyproject.toml")
    extras = tomllib.loads(path.read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"all", "docs", "test", "dev"}


def test_more_threads_are_not_expected_to_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmore.compute.workers.available_threads", lambda: 64)
    assert doctor._speed(bundled(), 0.0).facts["expected"] == doctor._EXPECTED
