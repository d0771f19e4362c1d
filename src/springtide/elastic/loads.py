"""Bucket loads from several summaries: what a single summary measures is partly chance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from springtide.elastic.snapshot import Snapshot

SUMMARIES = 6
"""How many of the last summaries determine what a row costs."""

Costs = NDArray[np.float64]


def steady_loads(snapshot: Snapshot, history: Sequence[Snapshot], name: str) -> tuple[float, ...]:
    """Return the loads of a subquery's buckets: their current rows, weighted by what rows cost in the last summaries.

    The number of rows in a bucket is known well. Their cost is only known from the time of an instance, which other work on the machine
    lengthens now and then. So rows of all buckets are assumed to cost the same as far as the differences may be chance: as far as
    they are no greater between buckets than from one summary to the next (James and Stein). With a single summary, its measurements count.
    """
    own, measured = snapshot.subqueries[name], snapshot.bucket_loads(name)
    summaries = [r for r in history[-SUMMARIES + 1 :] if name in r.subqueries and _is_known(r, name, len(measured))]
    if own.bucket_busy or not summaries or not any(own.bucket_rows):
        return measured
    costs = np.array([_costs(summary, name) for summary in (*summaries, snapshot)])
    mean = costs.mean(axis=0)
    chance = costs.var(axis=0, ddof=1).mean() / len(costs)
    trust = max(0.0, 1 - chance / mean.var()) if mean.var() else 0.0
    loads = np.array(own.bucket_weights) * (1 + trust * (mean - 1))
    return tuple((loads * sum(measured) / loads.sum()).tolist())


def _is_known(summary: Snapshot, name: str, buckets: int) -> bool:
    own = summary.subqueries[name]
    return len(own.bucket_rows) == buckets and any(own.bucket_rows) and any(own.busy)


def _costs(summary: Snapshot, name: str) -> Costs:
    """Return the cost of a row of each bucket relative to the average row: that of its instance's rows, or 1 if there were none."""
    own = summary.subqueries[name]
    rows = np.bincount(own.map.owners, own.bucket_rows, own.instances)
    used = np.array(summary.utilisation(name))
    average = used[rows > 0].sum() / rows.sum()
    each = np.divide(used, rows * average, out=np.ones_like(used), where=(rows > 0) & (average > 0))
    costs: Costs = each[list(own.map.owners)]
    return costs
