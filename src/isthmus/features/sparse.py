"""Fetch sparse feature rows of halo nodes from their owners."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.comm import FORWARD, Ends, Links, Transport, Where
from isthmus.kernels import Csr, SparseMatrix


def fetch_sparse(x: SparseMatrix, links: Links, transport: Transport, site: int, step: int) -> SparseMatrix:
    """Return the rows of the halo nodes, [h, F], given this worker's inner rows x [n, F]; all workers call it at once.

    Rows differ in length, so lengths travel first, then columns and values.
    """
    where = Where(site, FORWARD, step, "features")
    leaving = [x.take(rows.long()) for rows in links.send_rows]
    counts = torch.empty(links.num_mirrors, dtype=torch.int32, device=links.device)
    lengths = [rows.pattern.indptr.diff().to(torch.int32) for rows in leaving]
    transport.exchange(lengths, links.mirrors.split(counts), where._replace(kind="ids")).wait()
    stored = Ends([int(rows.sum()) for rows in links.mirrors.split(counts)])

    def gather(messages: list[Tensor], rows: list[int]) -> Tensor:
        out = messages[0].new_empty(stored.ptr[-1])
        transport.exchange(messages, stored.split(out), where, rows=rows).wait()
        return out

    columns = gather([rows.pattern.indices for rows in leaving], [len(rows) for rows in lengths])
    values = gather([rows.values for rows in leaving], [0] * transport.size)  # the same rows, so counted only once
    indptr = torch.cat([counts.new_zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return SparseMatrix(Csr(indptr, columns, x.shape[1]), values)
