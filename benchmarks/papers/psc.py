"""PSC-GCN: tables II and III, and figure 8."""

from __future__ import annotations

from papers.table import Column, Paper, Row, Table

GRAPHS = ("reddit", "products", "yelp")
AS = "savings=as-published"
PAPER = f"least=0 {AS}"
CACHED = f"psc-gcn cache_rows=0.3 {PAPER} cache="

# (accuracy, seconds per iteration, seconds to converge) on Reddit, ogbn-products, Yelp
_PUBLISHED = {
    "GraphSAGE": ((95.03, 0.9023, 902.32), (76.49, 0.7978, 279.23), (64.13, 0.9749, 1657.30)),
    "GraphSAINT": ((96.25, None, None), (76.49, None, None), (64.62, None, None)),
    "Full-graph": ((97.01, 1.5974, 1517.53), (78.94, 1.3005, 487.69), (65.12, 1.8973, 2845.95)),
    "PipeGCN": ((97.07, 1.1434, 1257.74), (79.69, 0.7163, 286.52), (65.14, 1.238, 1858.05)),
    "PSC-GCN (τ = 2, ε = 1)": ((96.96, 1.0730, 1233.95), (79.67, 0.7043, 281.72), (65.17, 1.2293, 1843.95)),
    "PSC-GCN (τ = 1, ε = 0.1)": ((97.15, 0.6259, 876.26), (80.73, 0.3637, 163.67), (65.33, 0.5496, 824.40)),
    "PSC-GCN (τ = 2, ε = 0.1)": ((97.21, 0.6141, 859.74), (80.84, 0.3416, 136.64), (65.28, 0.4776, 716.40)),
    "PSC-GCN (τ = 2, ε = 0.01)": ((96.80, 0.2521, 302.52), (75.73, 0.2414, 168.98), (65.33, 0.4148, 622.20)),
}
_ENTRIES = {
    "GraphSAGE": "graphsage",
    "GraphSAINT": "graphsaint",
    "Full-graph": "vanilla",
    "PipeGCN": f"pipegcn {AS}",
    "PSC-GCN (τ = 2, ε = 1)": f"psc-gcn rate=1 {PAPER}",
    "PSC-GCN (τ = 1, ε = 0.1)": f"psc-gcn staleness=1 {PAPER}",
    "PSC-GCN (τ = 2, ε = 0.1)": f"psc-gcn {PAPER}",
    "PSC-GCN (τ = 2, ε = 0.01)": f"psc-gcn rate=0.01 {PAPER}",
}
_HERE = (
    Row("here: exact", "exact"),
    Row("here: pipegcn", "pipegcn"),
    Row("here: psc-gcn", "psc-gcn least=0"),
    Row("here: psc-gcn, coupled", "psc-gcn least=0 sampler=coupled"),
    Row("here: isthmus", "isthmus"),
)


def _rows(first: int, last: int) -> tuple[Row, ...]:
    """The methods with these of their published figures, then this library's own ways."""
    published = {
        name: dict(zip(GRAPHS, (figures[first:last] for figures in by_graph), strict=True))
        for name, by_graph in _PUBLISHED.items()
    }
    theirs = [Row(name, _ENTRIES[name], published[name]) for name in published if first == 0 or name != "GraphSAINT"]
    return (*theirs, *_HERE)


TABLE_2 = Table(
    "Table II",
    "Test accuracy (micro-F1 on yelp), and its distance from full-graph training in points.",
    "Full-graph",
    GRAPHS,
    (Column("test score", "score", "points"),),
    _rows(0, 1),
    """
    The graphs are synthetic ones of the same shape at a small scale, trained for tens of steps instead of
    hundreds to thousands of iterations (reddit, which needs them, for more): scores are compared only with
    full-graph training on the same parts.

    The paper's gains from sampling (up to 1.9 points on ogbn-products) look like those of a regulariser in long
    trainings, and so do ours on reddit, which trains longest here. Elsewhere drawn graphs only make gradients
    noisier: at ε = 0.01 a node with few neighbours mostly reads none, which costs most on the sparse graphs, as in
    the paper on ogbn-products.

    Rows called *here* aggregate the input features once over the whole graph (savings=inherited), so that their
    first layer is never drawn; this alone brings them nearer to full-graph training.

    GraphSAGE and GraphSAINT take as many steps as the others, but each on a mini-batch: 512 seed nodes with 25 and
    10 neighbours (5 where there is a third layer), or a subgraph of 1,000 walks. On products and yelp such steps
    learn about as much as full-graph ones. A node of reddit has 364 neighbours: drawing 25, 10 and 5 of them is
    noisy, and costs GraphSAGE points in a training of 160 steps.
    """,
)
TABLE_3 = Table(
    "Table III",
    "Median step over narrow links, time to reach 99 % of full-graph training's best validation score (steps × "
    "median step; – where it was not reached), and the speed-up of both over full-graph training.",
    "Full-graph",
    GRAPHS,
    (Column("step", "step", "speed-up"), Column("to converge", "converge", "speed-up")),
    _rows(1, 3),
    """
    The paper's text promises 4.6–6.3×; by its own table that is ε = 0.01 (6.34, 5.39 and 4.57×). At ε = 0.1, the
    rate that keeps the accuracy, the table has 2.60, 3.81 and 3.97×.

    Overlap alone gives at most (C + M) / max(C, M), 1.33× where full-graph training waits for 75 % of a step; the
    paper's 1.40–1.82× for PipeGCN are those of a full-graph training that waits for less of a step, or whose
    transfers the pipeline also makes shorter. More than 1.33× cannot be expected of overlap alone here.

    Drawing every edge by itself (eq. 19) fetches a halo row as soon as one edge wants it. On reddit a halo row
    has tens of cut edges, so at ε = 0.1 most rows still cross: the authors' own code sends 71 % of them on a
    dense graph of 20,000 nodes and gains 1.5–1.9×. Coupled draws (*here: psc-gcn, coupled*) fetch about a tenth.

    Sampling also shortens aggregation, but not the dense products, in which four workers on two cores spend much of
    their computing; and drawing itself costs some.

    Rows called *here* are this library's defaults: input features cross once per run, not in every step; narrow
    sides are exchanged where rows are fresh.

    Time to converge counts whole evaluations (every 4 steps), so it is coarse; stale rows cost some steps more,
    which is a larger share of a short training than of the paper's 375 to 1500 iterations (its time to converge
    divided by that of one).

    The paper's GraphSAGE is a distributed full-graph training on uniformly drawn neighbours; ours is the original
    one, whose step is a mini-batch of 512 seed nodes and several of which make a pass over the training nodes.
    """,
)


def _figure_8(base: str, hits: tuple[float, float], shorter: float) -> Table:
    names = {"random": "random", "degree": "PaGraph (degree)", "inclusion": "PSC-GCN (inclusion)"}
    published = {"inclusion": {"reddit": (hits, 1 / (1 - shorter))}}
    return Table(
        f"Fig. 8, against {names[base]}",
        "A cache for 30 % of the halo rows' features at ε = 0.1: hit rate, with the distance in points, and speed-up. "
        f"Published: {hits[0]:g}–{hits[1]:g} points over all cache sizes, training time −{shorter:.0%} at 30 %.",
        names[base],
        ("reddit",),
        (Column("hit rate", "hit_rate", "points", published_ratio=True), Column("step", "step", "speed-up", True)),
        tuple(Row(name, CACHED + policy, published.get(policy, {})) for policy, name in names.items()),
        """
        Hit rates depend on how unequal the inclusion probabilities are. Where every edge is drawn by itself
        and rows have tens of cut edges, nearly all of them are near 1 and policies can differ little; at
        smaller rates or on sparser graphs they differ more.

        The cache holds input features alone, which are a part of what crosses (embeddings and gradients of
        the other layers cannot be cached), and a pipelined step hides some of the rest: a few points of hit
        rate change a step by less than this machine's noise.
        """,
    )


PSC = Paper(
    "psc-gcn",
    "PSC-GCN",
    "three servers with two T4 GPUs each, 15 Gbit/s between them; 6 workers",
    (TABLE_2, TABLE_3, _figure_8("random", (7, 25), 0.10), _figure_8("degree", (3, 17), 0.04)),
)
