"""The page in a real browser: it opens, the plots are there, nothing is complained about and nothing is fetched."""

from __future__ import annotations

import json
import shutil

import pytest
from graphs import community_graph, cut
from report.folders import comparison_folder, run_folder

from isthmus.report import read_comparison, read_runs, write, write_comparison

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="no driver: pip install playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")

WIDE, NARROW = {"width": 1200, "height": 900}, {"width": 360, "height": 700}


@pytest.fixture
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture
def address(tmp_path) -> str:
    """A page about three runs: with worker logs and old rows, unfinished, hostile."""
    book = cut(community_graph(), 2, "random", tmp_path)
    folders = [
        run_folder(tmp_path / "stale", workers=2, age=2, parts=str(book.folder)),
        run_folder(tmp_path / "vanilla", recipe="vanilla", finished=False, parts=str(book.folder)),
        run_folder(tmp_path / ("long-" * 20), graph="<script>alert(1)</script>", workers=2),
    ]
    write(read_runs(folders), tmp_path / "report.html")
    return (tmp_path / "report.html").as_uri()


def opened(browser, address, complaints, viewport=WIDE, scheme="light"):
    tab = browser.new_page(viewport=viewport, color_scheme=scheme)
    tab.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (complaints.append("a dialog"), dialog.dismiss()))
    tab.on("request", lambda request: request.url == address or complaints.append(f"fetched {request.url}"))
    tab.goto(address)
    return tab


def test_the_page_opens(browser, address):
    complaints: list[str] = []
    tab = opened(browser, address, complaints)
    assert tab.title() == "3 runs · isthmus"
    boxes = [chart.bounding_box() for chart in tab.query_selector_all("svg")]
    assert len(boxes) == 4 + 2 + 2 + 2 + 2
    assert all(box["width"] > 300 and box["height"] > 20 for box in boxes)
    lines = tab.query_selector_all("svg.lines .line path")
    assert sum(line.evaluate("path => path.getTotalLength()") > 50 for line in lines) >= 12
    assert lines[0].evaluate("path => getComputedStyle(path).stroke") == "rgb(0, 114, 178)"
    assert complaints == []


def test_the_pointer_shows_values(browser, address):
    complaints: list[str] = []
    tab = opened(browser, address, complaints)
    assert tab.locator("#tip").is_hidden()
    box = tab.locator("svg.lines").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] / 2)
    assert tab.locator("#tip").is_visible()
    assert "stale0.2500 at step 4vanilla0.2500 at step 4" in tab.locator("#tip").text_content()
    assert tab.locator("svg.lines .at.shown").count() == 3
    tab.mouse.move(2, 2)
    assert tab.locator("#tip").is_hidden()
    assert complaints == []


def test_dark_narrow_and_on_paper(browser, address):
    complaints: list[str] = []
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = opened(browser, address, complaints, scheme="dark")
    assert dark.evaluate(paper) == "rgb(18, 23, 29)"
    dark.emulate_media(media="print")
    assert dark.evaluate(paper) == "rgb(255, 255, 255)"
    assert dark.pdf(format="A4").startswith(b"%PDF")
    narrow = opened(browser, address, complaints, viewport=NARROW)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    assert complaints == []


@pytest.mark.parametrize("width", [1600, 1200, 860, 400])
def test_text_has_its_size_in_every_chart(browser, tmp_path, width):
    """Also in one that is alone in its row, as "Rows sent" is where no rows are old, and on a narrower screen."""
    sent = run_folder(tmp_path / "drawn", workers=2)
    for log in sent.glob("worker-*.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        log.write_text("".join(json.dumps(grown(line)) + "\n" for line in lines))
    write(read_runs([sent, run_folder(tmp_path / "exact", workers=2)]), tmp_path / "report.html")
    viewport = {"width": width, "height": 900}
    tab = opened(browser, (tmp_path / "report.html").as_uri(), [], viewport=viewport)
    assert tab.get_by_text("Rows sent, all workers").count() == 1
    assert tab.get_by_text("Mean age of halo rows").count() == 0
    shown = "text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a"
    sizes = [chart.query_selector("text").evaluate(shown) for chart in tab.query_selector_all("svg")]
    assert 9 < min(sizes) <= max(sizes) < 16


def grown(line: dict) -> dict:
    """More rows with every step, as samplers draw now more and now fewer."""
    links = [[*where, rows * line["step"], size] for *where, rows, size in line["links"]]
    return {**line, "links": links}


def test_the_page_about_a_comparison(browser, tmp_path):
    recipes = {"vanilla": [1.0, 1.2], "bns rate=0.1 bits=8": [0.5, 0.4], "pipegcn": [0.7, "worker 1 died"]}
    folder = comparison_folder(tmp_path / "c", recipes, link="1gbit")
    write_comparison(read_comparison(folder), folder / "compare.html")
    complaints: list[str] = []
    for viewport in (WIDE, NARROW):
        tab = opened(browser, (folder / "compare.html").as_uri(), complaints, viewport=viewport)
        assert tab.title() == "Recipes compared · isthmus"
        boxes = [chart.bounding_box() for chart in tab.query_selector_all("svg")]
        assert len(boxes) == 6
        assert all(box["width"] > 250 and box["height"] > 20 for box in boxes)
        assert tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    target = tab.locator("svg.lines .target path").first
    assert target.evaluate("path => getComputedStyle(path).strokeDasharray") == "3px, 4px"
    assert complaints == []
