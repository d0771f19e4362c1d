"""Loads of buckets by several reports: what one of them measures is partly chance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from springtide.elastic.snapshot import Snapshot

REPORTS = 6
"""How many of the last reports say what a row costs."""

Costs = NDArray[np.float64]


def steady_loads(snapshot: Snapshot, history: Sequence[Snapshot], name: str) -> tuple[float, ...]:
    """Return the loads of a subquery's buckets: the rows that they have now, by what rows cost in the last reports.

    How many rows a bucket has is known well. What they cost is known by the time of an instance, which other work on the machine makes
    longer now and then. So rows of all buckets are taken to cost the same as far as the differences can be chance: as far as
    they are no greater between buckets than from one report to the next (James and Stein). After a first report what was measured counts.
    """
    own, measured = snapshot.subqueries[name], snapshot.bucket_loads(name)
    reports = [r for r in history[-REPORTS + 1 :] if name in r.subqueries and _is_known(r, name, len(measured))]
    if own.bucket_busy or not reports or not any(own.bucket_rows):
        return measured
    costs = np.array([_costs(report, name) for report in (*reports, snapshot)])
    mean = costs.mean(axis=0)
    chance = costs.var(axis=0, ddof=1).mean() / len(costs)
    trust = max(0.0, 1 - chance / mean.var()) if mean.var() else 0.0
    loads = np.array(own.bucket_weights) * (1 + trust * (mean - 1))
    return tuple((loads * sum(measured) / loads.sum()).tolist())


def _is_known(report: Snapshot, name: str, buckets: int) -> bool:
    own = report.subqueries[name]
    return len(own.bucket_rows) == buckets and any(own.bucket_rows) and any(own.busy)


def _costs(report: Snapshot, name: str) -> Costs:
    """Return what a row of each bucket cost beside the average row: as much as the rows of its instance; 1 where there were none."""
    own = report.subqueries[name]
    rows = np.bincount(own.map.owners, own.bucket_rows, own.instances)
    used = np.array(report.utilisation(name))
    average = used[rows > 0].sum() / rows.sum()
    each = np.divide(used, rows * average, out=np.ones_like(used), where=(rows > 0) & (average > 0))
    costs: Costs = each[list(own.map.owners)]
    return costs
