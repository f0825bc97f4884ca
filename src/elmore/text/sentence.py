"""A sentence: the tokens of one input, and where they stood in it."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

from elmore.errors import InputError

__all__ = ["Sentence"]


@dataclass(frozen=True, slots=True, repr=False)
class Sentence:
    """Hold the tokens of one sentence, without any sentence marker.

    Args:
        tokens: the tokens, kept verbatim.
        spans: for each token the characters ``text[start:end]`` it was made from; None when the
            tokens came ready-made and there is no text to point into.

    Raises:
        InputError: when there are not as many spans as tokens.
    """

    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        if self.spans is not None and len(self.spans) != len(self.tokens):
            raise InputError(
                f"{len(self.tokens)} tokens but {len(self.spans)} spans; "
                "give one (start, end) for each token, or spans=None"
            )

    def __len__(self) -> int:
        """Count the tokens."""
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"Sentence({reprlib.repr(self.tokens)}, n_tokens={len(self)})"
