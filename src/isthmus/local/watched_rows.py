"""Show the rows of a site to the watch, as the recipe would send them."""

from __future__ import annotations

from torch import Tensor

from isthmus.comm import BACKWARD, FORWARD, Links
from isthmus.local.dropout import Before
from isthmus.local.runtime import Runtime


def remember(run: Runtime, out: Tensor, before: Before) -> Tensor:
    """Return rows after dropout; remember those before it, where the recipe would send them and exact steps do not."""
    late, fresh = run.watch.sees(FORWARD) and run.watch.policy.row_stages.mixes_steps, run.policy.lossless
    if before.mask.p and run.ladder.controller is not None and late and fresh and not run.is_fixed(before.x):
        run.sampled[out] = before
    return out


def watch_rows(
    run: Runtime, site: int, x: Tensor, only: Tensor | None, made_of: tuple[Tensor, Tensor] | None = None
) -> None:
    """Watch the boundary rows of an exchange: x [n, F], or ``made_of`` = (y [n, G], W [F, G]) where x is y Wᵀ.

    Rows that readers drop out themselves are compared before dropout; those that their owner transforms, after the
    dropout of the step that reads them.
    """
    watch = run.watch
    if not watch.sees(FORWARD):
        return
    at_hand = run.dropped.get(x)
    if run.is_fixed(x if at_hand is None else at_hand.before):  # input features: they never change
        return
    needed = run.needed.is_needed(only)
    among = run.ladder.last.needed.links(needed)
    drawn = None if run.policy.sampler is None else run.needed.links_at(run.step, needed)
    at, (y, weight) = watch.sample(site, FORWARD, among), made_of or (x, None)
    late, early = run.dropped.get(y), run.sampled.pop(y, None)
    if run.masks > (late is not None or early is not None):  # besides the mask that readers apply themselves
        watch.masked.add(site)
    if late is None and early is None:
        rows = run.as_sent(x.detach()[at])
        watch.compare(site, FORWARD, lambda due: rows, among, drawn)
        return
    before = late.before.detach()[at] if early is None else early.rows(at)
    mask, narrow = (late or early).mask, None if weight is None else weight.detach()
    if narrow is None or len(narrow) >= narrow.shape[1] or not watch.policy.row_stages.delay:
        watch.compare(site, FORWARD, lambda due: run.as_sent(before), among, drawn)
        return
    nodes, rows = run.whole.nodes[at], before.to(narrow.dtype)
    make = lambda due: run.as_sent(mask.drop(rows, nodes, due) @ narrow.t())  # noqa: E731
    watch.compare(site, FORWARD, make, among, drawn)


def watch_gradients(run: Runtime, site: int, rows: Tensor, links: Links) -> None:
    """Watch the gradients of halo rows [h, F] on their way to the owners, where the recipe's stages are in force."""
    if run.watch.sees(BACKWARD) and run.level.policy is run.watch.policy:
        at = run.watch.sample(site, BACKWARD, links)
        run.watch.compare(site, BACKWARD, lambda due: rows[at], links)
