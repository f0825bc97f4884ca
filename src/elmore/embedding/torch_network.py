"""A biLM of torch modules with the methods of `BiLmArrays`: for GPUs and for layers.

The only place in `embedding/` that needs torch; it is imported when one of its functions is asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.compute.network import LstmState, Runner, in_turn
from elmore.config import ComputePrecision
from elmore.formats.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from elmore.nn.bilm import BiLm

Array = NDArray[np.float32]
Ints = NDArray[np.int64]


def build_bilm(checkpoint: Checkpoint, device: torch.device | str = "cpu") -> BiLm:
    """A module that holds the weights of a checkpoint."""
    torch = require("torch", "torch", "a model as a torch module")
    from elmore.nn.bilm import BiLm

    bilm = BiLm(checkpoint.config)
    parameters = dict(bilm.named_parameters())
    with torch.no_grad():
        for name, array in checkpoint.checked_weights():
            # Copied by numpy: a mapped file is read-only, which torch warns about.
            parameters[name].numpy()[...] = array
    bilm.requires_grad_(False).eval()
    return bilm.to(device)


class BiLmTensors:
    """A biLM of torch modules on a device.

    Args:
        checkpoint: the model.
        device: what torch calls it.
        precision: of weights, activations and states: "float32", "float16" or "bfloat16".
    """

    def __init__(
        self, checkpoint: Checkpoint, device: str, precision: ComputePrecision = "float32"
    ) -> None:
        self._dtype: torch.dtype = getattr(require("torch", "torch", "a GPU"), precision)
        self.bilm = build_bilm(checkpoint, device).to(self._dtype)
        self._device = device

    def tokens(self, words: NDArray[np.int32] | None, word_ids: Ints | None) -> Array:
        """The token layer of words, (n_words, projection_dim)."""
        import torch

        with torch.no_grad():
            vectors: Tensor = self.bilm.tokens(
                None if words is None else self._tensor(words).long(),
                None if word_ids is None else self._tensor(word_ids),
            )
        return _array(vectors)

    def contextualize(
        self,
        vectors: Array,
        index: Ints,
        lengths: Ints,
        state: LstmState,
        run: Runner = in_turn,
        at: Ints | None = None,
    ) -> tuple[Array, LstmState]:
        """Run the LSTMs over ready token vectors, one direction after the other."""
        import torch

        from elmore.nn.bilm import BiLmState

        with torch.no_grad():
            layers, end_state = self.bilm.contextualize(
                self._tensor(vectors),
                self._tensor(index),
                self._tensor(lengths),
                BiLmState(self._tensor(state.hidden), self._tensor(state.cell)),
            )
        after = LstmState(_array(end_state.hidden), _array(end_state.cell))
        if at is None:
            return _array(layers), after
        # torch's LSTM gives no cell states on the way, so the text up to each place is read again.
        rows, states = at[:, 0], []
        for d in range(len(state.hidden)):
            stops = at[:, 1 + d]
            first, last = (0 * stops, stops + 1) if d == 0 else (stops, lengths[rows])
            times = first[:, None] + np.arange(int((last - first).max()))
            some = index[rows[:, None], times.clip(max=index.shape[1] - 1)]
            begin = LstmState(state.hidden[:, :, rows], state.cell[:, :, rows])
            end = self.contextualize(vectors, some, last - first, begin)[1]
            states.append((end.hidden[d], end.cell[d]))
        hidden, cell = (np.stack(parts) for parts in zip(*states, strict=True))
        return _array(layers), LstmState(hidden, cell)

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.cpu().float().numpy())
