"""The literal algorithm of every recipe, with its options."""

from __future__ import annotations

from typing import Any

from oracle.bns import BoundaryNodes
from oracle.coded import Coded, Ring
from oracle.links import Links
from oracle.partition_parallel import Policy
from oracle.pipegcn import Pipe
from oracle.random_edges import RandomEdges
from oracle.row_codes import Adaqp, EcGraph
from oracle.sancus import Skip, epoch_adaptive, epoch_fixed

CODING = ("bits", "bits_gradients", "rounding", "feedback", "seed")


def policy_of(recipe: str, options: dict[str, Any], links: Links, seed: int, model: str = "gcn") -> Policy:
    """Return the literal policy of a recipe; `seed` is the run's, for a recipe without one of its own."""
    if recipe == "adaqp":
        return Adaqp(links, model, options, seed)
    if recipe == "ec-graph":
        return Policy(links, EcGraph(**options))
    coding, given = ({n: v for n, v in options.items() if (n in CODING) == coded} for coded in (True, False))
    seed = coding.setdefault("seed", seed)
    wire = Coded(coding.pop("bits", 32), **coding)
    bound, clip = given.get("bound"), {"wire": wire, "clip": given.get("clip", 0)}
    if given.get("clip_rule") == "as-published":
        clip["power"] = 0.5
    match recipe:
        case "bns":
            return BoundaryNodes(links, given["rate"], given.get("sample_size", "unbiased"), seed, wire)
        case "boundary-edge" | "drop-edge":
            among = "boundary" if recipe == "boundary-edge" else "all"
            return RandomEdges(links, given["rate"], among, seed, wire)
        case "pipegcn":
            return Pipe(links, wire=wire, **given)
        case "sancus-e":
            return Skip(links, features=epoch_fixed(bound), **clip)
        case "sancus-a":
            return Skip(links, features=epoch_adaptive(bound), **clip)
        case "sancus-h":
            return Skip(links, gap=bound, **clip)
        case "skip-g":
            return Skip(links, gradients=epoch_fixed(bound), **clip)
        case "cagnet":
            return Ring(links, wire)
    return Policy(links, wire)
