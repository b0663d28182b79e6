"""Hooks of mkdocs: pages that stand outside of docs/ belong to the site, and links find them there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
IMAGE = re.compile(r'(src=")([^"#]+)(")')


def on_config(config):
    """Replace the patterns of the navigation by the pages that no other line names."""
    named = set(_pages(config.nav))
    there = {str(path.relative_to(config.docs_dir)) for path in Path(config.docs_dir).rglob("*.md")}
    left = sorted((there | set(OUTSIDE.values())) - named)
    config.nav = _expanded(config.nav, left)
    return config


def _pages(nav):
    """Yield every page and pattern of the navigation."""
    for one in nav:
        value = next(iter(one.values())) if isinstance(one, dict) else one
        yield from _pages(value) if isinstance(value, list) else [value]


def _expanded(nav, left):
    found = []
    for one in nav:
        if isinstance(one, dict):
            found.append(
                {title: _expanded(value, left) if isinstance(value, list) else value for title, value in one.items()}
            )
        elif "*" in one:
            found += [page for page in left if PurePosixPath(page).parent == PurePosixPath(one).parent]
        else:
            found.append(one)
    return found


def on_files(files, config):
    """Add the pages and the other files that they link to, under names inside the site."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    for source in [*ROOT.glob("examples/*.py"), ROOT / "LICENSE"]:
        files.append(File.generated(config, str(source.relative_to(ROOT)), content=source.read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Let every link of a page point to the place of its target in the site."""
    name = page.file.src_uri
    source = next((outside for outside, inside in OUTSIDE.items() if inside == name), f"docs/{name}")

    def moved(found):
        before, target, after = found.groups()
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = OUTSIDE.get(path, path.removeprefix("docs/"))
        return before + posixpath.relpath(inside, posixpath.dirname(name) or ".") + after

    return IMAGE.sub(moved, LINK.sub(moved, markdown))
