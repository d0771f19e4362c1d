"""Buckets as the page shows them: how much work and state each has, and who owns it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from springtide.elastic.snapshot import Snapshot

HOTTEST = 10
"""How many buckets are followed over time."""


def buckets(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Return the buckets of a subquery: load (as a share of an instance's time), rows, bytes of state, owner."""
    own = snapshot.subqueries[name]
    period = snapshot.period or 1.0
    return {
        "subquery": name,
        "epoch": snapshot.epoch,
        "time": snapshot.time,
        "instances": own.instances,
        "version": own.map.version,
        "owners": list(own.map.owners),
        "load": [round(load, 5) for load in snapshot.bucket_loads(name)],
        "rows": [round(rows / period, 2) for rows in own.bucket_rows],
        "bytes": list(own.bucket_bytes),
        "utilisation": [round(used, 4) for used in snapshot.utilisation(name)],
        "grid": list(own.grid) if own.grid else None,
    }


def hottest(snapshots: Sequence[Snapshot], name: str, most: int = HOTTEST) -> dict[str, Any]:
    """Follow the busiest buckets over time: the share of all rows that each had, and its owner at each moment."""
    seen = [s for s in snapshots if name in s.subqueries and any(s.subqueries[name].bucket_rows)]
    if not seen:
        return {"subquery": name, "t": [], "epoch": [], "buckets": []}
    wide = len(seen[-1].subqueries[name].bucket_rows)
    seen = [s for s in seen if len(s.subqueries[name].bucket_rows) == wide]
    rows = np.array([s.subqueries[name].bucket_rows for s in seen], dtype=np.float64)
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0)
    order = np.argsort(-shares.max(axis=0), kind="stable")[:most]
    return {
        "subquery": name,
        "t": [round(s.time, 3) for s in seen],
        "epoch": [s.epoch for s in seen],
        "buckets": [
            {
                "bucket": int(b),
                "share": [round(share, 4) for share in shares[:, b].tolist()],
                "owner": [s.subqueries[name].map.owners[b] for s in seen],
            }
            for b in order
        ],
    }
