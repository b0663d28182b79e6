"""The keywords of the functions of isthmus, for editors and type checkers.

Written by ``make derived`` from the declarations of the options: do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from torch import nn


class TrainOptions(TypedDict, total=False):
    """The keywords of ``isthmus.train``."""

    recipe: str
    """How rows are exchanged: see `isthmus recipes`; or package.module:NAME."""
    set: Mapping[str, Any] | Iterable[str] | None
    """A recipe's own option, name=value."""
    probe_every: int
    """Steps between measurements of rows' and gradients' error; 0: never."""
    batch_size: int | None
    """Seed nodes of a step, over all workers; default 1000."""
    fanout: str | Sequence[int] | None
    """Neighbours drawn per hop, seed nodes first, -1: all; default 15,10,5."""
    eval_fanout: str | Sequence[int] | None
    """Evaluate by neighbours drawn so; default: by all."""
    batch: str | None
    """apart, together or auto (default)."""
    structure: str | None
    """Edges of other parts: here or owner; default here."""
    rows: str | None
    """Feature rows of other parts: host, here or owner; default host."""
    workers: int | None
    """Default: one per part (2 if not yet cut); fewer take several each."""
    launcher: str
    """auto (torchrun, srun, Kubernetes, or this machine), ray."""
    threads: int | None
    """Per worker; default: an equal share of this machine's cores."""
    timeout: float
    """Seconds that a worker waits for another."""
    device: str
    """auto (this worker's accelerator, else the CPU), cpu, cuda, cuda:K, or another device of torch."""
    restarts: int
    """Restarts of a run that lost a worker, without progress between."""
    deterministic: bool
    """The same bits in every run, also on accelerators: slower."""
    model: str | type[nn.Module] | Callable[..., nn.Module]
    """gcn, sage or gat, or your own as package.module:Net."""
    layers: int
    """Convolutions."""
    hidden: int
    """Width between them."""
    heads: int
    """Attention heads (gat)."""
    dropout: float
    """Between convolutions."""
    input_dropout: float
    """On the features; 0 lets layer 0 aggregate once."""
    layer_norm: bool
    """Normalise rows between convolutions."""
    lr: float
    """Learning rate."""
    weight_decay: float
    """L2 penalty."""
    optimizer: str
    """adam, adamw, sgd,momentum=0.9 or any other of torch.optim."""
    scheduler: str | None
    """Of the learning rate: cosine, linear, step or plateau, as in cosine,warmup=10."""
    clip: float
    """Norm that gradients are clipped to; 0: never."""
    accumulate: int
    """Passes whose gradients are averaged in a step."""
    ema: float
    """Decay of an average of the weights that is evaluated."""
    loss: str | Callable[..., Any] | None
    """cross-entropy,smoothing=.1; focal; skip-gram; package.module:fn."""
    init: str | None
    """Start from the best weights of this run."""
    steps: int
    """Weight updates."""
    epochs: int | None
    """Passes over the training nodes, in place of steps."""
    eval_every: int
    """Steps between evaluations; 0: 10, or an epoch of mini-batches."""
    patience: int
    """Evaluations without progress before stopping; 0: never."""
    split: int
    """Which of the graph's splits."""
    features: str
    """raw, rows (each row divided by its sum) or standard."""
    features_on: str
    """device or host; host: fetched by row, for small devices."""
    compile: str | None
    """Compile by this backend of torch.compile, such as inductor."""
    edge_weights: str
    """auto: an edge's one attribute is its weight; none: all edges count the same."""
    inductive: bool
    """Train on the training nodes' graph only."""
    metric: str | Callable[..., Any] | None
    """accuracy, macro-f1, roc-auc, r2, probe, … or package.module:fn."""
    dtype: str
    """float32 or float64."""
    rows_dtype: str | None
    """bf16: read and send rows in bf16."""
    cut: str | None
    """Where edges live: edge, cover or vertex; default: the recipe's."""
    hosts: int | None
    """Hosts of the workers, in equal blocks; default: found out."""
    undirected: bool
    """Add the missing direction of every edge."""
    directed: bool
    """Keep one-directional edges as they are."""
    multi_edges: str
    """Weights of parallel edges: first, sum, mean, max or keep."""
    task: str | None
    """classes or regression, if y could be either."""
    hold_out: float
    """Share of edges kept back to score links by."""
    method: str | None
    """How to cut: metis, kaminpar, ldg, bytegnn, blocks, random, hep, ne, ebv, hdrf or hash, or package.module:NAME."""
    checkpoint_every: int
    """Steps between checkpoints; 0: at evaluations."""
    out: str | os.PathLike[str] | None
    """The run folder; default: the next of runs/1, runs/2, …"""
    resume: bool
    """Resume the run SOURCE, or the one in --out."""
    quiet: bool
    """No progress."""
    tensorboard: bool
    """Write event files to RUN/tensorboard (an extra)."""
    track: str | None
    """Also report to wandb or mlflow (extras); wandb,mlflow: to both."""
    seed: int
    """For every random draw."""


class PredictOptions(TypedDict, total=False):
    """The keywords of ``isthmus.predict``."""

    threads: int | None
    """Per worker; default: an equal share of this machine's cores."""
    timeout: float
    """Seconds that a worker waits for another."""
    device: str
    """auto (this worker's accelerator, else the CPU), cpu, cuda, cuda:K, or another device of torch."""
    model: str | type[nn.Module] | Callable[..., nn.Module] | None
    """The run's own model, named again: package.module:Net."""
    trust: bool
    """Import the model that the run folder names."""
    what: str | Sequence[str]
    """class, score, scores, embedding or value: several by comma; default class,score."""
    nodes: str | os.PathLike[str] | None
    """Only these, in this order: original ids, one per line or .npy."""
    fanout: str | None
    """Draw neighbours per hop instead of reading all, as 15,10,5."""
    overwrite: bool
    """Replace existing files."""
    source: str | os.PathLike[str] | None
    """Another graph to score, cut or not, such as the run's own after nodes and edges were added."""


class WorkerOptions(TypedDict, total=False):
    """The keywords of ``isthmus.Worker``."""

    recipe: str
    """How rows are exchanged: see `isthmus recipes`; or package.module:NAME."""
    set: Mapping[str, Any] | Iterable[str] | None
    """A recipe's own option, name=value."""
    threads: int | None
    """Per worker; default: an equal share of this machine's cores."""
    timeout: float
    """Seconds that a worker waits for another."""
    device: str
    """auto (this worker's accelerator, else the CPU), cpu, cuda, cuda:K, or another device of torch."""
    split: int
    """Which of the graph's splits."""
    features: str
    """raw, rows (each row divided by its sum) or standard."""
    compile: str | None
    """Compile by this backend of torch.compile, such as inductor."""
    edge_weights: str
    """auto: an edge's one attribute is its weight; none: all edges count the same."""
    inductive: bool
    """Train on the training nodes' graph only."""
    metric: str | Callable[..., Any] | None
    """accuracy, macro-f1, roc-auc, r2, probe, … or package.module:fn."""
    dtype: str | None
    """float32 or float64."""
    rows_dtype: str | None
    """bf16: read and send rows in bf16."""
    hosts: int | None
    """Hosts of the workers, in equal blocks; default: found out."""
    undirected: bool
    """Add the missing direction of every edge."""
    directed: bool
    """Keep one-directional edges as they are."""
    multi_edges: str
    """Weights of parallel edges: first, sum, mean, max or keep."""
    task: str | None
    """classes or regression, if y could be either."""
    hold_out: float
    """Share of edges kept back to score links by."""
    method: str | None
    """How to cut: metis, kaminpar, ldg, bytegnn, blocks, random, hep, ne, ebv, hdrf or hash, or package.module:NAME."""
    seed: int
    """For every random draw."""
