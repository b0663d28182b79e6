"""Packing and unpacking rows against copying them (`gather_rows`), interleaved.

python benchmarks/packing.py [--widths 64,128,256] [--nodes 200000] [--rows 50000] [--repeats 9] [--threads 2]
"""

from __future__ import annotations

import argparse

import torch
from kernels import interleaved

from isthmus import kernels
from isthmus.kernels import Memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="64,128,256")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = kernels.draw_rows(1, options.nodes, options.rows)
    for width in map(int, options.widths.split(",")):
        x, copy = torch.randn(options.nodes, width), torch.empty(options.rows, width)
        held, read = torch.zeros(options.rows, width), torch.zeros(options.nodes, width)
        tasks = {"gather": lambda x=x, copy=copy: kernels.gather_rows(x, rows, copy)}
        for bits in (8, 4, 2):
            message = kernels.pack_rows(x, bits, rows=rows)
            pack = {"x": x, "bits": bits, "rows": rows, "out": message}
            unpack = {"message": message, "bits": bits, "out": read, "rows": rows}
            tasks |= {
                f"pack {bits}": lambda pack=pack: kernels.pack_rows(**pack),
                f"pack {bits} stochastic": lambda pack=pack: kernels.pack_rows(**pack, stream=7),
                f"pack {bits} feedback": lambda pack=pack, held=held: kernels.pack_rows(**pack, memory=Memory(held)),
                f"unpack {bits}": lambda unpack=unpack: kernels.unpack_rows(**unpack),
                f"unpack {bits} add": lambda unpack=unpack: kernels.unpack_rows(**unpack, accumulate=True),
            }
        seconds = interleaved(tasks, options.repeats)
        print(f"F = {width}: {options.rows:,} of {options.nodes:,} rows, {options.threads} threads")
        for name, value in seconds.items():
            ratio, each = value / seconds["gather"], value / options.rows * 1e9
            print(f"  {name:<18} {value * 1e3:7.2f} ms  {each:6.1f} ns per row  {ratio:5.2f} × gather")


if __name__ == "__main__":
    main()
