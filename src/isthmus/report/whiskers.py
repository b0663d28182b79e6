"""A chart of means and deviations: the results of several seeds, each as a dot, with mean and whiskers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.report.charts import FIGURE, WIDTH, Write, heading, nothing, svg
from isthmus.report.contender import Spread
from isthmus.report.scale import Scale
from isthmus.report.text import escape

LEFT, RIGHT, ROW, AXIS = 18, FIGURE + 34, 38, 20


@dataclass(frozen=True)
class Mark:
    """A spread with its name and colour."""

    name: str
    colour: str
    spread: Spread | None


def whisker_chart(places: Sequence[Mark], title: str, write: Write, *, empty: str) -> str:
    """Draw a row for each mark, on one axis that holds every value and every mean ± deviation, but not 0."""
    known = [(place, place.spread) for place in places if place.spread is not None]
    if not known:
        return nothing(empty)
    ends = [(spread.mean - (spread.std or 0.0), spread.mean + (spread.std or 0.0)) for _, spread in known]
    values = [value for _, spread in known for value in spread.values]
    x = Scale.over([*values, *(end for pair in ends for end in pair)], LEFT, WIDTH - RIGHT)
    bottom = ROW * len(known)
    body = [
        f'<line x1="{x.at(value):.1f}" x2="{x.at(value):.1f}" y1="0" y2="{bottom}"/>'
        f'<text class="tick mid" x="{x.at(value):.1f}" y="{bottom + 14}">{text}</text>'
        for value, text in x.ticks()
    ]
    body = [f'<g class="axes">{"".join(body)}</g>']
    for row, ((place, spread), (low, high)) in enumerate(zip(known, ends, strict=True)):
        body.append(_row(place, spread, (x.at(low), x.at(high)), x, ROW * row, write))
    return svg("whiskers", bottom + AXIS, title, body)


def _row(place: Mark, spread: Spread, ends: tuple[float, float], x: Scale, top: float, write: Write) -> str:
    middle, (low, high) = top + 27, ends
    seeds = "".join(
        f'<circle class="seed" cx="{x.at(value):.1f}" cy="{middle:g}" r="3"><title>{write(value)}</title></circle>'
        for value in spread.values
    )
    line = f'<path d="M{low:.1f} {middle:g}H{high:.1f}M{low:.1f} {middle - 4:g}v8M{high:.1f} {middle - 4:g}v8"/>'
    mean = f'<path class="mean" d="M{x.at(spread.mean):.1f} {middle - 7:g}v14"/>'
    figure = f'<text class="figure end" x="{WIDTH}" y="{middle + 4:g}">{escape(plus_minus(spread, write))}</text>'
    return f'{heading(place.name, place.colour, top)}<g class="whisker {place.colour}">{line}{mean}{seeds}</g>{figure}'


def plus_minus(spread: Spread | None, write: Write) -> str:
    """Return mean ± deviation as text: 0.6512 ± 0.0021."""
    if spread is None or spread.std is None:
        return write(None if spread is None else spread.mean)
    return f"{write(spread.mean)} ± {write(spread.std)}"
