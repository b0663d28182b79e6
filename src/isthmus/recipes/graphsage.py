"""GraphSAGE: mini-batches with a fixed number of neighbours for every node, drawn anew at every step."""

from isthmus.local import Policy
from isthmus.recipes.base import MINI_BATCH, Option, Recipe, Settings
from isthmus.recipes.common import BATCHED, mini_batches


def _policy(settings: Settings) -> Policy:
    return mini_batches(settings, replace=settings["replace"], size=512, fanouts=(25, 10))


GRAPHSAGE = Recipe(
    name="graphsage",
    summary="mini-batches of 512 seed nodes with 25 and 10 drawn neighbours, as GraphSAGE was published",
    paper="Hamilton et al., Inductive Representation Learning on Large Graphs (NeurIPS 2017)",
    make=_policy,
    plane=MINI_BATCH,
    options={"replace": Option(False, "draw with replacement"), **BATCHED},
    notes="The batches of distdgl with the paper's sizes, and without a cache or learnt rows.",
)
