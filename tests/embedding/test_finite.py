"""Vectors that are not finite are an error of one line that names the sentence, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elmore import Elmo
from elmore.cli.main import main
from elmore.errors import ElmoreError

HUGE = [3e38] * 3
MESSAGE = r"^the vectors of 'She fell \.' are not finite; check the weights[^\n]*$"


@pytest.mark.parametrize(
    "call",
    [
        lambda elmo: elmo.embed("She fell .", layers=HUGE),
        lambda elmo: elmo.encode("She fell .", layers=HUGE),
        lambda elmo: list(elmo.pipe(["She fell ."], layers=HUGE)),
        lambda elmo: elmo.layers("She fell .").mix(HUGE),
        lambda elmo: elmo.stateful().embed(["She fell ."], layers=HUGE),
    ],
)
@pytest.mark.filterwarnings("error")
def test_weights_of_layers_that_overflow(call: Callable[[Elmo], object]) -> None:
    with pytest.raises(ElmoreError, match=MESSAGE):
        call(Elmo.load(threads=1))


@pytest.fixture(scope="module")
def huge_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with finite weights whose token layer overflows."""
    checkpoint = Elmo.load(threads=1).checkpoint
    weights = dict(checkpoint.weights)
    for name in weights:
        if "projection" in name or "highway" in name:
            weights[name] = weights[name] * 0 + 1e38
    path = tmp_path_factory.mktemp("huge") / "model"
    Elmo(checkpoint.with_weights(weights), threads=1).save(path)
    return path


def test_a_model_that_overflows(
    huge_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elmo = Elmo.load(huge_folder, threads=1)
    for call in (elmo.embed, elmo.layers, elmo.encode):
        with pytest.raises(ElmoreError, match=MESSAGE):
            call("She fell .")
    text = tmp_path / "text.txt"
    text.write_text("She fell .\n")
    out = str(tmp_path / "out.jsonl")
    assert main(["embed", str(text), "--model", str(huge_folder), "-o", out, "--quiet"]) == 1
    assert "the vectors of 'She fell .' are not finite" in capsys.readouterr().err
