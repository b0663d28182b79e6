"""Write what is derived from the declarations of options: types of keywords, and tables in the docs (`make derived`).

A page says where a table goes: it stands between ``<!-- derived: options train -->`` and ``<!-- end -->``.
`tests/test_options.py` fails where a file is not what this would write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from isthmus.api.options import options
from isthmus.options import GROUPS, OptionField

ROOT = Path(__file__).parents[1]
KEYWORDS = ROOT / "src" / "isthmus" / "api" / "keywords.py"
CLASSES = {"TrainOptions": "train", "PredictOptions": "predict", "WorkerOptions": "Worker"}
WIDTH = 120

HEAD = '''"""The keywords of the functions of isthmus, for editors and type checkers.

Written by ``make derived`` from the declarations of the options: do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from torch import nn
'''


def keywords() -> str:
    """Return the module that spells out the keywords."""
    return "".join([HEAD, *(_class(name, taker) for name, taker in CLASSES.items())])


def _class(name: str, taker: str) -> str:
    lines = [f"class {name}(TypedDict, total=False):", f'    """The keywords of ``isthmus.{taker}``."""', ""]
    for one in options(taker).values():
        kind = one.accepts if one.default is not None or "None" in one.accepts else f"{one.accepts} | None"
        lines += [f"    {one.name}: {kind}", *_docstring(one.help)]
    return "\n\n" + "\n".join(lines) + "\n"


def _docstring(text: str) -> list[str]:
    line = f'    """{text}"""'
    assert len(line) <= WIDTH, line
    return [line]


def options_table(taker: str) -> str:
    """Return all options of a command by group: as typed, as a keyword's default, meaning."""
    lines = ["| | option | default | |", "|---|---|---|---|"]
    known = options(taker).values()
    for group in GROUPS:
        for place, one in enumerate(one for one in known if one.about.group == group):
            lines.append(f"| {'' if place else group} | `{one.flag}` | {_default(one)} | {one.help} |")
    return "\n".join(lines)


def keyword_list(taker: str) -> str:
    """Return the names of all options as keywords, in one line."""
    return ", ".join(f"`{name}`" for name in options(taker))


def _default(one: OptionField) -> str:
    if one.switch or one.default is None:
        return ""
    return f"{one.default:g}" if isinstance(one.default, float) else str(one.default)


TABLES: Mapping[str, Callable[[str], str]] = {"options": options_table, "keywords": keyword_list}
PLACE = re.compile(r"(<!-- derived: (\w+) ([\w -]+) -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Return a page with its tables as they should be."""
    return PLACE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]](found[3])}\n{found[5]}", text)


def derived() -> dict[Path, str]:
    """Return the content of every file that has something derived."""
    pages = {path: path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    return {KEYWORDS: keywords(), **{path: page(text) for path, text in pages.items() if PLACE.search(text)}}


def main() -> None:
    for path, text in derived().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
