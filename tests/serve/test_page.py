"""The page in a real browser: typing, picking, sliding, and what goes wrong.

ELMORE_PICTURES=1 writes the pictures of the documentation again; ELMORE_PAGE_INDEX names an index
of real text for the one of a corpus.
"""

from __future__ import annotations

import codecs
import csv
import importlib.util
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from elmore import Elmo
from elmore.senses import Index
from serve.running import Running, start, start_verb

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SHOWN = ("page", "page-small", "page-dark", "page-corpus")  # in the documentation
BROWSERS = ("chromium", "chromium-browser", "google-chrome")  # Debian's, Ubuntu's, and GitHub's
CHROMIUM = os.environ.get("ELMORE_CHROMIUM") or next(
    filter(None, map(shutil.which, BROWSERS)), None
)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no chromium here: apt-get install chromium"
    ),
]
BANK = "I sat on the bank .\nThe bank lent money .\nA bank of clouds ."


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    """The bundled model, as a newcomer starts it."""
    running = start_verb("--threads", "1")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as programs:
        browser = programs.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, service: Running) -> Iterator[Any]:
    """The page after its first drawing; it may write nothing to the console."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    missing: list[str] = []
    page.on("response", lambda one: missing.append(one.url) if one.status == 404 else None)
    page.goto(f"http://127.0.0.1:{service.port}/")
    changed(page, 1)
    yield page
    page.close()
    here = f"http://127.0.0.1:{service.port}/"
    assert [url for url in asked if not url.startswith((here, "data:"))] == []
    assert [text for text in said if "Failed to load resource" not in text] == []
    assert missing == []


def changed(page: Any, count: int) -> None:
    """Wait until so many changes have been drawn."""
    until(page, f"Number(document.body.dataset.changes || 0) >= {count}")


def until(page: Any, expression: str, seconds: float = 20) -> None:
    """Wait for something; the page's own policy forbids playwright's way of doing so."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def heat(page: Any) -> list[list[float]]:
    rows = page.locator("#heat [role=row]").all()[1:]
    return [[float(c.inner_text()) for c in row.locator("[role=gridcell]").all()] for row in rows]


