"""Charts as inline SVG: lines over an axis, bars in groups. Colours are class names, which page.css defines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isthmus.report.scale import Scale
from isthmus.report.text import count, escape, plain, share

WIDTH = 420  # near the width of a phone, so that text keeps its size there
LINES_HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 224, 46, 12, 10, 38
BAR, GAP, HEADING, LABEL, FIGURE = 15, 3, 19, 24, 78
MOST_POINTS = 500  # per line; a line of a million steps is drawn as its extremes

Write = Callable[[float | None], str]
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A line of points (x, y) in the order of x; a y of None breaks it. ``ringed`` is a point to draw attention to."""

    name: str
    colour: str
    points: Sequence[tuple[float | None, float | None]]
    ringed: tuple[float | None, float | None] | None = None


@dataclass(frozen=True)
class YAxis:
    """The upward axis of a line chart: how its values are written, and which scale it has (`Scale.over`)."""

    write: Write = plain
    zero: bool = False
    may_log: bool = False


_PLAIN = YAxis()


@dataclass(frozen=True)
class Segment:
    name: str
    colour: str
    value: float | None


@dataclass(frozen=True)
class Bar:
    """A bar of segments end to end; ``label`` before them, ``figure`` after them."""

    segments: Sequence[Segment]
    figure: str = ""
    label: str = ""


@dataclass(frozen=True)
class Group:
    """Bars under one heading; ``colour`` puts a swatch before it."""

    name: str
    bars: Sequence[Bar]
    colour: str = ""


def line_chart(
    lines: Sequence[Line],
    title: str,
    x_name: str,
    *,
    x_text: Write = plain,
    y_axis: YAxis = _PLAIN,
    empty: str = "nothing was recorded",
) -> str:
    """Draw lines over an axis that begins at 0; the page's script shows the values under the pointer."""
    pieces = [[_thin(piece, len(line.points)) for piece in _pieces(line.points)] for line in lines]
    known = [point for line in pieces for piece in line for point in piece]
    if not known:
        return nothing(empty)
    x = Scale.over((point[0] for point in known), LEFT, WIDTH - RIGHT, zero=True, exact=True)
    y = Scale.over((point[1] for point in known), LINES_HEIGHT - BOTTOM, TOP, zero=y_axis.zero, may_log=y_axis.may_log)
    body = [_axes(x, y, x_name)]
    body += [_line(line, drawn, x, y, x_text, y_axis.write) for line, drawn in zip(lines, pieces, strict=True) if drawn]
    return svg("lines", LINES_HEIGHT, title, body)


def bar_chart(groups: Sequence[Group], title: str, write: Write = count, *, empty: str = "nothing was recorded") -> str:
    """Draw horizontal bars on one scale; each segment shows its value and share under the pointer."""
    groups = [Group(group.name, [bar for bar in group.bars if _total(bar)], group.colour) for group in groups]
    groups = [group for group in groups if group.bars]
    if not groups:
        return nothing(empty)
    bars = [bar for group in groups for bar in group.bars]
    left = LABEL if any(bar.label for bar in bars) else 0
    figure = FIGURE if any(bar.figure for bar in bars) else 0
    per_unit = (WIDTH - left - figure) / max(_total(bar) for bar in bars)
    body, top = [], 0.0
    for group in groups:
        if group.name:
            body.append(heading(group.name, group.colour, top))
            top += HEADING
        for bar in group.bars:
            body.append(_bar(bar, left, top, per_unit, write))
            top += BAR + GAP
        top += 9 if group.name else 0
    return svg("bars", top, title, body)


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return the legend for (name, colour) of everything that a chart distinguishes by colour."""
    items = (f'<li><i class="swatch {colour}"></i>{escape(name)}</li>' for name, colour in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


def heading(name: str, colour: str, top: float) -> str:
    """Return a heading inside a chart, with a swatch if it has a colour."""
    swatch = f'<rect class="{colour}" y="{top + 3:g}" width="9" height="9" rx="2"/>' if colour else ""
    return f'{swatch}<text class="name" x="{14 if swatch else 0}" y="{top + 12:g}">{_short(name)}</text>'


def nothing(why: str) -> str:
    """Return the text that replaces a chart without data."""
    return f'<p class="nothing">{escape(why)}</p>'


def svg(kind: str, height: float, title: str, body: Sequence[str]) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:g}"'
    return f'<svg class="{kind}" {box} role="img" aria-label="{escape(title)}">{"".join(body)}</svg>'


def _pieces(points: Sequence[tuple[float | None, float | None]]) -> list[list[Point]]:
    """Return the stretches of a line between points that have no value."""
    pieces: list[list[Point]] = [[]]
    for x, y in points:
        if x is not None and y is not None:
            pieces[-1].append((x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _thin(piece: list[Point], of: int) -> list[Point]:
    """Return at most the piece's share of MOST_POINTS: the lowest and the highest of each stretch, and both ends."""
    stretch = -(-2 * of // MOST_POINTS)
    if of <= MOST_POINTS or len(piece) <= 2:
        return piece
    kept = {0, len(piece) - 1}
    for begin in range(0, len(piece), stretch):
        places = range(begin, min(begin + stretch, len(piece)))
        kept |= {min(places, key=lambda k: piece[k][1]), max(places, key=lambda k: piece[k][1])}
    return [piece[k] for k in sorted(kept)]


def _axes(x: Scale, y: Scale, x_name: str) -> str:
    rows = (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(value):.1f}" y2="{y.at(value):.1f}"/>'
        f'<text class="tick end" x="{LEFT - 7}" y="{y.at(value) + 4:.1f}">{text}</text>'
        for value, text in y.ticks()
    )
    bottom = LINES_HEIGHT - BOTTOM + 17
    columns = (f'<text class="tick mid" x="{x.at(value):.1f}" y="{bottom}">{text}</text>' for value, text in x.ticks())
    name = f'<text class="tick end" x="{WIDTH - RIGHT}" y="{LINES_HEIGHT - 4}">{escape(x_name)}</text>'
    log = f'<text class="tick" x="0" y="{LINES_HEIGHT - 4}">↑ logarithmic</text>' if y.log else ""
    return f'<g class="axes">{"".join(rows)}{"".join(columns)}{name}{log}</g>'


