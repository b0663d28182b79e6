"""The page about a comparison: one row and one colour for each recipe, over all its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from isthmus.report import sections, tables
from isthmus.report.charts import Bar, Group, Line, Segment, YAxis, bar_chart, legend, line_chart
from isthmus.report.comparison import Comparison
from isthmus.report.contender import Contender, Spread
from isthmus.report.page import document, write_page
from isthmus.report.run import PURPOSES, Run
from isthmus.report.sections import KINDS, TIMES, figure, grid, note_of, segments, shade
from isthmus.report.tables import colour
from isthmus.report.text import NONE, duration, escape, number, score, size
from isthmus.report.whiskers import Mark, plus_minus, whisker_chart

NAMES = {"val": "validation", "test": "test"}


def write_comparison(comparison: Comparison, out: Path) -> None:
    write_page(comparison_page(comparison), out)


def comparison_page(comparison: Comparison) -> str:
    """Return the whole document."""
    runs = [_named(one) for one in comparison.contenders if one.runs]
    parts = [
        ("What a step costs", steps(comparison)),
        ("What is learnt, and when", learning(comparison)),
        ("The count and the wire", wire(comparison)),
        ("The partition", sections.partition(runs[:1]) if runs else ""),
        ("Options", tables.options_of(runs) if runs else ""),
    ]
    return document("Recipes compared", escape(lead(comparison.asked)), table(comparison), parts)


def lead(asked: dict) -> str:
    """Return the lead: the graph, the model, the workers and the links."""
    shape = asked["config"]["model"]
    model = f"{shape['model']} of {shape['layers']} × {shape['hidden']}"
    text = f"{model} on {asked['graph']}, {asked['workers']} workers, {asked['config']['steps']} steps, "
    text += f"{asked['seeds']} seeds" if asked["seeds"] > 1 else "one seed"
    if asked["link"]:
        measured = number(asked.get("measured"))
        text += f"; {asked['hosts']} hosts with links of {asked['link']}"
        text += f" (a plain TCP stream reached {measured / 1e6:,.0f} Mbit/s)" if measured else ""
    return text


def achieved(comparison: Comparison) -> dict[str, list[str]]:
    """Return the columns of results, as text; a column without any figure is left out."""
    ones = comparison.contenders
    return _some(
        {
            f"test {comparison.metric}": [plus_minus(one.test, score) for one in ones],
            "median step": [duration(one.step_seconds.mean if one.step_seconds else None) for one in ones],
            "speed-up": [times(comparison.speed_up(one)) for one in ones],
            "time to target": [to_target(comparison, one) for one in ones],
            "speed-up to target": [times(comparison.speed_up_to_target(one)) for one in ones],
        }
    )


def costs(comparison: Comparison) -> dict[str, list[str]]:
    """Return the columns of costs: a mean step by purpose, bytes, memory, and bytes on the wire beyond the count."""
    ones = comparison.contenders
    spent = {name: [duration(one.split.get(name)) for one in ones] for name in PURPOSES}
    return _some(
        {
            **{name: cells for name, cells in spent.items() if set(cells) - {NONE, duration(0)}},
            "sent per step": [size(_total(one)) for one in ones],
            "memory, all workers": [size(one.memory.mean if one.memory else None) for one in ones],
            "wire against count": [difference(one.wire) for one in ones],
        }
    )


def _some(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: cells for name, cells in columns.items() if set(cells) - {NONE}}


def table(comparison: Comparison) -> str:
    cost, also = costs(comparison), ("sent per step", "memory, all workers")
    found = achieved(comparison) | {name: cost[name] for name in also if name in cost}
    head = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in found)
    body = "".join(
        f'<tr><th scope="row">{_name(one, place)}{_failures(one)}</th>'
        + "".join(
            f'<td class="number" data-column="{escape(name)}">{escape(cells[place])}</td>'
            for name, cells in found.items()
        )
        + "</tr>"
        for place, one in enumerate(comparison.contenders)
    )
    head = f'<tr><th scope="col">recipe</th>{head}</tr>'
    rows = f'<div class="wide"><table class="glance"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
    return rows + note_of(explanation(comparison))


def explanation(comparison: Comparison) -> str:
    """Return the explanation of the columns."""
    text = f"Speed-up: {comparison.base.label} divided by the recipe, seed by seed. ± is the deviation between seeds."
    if comparison.target is not None:
        text += (
            f" Target: {NAMES[comparison.split]} {comparison.metric} {score(comparison.target)}; the time to it is "
            "that of training steps, evaluations not counted."
        )
    return text


def steps(comparison: Comparison) -> str:
    """Draw step time by purpose, and bytes by kind."""
    ones = list(enumerate(comparison.contenders))
    spent = [
        Group(one.label, [Bar(segments(one.split, TIMES), duration(sum(one.split.values())))], colour(place))
        for place, one in ones
    ]
    sent = [
        Group(one.label, [Bar(segments(one.bytes_by_kind, KINDS), size(_total(one)))], colour(place))
        for place, one in ones
    ]
    purposes = [name for name in PURPOSES if any(one.split.get(name) for _, one in ones)]
    kinds = [name for name in KINDS if any(one.bytes_by_kind.get(name) for _, one in ones)]
    return grid(
        [
            figure(
                "A mean step",
                bar_chart(spent, "step time by purpose", duration),
                legend([(name, shade(TIMES, name)) for name in purposes]),
            ),
            figure(
                "Bytes of a step, all workers",
                bar_chart(sent, "bytes per step by kind", size, empty="nothing crossed a link"),
                legend([(name, shade(KINDS, name)) for name in kinds]),
            ),
        ]
    ) + note_of("Bars are means over all steps, workers and seeds; the table has medians over the steps of worker 0.")


def learning(comparison: Comparison) -> str:
    """Draw the final scores of the seeds, the score by time and by step, and the time to the target."""
    ones, judged = list(enumerate(comparison.contenders)), NAMES[comparison.split].capitalize()
    places = [Mark(one.label, colour(place), one.test) for place, one in ones]
    scores = whisker_chart(places, "test scores", score, empty="no run has ended")
    figures = [figure(f"Test {comparison.metric}, each seed", scores)]
    if comparison.target is not None:
        reached = [
            Group(one.label, [Bar([Segment(one.label, colour(place), mean)], duration(mean))], colour(place))
            for place, one in ones
            if (mean := _mean_time(comparison, one)) is not None
        ]
        chart = bar_chart(reached, "time to the target", duration, empty="no run has reached it")
        missed = [one.label for _, one in ones if one.runs and _mean_time(comparison, one) is None]
        late = note_of(f"Not reached by every seed: {', '.join(missed)}.") if missed and reached else ""
        goal = f"{NAMES[comparison.split]} {comparison.metric} {score(comparison.target)}"
        figures.append(figure(f"Time to {goal}", chart + late))
    for axis, unit, by in ((1, "seconds of steps", "time"), (0, "step", "step")):
        lines = [Line(one.label, colour(place), _curve(one, comparison.split, axis)) for place, one in ones]
        ends = [x for line in lines for x, _ in line.points if x is not None]
        if comparison.target is not None and ends:
            lines.append(Line("target", "target", [(0.0, comparison.target), (max(ends), comparison.target)]))
        x_text = duration if axis else _step
        chart = line_chart(lines, f"{judged} score", unit, x_text=x_text, y_axis=YAxis(score), empty="no evaluation")
        figures.append(figure(f"{judged} {comparison.metric} by {by}, mean of the seeds", chart))
    return legend([(one.label, colour(place)) for place, one in ones]) + grid(figures)


def wire(comparison: Comparison) -> str:
    """Compare, where there are links, the bytes that the hosts' interfaces counted with those the program counted."""
    rows = [(place, one, one.wire) for place, one in enumerate(comparison.contenders)]
    body = "".join(
        f'<tr><th scope="row">{_name(one, place)}</th>'
        f'<td class="number" data-column="program">{size(found[1])}</td>'
        f'<td class="number" data-column="interfaces">{size(found[0])}</td>'
        f'<td class="number" data-column="difference">{difference(found)}</td></tr>'
        for place, one, found in rows
        if found
    )
    if not body:
        return ""
    names = ("counted by the program", "by the interfaces", "difference")
    head = '<th scope="col">recipe</th>' + "".join(f'<th scope="col" class="number">{name}</th>' for name in names)
    rows_of = f'<table class="glance"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide">{rows_of}</div>' + note_of(
        "Between hosts, whole runs, evaluations included; the interfaces' bytes without Ethernet, IP and TCP headers. "
        "What they count beyond the program is gloo's own headers and the meeting of the workers."
    )


