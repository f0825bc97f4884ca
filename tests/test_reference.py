"""The reference itself is tested: against the values which the original programs computed, and by
breaking it on purpose (a golden set that does not notice a broken model would prove nothing)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import h5py
import numpy as np
import pytest
from reference import MUTATIONS, ReferenceElmo, State
from small_models import FIXTURES, GOLDEN, needs_originals

# The criterion of the original tests; their own re-runs differ by slightly more than 1e-6.
close = {"atol": 1e-6, "rtol": 1e-5}


def run_batches(
    model: ReferenceElmo, batches: Iterable[Sequence[Sequence[str]]], **kwargs: Any
) -> tuple[list[list[np.ndarray]], State | None]:
    """Successive batches with carried state -> [batch][row] layers, and the final state."""
    state = None
    results = []
    for batch in batches:
        rows, state = model.embed_batch(batch, state, **kwargs)
        results.append(rows)
    return results, state


# Golden values of the original programs ----------------------------------------------------------

Golden = tuple[list[np.ndarray], list[np.ndarray]]  # per sentence (n, 2P): computed, expected


def load_golden(folder: str, sentences_name: str) -> Callable[[str | None], Golden]:
    """A function: mutation -> computed and expected top layers of the 30 sentences of a folder."""
    path = FIXTURES / folder
    columns = json.loads((path / sentences_name).read_text(encoding="utf-8"))  # 3 rows of 10
    batches = [[line.split() for line in lines] for lines in zip(*columns, strict=True)]
    expected = []
    for i in range(len(batches)):
        for row in range(3):
            with h5py.File(path / f"lm_embeddings_{row}.hdf5", "r") as file:
                expected.append(np.concatenate(list(file[str(i)][...]), axis=-1))

    def compute(mutation: str | None) -> Golden:
        model = ReferenceElmo.from_files(
            path / "options.json", path / "lm_weights.hdf5", mutate=mutation
        )
        results, _ = run_batches(model, batches)
        return [layers[-1] for rows in results for layers in rows], expected

    return compute


@pytest.fixture(scope="module")
def golden_sets() -> list[Callable[[str | None], Golden]]:
    """The small models of AllenNLP (with residual) and bilm-tf (without)."""
    return [
        load_golden("allennlp/elmo", "sentences.json"),
        load_golden("bilm-tf/model", "lm_embeddings_sentences.json"),
    ]


@needs_originals
@pytest.mark.parametrize("which", [0, 1], ids=["allennlp", "bilm-tf"])
def test_thirty_sentences(which: int, golden_sets: list[Callable[[str | None], Golden]]) -> None:
    computed, expected = golden_sets[which](None)
    assert len(computed) == len(expected) == 30
    assert sum(len(layer) for layer in expected) == 744
    for ours, golden in zip(computed, expected, strict=True):
        np.testing.assert_allclose(ours, golden, **close)


# The projection clip never bites in the second model, which has no residual either.
NOTICED_BY_FIRST_ONLY = ("no_proj_clip", "no_residual")


@needs_originals
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_golden_sets_notice(
    mutation: str, golden_sets: list[Callable[[str | None], Golden]]
) -> None:
    noticed = []
    for golden_set in golden_sets:
        computed, expected = golden_set(mutation)
        noticed.append(
            not all(np.allclose(a, b, **close) for a, b in zip(computed, expected, strict=True))
        )
        if mutation == "reset_state":  # the first batch starts from zeros anyway
            for ours, golden in zip(computed[:3], expected[:3], strict=True):
                np.testing.assert_allclose(ours, golden, **close)
    assert noticed == [True, mutation not in NOTICED_BY_FIRST_ONLY]


@pytest.mark.parametrize("mutation", [None, *MUTATIONS])
def test_our_golden_models_notice(mutation: str | None) -> None:
    """The values of bilm-tf for the models in tests/golden/ours, which every clone has."""
    batches = json.loads((GOLDEN / "ours/batches.json").read_text(encoding="utf-8"))
    noticed = []
    for name in ("skip", "plain"):
        path = GOLDEN / "ours" / name
        model = ReferenceElmo.from_files(
            path / "options.json", path / "weights.hdf5", mutate=mutation
        )
        results, _ = run_batches(model, batches)
        with h5py.File(path / "bilm-tf.hdf5", "r") as file:
            same = [
                np.allclose(layers, file[f"carried/{i}/layers"][row, :, : layers.shape[1]], **close)
                for i, rows in enumerate(results)
                for row, layers in enumerate(rows)
            ]
        noticed.append(not all(same))
    # The projection clip bites in bilm-tf/checkpoint only; `plain` has no residual to lose.
    unnoticed = (None, "no_proj_clip")
    assert noticed == [mutation not in unnoticed, mutation not in (*unnoticed, "no_residual")]


@needs_originals
def test_token_vectors_of_a_vocabulary() -> None:
    path = FIXTURES / "allennlp" / "elmo"
    words = (path / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    model = ReferenceElmo.from_files(path / "options.json", path / "lm_weights.hdf5")
    with h5py.File(path / "elmo_token_embeddings.hdf5", "r") as file:
        expected = file["embedding"][...]
    assert len(words) == len(expected) == 458
    np.testing.assert_allclose(model.token_vectors(words), expected, **close)


@pytest.mark.parametrize(
    ("folder", "options_name"),
    [
        ("edge/no_projection_3_layers_tanh", "options.json"),
        ("edge/word_input", "options.json"),
        ("edge/one_layer", "options.json"),
        ("checkpoint", "options_inference.json"),
    ],
)
def test_unusual_models(folder: str, options_name: str) -> None:
    """All layers, with carried state, of batches with changing numbers of rows."""
    path = GOLDEN / "bilm-tf" / folder
    vocabulary = (GOLDEN / "bilm-tf/train/vocab.txt").read_text(encoding="utf-8").split()
    model = ReferenceElmo.from_files(path / options_name, path / "weights.hdf5", vocabulary)
    batches = json.loads((path / "embedding_batches.json").read_text(encoding="utf-8"))
    results, _ = run_batches(model, batches)
    with h5py.File(path / "embeddings.hdf5", "r") as file:
        for i, rows in enumerate(results):
            assert len(rows) == len(file[str(i)])
            for row, layers in enumerate(rows):
                np.testing.assert_allclose(layers, file[f"{i}/{row}"][...], **close)
    assert (model.clipped["cell"] > 0) == (folder != "edge/one_layer")
    assert (model.clipped["projection"] > 0) == (folder in ("edge/word_input", "checkpoint"))


@needs_originals
def test_layers_boundaries_and_states_of_allennlp() -> None:
    """3, 1, 4, 3 rows; an empty sentence; the word <S>; a word which is cut."""
    model_path, path = FIXTURES / "allennlp/elmo", FIXTURES / "allennlp/behaviour"
    model = ReferenceElmo.from_files(model_path / "options.json", model_path / "lm_weights.hdf5")
    batches = json.loads((path / "batches.json").read_text(encoding="utf-8"))
    results, state = run_batches(model, batches, keep_boundaries=True)
    assert state is not None
    with h5py.File(path / "expected.hdf5", "r") as file:
        for i, rows in enumerate(results):
            lengths = file[f"bilm/{i}/mask"][...].sum(axis=1).tolist()
            assert lengths == [layers.shape[1] for layers in rows]
            for row, layers in enumerate(rows):
                expected = file[f"bilm/{i}/layers"][:, row, : lengths[row]]
                np.testing.assert_allclose(layers, expected, **close)
        hidden = np.concatenate(list(state.hidden), axis=-1)  # (L, rows, 2P)
        memory = np.concatenate(list(state.cell), axis=-1)  # (L, rows, 2C)
        np.testing.assert_allclose(hidden, file["bilm/final_state/hidden"][...], **close)
        np.testing.assert_allclose(memory, file["bilm/final_state/memory"][...], **close)
