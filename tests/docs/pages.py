"""The pages of the documentation, and the tables that some of them must have because the code says so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from isthmus.comm import (
    FORWARD,
    GATHER,
    SCATTER,
    Active,
    AdaptiveBits,
    Add,
    Changed,
    Every,
    Gap,
    Keep,
    Smooth,
    Stages,
    Trend,
)
from isthmus.comm.channel.codec import Codec, Half, Linear
from isthmus.recipes import find

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RECIPE_PAGES = sorted((ROOT / "docs" / "recipes").glob("*.md"))


def blocks(page: str, language: str) -> list[str]:
    """The code of a page under docs/ in one language, block by block."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def recipes_of(page: Path) -> list[str]:
    """The recipes that a page is about: those in its title."""
    return re.findall(r"`([^`]+)`", page.read_text().splitlines()[0])


def options_table(names: list[str]) -> str:
    """Every option of these recipes, its default and its meaning."""
    rows = []
    for name in names:
        for option, about in find(name).options.items():
            default = "none" if about.default is None else str(about.default).lower()
            rows.append((name, f"`{option}`", (default, about.help)))
    return _table("| option | default | |", names, rows)


def channel_table(names: list[str]) -> str:
    """The stages of both directions of the channel, with the options at their defaults."""
    rows = []
    for name in names:
        policy = find(name).policy()
        if policy.batches is not None:
            rows.append((name, "features", ("those of a batch", "as is", "`ahead` steps before", "replace")))
            way = "" if policy.batches.joint is not None else " (together)"
            rows += [
                (name, f"hidden {what}{way}", ("drawn", "as is", "now", "replace")) for what in ("rows", "gradients")
            ]
            continue
        if policy.isolated:
            rows.append((name, "rows and gradients", ("none", "–", "–", "–")))
            continue
        ways = (("features", policy.forward), ("gradients", policy.backward))
        if policy.replicas:
            ways = tuple((f"both passes, {leg}", policy.stages(FORWARD, leg)) for leg in (GATHER, SCATTER))
        for direction, stages in ways:
            rows.append((name, direction, _words(stages, policy.sampler is not None)))
    return _table("| | select | encode | wait | merge |", names, rows)


def _table(head: str, names: list[str], rows: list[tuple[str, str, tuple[str, ...]]]) -> str:
    """Rows of (recipe, what, cells); a row says whose it is where not all recipes have it, and those come first."""
    owners: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, what, cells in rows:
        owners.setdefault((what, cells), []).append(name)
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for (what, cells), of in sorted(owners.items(), key=lambda item: item[1] == names):
        whose = "" if of == names else " of " + ", ".join(f"`{name}`" for name in of)
        lines.append(f"| {what}{whose} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _words(stages: Stages, drawn: bool) -> tuple[str, str, str, str]:
    match stages.select:
        case Every():
            select = "all, every `bound` + 1 steps" + (", in turns" if stages.select.staggered else "")
        case Changed():
            select = "rows drawn by how far they moved" if stages.select.chance else "rows that moved by `epsilon`"
        case Active():
            select = "rows whose sum changed"
        case Gap():
            select = "all, if they moved by `bound`"
        case _:
            select = "drawn" if drawn else "whole blocks" if stages.ring else "all"
    bits = "as is" if stages.encode.as_is else _bits(stages.encode)
    match stages.merge:
        case Add():
            merge, bits = "add", f"differences, {bits}"
        case Keep():
            merge = "keep the old"
        case Smooth():
            merge = "smooth"
        case _:
            merge = "replace"
    clipped = "" if stages.clip is None else ", clipped"
    return select, bits + clipped, "`staleness` steps" if stages.delay else "now", merge


def _bits(codec: Codec) -> str:
    match codec:
        case Half():
            return codec.name
        case Linear():
            return f"{codec.bits} bits"
        case AdaptiveBits():
            return "2, 4 or 8 bits by row"
        case Trend():
            return f"{codec.bits} bits, or predicted"
    return type(codec).__name__


if __name__ == "__main__":  # PYTHONPATH=tests python -m docs.pages NAME …: both tables of a page
    print(channel_table(sys.argv[1:]), options_table(sys.argv[1:]), sep="\n\n")
