"""Cropped columns and summed tables against a convolution over all columns."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import character_ids
from torch import Tensor

from elmore.compute.charcnn import FilterTables, groups_by_length
from elmore.nn.charcnn import convolve

FILTERS = {"1..7": range(1, 8), "1..5": range(1, 6), "3": [3]}
N_CHARACTERS = 261


def make_weights(
    widths: list[int], dtype: torch.dtype, seed: int = 0
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    characters = normal(N_CHARACTERS, 4)
    return characters, [normal(6 + w, 4, w) for w in widths], [normal(6 + w) for w in widths]


def direct(ids: Tensor, characters: Tensor, filters: list[Tensor], biases: list[Tensor]) -> Tensor:
    """Convolve all columns of all words and take the largest value."""
    embedded = characters[ids - 1].transpose(1, 2)  # (words, char_dim, chars)
    return torch.cat(
        [
            torch.nn.functional.conv1d(embedded, weight, bias).amax(dim=2)
            for weight, bias in zip(filters, biases, strict=True)
        ],
        dim=1,
    )


def words_of_all_lengths(max_chars: int = 50) -> Tensor:
    """Three random words of each byte length 0..60."""
    generator = torch.Generator().manual_seed(4)
    words = []
    for length in range(61):
        for _ in range(3):
            letters = torch.randint(97, 123, (length,), generator=generator).tolist()
            words.append(character_ids(bytes(letters).decode(), max_chars).tolist())
    return torch.tensor(words)


@pytest.mark.parametrize("widths", FILTERS.values(), ids=FILTERS)
def test_cropping_is_exact_for_every_length(widths: list[int]) -> None:
    ids = words_of_all_lengths()
    characters, filters, biases = make_weights(list(widths), torch.float64)
    expected = direct(ids, characters, filters, biases)
    ours = convolve(ids, characters, filters, biases)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def tables_of(parts: tuple[Tensor, list[Tensor], list[Tensor]]) -> FilterTables:
    characters, filters, biases = parts
    return FilterTables(
        characters.detach().numpy(),
        [weight.detach().numpy() for weight in filters],
        [bias.detach().numpy() for bias in biases],
    )


@pytest.mark.parametrize("widths", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("choice", ["0", "auto"])
def test_tables_give_what_the_convolution_gives(
    widths: list[int], choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", choice)
    ids = words_of_all_lengths()
    parts = make_weights(list(widths), torch.float32)
    found = tables_of(parts).largest(ids.numpy().astype(np.int32))
    expected = direct(ids, *parts).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("widths", FILTERS.values(), ids=FILTERS)
def test_gradients_of_the_cropped_convolution(widths: list[int]) -> None:
    ids = words_of_all_lengths()
    parts = make_weights(list(widths), torch.float64)
    leaves = [parts[0], *parts[1], *parts[2]]
    weight = torch.randn(
        len(ids), sum(len(b) for b in parts[2]), generator=torch.Generator().manual_seed(1)
    ).double()
    ours, expected = (
        torch.autograd.grad((function(ids, *parts) * weight).sum(), leaves)
        for function in (convolve, direct)
    )
    for gradient, plain in zip(ours, expected, strict=True):
        torch.testing.assert_close(gradient, plain, rtol=1e-10, atol=1e-10)


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=9, max_size=9), min_size=1, max_size=20),
    st.integers(1, 9),
)
def test_any_ids(rows: list[list[int]], width: int) -> None:
    """No id is special: what counts is the run of equal ids at the end."""
    ids = torch.tensor(rows)
    parts = make_weights([1, width], torch.float64)
    expected = direct(ids, *parts)
    torch.testing.assert_close(convolve(ids, *parts), expected, rtol=1e-12, atol=1e-12)
    groups = groups_by_length(ids.numpy(), width)
    assert sorted(k for members, _ in groups for k in members.tolist()) == list(range(len(rows)))


def test_tables_do_not_depend_on_the_threads_of_blas() -> None:
    """A subprocess each: BLAS reads the number of its threads when it is loaded."""
    program = (
        "import hashlib, numpy as np; from elmore.compute.charcnn import character_tables;"
        "rng = np.random.default_rng(0); floats = lambda *shape: rng.random(shape, np.float32);"
        "tables = character_tables(floats(262, 16), [floats(64, 16, 3), floats(256, 16, 5)]);"
        "print([hashlib.sha256(table).hexdigest() for table in tables])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in "12"
    }
    assert len(digests) == 1
