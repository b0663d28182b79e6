"""EC-Graph: coded rows whose errors are compensated, by prediction at the reader and by feedback at the sender."""

from isthmus.comm import Stages, Trend, codec
from isthmus.local import Policy
from isthmus.recipes.base import Option, Recipe, Settings
from isthmus.recipes.common import CODED, GUARDED, INHERITED, savings


def _policy(settings: Settings) -> Policy:
    bits, forward, backward = settings["bits"], Stages(), Stages()
    if bits != 32:
        forward = Stages(encode=Trend(bits, settings["period"]))
        backward = Stages(encode=codec(bits), feedback=True)
    return Policy(savings(settings), forward, backward, seed=settings["seed"])


EC_GRAPH = Recipe(
    name="ec-graph",
    summary="coded rows, or what readers predict if that is nearer; gradients with error feedback",
    paper="Song et al.: EC-Graph (ICDE 2022), algs. ReqEC-FP and ResEC-BP",
    make=_policy,
    options={
        "bits": Option(
            4, "bits per value of rows and gradients: 8, 4 or 2; 32: they are sent as they are", (32, 8, 4, 2)
        ),
        "period": Option(10, "steps between two sends of rows as they are, from which readers learn the trend"),
        **INHERITED,
        **{name: CODED[name] for name in ("bits_weights", "precision", "seed")},
        **GUARDED,
    },
    notes="The number of bits is fixed; the paper's Bit-Tuner changes it as predictions get better.",
)
