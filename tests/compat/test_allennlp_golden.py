"""AllenNLP's own values through `elmore.compat.allennlp`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_models import FIXTURES, needs_originals

from elmore.compat.allennlp import (
    Elmo,
    ElmoEmbedder,
    ElmoTokenEmbedder,
    ElmoTokenEmbedderMultiLang,
    _ElmoBiLm,
    _ElmoCharacterEncoder,
    batch_to_ids,
)
from elmore.errors import FormatError

pytestmark = needs_originals

CLOSE = {"atol": 1e-6, "rtol": 1e-5}
HERE = FIXTURES / "allennlp" / "elmo"
PAIR = (HERE / "options.json", HERE / "lm_weights.hdf5")
MIXES = [((0.1, 0.3, 0.5), 1.1), ((0.2, 0.4, 0.6), 0.88)]


def load_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def batches() -> list[list[list[str]]]:
    """3, 1, 4 and 3 rows; an empty one, the word <S>, one of 60 letters."""
    return load_json(FIXTURES / "allennlp/behaviour/batches.json")


def expected(name: str) -> np.ndarray:
    with h5py.File(FIXTURES / "allennlp/behaviour/expected.hdf5", "r") as file:
        return np.asarray(file[name][...])


def golden_batches() -> list[tuple[list[list[str]], list[np.ndarray]]]:
    """The ten batches of three sentences, each with its top layer."""
    columns = load_json(HERE / "sentences.json")
    result = []
    for i, lines in enumerate(zip(*columns, strict=True)):
        top = []
        for row in range(3):
            with h5py.File(HERE / f"lm_embeddings_{row}.hdf5", "r") as file:
                top.append(np.concatenate(list(file[str(i)][...]), axis=-1))
        result.append(([line.split() for line in lines], top))
    assert len(result) == 10
    return result


def test_bilm_top_layer_with_carried_state() -> None:
    bilm = _ElmoBiLm(*PAIR)
    for sentences, golden in golden_batches():
        output = bilm(batch_to_ids(sentences))
        assert output["mask"].sum(dim=1).tolist() == [len(s) + 2 for s in sentences]
        for row, top in enumerate(golden):
            ours = output["activations"][-1][row, 1 : len(top) + 1]
            np.testing.assert_allclose(ours.numpy(), top, **CLOSE)


def test_embed_sentences_with_batches_of_three() -> None:
    batches = golden_batches()
    embedder = ElmoEmbedder(*PAIR)
    stream = embedder.embed_sentences((s for batch, _ in batches for s in batch), batch_size=3)
    for ours, top in zip(stream, (top for _, golden in batches for top in golden), strict=True):
        np.testing.assert_allclose(ours[2], top, **CLOSE)


def test_token_layer_of_a_vocabulary() -> None:
    words = (HERE / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    with h5py.File(HERE / "elmo_token_embeddings.hdf5", "r") as file:
        golden = file["embedding"][...]
    assert len(words) == len(golden) == 458
    encoder = _ElmoCharacterEncoder(*PAIR)
    sentences = [words[k : k + 50] for k in range(0, 458, 50)]
    output = encoder(batch_to_ids(sentences))
    found = torch.cat(
        [row[1 : len(s) + 1] for row, s in zip(output["token_embedding"], sentences, strict=True)]
    )
    np.testing.assert_allclose(found.numpy(), golden, **CLOSE)


def test_layers_masks_and_states_while_rows_come_and_go(batches) -> None:
    bilm = _ElmoBiLm(*PAIR)
    for i, sentences in enumerate(batches):
        output = bilm(batch_to_ids(sentences))
        np.testing.assert_array_equal(output["mask"].numpy(), expected(f"bilm/{i}/mask") > 0)
        layers = torch.stack(output["activations"]).numpy()
        np.testing.assert_allclose(layers, expected(f"bilm/{i}/layers"), **CLOSE)
    states = bilm._elmo_lstm._states
    assert states is not None
    for state, name in zip(states, ("hidden", "memory"), strict=True):
        np.testing.assert_allclose(state.numpy(), expected(f"bilm/final_state/{name}"), **CLOSE)


@pytest.mark.parametrize("kind", ["plain", "layer_norm", "boundaries", "layer1_only"])
def test_mixes(kind: str, batches) -> None:
    elmo = Elmo(
        *PAIR,
        2,
        dropout=0,
        do_layer_norm=kind == "layer_norm",
        keep_sentence_boundaries=kind == "boundaries",
        scalar_mix_parameters=[-9e10, 1, -9e10] if kind == "layer1_only" else None,
    )
    if kind in ("plain", "layer_norm"):
        with torch.no_grad():
            for k, (scores, gamma) in enumerate(MIXES):
                mix = getattr(elmo, f"scalar_mix_{k}")
                for parameter, score in zip(mix.scalar_parameters, scores, strict=True):
                    parameter.fill_(score)
                mix.gamma.fill_(gamma)
    for i, sentences in enumerate(batches[:3]):
        output = elmo(batch_to_ids(sentences))
        mask = expected(f"elmo/{kind}/{i}/mask") > 0
        np.testing.assert_array_equal(output["mask"].numpy(), mask)
        for k, vectors in enumerate(output["elmo_representations"]):
            golden = expected(f"elmo/{kind}/{i}/representation_{k}")
            # Beyond the ends too: what AllenNLP gives there, we give.
            np.testing.assert_allclose(vectors.detach().numpy(), golden, **CLOSE)


def test_gradients(batches) -> None:
    elmo = Elmo(*PAIR, 1, dropout=0, requires_grad=True)
    loss = elmo(batch_to_ids(batches[0]))["elmo_representations"][0].square().sum()
    np.testing.assert_allclose(loss.item(), expected("grad/loss"), rtol=1e-6)
    loss.backward()
    compared = 0
    for name, parameter in elmo.named_parameters():
        assert parameter.grad is not None, name
        # Ours under AllenNLP's names: weights whose layout is the same in both.
        theirs = name.replace(".encoder.convolutions.", ".char_conv_").replace(
            ".encoder.projection.", "._projection."
        )
        theirs = theirs.replace("_layers.", "_layer_").replace(
            ".input_weight", ".input_linearity.weight"
        )
        theirs = theirs.replace(".state_weight", ".state_linearity.weight")
        if "_layer_" in theirs:
            theirs = theirs.replace(".bias", ".state_linearity.bias")
            theirs = theirs.replace(".projection", ".state_projection.weight")
        key = f"grad/{theirs.replace('.', '/')}"
        with h5py.File(FIXTURES / "allennlp/behaviour/expected.hdf5", "r") as file:
            if key not in file:
                continue
            golden = np.asarray(file[key][...])
        compared += 1
        scale = np.abs(golden).max()
        np.testing.assert_allclose(
            parameter.grad.numpy(), golden, rtol=1e-4, atol=1e-5 * scale, err_msg=name
        )
    assert compared >= 28


# Several languages -------------------------------------------------------------------------------

LANGUAGES = FIXTURES / "allennlp" / "elmo_multilingual"
FRENCH = LANGUAGES / "fr"
LAYER_1 = [-9e10, 1, -9e10]


def two_languages(**files: Any) -> ElmoTokenEmbedderMultiLang:
    return ElmoTokenEmbedderMultiLang(
        {"en": PAIR[0], "fr": FRENCH / "options.json"},
        {"en": PAIR[1], "fr": files.pop("weights", FRENCH / "weights.hdf5")},
        dropout=0,
        scalar_mix_parameters=LAYER_1,
        aligning_files=files.pop("aligning", None),
        **files,
    )


@pytest.fixture
def ids() -> torch.Tensor:
    return batch_to_ids([["The", "first", "sentence"], ["Un", "autre"]])


def test_alignment_is_a_matrix_on_the_mixed_vectors(ids: torch.Tensor) -> None:
    files = {"en": LANGUAGES / "en/align.pth", "fr": FRENCH / "align.pth"}
    plain, aligned = two_languages(), two_languages(aligning=files)
    for lang, path in files.items():
        # Unrestricted, which a test may be with a file it knows.
        matrix = torch.load(path, weights_only=False)
        assert matrix.shape == (32, 32)
        vectors = plain(ids, lang).numpy()
        assert np.abs(vectors).max() > 0.01
        np.testing.assert_allclose(
            aligned(ids, lang).numpy(), vectors @ matrix.T.astype(np.float32), atol=1e-5
        )


def test_a_matrix_of_another_size(tmp_path: Path) -> None:
    torch.save(torch.zeros(3, 3), tmp_path / "align.pth")
    with pytest.raises(FormatError, match=r"shape \(3, 3\), expected \(32, 32\)"):
        two_languages(aligning={"fr": tmp_path / "align.pth"})


# A trained tagger --------------------------------------------------------------------------------


class Tagger(torch.nn.Module):
    """AllenNLP's `simple_tagger` as far as its state dict goes."""

    def __init__(self) -> None:
        super().__init__()
        self.text_field_embedder = torch.nn.Module()
        self.text_field_embedder.token_embedder_elmo = ElmoTokenEmbedder(*PAIR, dropout=0)
        self.encoder = torch.nn.Module()
        self.encoder._module = torch.nn.GRU(32, 25, 2, bidirectional=True, batch_first=True)
        self.tag_projection_layer = torch.nn.Module()
        self.tag_projection_layer._module = torch.nn.Linear(50, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        vectors = self.text_field_embedder.token_embedder_elmo(ids)
        return self.tag_projection_layer._module(self.encoder._module(vectors)[0])


def test_a_trained_task_model_loads_its_state_dict() -> None:
    path = FIXTURES / "allennlp" / "simple_tagger_with_elmo"
    state = torch.load(path / "serialization/best.th", weights_only=True)
    tagger = Tagger()
    elmo = tagger.text_field_embedder.token_embedder_elmo._elmo
    with torch.no_grad():  # so that only the file can make it right
        for parameter in tagger.parameters():
            parameter.zero_()
    assert set(tagger.state_dict()) == set(state)
    tagger.load_state_dict(state)
    assert abs(elmo.scalar_mix_0.gamma.item() - 1.0046) < 1e-4
    golden = load_json(path / "expected_logits.json")
    sentences = [
        [line.split()[0] for line in block.split("\n") if line]
        for block in (path / "conll2003.txt").read_text().split("\n\n")
        if block.strip() and "-DOCSTART-" not in block
    ]
    with torch.no_grad():
        logits = tagger.eval()(batch_to_ids(sentences))
    np.testing.assert_allclose(logits.numpy(), np.asarray(golden["logits"]), atol=2e-6)
    # And back: what is saved is what AllenNLP would read.
    for name, tensor in tagger.state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), state[name].numpy(), atol=1e-7, err_msg=name)
