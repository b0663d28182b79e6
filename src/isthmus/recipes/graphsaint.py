"""GraphSAINT: each step trains on the subgraph of drawn nodes, edges or walks, and makes up for their chances."""

from isthmus.local import Policy
from isthmus.recipes.base import MINI_BATCH, Option, Recipe, Settings
from isthmus.recipes.common import BATCHED, mini_batches
from isthmus.sample.saint import KINDS, Saint


def _policy(settings: Settings) -> Policy:
    return mini_batches(settings, joint=Saint(settings["kind"], settings["length"], settings["coverage"]))


GRAPHSAINT = Recipe(
    name="graphsaint",
    summary="mini-batches that are subgraphs of drawn nodes, edges or walks, made up for by their chances",
    paper="Zeng et al., GraphSAINT (ICLR 2020)",
    make=_policy,
    plane=MINI_BATCH,
    options={
        "kind": Option("walk", "what is drawn, --batch-size times: node, edge or walk", tuple(KINDS)),
        "length": Option(2, "steps of a walk"),
        "coverage": Option(0.0, "count chances until every node was met so often; 0: closed form, for walks 50"),
        **BATCHED,
    },
    notes="Chances of nodes and edges are known in closed form, so they are not counted unless coverage says so.",
)
