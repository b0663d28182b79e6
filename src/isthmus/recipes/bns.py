"""BNS-GCN: boundary-node sampling; and the two edge samplers that its table 9 compares it with."""

from isthmus.comm import Stages
from isthmus.local import Policy
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import AS_PUBLISHED, CODED, INHERITED, coding, savings
from isthmus.sample import Boundary, RandomEdges, Sampler

_PAPER = "Wan et al.: BNS-GCN (MLSys 2022)"


def _policy(settings: Settings, sampler: Sampler) -> Policy:
    features, gradients = coding(settings)
    return Policy(savings(settings), Stages(**features), Stages(**gradients), sampler, settings["seed"])


BNS = Recipe(
    name="bns",
    summary="a random share of the boundary rows, drawn anew each step and shared by all layers, counted 1/share times",
    paper=_PAPER,
    make=lambda settings: _policy(settings, Boundary(settings["rate"], settings["sample_size"])),
    options={
        "rate": Option(0.1, "share of boundary rows kept; 1 is exact, 0 isolates the workers"),
        "sample_size": Option(
            "unbiased",
            "rows of a link: p·m rounded up or down at random; as-published: always down",
            ("unbiased", AS_PUBLISHED),
        ),
        **INHERITED,
        **CODED,
    },
    notes="Both ends of a link draw the same rows: no ids travel. Aggregations (gcn, mean, sum) are unbiased; "
    "attention (GAT, and convolutions that read `graph.halo`) sees the drawn rows unscaled and is biased.",
    objective="vol",
)

BOUNDARY_EDGE = Recipe(
    name="boundary-edge",
    summary="edges between parts dropped at random, as many as bns drops; rows that nobody reads are not sent",
    paper=_PAPER + ", table 9 (BES)",
    make=lambda settings: _policy(settings, RandomEdges(settings["rate"], "boundary")),
    options={"rate": Option(0.1, "the rate of bns at which as many edges are dropped"), **INHERITED, **CODED},
    notes="A reader tells owners which rows it needs, one bit per row.",
    objective="vol",
)

DROP_EDGE = Recipe(
    name="drop-edge",
    summary="edges of the whole graph dropped at random, as many as bns drops; rows that nobody reads are not sent",
    paper="Rong et al.: DropEdge (ICLR 2020), as in " + _PAPER + ", table 9",
    make=lambda settings: _policy(settings, RandomEdges(settings["rate"], "all")),
    options={"rate": Option(0.1, "the rate of bns at which as many edges are dropped"), **INHERITED, **CODED},
    notes="A reader tells owners which rows it needs, one bit per row.",
    objective="vol",
)
