"""The way in which a source that is not yet cut is cut: what was asked for, and the recipe's own where it fits."""

import pytest

from isthmus import recipes
from isthmus.api.source import _way

VERTEX = {"method": "ebv", "objective": None, "cut": "vertex"}
EDGE = {"method": "metis", "objective": "vol", "cut": "edge"}


@pytest.mark.parametrize(
    ("own", "method", "cut", "way"),
    [
        (EDGE, None, None, EDGE),
        (VERTEX, None, None, VERTEX),
        (EDGE, "ldg", None, {"method": "ldg", "cut": "edge"}),
        (EDGE, "hdrf", None, {"method": "hdrf", "cut": "vertex"}),
        (EDGE, "random", None, {"method": "random", "cut": "edge"}),  # there is one of each kind: the recipe decides
        (VERTEX, "random", None, {"method": "random", "cut": "vertex"}),
        (VERTEX, "metis", None, {"method": "metis", "cut": "edge"}),
        (EDGE, None, "cover", {**EDGE, "cut": "cover"}),
        (EDGE, None, "vertex", {"method": None, "cut": "vertex"}),
        (VERTEX, None, "edge", {"method": None, "cut": "edge"}),
    ],
)
def test_asked_for_before_the_recipes_own(own, method, cut, way):
    assert _way(own, method, cut) == way


def test_recipes_that_publish_an_objective_have_it():
    for name in ("bns", "pipegcn", "isthmus"):
        assert recipes.find(name).way == {"method": "metis", "objective": "vol", "cut": "edge"}
