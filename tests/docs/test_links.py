"""Links inside the documentation lead somewhere, and every page can be reached from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.pages import PAGES, ROOT, name_of

README_LINES = 100  # it is read in one go


def links(page: Path) -> list[tuple[Path, str]]:
    """The files of this repository that a page links to, and the section of each."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    parted = (target.partition("#") for target in targets if "://" not in target)
    return [((page.parent / file).resolve() if file else page, section) for file, _, section in parted]


def sections(page: Path) -> set[str]:
    """The names by which a page's titles are linked to."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target, section in links(page):
        assert target.exists(), f"{name_of(page)} links to {target}, which is not there"
        assert not section or section in sections(target), f"{name_of(page)}: {target.name} has no section {section}"


def test_every_page_is_reached_from_the_readme():
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        reached.add(page)
        left += [target for target, _ in links(page) if target.suffix == ".md" and target not in reached]
    assert set(PAGES) <= reached


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES
