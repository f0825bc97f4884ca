"""The documentation as a site: whole, offline, and with a working search."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material is not installed: elmore[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **QUIET}
    )
    assert done.returncode == 0, done.stderr
    return folder


# The second one makes every connection fail: a build must not need any.
QUIET = {"NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"}


class Loads(HTMLParser):
    """Collect what a page loads by itself; links that a reader may follow do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") != "canonical":
            self.found.append(values.get("href") or "")


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.found
        for source in filter(None, loads.found):
            assert not re.match(r"(https?:)?//", source), f"{page.name} loads {source}"
            path = source.partition("?")[0].partition("#")[0]
            assert source.startswith("data:") or (page.parent / path).exists() or page.stem == "404"


def test_the_reference_explains_every_method(site: Path) -> None:
    page = (site / "reference.html").read_text(encoding="utf-8")
    for name in ("load", "embed", "encode", "layers", "pipe", "stateful", "layer", "save"):
        assert f'id="elmore.Elmo.{name}"' in page
    assert "&gt;&gt;&gt;" in page or '<span class="gp">' in page  # examples are code, no quotations
    assert "<blockquote>" not in page
