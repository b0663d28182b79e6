"""The page's charts, by question: how well it learnt, where the time went, what crossed the links, how it was cut."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.engine.record import KINDS
from isthmus.partition import Book
from isthmus.report.cache import cache_figures
from isthmus.report.charts import Bar, Group, Line, Segment, Write, YAxis, bar_chart, legend, line_chart, nothing
from isthmus.report.errors import error_figures
from isthmus.report.run import PURPOSES, UNSPLIT, Link, Run, WorkerLog
from isthmus.report.tables import colour
from isthmus.report.text import count, duration, escape, number, plain, score, share, size

TIMES = (*PURPOSES, "eval", "other", UNSPLIT)
_DIRECTIONS = ("forward", "backward", "reduce")


def learning(runs: Sequence[Run]) -> str:
    """Draw loss and validation score, against steps and against the seconds that those steps took."""
    metrics = {run.metric for run in runs if run.metric}
    judged = f"Validation {metrics.pop() if len(metrics) == 1 else 'score'}"
    figures = []
    for name, title, empty in (("loss", "Loss", "no step was recorded"), ("val", judged, "there is no evaluation")):
        for axis, unit in ((0, "step"), (1, "seconds of steps")):
            lines = [_curve(run, place, name, axis) for place, run in enumerate(runs)]
            y_axis = YAxis(score, may_log=name == "loss")
            chart = line_chart(lines, title, unit, x_text=duration if axis else _step, y_axis=y_axis, empty=empty)
            figures.append(figure(f"{title} by {'time' if axis else 'step'}", chart))
    note = note_of("The ring marks the evaluation whose weights were kept. Time is that of steps alone.")
    return _runs_legend(runs) + grid(figures) + note


def times(runs: Sequence[Run]) -> str:
    """Draw seconds by purpose: of the run on worker 0, and of a mean step on each worker."""
    spent = [by for run in runs for by in (run.seconds, *(worker.seconds for worker in run.workers))]
    names = [name for name in TIMES if any(by.get(name) for by in spent)]
    resumed = [run.name for run in runs if run.resumed]
    note = note_of(f"Resumed, so that the bar is the time since then: {', '.join(resumed)}.") if resumed else ""
    whole = [
        Group(run.name, [Bar(segments(run.seconds, TIMES), duration(sum(run.seconds.values())))], colour(place))
        for place, run in enumerate(runs)
    ]
    each = [
        Group(run.name, [_worker_bar(worker) for worker in run.workers], colour(place))
        for place, run in enumerate(runs)
    ]
    figures = [
        figure("The whole run, worker 0", bar_chart(whole, "seconds by purpose", duration)),
        figure("A mean step on each worker", _logged(bar_chart(each, "step time by worker", duration), runs)),
    ]
    return legend([(name, shade(TIMES, name)) for name in names]) + grid(figures) + note


def traffic(runs: Sequence[Run]) -> str:
    """Draw the bytes of a mean step, all workers together: by kind, and by site and pass."""
    by_kind = [
        Group(run.name, [Bar(segments(kinds, KINDS), size(sum(kinds.values())))], colour(place))
        for place, run in enumerate(runs)
        if (kinds := run.bytes_by_kind)
    ]
    names = [name for name in KINDS if any(run.bytes_by_kind.get(name) for run in runs)]
    links = dict.fromkeys(link for run in runs for link in run.bytes_by_link)
    by_link = [
        Group(
            f"{site if isinstance(site, str) else f'site {site}'}, {direction}",
            [
                Bar([Segment(run.name, colour(place), sent)], size(sent))
                for place, run in enumerate(runs)
                if (sent := run.bytes_by_link.get((site, direction)))
            ],
        )
        for site, direction in sorted(links, key=_in_order)
    ]
    kinds_chart = bar_chart(by_kind, "bytes per step by kind", size, empty="nothing crossed a link")
    links_chart = bar_chart(by_link, "bytes per step by site and pass", size, empty="nothing crossed a link")
    unfinished = [run.name for run in runs if run.summary is None]
    if unfinished:
        late = f"summed up when a run ends: not yet known of {', '.join(unfinished)}"
        kinds_chart = kinds_chart + note_of(late) if by_kind else nothing(late)
    return grid(
        [
            figure("By kind", kinds_chart, legend([(name, shade(KINDS, name)) for name in names]) if names else ""),
            figure("By site and pass", _logged(links_chart, runs), _runs_legend(runs) if by_link else ""),
        ]
    )


def rows(runs: Sequence[Run]) -> str:
    """Draw rows sent, the age of rows read, their errors; nothing where all are exact and each step sends the same."""
    errors = error_figures(runs)
    if not errors and not any(run.stale or _changes(run) for run in runs):
        return ""
    sent = [Line(run.name, colour(place), run.rows_sent) for place, run in enumerate(runs)]
    age = [Line(run.name, colour(place), [(s, mean) for s, mean, _ in run.ages]) for place, run in enumerate(runs)]
    figures = [figure("Rows sent, all workers", _logged(_by_step(sent, "rows sent", count), runs))]
    note = ""
    if any(run.stale for run in runs):
        figures.append(figure("Mean age of halo rows, in steps", _logged(_by_step(age, "age of rows", plain), runs)))
        oldest = [f"{run.name} {_oldest(run):g}" for run in runs if run.stale]
        note = note_of(f"Oldest row that was read, in steps: {', '.join(oldest)}.")
    return _runs_legend(runs) + grid([*figures, *cache_figures(runs), *errors]) + note


def partition(runs: Sequence[Run]) -> str:
    """Draw nodes, halo and cut of each part; runs on the same parts share a picture."""
    books: dict[str, tuple[Book, list[str]]] = {}
    missing = []
    for run in runs:
        if run.book is None:
            missing.append(note_of(f"{run.name}: {run.without_book}"))
        else:
            books.setdefault(run.book.fingerprint, (run.book, []))[1].append(run.name)
    pictures = [_picture(book, names if len(books) > 1 or missing else []) for book, names in books.values()]
    return "".join(pictures + missing)


def figure(title: str, chart: str, above: str = "") -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{above}{chart}</figure>"


def grid(figures: Sequence[str]) -> str:
    return f'<div class="grid">{"".join(figures)}</div>'


def note_of(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def shade(names: Sequence[str], name: str) -> str:
    """Return the class of one of several named things other than runs."""
    return f"s{names.index(name)}"


def _runs_legend(runs: Sequence[Run]) -> str:
    return legend([(run.name, colour(place)) for place, run in enumerate(runs)]) if len(runs) > 1 else ""


def _curve(run: Run, place: int, name: str, axis: int) -> Line:
    points = [(point[axis], point[2]) for point in run.curve(name)]
    kept = [point for point in run.curve(name) if point[0] == run.best.get("step")] if name == "val" else []
    return Line(run.name, colour(place), points, (kept[-1][axis], kept[-1][2]) if kept else None)


def _logged(chart: str, runs: Sequence[Run]) -> str:
    """Return a chart made of worker logs, with a note on the runs that have none."""
    without = [run.name for run in runs if not run.workers]
    if len(without) == len(runs):
        return nothing("not known: no worker-K.jsonl in the run folder")
    return chart + (note_of(f"not known, without worker-K.jsonl: {', '.join(without)}") if without else "")


def _by_step(lines: Sequence[Line], title: str, y_text: Write) -> str:
    return line_chart(lines, title, "step", x_text=_step, y_axis=YAxis(y_text, zero=True))


def _step(x: float | None) -> str:
    return f"step {count(x)}"


def _in_order(link: Link) -> tuple:
    """Return the sort key of a link: sites in the order of a forward pass, then named ones; forward before backward."""
    site, direction = link
    return isinstance(site, str), site, _DIRECTIONS.index(direction) if direction in _DIRECTIONS else 9, direction


def segments(values: dict[str, float], names: Sequence[str]) -> list[Segment]:
    return [Segment(name, shade(names, name), values.get(name)) for name in names]


def _worker_bar(worker: WorkerLog) -> Bar:
    steps = max(worker.steps, 1)
    mean = {name: worker.seconds[name] / steps for name in PURPOSES}
    return Bar(segments(mean, TIMES), duration(sum(mean.values())), str(worker.rank))


def _changes(run: Run) -> bool:
    """Return whether steps send different numbers of rows; the first does not count, it may send fixed rows."""
    sent = [rows for _, rows in run.rows_sent[1:]]
    return bool(sent) and max(sent) > 1.001 * min(sent)


def _oldest(run: Run) -> float:
    return max([run.noted("staleness", "max") or 0.0, *(oldest for _, _, oldest in run.ages)])


def _picture(book: Book, names: Sequence[str]) -> str:
    kinds = ("inner, read by nobody else", "inner, on the boundary", "halo")
    nodes = [
        Bar(
            segments(dict(zip(kinds, (part.inner - part.boundary, part.boundary, part.halo), strict=True)), kinds),
            f"{share(part.halo / max(part.inner, 1))} halo",
            str(k),
        )
        for k, part in enumerate(book.parts)
    ]
    ends = ("inside the part", "cut")
    edges = [
        Bar(
            segments(dict(zip(ends, (part.inner_edges, part.halo_edges), strict=True)), ends),
            f"{share(part.halo_edges / max(part.inner_edges + part.halo_edges, 1))} cut",
            str(k),
        )
        for k, part in enumerate(book.parts)
    ]
    cut, volume = number(book.quality.get("cut_share")), number(book.quality.get("volume"))
    about = (
        f"{book.name}: {book.nodes:,} nodes and {book.edges:,} edges in {book.num_parts} parts by {book.method}; "
        f"{share(cut)} of the edges are cut, {count(volume)} rows cross links in one exchange."
    )
    shades = [legend([(name, shade(of, name)) for name in of]) for of in (kinds, ends)]
    return (
        (f"<h3>{escape(', '.join(names))}</h3>" if names else "")
        + note_of(about)
        + grid(
            [
                figure("Nodes of each part", bar_chart([Group("", nodes)], "nodes of each part"), shades[0]),
                figure("Edges into each part", bar_chart([Group("", edges)], "edges into each part"), shades[1]),
            ]
        )
    )
