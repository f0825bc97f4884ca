"""safetensors: one matrix of all tokens, and where each sentence starts."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from small_models import needs_torch

from elmore.embedding.vector_files import Record, Settings, open_writer

LENGTHS = [3, 0, 1, 5]


def write(path, shape, lengths=LENGTHS, **settings):
    generator = np.random.default_rng(0)
    arrays = []
    with open_writer("safetensors", path, Settings(shape=shape, **settings)) as writer:
        for length in lengths:
            form = tuple(length if size is None else size for size in shape)
            arrays.append(generator.normal(size=form).astype(np.float32))
            writer.write(Record("", ("a",) * length, None, arrays[-1]))
    return arrays


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_matrix_and_offsets(tmp_path, dtype):
    arrays = write(tmp_path / "x", (None, 3), dtype=dtype)
    found = load_file(tmp_path / "x")
    assert set(found) == {"vectors", "offsets"}
    assert found["offsets"].dtype == np.int64
    assert found["offsets"].tolist() == [0, 3, 3, 4, 9]
    assert found["vectors"].dtype == dtype
    np.testing.assert_array_equal(found["vectors"], np.concatenate(arrays).astype(dtype))


def test_all_layers_are_tensors_of_their_own(tmp_path):
    arrays = write(tmp_path / "x", (2, None, 3))
    found = load_file(tmp_path / "x")
    assert set(found) == {"layer_0", "layer_1", "offsets"}
    for k in range(2):
        expected = np.concatenate([array[k] for array in arrays])
        np.testing.assert_array_equal(found[f"layer_{k}"], expected)


def test_pooled_it_is_a_row_a_sentence(tmp_path):
    arrays = write(tmp_path / "x", (3,))
    np.testing.assert_array_equal(load_file(tmp_path / "x")["vectors"], np.stack(arrays))
    layered = write(tmp_path / "y", (2, 3))
    found = load_file(tmp_path / "y")
    assert set(found) == {"layer_0", "layer_1"}
    np.testing.assert_array_equal(found["layer_1"], np.stack(layered)[:, 1])


def test_no_sentence_at_all(tmp_path):
    write(tmp_path / "x", (None, 3), [])
    found = load_file(tmp_path / "x")
    assert found["vectors"].shape == (0, 3)
    assert found["offsets"].tolist() == [0]


@needs_torch
def test_torch_maps_it_and_metadata_tells_the_first_number(tmp_path):
    write(tmp_path / "x", (None, 3), dtype="float16", first=7)
    with safe_open(tmp_path / "x", "pt") as file:
        assert file.metadata() == {"first": "7", "format": "elmore-vectors"}
        assert file.get_tensor("offsets").tolist() == [0, 3, 3, 4, 9]
        assert file.get_slice("vectors")[3:4].shape == (1, 3)
