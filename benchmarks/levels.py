"""Filling levels and drawing edges by them against one aggregation over the same edges, interleaved.

python benchmarks/levels.py [--nodes 50000] [--degree 50] [--rate 0.1] [--width 64] [--repeats 9] [--threads 1,2]
"""

from __future__ import annotations

import argparse

import torch
from kernels import interleaved

from isthmus import kernels
from isthmus.kernels import Csr, WaterFilling


def random_graph(nodes: int, degree: int) -> tuple[Csr, Csr]:
    """Unequal degrees, columns in random order: the worst case for caches. Every fifth column is a halo node."""
    length = (torch.empty(nodes).exponential_() * degree * 0.8).long() + degree // 5
    indptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    columns = torch.randint(nodes + nodes // 4, (int(indptr[-1]),), dtype=torch.int32)
    whole = Csr(indptr, columns, nodes + nodes // 4)
    inner = kernels.select_edges(whole, columns < nodes)[0]
    halo = kernels.select_edges(whole, columns >= nodes)[0]
    return Csr(inner.indptr, inner.indices, nodes), Csr(halo.indptr, halo.indices - nodes, nodes // 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--degree", type=int, default=50)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    inner, halo = random_graph(options.nodes, options.degree)
    (inner_out, _), (halo_out, _) = kernels.transpose(inner), kernels.transpose(halo)
    nodes, halo_nodes = torch.arange(inner.num_cols), torch.arange(halo.num_cols) + inner.num_cols
    value, halo_value = kernels.floored(torch.randn(inner.num_cols).exp(), torch.randn(halo.num_cols).exp())
    budget = (inner.indptr.diff() + halo.indptr.diff()) * options.rate
    level = kernels.fill_levels(inner, halo, value, halo_value, budget)
    filling, halo_filling = WaterFilling(level, value), WaterFilling(level, halo_value)
    x, halo_x = torch.randn(inner.num_cols, options.width), torch.randn(halo.num_cols, options.width)

    def aggregate() -> None:
        kernels.aggregate(halo, halo_x, out=kernels.aggregate(inner, x), accumulate=True)

    def draw(coupled: bool = False, **how: bool) -> None:
        kernels.draw_weighted(7, inner, filling._replace(coupled=coupled), (nodes, nodes), **how)
        kernels.draw_weighted(7, halo, halo_filling._replace(coupled=coupled), (nodes, halo_nodes), **how)

    def draw_transposed() -> None:
        kernels.draw_weighted(7, inner_out, filling, (nodes, nodes), transposed=True)
        kernels.draw_weighted(7, halo_out, halo_filling, (halo_nodes, nodes), transposed=True)

    def probability() -> None:
        kernels.edge_probability(inner, filling)
        kernels.edge_probability(halo, halo_filling)

    tasks = {
        "aggregate": aggregate,
        "fill_levels": lambda: kernels.fill_levels(inner, halo, value, halo_value, budget),
        "draw": draw,
        "draw, with edges": lambda: draw(with_edges=True),
        "draw, coupled": lambda: draw(coupled=True),
        "draw, transposed": draw_transposed,
        "edge_probability": probability,
        "inclusion (halo only)": lambda: kernels.inclusion(halo_out, halo_filling),
    }
    edges = inner.num_edges + halo.num_edges
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        seconds = interleaved(tasks, options.repeats)
        print(f"{inner.num_rows:,} nodes, {edges:,} edges, {options.rate:g} of them kept, {threads} threads")
        for name, took in seconds.items():
            ratio = took / seconds["aggregate"]
            print(f"  {name:<22} {took * 1e3:7.2f} ms  {took / edges * 1e9:5.2f} ns per edge  {ratio:5.2f} × aggregate")


if __name__ == "__main__":
    main()
