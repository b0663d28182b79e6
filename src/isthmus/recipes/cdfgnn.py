"""CDFGNN: a vertex-cut whose mirrors and masters send only rows that have moved, as coded differences."""

from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Active, Add, Changed, Keep, Stages, codec
from isthmus.errors import InputError
from isthmus.local import Policy, Savings
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import AS_PUBLISHED, CODED, INHERITED

# The paper transforms rows before it sums them, as the narrow side does.
_PUBLISHED = Savings(aggregate_once=False, overlap=False, read_rows=False, cover=False, relay=False)


def _policy(settings: Settings) -> Policy:
    epsilon, bits = settings["epsilon"], settings["bits"]
    if settings["resync"] < 0:
        raise InputError(f"resync counts steps: it must be at least 0, not {settings['resync']}")
    if epsilon == 0:
        gather = scatter = Stages(encode=codec(bits))
    else:
        merge = Keep() if bits == 32 else Add(follows=settings["error"] != AS_PUBLISHED)
        published = {name: settings[name] == AS_PUBLISHED for name in ("singletons", "rule")}
        chance, resync = 0.0 if settings["select"] == AS_PUBLISHED else settings["chance"], settings["resync"]
        if settings["select"] != AS_PUBLISHED and chance <= 0:
            raise InputError(f"chance must be above 0 and at most 1, not {chance}")
        if chance and published["singletons"]:
            raise InputError("masters hold back no rows of their own: set select=as-published as well")
        changed = Changed(epsilon, settings["adapt"], resync, published["singletons"], published["rule"], chance)
        gather = Stages(changed, codec(bits), merge=merge)
        scatter = Stages(changed if chance else Active(resync), codec(bits), merge=merge)
    legs = {(pass_, leg): one for pass_ in (FORWARD, BACKWARD) for leg, one in ((GATHER, gather), (SCATTER, scatter))}
    saved = _PUBLISHED if settings["savings"] == AS_PUBLISHED else Savings()
    return Policy(saved, scatter, gather, legs=legs, replicas=True)


CDFGNN = Recipe(
    name="cdfgnn",
    summary="masters and mirrors send only rows that have moved, as coded differences; the bound follows the accuracy",
    paper="Zhang et al.: CDFGNN, algs. 1 and 2, eqs. 6, 7, 22–24",
    make=_policy,
    options={
        "epsilon": Option(0.01, "relative change of a row that is tolerated, at the start; 0 switches the cache off"),
        "adapt": Option(True, "epsilon follows the training accuracy, between 0.001 and 0.3"),
        "bits": Option(8, CODED["bits"].help, (32, 16, "bf16", "fp16", 8, 4, 2)),
        "resync": Option(0, "steps between sends of all rows, whether they have moved or not; 0: never"),
        "select": Option(
            "drawn",
            "rows are drawn, the likelier the more they moved, and a change that was drawn counts for those that were "
            "not; as-published: all that moved by epsilon are sent, and masters hold back theirs, too",
            ("drawn", AS_PUBLISHED),
        ),
        "chance": Option(0.4, "chance of a row that moved by epsilon or more to be drawn, above 0 and at most 1"),
        "rule": Option(
            "prose",
            "epsilon grows while accuracy does (the prose), or as-published: when it falls",
            ("prose", AS_PUBLISHED),
        ),
        "error": Option(
            "fed-back",
            "senders remember what readers have decoded; as-published: what they meant to send, so errors add up",
            ("fed-back", AS_PUBLISHED),
        ),
        "singletons": Option(
            "fresh", "rows of nodes without mirrors; as-published: these are held back, too", ("fresh", AS_PUBLISHED)
        ),
        "bits_weights": CODED["bits_weights"],
        "precision": CODED["precision"],
        **INHERITED,
    },
    notes="Masters use their own sums, mirrors what they hold. The parameter server is a sum over the workers.",
    method="ebv",
    cut="vertex",
)
