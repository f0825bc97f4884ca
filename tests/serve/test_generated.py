"""Requests that schemathesis makes from the service's own description; on demand.

ELMORE_EXAMPLES sets how many for each address (default 100: some 1,000 in all), ELMORE_SEED which.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from serve.running import Running
from serve.test_broken_requests import LEAKS

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed: pip install schemathesis"
)
pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("ELMORE_EXAMPLES", "100"))
MODES = ("POSITIVE", "NEGATIVE")


def test_generated_requests(running: Running) -> None:
    address = f"http://127.0.0.1:{running.port}"
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    statuses: Counter[int] = Counter()

    def check(case: Any) -> None:
        response = case.call(base_url=address)
        statuses[response.status_code] += 1
        allowed = case.operation.definition.raw["responses"]
        assert str(response.status_code) in {*allowed, "400", "404", "405", "415", "422"}
        assert response.status_code < 500
        if response.status_code >= 400:
            error = response.json()["error"]
            assert set(error) == {"type", "message", "param"}
            # Names and values of the request itself may be repeated in a message.
            told = error["message"].replace("/openapi.json", "").partition(":")[2]
            assert not LEAKS.search(told), told
        assert running.process.poll() is None

    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 9
    for operation in operations:
        for name in MODES:
            try:
                cases = operation.as_strategy(
                    generation_mode=getattr(schemathesis.GenerationMode, name)
                )
                _try(cases, check)
            except Exception as error:
                if name == "NEGATIVE" and "Unsatisfiable" in type(error).__name__:
                    continue  # nothing can be wrong in a GET without parameters
                raise
    print(f"requests by status: {dict(statuses)}")
    assert statuses.total() >= EXAMPLES * 5
    assert statuses[200]
    assert statuses[422]


def _try(cases: Any, check: Any) -> None:
    @seed(int(os.environ.get("ELMORE_SEED", "0")))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def attempt(case: Any) -> None:
        check(case)

    attempt()
