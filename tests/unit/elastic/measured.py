"""Snapshots as tests need them: a prefix and one stateful subquery behind it."""

from __future__ import annotations

from collections.abc import Sequence

from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap


def measured(
    utilisation: Sequence[float],
    *,
    time: float = 0.0,
    period: float = 5.0,
    rows: int = 1000,
    arrived: int | None = None,
    backlog: int = 0,
    buckets: BucketMap | None = None,
    bucket_rows: Sequence[int] = (),
    slots: int | None = None,
) -> Snapshot:
    """`heavy` is as busy as said in a query of one stage; nothing waits between epochs."""
    own = buckets or BucketMap.even(64, len(utilisation))
    n = len(utilisation)
    share = tuple(rows // n for _ in range(n))
    busy = tuple(u * period for u in utilisation)
    # Its stage took the whole time: the only one.
    heavy = SubqueryLoad(own, share, share, busy, span=period, sources=("calls",), bucket_rows=tuple(bucket_rows))
    return Snapshot(
        time, int(time), period, period, {"calls": SourceLoad(rows, arrived, backlog)}, {"heavy": heavy}, slots=slots
    )
