"""The reference itself is tested: against the values which the original programs computed, and by
breaking it on purpose (a golden set that does not notice a broken model would prove nothing)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from reference import (
    MUTATIONS,
    ReferenceElmo,
    State,
    character_ids,
    random_weights,
    read_hdf5,
    write_hdf5,
)
from small_models import FIXTURES, GOLDEN, needs_originals

# The criterion of the original tests; their own re-runs differ by slightly more than 1e-6.
close = {"atol": 1e-6, "rtol": 1e-5}

RAW_TEXT = (
    "The U.S. Centers for Disease Control advised school systems to close if outbreaks occurred , "
    "then reversed itself , saying the apparent mildness of the virus meant most schools should "
    "stay open , even if they had confirmed cases . Elk calling -- a skill that hunters perfected "
    'long ago to lure game -- is now its own sport , with naïve fans , 6-3 scores and " talk " .'
)
TEXT = RAW_TEXT.split()


def make_options(
    dim: int = 32,
    projection_dim: int = 8,
    n_layers: int = 2,
    cell_clip: float | None = 3,
    proj_clip: float | None = 3,
    **char_cnn: Any,
) -> dict[str, Any]:
    return {
        "lstm": {
            "dim": dim,
            "projection_dim": projection_dim,
            "n_layers": n_layers,
            "cell_clip": cell_clip,
            "proj_clip": proj_clip,
            "use_skip_connections": True,
        },
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 4},
            "filters": [[1, 4], [2, 8], [3, 16]],
            "max_characters_per_token": 50,
            "n_characters": 262,
            "n_highway": 2,
            **char_cnn,
        },
    }


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


# Characters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "max_chars", "start"),
    [
        ("Second", 50, [259, 84, 102, 100, 112, 111, 101, 260]),
        (".", 50, [259, 47, 260]),
        ("Āt", 50, [259, 197, 129, 117, 260]),
        ("<S>", 50, [259, 257, 260]),
        ("</S>", 50, [259, 258, 260]),
        ("", 50, [259, 260]),
        ("\ud800t", 50, [259, 117, 260]),
        ("th", 5, [259, 117, 105, 260]),
        ("thhhhh", 5, [259, 117, 105, 105, 260]),
        ("aaĀ", 5, [259, 98, 98, 197, 260]),
    ],
)
def test_character_ids(token: str, max_chars: int, start: list[int]) -> None:
    expected = start + [261] * (max_chars - len(start))
    assert character_ids(token, max_chars).tolist() == expected


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


# Random weights: no files needed -----------------------------------------------------------------

RANDOM_MODELS = {
    "clips 3": make_options(),
    "small clips": make_options(16, 8, cell_clip=0.5, proj_clip=0.25),
    "four layers": make_options(64, 16, n_layers=4),
    "tanh": make_options(64, 16, activation="tanh", n_highway=1, max_characters_per_token=12),
}
BATCHES = [[TEXT[:60], TEXT[60:]], [TEXT[10:30], TEXT[:6], TEXT[30:40]]]
n_positions = sum(len(tokens) + 2 for batch in BATCHES for tokens in batch)


def random_run(
    options: dict[str, Any], weights: dict[str, np.ndarray], mutation: str | None = None
) -> tuple[np.ndarray, ReferenceElmo]:
    """All layers of all tokens of BATCHES -> (L + 1, n, 2P), and the model."""
    model = ReferenceElmo(options, weights, mutate=mutation)
    results, _ = run_batches(model, BATCHES)
    return np.concatenate([layers for rows in results for layers in rows], axis=1), model


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_random_weights_notice(name: str, seed: int) -> None:
    options = RANDOM_MODELS[name]
    weights = random_weights(options, seed)
    plain, model = random_run(options, weights)

    n_steps = n_positions * 2 * model.n_layers
    assert model.clipped["cell"] > 0.1 * n_steps * model.cell_dim
    assert model.clipped["projection"] > 0.03 * n_steps * model.projection_dim
    for mutation in MUTATIONS:
        changed, _ = random_run(options, weights, mutation)
        assert np.abs(changed - plain).max() > 1e-3, mutation

    rng = np.random.default_rng(seed)
    noisy = {k: w * (1 + 1e-7 * rng.standard_normal(w.shape)) for k, w in weights.items()}
    assert np.abs(random_run(options, noisy)[0] - plain).max() < 1e-5


def test_random_weights_are_reproducible_float32() -> None:
    options = make_options()
    first, second = random_weights(options, 5), random_weights(options, 5)
    assert all(w.dtype == np.float32 for w in first.values())
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["char_embed"], random_weights(options, 6)["char_embed"])


@pytest.mark.parametrize(
    ("folder", "options_name"),
    [
        ("ours/skip", "options.json"),
        ("bilm-tf/edge/no_projection_3_layers_tanh", "options.json"),
        ("bilm-tf/edge/word_input", "options.json"),
        ("bilm-tf/edge/one_layer", "options.json"),
        ("bilm-tf/checkpoint", "options_inference.json"),
    ],
)
def test_random_weights_have_the_names_and_shapes_of_real_files(
    folder: str, options_name: str
) -> None:
    path = GOLDEN / folder
    options = json.loads((path / options_name).read_text(encoding="utf-8"))
    real = read_hdf5(next(path.glob("*weights.hdf5")))
    ours = random_weights(options, 0)
    assert {k: w.shape for k, w in ours.items()} == {k: w.shape for k, w in real.items()}


def test_files_round_trip(tmp_path: Path) -> None:
    options, weights = make_options(), random_weights(make_options(), 3)
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    write_hdf5(tmp_path / "weights.hdf5", weights)
    model = ReferenceElmo.from_files(tmp_path / "options.json", tmp_path / "weights.hdf5")
    in_memory = ReferenceElmo(options, weights)
    sentence = [TEXT[:5]]
    assert np.array_equal(model.embed_batch(sentence)[0], in_memory.embed_batch(sentence)[0])


# Unusual models and the state --------------------------------------------------------------------


@pytest.mark.parametrize("n_layers", [1, 2])
def test_one_direction_is_the_forward_half(n_layers: int) -> None:
    one_way = make_options(n_layers=n_layers) | {"bidirectional": False}
    weights = random_weights(one_way, 1)
    renamed = {}
    for name, array in weights.items():
        tail = name.removeprefix("rnn/")
        for old, new in (("/projection/kernel", "/W_P_0"), ("/kernel", "/W_0"), ("/bias", "/B")):
            tail = tail.replace(old, new)
        if name.startswith("rnn/"):
            renamed[f"RNN_0/RNN/{tail}"] = renamed[f"RNN_1/RNN/{tail}"] = array
        else:
            renamed[name] = array
    [forward], state = ReferenceElmo(one_way, weights).embed_batch([TEXT[:7]])
    [both], _ = ReferenceElmo(one_way, renamed).embed_batch([TEXT[:7]])
    assert forward.shape == (n_layers + 1, 7, 8)
    assert state.cell.shape == (1, n_layers, 1, 32)
    np.testing.assert_array_equal(forward, both[..., :8])


def test_one_layer_has_two_spellings() -> None:
    options = make_options(n_layers=1)
    weights = random_weights(options, 1)
    assert "RNN_1/RNN/LSTMCell/W_0" in weights
    renamed = {
        k.replace("/LSTMCell/", "/MultiRNNCell/Cell0/LSTMCell/"): w for k, w in weights.items()
    }
    a, b = (ReferenceElmo(options, w).embed_batch([TEXT[:4]])[0][0] for w in (weights, renamed))
    np.testing.assert_array_equal(a, b)


def test_missing_null_and_zero_clips_do_not_clip() -> None:
    options = make_options()
    weights = random_weights(options, 1)
    expected = random_run(make_options(cell_clip=1e9, proj_clip=1e9), weights)[0]
    missing = make_options()
    del missing["lstm"]["cell_clip"], missing["lstm"]["proj_clip"]
    for unclipped in (
        missing,
        make_options(cell_clip=None, proj_clip=None),
        make_options(32, 8, 2, 0, 0),
    ):
        np.testing.assert_array_equal(random_run(unclipped, weights)[0], expected)


def test_state_rows() -> None:
    """Row k goes on from row k; a small batch keeps the other rows; new rows start from zeros."""
    model = ReferenceElmo(make_options(), random_weights(make_options(), 2))
    a, b, c = TEXT[:5], TEXT[5:8], TEXT[8:12]
    _, first = model.embed_batch([a, b])
    kept = State(first.cell.copy(), first.hidden.copy())
    rows, second = model.embed_batch([c], first)
    np.testing.assert_array_equal(first.cell, kept.cell)  # the given state is not changed
    np.testing.assert_array_equal(first.hidden, kept.hidden)
    np.testing.assert_array_equal(second.cell[:, :, 1], first.cell[:, :, 1])
    np.testing.assert_array_equal(second.hidden[:, :, 1], first.hidden[:, :, 1])
    assert not np.allclose(second.cell[:, :, 0], first.cell[:, :, 0])
    assert not np.allclose(rows[0], model.embed_batch([c])[0][0])

    rows, third = model.embed_batch([a, b, c], second)
    assert third.cell.shape == (2, 2, 3, 32)
    assert third.hidden.shape == (2, 2, 3, 8)
    np.testing.assert_array_equal(rows[2], model.embed_batch([c])[0][0])


def test_empty_sentence_moves_its_state() -> None:
    model = ReferenceElmo(make_options(), random_weights(make_options(), 2))
    [layers], state = model.embed_batch([[]])
    assert layers.shape == (3, 0, 16)
    assert np.abs(state.cell).min(axis=-1).max() > 0
    assert model.embed_batch([], state)[0] == []


def test_refusals() -> None:
    weights = random_weights(make_options(), 0)
    with pytest.raises(ValueError, match="unknown mutation"):
        ReferenceElmo(make_options(), weights, mutate="nothing")
    with pytest.raises(ValueError, match="smaller than its projection"):
        ReferenceElmo(make_options(4, 8), weights)
    with pytest.raises(KeyError, match="no LSTM cell"):
        ReferenceElmo(make_options(n_layers=3), weights)
    with pytest.raises(ValueError, match="vocabulary"):
        ReferenceElmo({"lstm": make_options()["lstm"]}, weights)
