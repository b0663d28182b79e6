"""ByteGNN: sampling as a DAG of small tasks on a pool of threads, launched and ordered by a two-level scheduler."""

from dataclasses import replace

from isthmus.local import Policy
from isthmus.minibatch import SCHEDULERS, DagPolicy
from isthmus.recipes.base import MINI_BATCH, Option, Recipe, Settings
from isthmus.recipes.distdgl import DISTDGL
from isthmus.recipes.distdgl import policy as mini_batches

_OWN = {
    "scheduler": Option("two-level", "when batches are begun and which task runs first", tuple(SCHEDULERS)),
    "sigma": Option(450.0, "launch score from which on another batch is begun (two-level)"),
    "threads": Option(0, "threads that make batches; 0: as many as torch uses"),
    "chunk": Option(0, "vertices that one task draws for, or whose rows it reads; 0: 16384, all if one thread does it"),
    "queue_mb": Option(1024.0, "memory of batches that wait, in MB, above which none is begun"),
    "operators": Option("usual", "operators of the DAG: a subclass of isthmus.minibatch.Operators", ("usual",), True),
}


def _policy(settings: Settings) -> Policy:
    return mini_batches({**settings, "window": 1}, DagPolicy(**{name: settings[name] for name in _OWN}))


BYTEGNN = Recipe(
    name="bytegnn",
    summary="mini-batches made by a DAG of small tasks on a pool of threads, with a two-level scheduler",
    paper="Zheng et al., ByteGNN (VLDB 2022); sec. 4.2 of the survey",
    make=_policy,
    method="bytegnn",
    plane=MINI_BATCH,
    options={
        **_OWN,
        **{name: option for name, option in DISTDGL.options.items() if name not in ("window", "cache")},
        "ahead": Option(4, "batches that may be begun before the step that trains"),
        "cache_rows": replace(DISTDGL.options["cache_rows"], default=0.2),
        "cache": Option("vip", "which features of other workers to keep: vip or degree", ("vip", "degree")),
    },
    notes="Batches, losses and weights are those of distdgl to the bit: scheduling changes when, never what.",
)