def violations(page: Any) -> list[str]:
    """What axe-core finds wrong with the page as it is."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-core is not installed: pip install axe-playwright-python")
    source = Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    page.evaluate(source + "; undefined")  # a script element would break the page's policy
    result = page.evaluate("axe.run()")
    assert len(result["passes"]) > 15
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in result["violations"]
        for node in one["nodes"]
    ]


def picture(page: Any, folder: Path, name: str) -> None:
    """Take a picture of the complete page; it must not scroll sideways."""
    scroll = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(scroll), "the page must not scroll sideways"
    page.mouse.move(0, 0)
    path = folder / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    assert 10_000 < path.stat().st_size < 500_000
    if os.environ.get("ELMORE_PICTURES") and name in SHOWN:
        image = pytest.importorskip("PIL.Image").open(path)
        image.convert("RGB").quantize(96).save(PICTURES / path.name, optimize=True)


def test_it_starts_with_an_example(page: Any, tmp_path: Path) -> None:
    assert page.locator("#word").inner_text() == "play"
    table = heat(page)
    assert len(table) == 6
    for i, row in enumerate(table):
        assert row[i] == 1
        assert [r[i] for r in table] == row
    assert min(map(min, table)) < 0.9
    assert page.locator("#map g").count() == 6
    assert page.locator("#small figure").count() == 4  # sense vectors and three layers
    assert page.locator("#likely li").count() == 6
    assert page.locator("#likely li").first.locator(".chip").count() == 8
    assert page.locator("#problem").is_hidden()
    picture(page, tmp_path, "page")


def test_it_says_what_it_is(page: Any, service: Running) -> None:
    description = service.ask("/openapi.json")[1]
    assert page.locator(".brand").inner_text() == f"elmore {description['info']['version']}"
    assert "Model: english" in page.locator("header").inner_text()
    assert page.get_by_role("link", name="Docs").get_attribute("href").startswith("https://")
    page.get_by_role("link", name="API").click()
    assert page.url.endswith("/openapi.json")


def test_accessibility(page: Any) -> None:
    assert violations(page) == []
    page.get_by_role("button", name="own mix").click()
    page.locator("#stretch").check()
    page.locator("#map g").first.focus()
    assert violations(page) == []
    page.fill("#text", "")
    until(page, "document.getElementById('note').textContent.includes('Write a')")
    assert violations(page) == []


def test_the_dark_page(browser: Any, service: Running, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="dark")
    page.goto(f"http://127.0.0.1:{service.port}/")
    changed(page, 1)
    assert violations(page) == []
    picture(page, tmp_path, "page-dark")
    cell = "getComputedStyle(document.querySelector('#heat [data-key=\"0.5\"]')).backgroundColor"
    dark = page.evaluate(cell)
    page.emulate_media(color_scheme="light")
    until(page, f"{cell} !== '{dark}'")  # the colours follow the system while it is open
    page.close()


def test_the_page_on_a_phone(browser: Any, service: Running, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(f"http://127.0.0.1:{service.port}/")
    changed(page, 1)
    picture(page, tmp_path, "page-small")
    assert violations(page) == []
    sizes = [grid.bounding_box() for grid in page.locator("#small .grid").all()]
    assert len({(round(box["width"]), round(box["height"])) for box in sizes}) == 1
    for row in page.locator("#heat [role=rowheader]").all():
        assert row.bounding_box()["width"] > 200  # the sentence is visible, not the number alone
    page.locator("#map g").nth(3).tap()
    assert page.locator("#tip").inner_text() == "4 The play was first performed in London ."
    page.close()


def test_why_two_uses_are_similar(page: Any, service: Running) -> None:
    sentences = page.locator("#text").input_value().split("\n")
    senses = service.ask("/v1/explore", {"sentences": sentences, "word": "play"})[1]["senses"]
    four, six = (dict(zip(senses[k]["words"], senses[k]["weights"], strict=True)) for k in (3, 5))
    lengths = [sum(w * w for w in one.values()) ** 0.5 for one in (four, six)]
    parts = {word: four[word] * six[word] for word in four if word in six}
    page.locator("#heat [data-key='3.5']").click()
    assert heat(page)[3][5] == round(sum(parts.values()) / lengths[0] / lengths[1], 2)
    best = sorted(parts, key=lambda word: -parts[word])[:8]
    assert page.locator("#pair .chip").all_inner_texts() == best
    page.locator("#heat [data-key='3.3']").click()  # one use: its own words
    best = sorted(four, key=lambda word: -four[word])[:8]
    assert page.locator("#pair .chip").all_inner_texts() == best


def test_typing_and_picking(page: Any) -> None:
    page.fill("#text", BANK)
    changed(page, 2)
    assert page.locator("#word").inner_text() == "bank"
    assert len(heat(page)) == 3
    page.locator("#text").press("End")
    page.locator("#text").type("\nThe bank was closed .")
    until(page, "document.querySelectorAll('#heat [role=rowheader]').length === 4")
    page.get_by_role("button", name="the", exact=True).first.click()
    until(page, "document.getElementById('word').textContent === 'the'")
    assert len(heat(page)) == 3
    chosen = page.locator("#sentences button[aria-pressed=true]")
    assert [text.lower() for text in chosen.all_inner_texts()] == ["the"] * 3


def test_a_word_that_is_used_once_or_gone(page: Any) -> None:
    page.get_by_role("button", name="garden", exact=True).click()
    until(page, "document.getElementById('word').textContent === 'garden'")
    assert "used once" in page.locator("#note").inner_text()
    assert "used once" in page.locator("#compare .empty").inner_text()
    assert page.locator("#heat").is_hidden()
    assert page.locator("#likely li").count() == 1
    page.fill("#text", BANK)  # without a garden: the service chooses again
    until(page, "document.getElementById('word').textContent === 'bank'")
    assert page.locator("#compare .empty").is_hidden()
    page.fill("#text", "One of each .")
    until(page, "document.getElementById('note').textContent.includes('No word')")
    page.fill("#text", "")
    until(page, "document.getElementById('note').textContent.includes('Write a')")
    assert page.locator("#heat, #map, #small, #likely").filter(visible=True).count() == 0
    assert page.locator(".empty").filter(visible=True).count() == 4


def test_the_mix(page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="mean of all layers").click()
    mean = heat(page)
    page.get_by_role("button", name="layer 0").click()
    assert all(value == 1 for row in heat(page) for value in row)
    page.get_by_role("button", name="layer 2").click()
    top = heat(page)
    assert top != mean
    assert page.locator("#sliders").is_hidden()
    page.get_by_role("button", name="own mix").click()
    assert heat(page) == mean  # until somebody moves a slider
    page.locator("#layer-1").fill("0")
    page.locator("#layer-0").fill("0")
    assert heat(page) == top
    slider = page.locator("#layer-0")
    slider.focus()
    for _ in range(20):
        slider.press("ArrowRight")
    assert page.locator("#layer-0-value").inner_text() == "1.00"
    both = heat(page)
    assert min(map(min, both)) > min(map(min, top))  # the word itself makes all uses similar
    for layer in range(3):
        page.locator(f"#layer-{layer}").fill("0")
    assert all(value == 0 for row in heat(page) for value in row)
    assert asked == []  # all of that without the service


def test_the_numbers_are_the_services(page: Any, service: Running) -> None:
    page.get_by_role("button", name="mean of all layers").click()
    sentences = page.locator("#text").input_value().split("\n")
    body = {"sentences": sentences, "word": "play"}
    products = service.ask("/v1/explore", body)[1]["products"]
    inner = [
        [sum(map(sum, zip(*[x[j] for x in use], strict=True))) for j in range(6)]
        for use in products
    ]
    for i, row in enumerate(heat(page)):
        for j, value in enumerate(row):
            wanted = inner[i][j] / (inner[i][i] * inner[j][j]) ** 0.5
            assert value == pytest.approx(wanted, abs=0.006)


def test_keys_alone(page: Any) -> None:
    page.locator("#heat [data-key='0.0']").click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.key") == "1.1"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.key") == "1.0"
    said = page.locator("#pair").inner_text()
    assert "The children play in the garden" in said
    assert "They play football" in said
    page.locator("#map g").nth(2).focus()
    page.keyboard.press("Enter")
    assert "He will play the second match" in page.locator("#pair").inner_text()
    assert page.locator("#tip").is_visible()
    page.locator("#sentences button").nth(1).focus()
    page.keyboard.press("Enter")
    until(page, "document.getElementById('word').textContent === 'children'")
    assert page.evaluate("document.activeElement.dataset.key") == "0.1"


def test_errors_are_shown_kindly(page: Any, browser: Any) -> None:
    page.fill("#text", "a\n" * 300)
    page.wait_for_selector("#problem:not([hidden])")
    assert "300 sentences, more than the limit of 256" in page.locator("#problem").inner_text()
    assert page.locator("body.stale").count() == 1  # what is shown belongs to other sentences
    page.fill("#text", BANK)
    page.wait_for_selector("#problem", state="hidden")
    assert page.locator("body.stale").count() == 0
    page.route("**/v1/explore", lambda route: route.abort())
    page.fill("#text", BANK + "\n")
    page.wait_for_selector("#problem:not([hidden])")
    assert "does not answer" in page.locator("#problem").inner_text()
    page.unroute("**/v1/explore")
    page.route(
        "**/v1/explore",
        lambda route: route.fulfill(status=429, headers={"Retry-After": "7"}, body="{}"),
    )
    page.fill("#text", BANK)
    until(page, "document.getElementById('problem').textContent.includes('in 7 s')")


def test_a_text_is_no_markup(page: Any) -> None:
    page.fill("#text", "<img src=x onerror=alert(1)> bank\n<b>bank</b> bank .")
    changed(page, 2)
    assert page.locator("#sentences img").count() == 0
    assert page.locator("main b").count() == 0


def test_a_saved_page_needs_no_service(browser: Any, tmp_path: Path) -> None:
    elmo = Elmo.load(tokenizer="spaces")
    found = elmo.explore(["They play chess .", "The play </script> was long .", "We play ."])
    found.save(tmp_path / "uses.html")
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = (tmp_path / "uses.html").as_uri()
    page.goto(address)
    assert len(heat(page)) == 3
    assert "The play </script> was long" in page.locator("#sentences").inner_text()
    for hidden in ("#text", "#examples", "a[href='openapi.json']"):
        assert page.locator(hidden).is_hidden()
    page.get_by_role("button", name="layer 0").click()
    assert heat(page) == [[1.0] * 3] * 3
    assert violations(page) == []
    page.goto("about:blank")  # In a notebook it is in a frame.
    page.set_content(f"<title>n</title><main>{found._repr_html_()}</main>")
    frame = page.frame_locator("iframe")
    frame.locator("#heat [role=gridcell]").first.wait_for()
    assert frame.locator("#map g").count() == 3
    page.close()
    assert [
        url for url in asked if url != address and not url.startswith(("data:", "about:"))
    ] == []
    assert said == []


def test_tag_these_sentences(page: Any, service: Running) -> None:
    page.locator("#tagged li").first.wait_for()  # by the tagger that ships with elmore
    assert "VERB" in page.locator("#tagged li").first.inner_text()
    page.route("**/v1/tasks", lambda route: route.fulfill(json={"object": "list", "data": []}))
    page.reload()
    page.locator("#tagging").wait_for(state="hidden")

    def respond(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        if name == "tasks":
            return route.fulfill(json={"object": "list", "data": [{"id": "ner"}, {"id": "mood"}]})
        sentences = route.request.post_data_json["sentences"]
        if name == "mood":
            one = {"label": "good", "probabilities": {"good": 0.87, "bad": 0.13}}
            return route.fulfill(json={"results": [one] * len(sentences)})
        found = [
            {"tokens": s.split(), "tags": ["O", *["LOC"] * (len(s.split()) - 1)]} for s in sentences
        ]
        return route.fulfill(json={"results": found})

    page.unroute("**/v1/tasks")
    page.route("**/v1/tasks", respond)
    page.route("**/v1/tasks/*", respond)
    page.reload()
    page.locator("#tagged li").first.wait_for()
    first = page.locator("#tagged li").first
    assert first.locator(".token").count() == 7
    marked = first.locator(".marked").first
    assert marked.text_content() == "childrenLOC"  # whether it is on two lines is up to the style
    assert marked.locator("small").text_content() == "LOC"
    assert violations(page) == []
    page.fill("#text", "Rome <b>is big")
    until(page, "document.querySelectorAll('#tagged li').length === 1")
    assert page.locator("#tagged .token").count() == 3
    late: list[Any] = []
    page.route("**/v1/tasks/ner", lambda route: late.append(route))
    page.get_by_role("button", name="ner").click()
    until_held = time.monotonic() + 20
    while not late and time.monotonic() < until_held:
        page.wait_for_timeout(20)
    page.get_by_role("button", name="mood").click()
    until(page, "document.getElementById('tagged').textContent.includes('good 87 %')")
    respond(late[0])  # a late answer does not replace a newer one
    page.wait_for_timeout(200)
    assert "good 87 %" in page.locator("#tagged").inner_text()
    assert "Rome <b>is big" in page.locator("#tagged").inner_text()
    page.fill("#text", "")
    page.locator("#tagging").wait_for(state="hidden")


@pytest.fixture(scope="module")
def corpus_service(index: Index) -> Iterator[Running]:
    """The page over an index."""
    path = os.environ.get("ELMORE_PAGE_INDEX", index.path)
    running = start_verb("--threads", "1", "--index", str(path))
    yield running
    running.stop()


@pytest.fixture
def corpus(browser: Any, corpus_service: Running) -> Iterator[Any]:
    """The page over an index, with the senses of a word."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{corpus_service.port}/")
    page.locator("#corpus-view").wait_for()
    look_for(page, "bank")
    yield page
    page.close()
    assert said == []


