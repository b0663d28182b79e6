"""CDFGNN: the vertex-cuts of its table 3."""

from __future__ import annotations

from papers.table import Column, Paper, Row, Table

# (inner, outer, replication factor, edge imbalance): Reddit on 2 × 2 GPUs, ogbn-products on 2 × 4
_EBV_0 = {"reddit": (104217, 138583, 2.9027, 1.0054), "products": (695905, 639459, 3.1788, 1.0002)}
_EBV_1 = {"reddit": (105412, 117879, 3.0860, 1.0022), "products": (952727, 481147, 3.3379, 1.0008)}
_HEP = {"reddit": (36662, 52886, 1.6084, 1.2693), "products": (143711, 127261, 1.3304, 1.2323)}
_DNE = {"reddit": (65578, 118788, 2.1025, 1.2558), "products": (367460, 406408, 1.9363, 1.1527)}

TABLE_3 = Table(
    "Table 3",
    "Rows that the busiest part sends in one exchange, both legs, within its host and to the other one, against EBV "
    "without hosts; replication factor; edges of the fullest part over the mean. Two hosts of two parts; published for "
    "products: of four.",
    "EBV, γ = 0",
    ("reddit", "products"),
    (
        Column("inner", "inner", "share"),
        Column("outer", "outer", "share"),
        Column("replicas", "replication"),
        Column("edges", "edges"),
    ),
    (
        Row("EBV, γ = 0", "cdfgnn", _EBV_0, cut="ebv-0"),
        Row("EBV, γ = 0.1", "cdfgnn", _EBV_1, cut="ebv-0.1"),
        Row("HEP", "cdfgnn", _HEP, cut="hep"),
        Row("DNE (NE here)", "cdfgnn", _DNE, cut="ne"),
        Row("random", "cdfgnn", {}, cut="random-edges"),
        Row("METIS with covers", "exact", {}, cut="cover"),
    ),
    """
    The published figures do not say how a master is chosen, in which order edges come, or α and β. Here edges come
    in ascending order of degrees, α = β = 1, and the master is the replica whose part sends the fewest rows; with γ
    above 0 on the host with the most replicas. With these weights γ decides between parts that need equally many
    new replicas, before their loads do, and every γ between 0 and 1 gives the same cut: it has more replicas, on
    fewer hosts. Counted by replica, outer rows fall by less than published; counted by host (inspect's outer_rows,
    what crosses if the parts of a host act together) they fall too.

    HEP's edges are balanced here, as in its own code; what is uneven are its nodes. DNE is a distributed NE, so NE
    stands in its row. The last row is no vertex-cut: it shows what an exact exchange of METIS' parts sends.
    """,
)

CDFGNN = Paper(
    "cdfgnn",
    "CDFGNN",
    "two machines with up to eight GPUs each, InfiniBand between them and PCIe inside",
    (TABLE_3,),
)
