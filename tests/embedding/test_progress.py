"""`progress=` and `batch_tokens=` of the calls that take sentences."""

from __future__ import annotations

import logging
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from elmore import Elmo, score
from elmore.base.messages import SILENT, progress_of
from elmore.errors import ConfigError

TEXTS = [f"It fell {k} times ." for k in range(7)] + ["", "Yes ."]
CALLS: dict[str, Callable[..., Any]] = {
    "embed": lambda elmo, **how: elmo.embed(TEXTS, **how),
    "encode": lambda elmo, **how: elmo.encode(TEXTS, **how),
    "sif": lambda elmo, **how: elmo.encode(TEXTS, pool="sif", **how),
    "layers": lambda elmo, **how: elmo.layers(TEXTS, **how),
    "layers tokens": lambda elmo, **how: elmo.layers(
        [t.split() for t in TEXTS], **how, tokenized=True
    ),
    "senses": lambda elmo, **how: elmo.senses(TEXTS, **how),
    "pipe": lambda elmo, **how: list(elmo.pipe(TEXTS, **how)),
    "score": lambda elmo, **how: score(elmo, TEXTS, **how),
    "to_pandas": lambda elmo, **how: elmo.to_pandas(TEXTS, **how),
}


@pytest.fixture(scope="module")
def english() -> Elmo:
    return Elmo.load(threads=2)


@pytest.mark.parametrize("name", CALLS)
def test_a_function_hears_of_every_sentence(english: Elmo, name: str) -> None:
    heard: list[tuple[int, int | None]] = []
    CALLS[name](english, batch_tokens=20, progress=lambda *news: heard.append(news))
    assert heard[-1] == (len(TEXTS), len(TEXTS))
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})
    assert len(heard) > 1 or name == "sif"  # batch by batch, not at the end only


def test_a_generator_has_no_total(tiny_elmo: Elmo) -> None:
    heard: list[tuple[int, int | None]] = []
    found = tiny_elmo.pipe(iter(TEXTS), progress=lambda *news: heard.append(news))
    assert not heard  # lazy
    assert len(list(found)) == len(TEXTS)
    assert heard[-1] == (len(TEXTS), None)


def test_a_function_is_called_in_the_calling_thread(english: Elmo) -> None:
    import threading

    threads = set()
    english.embed(TEXTS, batch_tokens=7, progress=lambda *_: threads.add(threading.get_ident()))
    assert threads == {threading.get_ident()}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    return monkeypatch


@pytest.mark.parametrize("place", ["terminal", "notebook"])
def test_a_bar_appears_when_it_takes_longer(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if place == "terminal":
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    else:
        shell = types.SimpleNamespace(kernel=None)
        notebook = types.SimpleNamespace(get_ipython=lambda: shell)
        monkeypatch.setitem(sys.modules, "IPython", notebook)
    bar = progress_of(None, unit="sentences", total=10, delay=2)
    bar.update(3)
    time.sleep(0.15)
    bar.update(1)
    assert capsys.readouterr().err == ""
    time.sleep(2)
    bar.update(2)
    shown = capsys.readouterr().err
    assert "6/10" in shown  # with what was counted before
    assert " sentences/s" in shown
    bar.close()


def test_quiet_is_quiet(watched: pytest.MonkeyPatch) -> None:
    assert progress_of(None, unit="x") is not SILENT
    watched.setattr(logging.getLogger("elmore"), "disabled", True)
    assert progress_of(None, unit="x") is SILENT
    assert progress_of(False, unit="x") is SILENT


def test_true_shows_a_bar_anywhere(tiny_elmo: Elmo, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_elmo.embed(TEXTS, progress=True)
    assert f"{len(TEXTS)}/{len(TEXTS)}" in capsys.readouterr().err
    tiny_elmo.embed("It fell .", progress=True)
    assert "1/1" in capsys.readouterr().err


def test_an_object_with_update_is_not_closed() -> None:
    class Own:
        seen = 0

        def update(self, n: int) -> None:
            self.seen += n

        def close(self) -> None:
            raise AssertionError("it is its owner's")

    own = Own()
    report = progress_of(own, unit="x")
    report.update(2)
    report.close()
    assert own.seen == 2


def test_other_values_are_refused(tiny_elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match=r"progress='yes'; use True, False, None or a function"):
        tiny_elmo.embed(TEXTS, progress="yes")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="batch_tokens=0"):
        tiny_elmo.embed(TEXTS, batch_tokens=0)
