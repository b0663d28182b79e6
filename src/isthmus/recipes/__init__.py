"""The recipes: one short file per published system."""

from isthmus.errors import InputError
from isthmus.recipes.base import Option, Recipe
from isthmus.recipes.bns import BNS, BOUNDARY_EDGE, DROP_EDGE
from isthmus.recipes.cagnet import CAGNET
from isthmus.recipes.distdgl import DISTDGL
from isthmus.recipes.exact import EXACT
from isthmus.recipes.isthmus import ISTHMUS
from isthmus.recipes.pipegcn import PIPEGCN
from isthmus.recipes.psc_gcn import PSC_GCN
from isthmus.recipes.sancus import SANCUS_A, SANCUS_E, SANCUS_H, SKIP_G
from isthmus.recipes.vanilla import VANILLA

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
    DISTDGL,
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}


def find(name: str) -> Recipe:
    """Return the recipe of that name; the error for an unknown one lists the known ones."""
    if name not in RECIPES:
        raise InputError(f"unknown recipe {name!r}: use one of {', '.join(RECIPES)}")
    return RECIPES[name]


__all__ = ["RECIPES", "Option", "Recipe", "find"]
