"""SANCUS: figure 21, and its table 5 for the time."""

from __future__ import annotations

from papers.psc import AS
from papers.table import Column, Paper, Row, Table

GRAPHS = ("flickr", "reddit", "amazon", "products")
RANGE = (0.26, 0.65)  # "reduce communication by 35% to 74%"
_VARIANTS = {"E": ("sancus-e", (1, 2, 3)), "A": ("sancus-a", (1, 2, 3)), "H": ("sancus-h", (0.01, 0.02, 0.03))}

FIGURE_21 = Table(
    "Fig. 21",
    "Bytes of rows per step against CAGNET, and the distance of the test score from its score. Published: "
    "communication reduced by 35–74 %, the accuracy within 1 point; the single bars are in the figure only.",
    "CAGNET",
    GRAPHS,
    (Column("sent per step", "sent", "share", published_ratio=True), Column("test score", "score", "points", True)),
    (
        Row("CAGNET", "cagnet"),
        Row("SkipG", f"skip-g {AS}"),
        *(
            Row(
                f"SCS-{kind}{place}",
                f"{recipe} bound={bound:g} {AS}",
                dict.fromkeys(GRAPHS, (RANGE, (-1.0, 1.0))),
            )
            for kind, (recipe, bounds) in _VARIANTS.items()
            for place, bound in enumerate(bounds, 1)
        ),
        Row("here: vanilla", "vanilla"),
        Row("here: sancus-e", "sancus-e"),
    ),
    """
    CAGNET and the published SANCUS broadcast whole blocks; here every recipe but `cagnet` sends only rows that
    another worker reads. Compare with *here: vanilla* to see what skipping alone saves, with CAGNET to see both.

    Skipping saves forward rows only: gradients go back in every step, so SCS-E1 saves half of the forward rows at
    most. The published program also keeps the first layer's input after one broadcast, as *here: sancus-e* does.

    SCS-H sends while rows move by more than the bound. The input never moves, so it is sent once; the other layers
    move in the first tens of steps, and are skipped near the end of a long training.

    Bytes stand for the figure's communication time: over a narrow link one is in proportion to the other.
    """,
)
TABLE_5 = Table(
    "Table 5",
    "Time of a mean step over narrow links on Reddit, by purpose, against CAGNET. Published: 8 GPUs, configuration "
    "(1).",
    "CAGNET",
    ("reddit",),
    (
        Column("communicate", "mean_wait", "share"),
        Column("compute", "mean_compute", "share"),
        Column("step", "mean_step", "share"),
    ),
    (
        Row("CAGNET", "cagnet", {"reddit": (1.0, 0.365, None)}),
        Row("SCS-A1", f"sancus-a bound=1 {AS}", {"reddit": (0.687, 0.359, None)}),
        Row("SCS-E1", f"sancus-e bound=1 {AS}", {"reddit": (0.697, 0.359, None)}),
        Row("SCS-H1", f"sancus-h bound=0.01 {AS}", {"reddit": (0.675, 0.343, None)}),
        Row("here: vanilla", "vanilla"),
    ),
    """
    The links are those on which vanilla waits for 75 % of a step; CAGNET, which sends all rows to all workers,
    waits longer.

    These are a dozen steps from the beginning of a training, where SCS-H skips the input, which never moves, and
    little else. How much that saves is a question of widths: here the input has 602 columns beside layers of 128.

    SCS-A1 lets half of the workers send in each step. Its bytes are those of SCS-E1, but some worker sends in
    every step, and its readers wait for it.
    """,
)
SANCUS = Paper("sancus", "SANCUS", "8 GPUs", (FIGURE_21, TABLE_5))
