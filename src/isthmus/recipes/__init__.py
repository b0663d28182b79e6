"""One short file per published system."""

from isthmus.errors import InputError
from isthmus.recipes.base import Option, Recipe
from isthmus.recipes.exact import EXACT
from isthmus.recipes.vanilla import VANILLA

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (EXACT, VANILLA)}


def find(name: str) -> Recipe:
    """The recipe of that name; an unknown one is answered with the known ones."""
    if name not in RECIPES:
        raise InputError(f"unknown recipe {name!r}: use one of {', '.join(RECIPES)}")
    return RECIPES[name]


__all__ = ["RECIPES", "Option", "Recipe", "find"]
