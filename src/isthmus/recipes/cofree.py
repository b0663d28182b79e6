"""CoFree-GNN: a vertex-cut whose workers train on their own edges alone; only gradients of the weights are summed."""

from isthmus.local import Policy
from isthmus.recipes.base import Recipe, Settings
from isthmus.recipes.common import CODED, INHERITED, savings


def _policy(settings: Settings) -> Policy:
    return Policy(savings(settings), seed=settings["seed"], replicas=True, isolated=True)


COFREE = Recipe(
    name="cofree",
    summary="no rows cross: workers train on their own edges, and replicas count by their share of a node's edges",
    paper="Cao et al.: Communication-Free Distributed GNN Training with Vertex Cut (2023)",
    make=_policy,
    options={**INHERITED, **{name: CODED[name] for name in ("bits_weights", "precision", "seed")}},
    notes="Without DropEdge-K, which draws the edges of a step from K masks made before.",
    method="ne",
    cut="vertex",
)
