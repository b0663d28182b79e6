"""DistDGL: mini-batches of neighbours drawn for seed nodes, whose features are pulled from their owners."""

from isthmus.features.embedding import OPTIMIZERS, REDUCES, EmbeddingConfig
from isthmus.local import Policy
from isthmus.minibatch import DagPolicy
from isthmus.minibatch.cache import CACHES, CacheConfig
from isthmus.minibatch.seeds import SHARES
from isthmus.recipes.base import MINI_BATCH, Option, Recipe, Settings
from isthmus.recipes.common import BATCHED, mini_batches
from isthmus.sample.neighbour_sampler import METHODS


def policy(settings: Settings, dag: DagPolicy | None = None) -> Policy:
    """Return the policy of mini-batches with these settings; ``dag``: how tasks make them, if not one thread."""
    return mini_batches(
        settings,
        draw=settings["draw"],
        replace=settings["replace"],
        share=settings["share"],
        cache=CacheConfig(settings["cache"], settings["cache_rows"], settings["window"]),
        dag=dag,
        embedding=EmbeddingConfig(
            settings["embedding"],
            settings["embedding_lr"],
            settings["embedding_optimizer"],
            settings["embedding_reduce"],
            settings["hogwild"],
        ),
    )


DISTDGL = Recipe(
    name="distdgl",
    summary="mini-batches: neighbours drawn for seed nodes, their features pulled from the owners, ahead of the step",
    paper="Zheng et al., DistDGL (IA3 2020); sec. 4.1 of the survey",
    make=policy,
    plane=MINI_BATCH,
    options={
        "draw": Option("uniform", "how neighbours are drawn: uniform, weighted (by edges) or labor", tuple(METHODS)),
        "replace": Option(False, "draw with replacement"),
        "share": Option("owner", "who takes a seed node: its owner; or even (as DistDGL), position", tuple(SHARES)),
        "ahead": BATCHED["ahead"],
        "cache": Option("vip", "which features of other workers to keep: vip, degree or list", tuple(CACHES)),
        "cache_rows": Option(0.0, "how many of them: a number, or below 1 a share of a worker's own; 0: none"),
        "window": Option(8, "coming steps that the cache list looks at"),
        "embedding": Option(64, "numbers that every node learns in a graph without features"),
        "embedding_lr": Option(0.01, "their learning rate"),
        "embedding_optimizer": Option("adam", "how they are updated: sgd, adagrad or adam", tuple(OPTIMIZERS)),
        "embedding_reduce": Option("sum", "what is made of a row's gradients: their sum, or mean", REDUCES),
        "hogwild": Option(False, "update them as gradients arrive, as DistDGL does; not reproducible"),
        **BATCHED,
    },
    notes="Exact as a mini-batch method: every number of workers draws the same batches and gets the same losses.",
)