def _line(line: Line, pieces: list[list[Point]], x: Scale, y: Scale, x_text: Write, y_text: Write) -> str:
    placed = [[(x.at(a), y.at(b)) for a, b in piece] for piece in pieces]
    path = "".join("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in piece) for piece in placed if len(piece) > 1)
    alone = "".join(_dot(*piece[0], 2.5, "alone") for piece in placed if len(piece) == 1)
    known = [point for piece in pieces for point in piece]
    ring = "".join(_dot(x.at(a), y.at(b), 4, "ring") for a, b in known if (a, b) == line.ringed)
    told = [[round(x.at(a), 1), round(y.at(b), 1), x_text(a), y_text(b)] for a, b in known]  # read by the page's script
    data = escape(json.dumps(told, ensure_ascii=False, separators=(",", ":")))
    about = f'data-name="{escape(line.name)}" data-points="{data}"'
    return f'<g class="line {line.colour}" {about}><path d="{path}"/>{alone}{ring}{_dot(0, 0, 3.5, "at")}</g>'


def _dot(x: float, y: float, radius: float, kind: str) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def _total(bar: Bar) -> float:
    return sum(max(segment.value or 0.0, 0.0) for segment in bar.segments)


def _bar(bar: Bar, left: float, top: float, per_unit: float, write: Write) -> str:
    parts, place, total = [], left, _total(bar)
    if bar.label:
        parts.append(f'<text class="tick end" x="{left - 7}" y="{top + 11.5:g}">{escape(bar.label)}</text>')
    for segment in bar.segments:
        if not segment.value or segment.value < 0:
            continue
        width, text = segment.value * per_unit, write(segment.value)
        of = f" ({share(segment.value / total)})" if segment.value != total else ""
        tip = f"<title>{escape(segment.name)}: {text}{of}</title>"
        rect = f'<rect x="{place:.1f}" y="{top:g}" width="{max(width - 1, 0.7):.1f}" height="{BAR}"/>'
        fits = len(bar.segments) > 1 and width > 6.2 * len(text) + 6
        inside = f'<text x="{place + width / 2:.1f}" y="{top + 11.5:g}">{text}</text>' if fits else ""
        parts.append(f'<g class="segment {segment.colour}">{tip}{rect}{inside}</g>')
        place += width
    if bar.figure:
        parts.append(f'<text class="figure end" x="{WIDTH}" y="{top + 11.5:g}">{escape(bar.figure)}</text>')
    return "".join(parts)


def _short(name: str, most: int = 56) -> str:
    return escape(name if len(name) <= most else f"{name[: most - 1]}…")
