"""VR-GCN: two neighbours of every node are drawn, and rows of earlier steps stand in for the others."""

from isthmus.local import Policy
from isthmus.recipes.base import MINI_BATCH, Option, Recipe, Settings
from isthmus.recipes.common import BATCHED, mini_batches
from isthmus.sample.control_variates import ControlVariates


def _policy(settings: Settings) -> Policy:
    return mini_batches(settings, joint=ControlVariates(settings["neighbours"]), history=True)


VR_GCN = Recipe(
    name="vr-gcn",
    summary="mini-batches with two drawn neighbours per node; rows of earlier steps stand in for the others",
    paper="Chen et al., Stochastic Training of Graph Convolutional Networks with Variance Reduction (ICML 2018)",
    make=_policy,
    plane=MINI_BATCH,
    options={"neighbours": Option(2, "neighbours drawn for every node and layer; -1: all"), **BATCHED},
    notes="P̂(H - H̄) + P H̄, H̄ the rows last computed, which owners keep; for gcn and sage.",
)
