"""BNS-GCN: tables 4, 8 and 9, and figure 5."""

from __future__ import annotations

from papers.psc import AS, GRAPHS
from papers.table import Column, Paper, Published, Row, Table

Figures = tuple[Published, ...]
P_1, P_10, P_100, P_0 = "vanilla", f"bns {AS}", f"bns rate=0.01 {AS}", f"bns rate=0 {AS}"


def _row(name: str, entry: str, *published: Figures, cut: str = "metis", base: str | None = None) -> Row:
    """A row with published figures of the first graphs."""
    return Row(name, entry, dict(zip(GRAPHS, published, strict=False)), cut, base)


TABLE_4 = Table(
    "Table 4",
    "Test score (accuracy, micro-F1 on yelp), and its distance from p = 1 in points. Published: 4, 5 and 3 partitions.",
    "p = 1",
    GRAPHS,
    (Column("test score", "score", "points"),),
    (
        _row("p = 1", P_1, (97.11,), (79.14,), (65.26,)),
        _row("p = 0.1", P_10, (97.16,), (79.36,), (65.32,)),
        _row("p = 0.01", P_100, (96.99,), (79.43,), (65.27,)),
        _row("p = 0", P_0, (96.88,), (78.65,), (65.28,)),
        Row("here: bns, p = 0.1", "bns"),
        Row("here: isthmus", "isthmus"),
    ),
    """
    Synthetic graphs at a small scale, and tens of steps (on reddit more) instead of 500 to 3000 epochs: only
    distances from p = 1 on the same parts are compared. What sampling gains as a regulariser shows only in
    trainings that overfit.

    At p = 0.01 a part of so small a graph draws a few dozen of its halo rows and counts each a hundred times,
    where the paper's parts draw about a thousand: this is noisier, and can be worse than p = 0, which loses
    little where METIS parts hold most neighbours.

    Samples have a fixed size, p·m rounded up or down at random; the published code rounds down. Rows called
    *here* aggregate input features once over the whole graph, so their first layer is never drawn.
    """,
)
TABLE_8 = Table(
    "Table 8",
    "What p = 0.1 gains on top of METIS and of a random cut: throughput and memory against p = 1 on the same cut, "
    "and how many more boundary (halo) nodes a random cut has. Published: 8, 10 and 10 partitions.",
    "METIS, p = 1",
    GRAPHS,
    (
        Column("step", "step", "speed-up", published_ratio=True),
        Column("memory", "memory", "share", published_ratio=True),
        Column("boundary nodes", "halo", "share", base="METIS, p = 1"),
    ),
    (
        _row("METIS, p = 1", P_1, (1.0, 1.0, 460e3), (1.0, 1.0, 1848e3), (1.0, 1.0, 649e3)),
        _row("METIS, p = 0.1", P_10, (3.1, 0.47, 460e3), (3.4, 0.75, 1848e3), (3.1, 0.83, 649e3)),
        _row(
            "random, p = 1",
            P_1,
            (1.0, 1.0, 1016e3),
            (1.0, 1.0, 16797e3),
            (1.0, 1.0, 2026e3),
            cut="random",
            base="random, p = 1",
        ),
        _row(
            "random, p = 0.1",
            P_10,
            (5.0, 0.36, 1016e3),
            (7.3, 0.31, 16797e3),
            (5.1, 0.49, 2026e3),
            cut="random",
            base="random, p = 1",
        ),
    ),
    """
    The gain of p = 0.1 is bounded by the share of a step that is transfer: 3.1× at a share of 75 % (1 / (0.25 +
    0.075)), and more on a random cut, over the same links, where that share is larger. Published shares are up to
    67 %, but the GPUs also compute less at p = 0.1 (5.3 against 1.0 s in the paper's table 6): fewer halo rows to
    aggregate, which matters more with 8 and 10 parts than with 4.

    A random cut into 4 parts has fewer boundary nodes than one into 8 or 10: at most 3 copies of every node
    instead of 7 or 9. On synthetic graphs METIS finds planted communities, at a small scale few of them.

    Memory is the peak of all worker processes above that of idle ones. It includes the graph, the parts' features
    and what an evaluation over the whole graph needs, none of which sampling saves; GPUs hold tensors of a
    training step.
    """,
)
TABLE_9 = Table(
    "Table 9",
    "Edge samplers that drop as many edges as p = 0.1 does: rows sent per step, step, and test score, against BNS- "
    "GCN. Published: 2, 5 and 3 partitions.",
    "BNS-GCN",
    GRAPHS,
    (
        Column("sent per step", "sent", "share"),
        Column("step", "step", "share"),
        Column("test score", "score", "points"),
    ),
    (
        _row("DropEdge", f"drop-edge {AS}", (301.3, 0.613, 97.12), (1364.0, 0.938, 79.38), (718.7, 0.606, 65.30)),
        _row("BES", f"boundary-edge {AS}", (207.9, 0.484, 97.16), (521.1, 0.551, 79.31), (195.3, 0.328, 65.30)),
        _row("BNS-GCN", P_10, (30.4, 0.319, 97.17), (138.7, 0.388, 79.36), (75.7, 0.270, 65.32)),
    ),
    """
    How many rows still cross when edges are dropped depends on the number of cut edges of a halo row: with tens
    of them (reddit) nearly every row is still wanted by one. The synthetic graphs have the degrees of the real
    ones, cut into 4 parts instead of 2, 5 and 3.

    Links here are narrower than PCIe in relation to computing, so that a difference in bytes becomes a larger
    difference in time than published; edge samplers also draw every edge of a step, on the processor that
    computes.
    """,
)
FIGURE_5 = Table(
    "Fig. 5",
    "Where a step goes (medians). Published, p = 1: communication takes up to 67 % (Reddit) and 64 % (ogbn-products); "
    "p = 0.01 cuts 74–93 % and 83–91 % of its time.",
    "p = 1",
    GRAPHS[:2],
    (
        Column("communication and reduce, of a step", "wait_share"),
        Column("computing", "compute", "share"),
        Column("communication", "wait", "share", published_ratio=True),
        Column("reduce", "reduce", "share"),
    ),
    (
        _row("p = 1", P_1, (67.0, None, 1.0, None), (64.0, None, 1.0, None)),
        _row("p = 0.1", P_10),
        _row("p = 0.01", P_100, (None, None, (0.07, 0.26), None), (None, None, (0.09, 0.17), None)),
    ),
    """
    Links were chosen so that p = 1 waits for 75 % of a step, reduce included; the published shares leave
    it out, and are those of PCIe. At p = 0.01 hardly any rows cross: what is left should be waiting for workers that
    are not there yet (four of them share two cores) and the latency of messages.

    The published text has no figures for p = 0.1; the bars are in the figure only.
    """,
)
BNS = Paper(
    "bns-gcn",
    "BNS-GCN",
    "one machine with 10 RTX 2080 Ti GPUs on PCIe 3; 2 to 10 workers",
    (TABLE_4, TABLE_8, TABLE_9, FIGURE_5),
)
