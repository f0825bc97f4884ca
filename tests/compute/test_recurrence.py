"""The recurrent loop over packed weights: against its reference, and against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.compute.matrix import Matrix, Stored, quantize
from elmore.compute.network import BiLmArrays, LstmState
from elmore.compute.recurrence import Clips, run_steps
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig, weight_shapes
from elmore.errors import NativeError
from elmore.nn.bilm import BiLm

KINDS = ("float32", "float16", "int8")


def drawn(examples: int) -> settings:
    return settings(
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


def stored(weight: np.ndarray, kind: str) -> Stored:
    return quantize(weight) if kind == "int8" else Stored(weight.astype(kind))


class Case:
    """Random weights and inputs of one layer."""

    def __init__(self, cells: int, dim: int, sizes: list[int], seed: int = 0) -> None:
        generator = np.random.default_rng(seed)

        def draw(*shape: int, scale: float = 1.0) -> np.ndarray:
            return (generator.standard_normal(shape) * scale).astype(np.float32)

        self.sizes, self.dim, self.cells = sizes, dim, cells
        self.state = draw(4 * cells, dim, scale=0.4 / dim**0.5)
        self.projection = None if dim == cells else draw(dim, cells, scale=0.7 / cells**0.5)
        self.gates = draw(max(1, sum(sizes)), 4 * cells, scale=2)
        self.hidden = draw(sizes[0], dim)
        self.cell = draw(sizes[0], cells)

    def run(self, kind: str, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        output = np.empty((sum(self.sizes), self.dim), np.float32)
        cell = self.cell.copy()
        projection = None
        if self.projection is not None:
            projection = Matrix(stored(self.projection, kind), fine=True)
        run_steps(
            output, cell, self.gates, rows, self.hidden, self.sizes,
            Matrix(stored(self.state, kind), gates=True), projection, Clips(1.0, 0.6),
        )  # fmt: skip
        return output, cell


@pytest.mark.parametrize("kind", KINDS)
@drawn(15)
@given(cells=st.integers(1, 70), dim=st.integers(1, 40), seed=st.integers(0, 99), data=st.data())
def test_steps_equal_the_reference(
    instruction_set: str, monkeypatch: pytest.MonkeyPatch, kind: str,
    cells: int, dim: int, seed: int, data: st.DataObject,
) -> None:  # fmt: skip
    sizes = sorted(data.draw(st.lists(st.integers(1, 15), min_size=1, max_size=8)), reverse=True)
    case = Case(cells, min(dim, cells), sizes, seed)
    rows = np.random.default_rng(seed).integers(0, sum(sizes), sum(sizes))
    found = case.run(kind, rows)
    with monkeypatch.context() as patch:
        patch.setenv("ELMORE_NATIVE", "0")
        expected = case.run(kind, rows)
    # A last bit can turn one rounding of int8 over; a step of 1 / 127 is then carried along.
    tolerance = 0.05 if kind == "int8" else 5e-6
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=0)
    assert bool((np.abs(found[1]) <= 1).all())
    assert case.projection is None or bool((np.abs(found[0]) <= 0.6 + 1e-6).all())


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_does_not_know_its_neighbours(instruction_set: str, kind: str) -> None:
    """Bit for bit: a batch of 150 ragged rows beside each row alone."""
    sizes = [150, 140, 17, 6, 5, 1]
    case = Case(40, 12, sizes)
    together, cell = case.run(kind)
    starts = np.cumsum([0, *sizes])
    for row in (0, 1, 5, 16, 143, 149):
        steps = [t for t, size in enumerate(sizes) if size > row]
        alone = Case(40, 12, [1] * len(steps))
        alone.state, alone.projection = case.state, case.projection
        alone.gates = np.stack([case.gates[starts[t] + row] for t in steps])
        alone.hidden, alone.cell = case.hidden[row : row + 1], case.cell[row : row + 1]
        output, last = alone.run(kind)
        assert np.array_equal(output, np.stack([together[starts[t] + row] for t in steps]))
        assert np.array_equal(last[0], cell[row])


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [2, 3]},
        {"sizes": [3, 0]},
        {"sizes": [4, 1]},
        {"rows": np.array([0, 1, 2, 3, 5])},
        {"rows": np.array([0, 1, 2, 3, -1])},
        {"rows": np.array([0, 1, 2, 3])},
    ],
    ids=str,
)
def test_what_does_not_fit_never_reaches_c(instruction_set: str, change: dict) -> None:
    case = Case(8, 4, [3, 2])
    case.sizes = change.get("sizes", case.sizes)
    with pytest.raises((NativeError, RuntimeError, IndexError, ValueError)):
        case.run("float32", change.get("rows"))


# Whole models -----------------------------------------------------------------------------------


def contractive(cells: int, dim: int, seed: int) -> tuple[BiLmConfig, dict[str, np.ndarray]]:
    """A model in which a rounding dies out instead of growing."""
    config = BiLmConfig(
        tokens=TokenEncoderConfig(
            n_characters=20, char_dim=4, filters=((1, 5), (2, 7), (3, 9)), n_highway=1
        ),
        lstm=LstmConfig(dim=cells, projection_dim=dim),
    )
    generator = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        gain = 0.5 if "_layers" in name else 1.0
        fan = shape[-1] if len(shape) > 1 else 4
        weights[name] = (generator.standard_normal(shape) * gain / fan**0.5).astype(np.float32)
    return config, weights


def zero_state(config: BiLmConfig, rows: int) -> LstmState:
    shape = (2, config.lstm.n_layers, rows)
    zeros = [
        np.zeros((*shape, n), np.float32) for n in (config.lstm.projection_dim, config.lstm.dim)
    ]
    return LstmState(*zeros)


def torch_layers(bilm: BiLm, *inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return bilm(*inputs)[0]


@drawn(8)
@given(
    cells=st.integers(4, 80),
    lengths=st.lists(st.integers(1, 60) | st.integers(1, 500), min_size=1, max_size=6),
    seed=st.integers(0, 999),
)
def test_float32_is_as_near_to_float64_as_torch(
    instruction_set: str, monkeypatch: pytest.MonkeyPatch, cells: int, lengths: list[int], seed: int
) -> None:
    config, weights = contractive(cells, max(1, cells // 3), seed)
    bilm = BiLm(config)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))
    generator = np.random.default_rng(seed)
    words = generator.integers(1, 21, (30, 50)).astype(np.int32)
    index = generator.integers(0, 30, (len(lengths), max(lengths)))
    counts = np.array(lengths)
    arrays = BiLmArrays(config, lambda name: Stored(weights[name]))
    state = zero_state(config, len(lengths))
    found = arrays.contextualize(arrays.tokens(words, None), index, counts, state)[0]
    with monkeypatch.context() as patch:
        patch.setenv("ELMORE_NATIVE", "0")
        ids, places, sizes = (torch.from_numpy(a).long() for a in (words, index, counts))
        single = torch_layers(bilm, ids, places, sizes)
        double = torch_layers(bilm.double(), ids, places, sizes)
    own = float((single - double).abs().max())
    ours = float((torch.from_numpy(found) - double).abs().max())
    # On a lucky draw torch's own error is below one unit in the last place.
    floor = float(double.abs().max()) * 2.0**-23
    assert ours <= 4 * max(own, floor)