def difference(found: tuple[float, float] | None) -> str:
    """Return by how much the interfaces counted more than the program."""
    payload, counted = found or (0.0, 0.0)
    return f"{100 * (payload / counted - 1):+.2f} %" if counted else NONE


def times(spread: Spread | None) -> str:
    if spread is None:
        return NONE
    deviation = f" ± {spread.std:.2f}" if spread.std else ""  # the base compared with itself has none
    return f"{spread.mean:.2f}{deviation} ×"


def to_target(comparison: Comparison, one: Contender) -> str:
    """Return the mean over the seeds that reached the target, and how many did."""
    reached = comparison.seconds_to_target(one)
    spread = Spread.of(reached.values())
    if spread is None:
        return "not reached" if reached else NONE
    some = f" ({len(spread.values)} of {len(reached)})" if len(spread.values) < len(reached) else ""
    return f"{duration(spread.mean)}{some}"


def _mean_time(comparison: Comparison, one: Contender) -> float | None:
    """Return the mean over all seeds; None if one of them has not reached the target."""
    reached = comparison.seconds_to_target(one)
    spread = Spread.of(reached.values())
    return spread.mean if spread and len(spread.values) == len(reached) else None


def _curve(one: Contender, split: str, axis: int) -> Sequence[tuple[float | None, float | None]]:
    return [(point[axis], point[2]) for point in one.mean_curve(split)]


def _step(x: float | None) -> str:
    return f"step {x:,.0f}"


def _total(one: Contender) -> float | None:
    return sum(one.bytes_by_kind.values()) if one.bytes_by_kind else None


def _named(one: Contender) -> Run:
    return next(iter(one.runs.values()))


def _name(one: Contender, place: int) -> str:
    return f'<span class="run-name"><i class="swatch {colour(place)}"></i>{escape(one.label)}</span>'


def _failures(one: Contender) -> str:
    lines = (f"seed {seed} failed: {error}" for seed, error in one.failures.items())
    return "".join(f'<br><span class="note failed">{escape(line)}</span>' for line in lines)
