"""The page about runs: one HTML file that needs nothing else, no network and no library."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

import isthmus
from isthmus.errors import InputError
from isthmus.report import sections, tables
from isthmus.report.run import Run
from isthmus.report.schedule import schedule
from isthmus.report.text import count, escape


def page(runs: Sequence[Run]) -> str:
    """Return the whole document about runs."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    parts = (
        ("Learning", sections.learning(runs)),
        ("Where the time went", sections.times(runs)),
        ("What crossed the links in a step", sections.traffic(runs)),
        ("Rows and their age", sections.rows(runs)),
        ("How batches were scheduled", schedule(runs)),
        ("The partition", sections.partition(runs)),
        ("Options", tables.options_of(runs)),
    )
    return document(title, _lead(runs), tables.glance(runs), parts)


def document(title: str, lead: str, top: str, parts: Sequence[tuple[str, str]]) -> str:
    """Return a page with a title, a table on top and (heading, content) parts; `title` is text, all else is HTML."""
    style, script = (resources.files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    body = "".join(f"<section><h2>{heading}</h2>{content}</section>" for heading, content in parts if content)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} · isthmus</title>
<style>
{style}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1><p class="lead">{lead}</p></header>
{top}
{body}
<footer>isthmus report {escape(isthmus.__version__)}</footer>
</main>
<div id="tip" role="status" hidden></div>
<script>{script}</script>
</body>
</html>
"""


def write(runs: Sequence[Run], out: Path) -> None:
    """Write the page about runs."""
    write_page(page(runs), out)


def write_page(text: str, out: Path) -> None:
    """Write a page whole or not at all."""
    building = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        building.write_bytes(text.encode("utf-8", "replace"))  # json may hold unpaired surrogates
        building.replace(out)
    except OSError as error:
        with suppress(OSError):  # where nothing can be written, nothing can be removed either
            building.unlink()
        lacks = "" if out.parent.is_dir() else f"make the folder {out.parent}, or "
        raise InputError(f"cannot write {out} ({error.strerror}): {lacks}give another --out") from error


def _policy(script: str) -> str:
    """Return a policy by which nothing is fetched and only the page's own script runs, whatever a run folder holds."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _lead(runs: Sequence[Run]) -> str:
    graphs = list(dict.fromkeys(run.graph for run in runs))
    on = escape(graphs[0] if len(graphs) == 1 else f"{len(graphs)} graphs")
    if len(runs) > 1:
        return f"on {on}"
    shape = runs[0].config.get("model")
    model = f"{escape(shape.get('model', 'model'))} on " if isinstance(shape, dict) else ""
    return f"{model}{on}, recipe {escape(runs[0].recipe)}, {count(runs[0].steps_done)} steps"