def look_for(page: Any, text: str) -> None:
    searches = int(page.evaluate("document.body.dataset.searches || 0"))
    page.fill("#query", text)
    page.keyboard.press("Enter")
    until(page, f"Number(document.body.dataset.searches || 0) > {searches}")
    page.locator("#kwic td").first.wait_for()


def concordance(page: Any) -> list[str]:
    rows = page.locator("#kwic tr").filter(has=page.locator("td")).all()
    return [" ".join(cell.inner_text() for cell in row.locator("td").all()[:3]) for row in rows]


def brush(page: Any, left: float, top: float, right: float, bottom: float) -> None:
    """Drag over a part of the map, from 0 to 1."""
    box = page.locator("#dots").bounding_box()
    page.mouse.move(box["x"] + left * box["width"], box["y"] + top * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + right * box["width"], box["y"] + bottom * box["height"], steps=4)
    page.mouse.up()


def test_a_concordance_by_sense(corpus: Any) -> None:
    assert corpus.locator("#sense-list li").count() == 2
    assert corpus.locator("#sentences-view").is_hidden()
    headings = corpus.locator("#kwic th").all_inner_texts()
    assert [text[:2] for text in headings] == ["1.", "2."]
    lines = concordance(corpus)
    assert len(lines) == 12  # six of each sense
    money = [line.startswith("The bank") for line in lines]
    assert money in ([True] * 6 + [False] * 6, [False] * 6 + [True] * 6)
    corpus.get_by_role("button", name="Show sense 2").click()
    until(corpus, "document.querySelectorAll('#kwic td.left').length === 18")
    assert {line.startswith("The bank") for line in concordance(corpus)} == {money[-1]}
    corpus.get_by_role("button", name="Show all").click()
    until(corpus, "document.querySelectorAll('#kwic td.left').length === 12")
    assert violations(corpus) == []


