"""The reference in docs/api says what the docstrings say, and has every public name.

ELMORE_DOCS=write pytest tests/contract/test_reference.py    # write it again
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from reference_pages import marked, written

import elmore
from elmore import analysis, errors, senses, tasks

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "api").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_reference_is_that_of_the_docstrings(page: Path) -> None:
    before = page.read_text(encoding="utf-8")
    after = written(before)
    if os.environ.get("ELMORE_DOCS") == "write":
        page.write_text(after, encoding="utf-8")
        return
    assert before == after, "run ELMORE_DOCS=write pytest tests/contract/test_reference.py"


def test_the_reference_has_every_public_name() -> None:
    shown = {name for page in PAGES for name in marked(page.read_text(encoding="utf-8"))}
    names = {f"elmore.{name}" for name in elmore.__all__}
    names -= {"elmore.__version__", "elmore.tasks", "elmore.analysis", "elmore.senses"}
    for module in (tasks, analysis, senses, errors):
        names |= {f"{module.__name__}.{name}" for name in module.__all__}
    names -= {"elmore.errors.ElmoreError"}  # under its shorter name
    assert names <= shown, sorted(names - shown)


def test_what_a_section_looks_like() -> None:
    marks = ["<!-- ::: elmore.cosine -->\nold\n", "<!-- ::: elmore.Elmo dim -->\n"]
    page = "# T\n\n" + "".join(f"{mark}<!-- end -->\n\n" for mark in marks)
    again = written(page)
    assert "old" not in again
    assert '<a id="elmore.cosine"></a>\n\n## cosine\n\n```python\ncosine(' in again
    assert "- `dim`: Size of a token's vector." in again
    assert "Elmo.embed" not in again
    assert written(again) == again
