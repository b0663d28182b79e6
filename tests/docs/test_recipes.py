"""Every recipe has a page, and its tables say what the code does."""

from __future__ import annotations

import pytest
from docs.pages import RECIPE_PAGES, ROOT, channel_table, name_of, options_table, recipes_of

from isthmus.recipes import RECIPES


def test_every_recipe_has_one_page():
    assert sorted(name for page in RECIPE_PAGES for name in recipes_of(page)) == sorted(RECIPES)


@pytest.mark.parametrize("page", RECIPE_PAGES, ids=name_of)
def test_tables_say_what_the_code_does(page):
    text, names = page.read_text(), recipes_of(page)
    assert options_table(names) in text
    assert channel_table(names) in text


@pytest.mark.parametrize("page", RECIPE_PAGES, ids=name_of)
def test_page_tells_what_a_reader_asks(page):
    titles = [line[3:] for line in page.read_text().splitlines() if line.startswith("## ")]
    assert titles[:3] == ["What it does", "What crosses a link", "Options"]
    assert titles[3].startswith("How the paper")
    assert titles[4:] == ["When to use it"]


def test_index_lists_every_recipe():
    index = (ROOT / "docs" / "recipes.md").read_text()
    for page in RECIPE_PAGES:
        for name in recipes_of(page):
            assert f"[`{name}`](recipes/{page.name})" in index
