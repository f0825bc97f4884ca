"""The few names of flair that docs/libraries.md uses, for machines on which it is not installed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

__all__ = ["modules"]


class Token:
    def __init__(self, text: str) -> None:
        self.text = text
        self._vectors: dict[str, torch.Tensor] = {}

    def set_embedding(self, name: str, vector: torch.Tensor) -> None:
        self._vectors[name] = vector

    @property
    def embedding(self) -> torch.Tensor:
        return torch.cat(list(self._vectors.values()))


class Sentence(list[Token]):
    def __init__(self, text: str) -> None:
        super().__init__(map(Token, text.split()))


class TokenEmbeddings(torch.nn.Module):
    def embed(self, sentences: Any) -> None:
        self._add_embeddings_internal([sentences] if isinstance(sentences, Sentence) else sentences)


def modules() -> dict[str, ModuleType]:
    """What to put into `sys.modules`."""
    flair, data, embeddings = map(ModuleType, ("flair", "flair.data", "flair.embeddings"))
    vars(flair).update(device=torch.device("cpu"), data=data, embeddings=embeddings)
    vars(data).update(Sentence=Sentence)
    vars(embeddings).update(TokenEmbeddings=TokenEmbeddings)
    return {module.__name__: module for module in (flair, data, embeddings)}
