"""A text of many shards, and what a folder holds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from small_models import TEXT


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two thousand lines of 0 to 16 words."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    lines = [" ".join(TEXT[(k * k + j) % len(TEXT)] for j in range(k % 17)) for k in range(2000)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }
