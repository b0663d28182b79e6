"""Charts: values land where the axis says, and what cannot be drawn is left out without harm."""

from __future__ import annotations

import json
import math
import re
from xml.etree import ElementTree

import pytest

from isthmus.report.charts import LEFT, MOST_POINTS, RIGHT, WIDTH, Bar, Group, Line, Segment, bar_chart, line_chart
from isthmus.report.scale import Scale
from isthmus.report.text import count, duration, number, plain, size


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.0, 10.0], ["0", "2", "4", "6", "8", "10"]),
        ([0.8135, 0.823], ["0.812", "0.814", "0.816", "0.818", "0.820", "0.822", "0.824"]),
        ([-3.0, 40.0], ["-10", "0", "10", "20", "30", "40"]),
        ([1000.0, 250000.0], ["0", "50,000", "100,000", "150,000", "200,000", "250,000"]),
        ([2e-9, 9e-9], ["2e-09", "4e-09", "6e-09", "8e-09", "1e-08"]),
    ],
)
def test_ticks_are_round_and_hold_the_values(values, texts):
    scale = Scale.over(values, 0, 100)
    assert [text for _, text in scale.ticks()] == texts
    assert scale.low <= min(values)
    assert scale.high >= max(values)
    assert (scale.at(scale.low), scale.at(scale.high)) == (0, 100)


def test_exact_axis_ends_with_the_last_value():
    scale = Scale.over([1.0, 57.0], 0, 570, zero=True, exact=True)
    assert (scale.at(0), scale.at(57)) == (0, 570)
    assert scale.ticks()[-1] == (40, "40")


@pytest.mark.parametrize("values", [[], [0.0], [5.0], [-1e-12], [1.0, 1.0 + 1e-15], [1e299, -1e299], [3e-320]])
@pytest.mark.parametrize("zero", [False, True])
def test_no_range_is_too_small_or_too_large(values, zero):
    scale = Scale.over(values, 0, 100, zero=zero)
    assert 1 <= len(scale.ticks()) < 20
    assert all(-1e-6 <= scale.at(value) <= 100 + 1e-6 for value in values)


def test_logarithmic_only_where_it_helps():
    scale = Scale.over([0.01, 1.0, 100.0], 0, 100, may_log=True)
    assert scale.at(1.0) == pytest.approx(50)
    assert [text for _, text in scale.ticks()] == ["0.01", "0.1", "1", "10", "100"]
    assert not Scale.over([1.0, 40.0], 0, 100, may_log=True).log
    assert not Scale.over([0.0, 1000.0], 0, 100, may_log=True).log
    assert len(Scale.over([1e-30, 1e30], 0, 100, may_log=True).ticks()) < 10


def drawn(svg: str) -> ElementTree.Element:
    """A chart is well-formed, and every place in it a number."""
    assert not re.search(r'"[^"]*\b(nan|inf|None)\b[^"]*"', svg)
    return ElementTree.fromstring(svg)


def chart(*points, **options) -> ElementTree.Element:
    return drawn(line_chart([Line("a", "run r0", points)], "title", "step", **options))


def paths(root: ElementTree.Element) -> str:
    return "".join(path.get("d", "") for path in root.iter("path"))


def circles(root: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    return [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter("circle") if c.get("class") == kind]


def told(root: ElementTree.Element) -> list[list]:
    """What the page's script shows: x and y on the chart, x and y as text."""
    return json.loads(root.find("g[@data-points]").get("data-points"))


def test_a_line_goes_through_its_points():
    root = chart((0, 0.0), (5, 10.0), (10, 5.0))
    places = [[float(v) for v in place.split()] for place in paths(root)[1:].split("L")]
    assert [x for x, _ in places] == [LEFT, (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT]
    ys = [y for _, y in places]
    assert ys[0] > ys[2] > ys[1]
    assert ys[2] == pytest.approx((ys[0] + ys[1]) / 2, abs=0.1)
    assert [point[2:] for point in told(root)] == [["0", "0"], ["5", "10"], ["10", "5"]]


def test_one_point_is_a_dot():
    root = chart((3, 0.5))
    assert paths(root) == ""
    assert len(circles(root, "alone")) == 1


@pytest.mark.parametrize("points", [(), ((1, None), (2, None)), ((None, 1.0),)])
def test_no_points_say_so(points):
    assert line_chart([Line("a", "r0", points)], "title", "step", empty="no <step>") == (
        '<p class="nothing">no &lt;step&gt;</p>'
    )


def test_a_missing_value_breaks_the_line():
    root = chart((1, 1.0), (2, 2.0), (3, None), (4, 1.0), (5, 3.0), (6, None), (7, 2.0))
    assert paths(root).count("M") == 2
    assert paths(root).count("L") == 2
    assert len(circles(root, "alone")) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1", True, None, [1]])
def test_what_is_no_number(value):
    assert number(value) is None


def test_the_ring_is_at_its_point():
    lines = [Line("a", "r0", [(1, 1.0), (2, 3.0), (3, 2.0)], ringed=(2, 3.0)), Line("b", "r1", [(1, 1.0)], (9, 9.0))]
    root = drawn(line_chart(lines, "title", "step"))
    assert len(circles(root, "ring")) == 1


def test_long_lines_keep_their_extremes():
    points = [(step, 1.0) for step in range(100_000)]
    points[777], points[99_000] = (777, 5.0), (99_000, -5.0)
    kept = told(chart(*points))
    assert len(kept) <= MOST_POINTS + 4
    assert {"777", "99,000"} <= {point[2] for point in kept}
    assert {point[3] for point in kept} == {"1", "5", "-5"}


def segments(*values) -> list[Segment]:
    return [Segment(f"s{k}", f"s{k}", value) for k, value in enumerate(values)]


def rects(root: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(r.get("x")), float(r.get("width"))) for r in root.iter("rect") if r.get("x")]


def test_bars_share_a_scale():
    root = drawn(bar_chart([Group("", [Bar(segments(30, 10)), Bar(segments(20))])], "title"))
    (x0, w0), (x1, w1), (x2, w2) = rects(root)
    assert (x0, x2) == (0, 0)
    assert x1 == pytest.approx(0.75 * WIDTH)
    assert [round(w + 1) for w in (w0, w1, w2)] == [315, 105, 210]
    assert [title.text for title in root.iter("title")] == ["s0: 30 (75.0 %)", "s1: 10 (25.0 %)", "s0: 20"]


def test_bars_without_values():
    assert "nothing" in bar_chart([Group("a", [Bar(segments(None, 0, -1))])], "title")
    assert "nothing" in bar_chart([], "title")
    root = drawn(bar_chart([Group("a", [Bar(segments(1, None, 0, 2)), Bar(segments(None))])], "title"))
    assert len(rects(root)) == 2


def test_hostile_names_stay_text():
    name = "</text><script>alert(1)</script>\"'&"
    svg = bar_chart([Group(name, [Bar([Segment(name, "s0", 1.0)], name, name)])], name)
    svg += line_chart([Line(name, "r0", [(1, 1.0)])], name, name, x_text=lambda x: name)
    assert "<script" not in svg
    assert drawn(f"<div>{svg}</div>") is not None


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (size, 936, "936 B"),
        (size, 17800, "17.4 KiB"),
        (size, 5 * 2**40, "5.0 TiB"),
        (size, None, "–"),
        (duration, 0, "0 s"),
        (duration, 0.0000085, "8.50 µs"),
        (duration, 0.0166, "16.6 ms"),
        (duration, 0.85, "850 ms"),
        (duration, 1.434, "1.43 s"),
        (duration, 750, "12.5 min"),
        (duration, 36000, "10.0 h"),
        (count, 1234.4, "1,234"),
        (plain, 0.123456789, "0.12346"),
        (plain, 12000, "12,000"),
        (plain, math.nan, "–"),
    ],
)
def test_how_values_are_written(write, value, text):
    assert write(value) == text
