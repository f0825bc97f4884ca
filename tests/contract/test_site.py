"""The documentation as a site: whole, offline, and with a working search."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = os.environ.get("ELMORE_CHROMIUM") or shutil.which("chromium")


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


def test_the_drawings_are_those_of_the_script(tmp_path: Path) -> None:
    drawings = runpy.run_path(str(ROOT / "examples" / "diagrams.py"))["DRAWINGS"]
    assert {path.name for path in PICTURES.glob("diagram-*.svg")} == set(drawings)
    for name, draw in drawings.items():
        drawn = (PICTURES / name).read_text(encoding="utf-8")
        assert draw().svg() == drawn, "run `python examples/diagrams.py docs/pictures`"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as programs:
        browser = programs.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_search_works_from_the_file_system(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((site / "index.html").as_uri())
    search = page.locator("input.md-search__input")
    search.click()
    for _ in range(60):  # what is typed before the index is there is not searched for
        search.fill("")
        search.press_sequentially("highway")
        page.wait_for_timeout(500)
        if "matching" in page.locator(".md-search-result__meta").inner_text():
            break
    links = page.locator("a.md-search-result__link").all()
    assert any("model.html" in (link.get_attribute("href") or "") for link in links)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert said == []
    page.close()


@pytest.mark.parametrize(
    "name",
    [
        "index",
        "start",
        "model",
        "embedding",
        "reference",
        "cli",
        "senses",
        "own-model",
    ],
)
def test_a_small_screen_does_not_scroll_sideways(site: Path, browser: Any, name: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    scroll = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(scroll)
    page.close()
