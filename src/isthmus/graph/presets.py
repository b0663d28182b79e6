"""Presets of synthetic graphs: sizes of well-known graphs, and what makes each easy or hard to cut and to learn."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Sizes of a real graph at scale 1, and the parameters of the block model that imitates it."""

    nodes: int
    edges: int  # directed: every undirected edge counts twice
    features: int
    classes: int
    split: tuple[int, int, int]  # training, validation, test nodes at scale 1; the rest is in no mask
    multilabel: bool = False
    labelled: float = (
        1.0  # share of the communities in which all nodes of the masks lie, as those of one field of papers
    )
    all_labelled: bool = True  # False: nodes outside the masks have no label, as in papers100M
    dtype: str = "float32"
    homophily: float  # share of edges in community and class that join equal labels; for label sets see draw_label_sets
    signal: float  # distance of a class centre from the origin, in units of the noise of one feature
    community: int  # mean number of nodes of a community
    inside: float  # share of a node's edges that stay in its community; the rest stays in its class or goes far
    far: float  # share of all edges that go anywhere in the graph
    open_share: float  # share of nodes that have such far edges; with `far` it determines the halo of a METIS part
    exponent: float = 2.6  # of the power law of degrees
    hub: float = 300.0  # largest degree, in units of the mean degree
    words: int = 0  # mean number of words of a node, where features are counts of words (see words.py); 0: dense rows
    per_class: bool = False  # whether every class has as many training nodes

    def __post_init__(self) -> None:
        if not 0 < self.homophily <= 1:
            raise InputError(f"homophily must lie in (0, 1], not {self.homophily}: give e.g. homophily=0.7")
        if not 0 < self.labelled <= 1:
            raise InputError(f"labelled must lie in (0, 1], not {self.labelled}: give the share of the communities")
        if not self.signal >= 0:
            raise InputError(f"signal must be 0 or more, not {self.signal}: give e.g. signal=2")
        if self.dtype not in ("float16", "float32", "float64"):
            raise InputError(f"dtype must be float16, float32 or float64, not {self.dtype!r}: leave it out for float32")


PRESETS: dict[str, Preset] = {
    "reddit": Preset(
        nodes=232_965,
        edges=114_615_892,
        features=602,
        classes=41,
        split=(153_431, 23_831, 55_703),
        homophily=0.86,
        signal=2.4,
        community=2_500,
        inside=0.6,
        far=0.05,
        open_share=0.45,
        hub=44,
    ),
    "products": Preset(
        nodes=2_449_029,
        edges=123_718_280,
        features=100,
        classes=47,
        split=(196_615, 39_323, 2_213_091),
        homophily=0.82,
        signal=2.4,
        community=800,
        inside=0.75,
        far=0.05,
        open_share=0.13,
        hub=340,
    ),
    "yelp": Preset(
        nodes=716_847,
        edges=13_954_819,
        features=300,
        classes=100,
        split=(537_635, 71_685, 107_527),
        multilabel=True,
        homophily=0.85,
        signal=2.0,
        community=600,
        inside=0.7,
        far=0.1,
        open_share=0.33,
    ),
    "flickr": Preset(
        nodes=89_250,
        edges=899_756,
        features=500,
        classes=7,
        split=(44_625, 22_312, 22_313),
        homophily=0.8,
        signal=1.6,
        community=300,
        inside=0.6,
        far=0.15,
        open_share=0.4,
    ),
    "blog": Preset(  # a hard one: as BlogCatalog, with few labels, many neighbours, and words that say little
        nodes=5_196,
        edges=343_486,
        features=8_189,
        classes=6,
        split=(120, 1_000, 4_076),
        homophily=0.65,
        signal=0.5,
        community=5_196,
        inside=0.3,
        far=0.7,
        open_share=1.0,
        hub=15,
        words=70,
        per_class=True,
    ),
    "amazon": Preset(
        nodes=1_569_960,
        edges=132_169_734,
        features=200,
        classes=107,
        split=(1_334_466, 78_498, 156_996),
        multilabel=True,
        homophily=0.85,
        signal=2.0,
        community=1_000,
        inside=0.7,
        far=0.06,
        open_share=0.2,
    ),
    "papers100m": Preset(
        nodes=111_059_956,
        edges=1_615_685_872,
        features=128,
        classes=172,
        split=(1_207_179, 125_265, 214_338),
        all_labelled=False,
        homophily=0.7,
        signal=2.6,
        community=1_000,
        inside=0.7,
        far=0.08,
        open_share=0.2,
    ),
    "friendster": Preset(
        nodes=65_608_366,
        edges=1_806_067_135,
        features=128,
        classes=100,
        split=(32_804_183, 16_402_091, 16_402_092),
        homophily=0.7,
        signal=2.6,
        community=1_000,
        inside=0.6,
        far=0.1,
        open_share=0.3,
    ),
}
