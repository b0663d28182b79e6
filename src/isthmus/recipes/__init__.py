"""The recipes: one short file per published system."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isthmus.errors import InputError
from isthmus.outside import FORM, imported, is_outside
from isthmus.recipes.adaqp import ADAQP
from isthmus.recipes.base import Option, Recipe
from isthmus.recipes.bns import BNS, BOUNDARY_EDGE, DROP_EDGE
from isthmus.recipes.bytegnn import BYTEGNN
from isthmus.recipes.cagnet import CAGNET
from isthmus.recipes.cdfgnn import CDFGNN
from isthmus.recipes.cluster_gcn import CLUSTER_GCN
from isthmus.recipes.cofree import COFREE
from isthmus.recipes.distdgl import DISTDGL
from isthmus.recipes.distgnn import DISTGNN
from isthmus.recipes.ec_graph import EC_GRAPH
from isthmus.recipes.exact import EXACT
from isthmus.recipes.few_rows import FEW_ROWS
from isthmus.recipes.graphsage import GRAPHSAGE
from isthmus.recipes.graphsaint import GRAPHSAINT
from isthmus.recipes.isthmus import ISTHMUS
from isthmus.recipes.layer_wise import FASTGCN, LADIES
from isthmus.recipes.pipegcn import PIPEGCN
from isthmus.recipes.psc_gcn import PSC_GCN
from isthmus.recipes.sancus import SANCUS_A, SANCUS_E, SANCUS_H, SKIP_G
from isthmus.recipes.vanilla import VANILLA
from isthmus.recipes.vr_gcn import VR_GCN

_ALL = (
    EXACT,
    VANILLA,
    CAGNET,
    BNS,
    BOUNDARY_EDGE,
    DROP_EDGE,
    PIPEGCN,
    PSC_GCN,
    ISTHMUS,
    SANCUS_E,
    SANCUS_A,
    SANCUS_H,
    SKIP_G,
    ADAQP,
    EC_GRAPH,
    CDFGNN,
    DISTGNN,
    COFREE,
    DISTDGL,
    BYTEGNN,
    FEW_ROWS,
    GRAPHSAGE,
    CLUSTER_GCN,
    GRAPHSAINT,
    FASTGCN,
    LADIES,
    VR_GCN,
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}


def find(name: str) -> Recipe:
    """Return the recipe of that name, importing one from outside; the error for an unknown one lists the known ones."""
    if is_outside(name):
        found = imported(name, "recipe")
        if not isinstance(found, Recipe):
            raise InputError(f"{name} is no recipe but a {type(found).__name__}: make it an isthmus.recipes.Recipe")
        return replace(found, name=name)  # by which every worker finds it
    if name not in RECIPES:
        raise InputError(f"unknown recipe {name!r}: use one of {', '.join(RECIPES)}, or your own as {FORM}")
    return RECIPES[name]


def code_named_by(recipe: str, options: Mapping[str, Any]) -> list[str]:
    """Return the code outside of Isthmus that a recipe and its options name, as a user types it."""
    found = [f"--recipe {recipe}"] if is_outside(recipe) else []
    return found + [f"--set {name}={value}" for name, value in options.items() if is_outside(value)]


__all__ = ["RECIPES", "Option", "Recipe", "code_named_by", "find"]
