"""elmore.training.reading: options that contradict."""

from __future__ import annotations

import pytest

from elmore.errors import ConfigError
from elmore.training.reading import Reading


@pytest.mark.parametrize(
    "options",
    [{"tokenized": True, "split_sentences": True}, {"tokenizer": "x"}, {"errors": "ignore"}],
)
def test_bad_reading(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Reading(**options)  # type: ignore[arg-type] # that is the point