def test_brush_to_see_the_sentences(corpus: Any) -> None:
    corpus.locator("#plane").scroll_into_view_if_needed()
    brush(corpus, 0.01, 0.01, 0.99, 0.99)
    until(corpus, "document.getElementById('chosen').textContent === '36 selected uses'")
    assert len(concordance(corpus)) == 36
    brush(corpus, 0.01, 0.01, 0.5, 0.99)  # the senses are left and right
    until(corpus, "document.getElementById('chosen').textContent === '18 selected uses'")
    assert len({line.startswith("The bank") for line in concordance(corpus)}) == 1
    places = corpus.evaluate("corpus.places[0]")
    box = corpus.locator("#dots").bounding_box()
    corpus.mouse.move(box["x"] + places[0], box["y"] + places[1])
    corpus.locator("#plane-tip").wait_for()
    assert "bank" in corpus.locator("#plane-tip").inner_text()


def test_late_sentences_do_not_replace_new_ones(corpus: Any) -> None:
    late: list[Any] = []
    corpus.evaluate("corpus.texts.clear()")  # so that they are asked for again
    hold_first = lambda route: route.continue_() if late else late.append(route)  # noqa: E731
    corpus.route("**/v1/index/uses", hold_first)
    corpus.get_by_role("button", name="Show sense 1").click()
    until(corpus, "document.querySelectorAll('#sense-list [aria-pressed=true]').length === 1")
    while not late:
        corpus.wait_for_timeout(20)
    corpus.get_by_role("button", name="Show sense 2").click()
    until(corpus, "document.getElementById('chosen').textContent.startsWith('18 uses of sense 2')")
    lines = concordance(corpus)
    late[0].continue_()
    until(corpus, "corpus.texts.size === 36")
    assert concordance(corpus) == lines


