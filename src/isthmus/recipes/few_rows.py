"""Few rows: mini-batches that compute, send and keep as little as the loss allows; Isthmus' own recipe for them."""

from dataclasses import replace

from isthmus.recipes.base import MINI_BATCH, Recipe
from isthmus.recipes.distdgl import DISTDGL, policy

_OTHERWISE = {"draw": "labor", "precision": "auto", "cache_rows": 0.2}

FEW_ROWS = Recipe(
    name="few-rows",
    summary="mini-batches of few rows: LABOR draws, rows of other workers in bf16, the likeliest of them kept",
    paper="ours; LABOR of Balin and Çatalyürek (NeurIPS 2023), the cache of SALIENT++ (MLSys 2023)",
    make=policy,
    plane=MINI_BATCH,
    options={
        name: replace(option, default=_OTHERWISE.get(name, option.default)) for name, option in DISTDGL.options.items()
    },
    notes="With draw=uniform precision=fp32 cache_rows=0 it is distdgl, to the bit.",
)
