"""`elmore doctor`."""

from __future__ import annotations

import json

from elmore.cli import doctor


def test_doctor(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    done = cli("doctor", "--offline")
    assert (done.code, done.err) == (0, "")
    assert "self-test  the English model agrees with its certificate" in done.out
    assert "network    not tried: ELMORE_OFFLINE is set" in done.out


def test_json_and_a_failure(cli, monkeypatch):
    failed = doctor.Diagnosis((doctor.Check("self-test", False, "differs", {"value": 1.0}),))
    monkeypatch.setattr(doctor, "diagnose", lambda: failed)
    done = cli("doctor", "--json")
    assert done.code == 1
    report = json.loads(done.out)
    assert report["ok"] is False
    assert report["checks"]["self-test"] == {"ok": False, "text": "differs", "value": 1.0}