def test_rename_and_export(corpus: Any) -> None:
    name = 'ground beside "water", wet'
    river = "1" if "on the" in concordance(corpus)[0] else "2"
    field = corpus.get_by_label(f"Name of sense {river}")
    field.fill(name)
    field.press("Tab")
    until(corpus, f"document.getElementById('kwic').textContent.includes({json.dumps(name)})")
    corpus.reload()
    look_for(corpus, "bank")  # a browser remembers the name
    assert corpus.get_by_label(f"Name of sense {river}").input_value() == name
    with corpus.expect_download() as started:
        corpus.get_by_role("button", name="Export CSV").click()
    assert started.value.suggested_filename == "bank.csv"
    assert Path(started.value.path()).read_bytes().startswith(codecs.BOM_UTF8)
    with Path(started.value.path()).open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 36
    for row in rows:
        assert (row["name"] == name) == (row["sense"] == river) == (row["source"] == "rivers.txt")
        assert row["word"] == "bank"
    corpus.get_by_role("button", name=f"Show sense {river}").click()
    until(corpus, "document.querySelectorAll('#kwic td.left').length === 18")
    with corpus.expect_download() as started:
        corpus.get_by_role("button", name="Export JSON").click()
    found = json.loads(Path(started.value.path()).read_text("utf-8"))
    assert found["senses"][int(river) - 1]["name"] == name
    assert len(found["uses"]) == 18
    assert {use["name"] for use in found["uses"]} == {name}


