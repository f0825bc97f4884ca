"""The mix of layers (Peters et al. 2018, eq. 1), as AllenNLP and bilm-tf tested theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elmore import ScalarMix
from elmore.errors import ConfigError

LAYERS = torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.arange(5) < torch.tensor([5, 4, 2, 1])[:, None]


def softmax(scores: list[float]) -> np.ndarray:
    exponentials = np.exp(np.asarray(scores))
    return exponentials / exponentials.sum()


def expected_mix(layers: np.ndarray, scores: list[float], gamma: float) -> np.ndarray:
    return gamma * sum(w * layer for w, layer in zip(softmax(scores), layers, strict=True))


@pytest.mark.parametrize(
    ("scores", "gamma"),
    [([0.1, 0.2, 0.3], 0.5), ([0.1, 0.3, 0.5], 1.1), ([0.2, 0.4, 0.6], 0.88)],
)
def test_softmax_of_the_scores_times_gamma(scores: list[float], gamma: float) -> None:
    mix = ScalarMix(3, initial=scores, gamma=gamma)
    expected = expected_mix(LAYERS.numpy(), scores, gamma)
    for layers in (LAYERS, list(LAYERS)):
        np.testing.assert_allclose(mix(layers).detach(), expected, atol=1e-6)


def test_one_layer_alone_with_scores_of_ninety_billion() -> None:
    mix = ScalarMix(3, initial=[-9e10, 1, -9e10])
    np.testing.assert_array_equal(mix(LAYERS).detach(), LAYERS[1])


@pytest.mark.parametrize("kind", ["batch", "sentence"])
def test_layer_norm_over_real_tokens(kind: str) -> None:
    scores, gamma = [0.1, 0.3, 0.5], 1.1
    normed = np.zeros_like(LAYERS.numpy())
    for j, layer in enumerate(LAYERS.numpy()):
        for row, mask in enumerate(MASK.numpy()):
            real = layer[MASK.numpy()] if kind == "batch" else layer[row][mask]
            normed[j, row] = (layer[row] - real.mean()) / np.sqrt(real.var() + 1e-12)
    mix = ScalarMix(3, initial=scores, gamma=gamma, layer_norm=kind)
    ours = mix(LAYERS, MASK).detach().numpy()
    expected = expected_mix(normed, scores, gamma)
    np.testing.assert_allclose(ours[MASK], expected[MASK], atol=1e-5)


def test_padding_does_not_count_in_a_layer_norm() -> None:
    noisy = torch.where(MASK[None, :, :, None], LAYERS, torch.tensor(99.0))
    for kind in ("batch", "sentence"):
        mix = ScalarMix(3, layer_norm=kind)
        torch.testing.assert_close(mix(noisy, MASK)[MASK], mix(LAYERS, MASK)[MASK])


def test_penalty_and_its_gradient() -> None:
    mix = ScalarMix(3, initial=[1.0, -2.0, 3.0])
    penalty = mix.penalty(0.1)
    assert penalty.item() == pytest.approx(1.4)
    penalty.backward()
    np.testing.assert_allclose(mix.weights.grad, [0.2, -0.4, 0.6], atol=1e-6)


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="2 layers for a mix of 3"):
        ScalarMix(3)(LAYERS[:2])
    with pytest.raises(ConfigError, match="initial has 2 scores but there are 3 layers"):
        ScalarMix(3, initial=[0.0, 0.0])
    with pytest.raises(ConfigError, match="layer_norm='all'"):
        ScalarMix(3, layer_norm="all")
    with pytest.raises(ConfigError, match="n_layers=0"):
        ScalarMix(0)
    with pytest.raises(ConfigError, match="pass mask"):
        ScalarMix(3, layer_norm="batch")(LAYERS)
