"""What every attack has in common: a name, a maker, and the demand that it is refused well."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmore.errors import FormatError

if sys.platform == "linux":
    import resource

SECRET = b"canary-7f3a9c51-these-bytes-belong-to-another-file"

Maker = Callable[[Path], Path]


def table(makers: dict[str, Any]) -> pytest.MarkDecorator:
    """Parametrize a test with every `maker`, by name."""
    return pytest.mark.parametrize("maker", list(makers.values()), ids=list(makers))


def check_reason(error: BaseException, attack: str, reasons: dict[str, str]) -> None:
    """Hold an attack to the defence meant for it: another one may fire by luck."""
    for part, reason in reasons.items():
        if part in attack:
            assert reason in str(error), (attack, str(error))


def check_message(error: BaseException) -> None:
    """Hold a message to our form: one printable line with the problem and what to do."""
    message = str(error)
    # Apart from paths: the folders of tests have long names on some systems.
    assert len(re.sub(r"\S*[/\\]\S*", "", message)) <= 300, message
    assert "\n" not in message
    assert message.isprintable(), message
    assert not message.endswith(".")
    assert ";" in message or "does not" in message, message
    assert SECRET.decode() not in message


def refused(action: Callable[[], Any], *, seconds: float = 2.0) -> FormatError:
    """Run an action and demand a quick, cheap, well-worded FormatError."""
    memory = _peak_kib()
    start, computed = time.perf_counter(), time.process_time()
    with pytest.raises(FormatError) as caught:
        action()
    # Other work on the machine is not counted against it, waiting is.
    assert time.process_time() - computed < seconds
    assert time.perf_counter() - start < 15 * seconds
    grown = _peak_kib() - memory
    assert grown < 256 * 1024, f"{grown} KiB more memory"
    check_message(caught.value)
    return caught.value


def _peak_kib() -> int:
    """The most memory that this process ever had; 0 where the system does not say."""
    if sys.platform != "linux":  # macOS counts bytes, and Windows has no such call
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