def test_no_cell_is_a_formula(corpus: Any) -> None:
    corpus.evaluate("for (const line of corpus.texts.values()) line.left = '=1+1'")
    with corpus.expect_download() as started:
        corpus.get_by_role("button", name="Export CSV").click()
    text = Path(started.value.path()).read_text("utf-8-sig")
    assert "'=1+1" in {row["left"] for row in csv.DictReader(text.splitlines())}


def test_names_are_those_of_the_documents(corpus: Any, index: Index) -> None:
    field = corpus.get_by_label("Name of sense 1")
    field.fill("in all documents")
    field.press("Tab")
    where = f"file!={index.sources[0]}"
    corpus.evaluate(
        "address => { location.hash = address }", urlencode({"q": "bank", "where": where})
    )
    until(corpus, "document.querySelectorAll('#sense-list li').length === 1")
    assert corpus.locator("#where").input_value() == where
    assert corpus.get_by_label("Name of sense 1").input_value() != "in all documents"
    corpus.evaluate("address => { location.hash = address }", "q=bank")
    until(corpus, "document.querySelectorAll('#sense-list li').length === 2")
    assert corpus.locator("#where").input_value() == ""
    assert corpus.get_by_label("Name of sense 1").input_value() == "in all documents"


def test_search_by_example(corpus: Any) -> None:
    look_for(corpus, "She lay on the [bank] of the stream .")
    assert "most similar first" in corpus.locator("#chosen").inner_text()
    assert "on the" in concordance(corpus)[0]
    corpus.fill("#query", "xyz")
    corpus.keyboard.press("Enter")
    corpus.locator("#problem").wait_for()
    assert "'xyz' is not in the index" in corpus.locator("#problem").inner_text()
    look_for(corpus, "bank")
    assert corpus.locator("#problem").is_hidden()
    corpus.get_by_role("button", name="Your sentences").click()
    assert corpus.locator("#corpus-view").is_hidden()
    assert len(heat(corpus)) == 6
    assert corpus.locator("#map g").count() == 6


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (390, "light"), (1100, "dark")])
def test_the_corpus_in_all_forms(
    browser: Any, corpus_service: Running, tmp_path: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(f"http://127.0.0.1:{corpus_service.port}/")
    page.locator("#corpus-view").wait_for()
    until(page, "document.body.dataset.searches === '1'")  # its most frequent word
    assert violations(page) == []
    look_for(page, "play" if "ELMORE_PAGE_INDEX" in os.environ else "bank")
    assert violations(page) == []
    page.locator("h1").last.click()  # away from the field
    form = {(390, "light"): "-small", (1100, "dark"): "-dark"}.get((width, scheme), "")
    picture(page, tmp_path, f"page-corpus{form}")
    page.close()


def test_a_token_is_asked_for(browser: Any, lm_folder: Path) -> None:
    running = start(lm_folder, token="abc")
    page = browser.new_page()
    try:
        page.goto(f"http://127.0.0.1:{running.port}/")
        page.wait_for_selector("#access:not([hidden])")
        assert "access token" in page.locator("#problem").inner_text()
        page.fill("#token", "abc")
        page.keyboard.press("Enter")
        changed(page, 1)
        assert page.locator("#access").is_hidden()
        assert page.locator("#problem").is_hidden()
    finally:
        page.close()
        running.stop()
