"""FastGCN and LADIES: every layer of a batch draws a number of nodes, by importance."""

from isthmus.local import Policy
from isthmus.recipes.base import MINI_BATCH, Option, Recipe, Settings
from isthmus.recipes.common import BATCHED, mini_batches
from isthmus.sample.layer_wise import LayerWise

_NODES = Option(512, "nodes drawn for every layer")


def _fastgcn(settings: Settings) -> Policy:
    return mini_batches(settings, joint=LayerWise(settings["layer_nodes"], dependent=False))


def _ladies(settings: Settings) -> Policy:
    return mini_batches(settings, joint=LayerWise(settings["layer_nodes"], renormalised=settings["renormalised"]))


FASTGCN = Recipe(
    name="fastgcn",
    summary="mini-batches whose every layer draws nodes of the whole graph, by importance",
    paper="Chen et al., FastGCN (ICLR 2018)",
    make=_fastgcn,
    plane=MINI_BATCH,
    options={"layer_nodes": _NODES, **BATCHED},
    notes="A node's own row is always there; its neighbours are the drawn ones, often none.",
)
LADIES = Recipe(
    name="ladies",
    summary="mini-batches whose every layer draws nodes among those that the layer above reads, by importance",
    paper="Zou et al., LADIES (NeurIPS 2019)",
    make=_ladies,
    plane=MINI_BATCH,
    options={
        "layer_nodes": _NODES,
        "renormalised": Option(True, "let drawn neighbours count as often in sum as all would; false: unbiased"),
        **BATCHED,
    },
    notes="A node's own row is always there.",
)
