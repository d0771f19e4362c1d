"""The processing state θ of a step (SE-1): rows by kind, cut into parts and put together again.

State is a log, so rows keep their place in it through everything: later versions of a key stay after earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from springtide.query.errors import SpringtideError
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Marks

By = Literal["hash", "range", "load"]

BUCKET, PLACE = "__bucket", "__place"
"""The bucket of a row, as segments have it, and its place in the log."""


@dataclass(frozen=True, eq=False)
class ProcessingState:
    """The processing state θ of a stateful step, or a part of it, with its timestamps τ and its routing ρ."""

    step: str
    rows: Mapping[str, pl.DataFrame]
    """By kind, in the order of the log; `__place` says where a row stands in it."""
    marks: Marks
    """τ: how far the step has come; all before is in the rows, and none of what comes after."""
    routing: BucketMap
    """ρ: who has which bucket."""
    keys: tuple[str, ...] = ()
    load: tuple[int, ...] = ()
    """Rows that came for each bucket of late; empty where nobody measured."""
    buckets: tuple[int, ...] = ()
    """What this part is of: these buckets,"""
    span: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None
    """or the keys from the first to the last of these."""

    def __eq__(self, other: object) -> bool:
        """Compare everything that a step would see."""
        return (
            isinstance(other, ProcessingState)
            and (self.step, dict(self.marks), self.routing) == (other.step, dict(other.marks), other.routing)
            and (self.buckets, self.span) == (other.buckets, other.span)
            and self.rows.keys() == other.rows.keys()
            and all(f.schema == other.rows[k].schema and f.equals(other.rows[k]) for k, f in self.rows.items())
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def height(self) -> int:
        """Count the rows."""
        return sum(frame.height for frame in self.rows.values())


def partition(state: ProcessingState, k: int, by: By = "hash") -> list[ProcessingState]:
    """Cut processing state into k parts, none of which has a key of another; `merge` makes of them what there was.

    By "hash": runs of neighbouring buckets, as many for each part. By "load": such runs with about the same load, as it was observed, or by
    the rows that they hold. By "range": runs of neighbouring keys with about the same number of rows.
    """
    if k < 1:
        raise SpringtideError(f"step {state.step}: state cannot be cut into {k} parts; give at least 1")
    if by == "range":
        return _by_range(state, k)
    if by not in ("hash", "load"):
        raise SpringtideError(
            f'step {state.step}: partition by {by!r} is unknown; there are "hash", "range" and "load"'
        )
    weights = np.ones(len(state.buckets)) if by == "hash" else _weights(state)
    ends = _cuts(weights, k)
    return [_part(state, state.buckets[a:b]) for a, b in zip([0, *ends], [*ends, len(state.buckets)], strict=True)]


def merge(parts: Sequence[ProcessingState]) -> ProcessingState:
    """Put parts of the state of one step together."""
    if not parts:
        raise SpringtideError("there is nothing to merge; give the parts that `partition` made")
    first = parts[0]
    for part in parts[1:]:
        if (part.step, dict(part.marks), part.routing) != (first.step, dict(first.marks), first.routing):
            raise SpringtideError(
                f"step {part.step}: parts of different states cannot be merged; take the parts of one checkpoint"
            )
    if first.span is None and len(set().union(*(p.buckets for p in parts))) < sum(len(p.buckets) for p in parts):
        raise SpringtideError(f"step {first.step}: some buckets are in several parts; take each part once")
    kinds = dict.fromkeys(kind for part in parts for kind in part.rows)
    rows = {kind: pl.concat([p.rows[kind] for p in parts if kind in p.rows]).sort(PLACE) for kind in kinds}
    buckets = first.buckets if first.span is not None else tuple(sorted(b for p in parts for b in p.buckets))
    return replace(first, rows=rows, buckets=buckets, span=None)


def _cuts(weights: np.ndarray, k: int) -> list[int]:
    """Cut a row of weights into k runs of about the same sum; return where all but the first begin.

    >>> _cuts(np.array([1, 1, 1, 1, 4, 4]), 3)
    [4, 5]
    """
    total = np.cumsum(weights)
    marks = total[-1] * np.arange(1, k) / k if total.size else np.zeros(k - 1)
    return [int(n) for n in np.searchsorted(total - weights / 2, marks)]


def _weights(state: ProcessingState) -> np.ndarray:
    load = np.array(state.load, dtype=float)
    if not load.sum():
        load = np.zeros(len(state.routing.owners))
        for frame in state.rows.values():
            load += np.bincount(frame[BUCKET].to_numpy(), minlength=load.size)
    return load[np.array(state.buckets, dtype=np.int64)] if load.sum() else np.ones(len(state.buckets))


def _part(state: ProcessingState, buckets: tuple[int, ...]) -> ProcessingState:
    wanted = pl.col(BUCKET).is_in(list(buckets))
    return replace(state, rows={kind: frame.filter(wanted) for kind, frame in state.rows.items()}, buckets=buckets)


def _by_range(state: ProcessingState, k: int) -> list[ProcessingState]:
    keys = list(state.keys)
    if not keys:
        raise SpringtideError(f'step {state.step} has no keys, so no ranges of them; partition its state by "hash"')
    for kind, frame in state.rows.items():
        if missing := [key for key in keys if key not in frame.columns]:
            raise SpringtideError(
                f'step {state.step}: its {kind} have no column {missing[0]}; partition its state by "hash"'
            )
    empty = pl.DataFrame(schema=dict.fromkeys(keys, pl.Null))
    every = [frame.select(keys) for frame in state.rows.values()]
    counted = (pl.concat(every) if every else empty).group_by(keys).len().sort(keys, nulls_last=False)
    ends = _cuts(counted["len"].to_numpy().astype(float), k)
    numbers = np.searchsorted(np.array(ends), np.arange(counted.height), side="right")
    known = counted.select(keys).with_columns(pl.Series("__part", numbers, dtype=pl.Int64))
    numbered = {
        kind: frame.join(known, on=keys, how="left", nulls_equal=True, maintain_order="left")
        for kind, frame in state.rows.items()
    }
    spans = [known.filter(pl.col("__part") == n).select(keys) for n in range(k)]
    return [
        replace(
            state,
            rows={kind: frame.filter(pl.col("__part") == n).drop("__part") for kind, frame in numbered.items()},
            span=(spans[n].row(0), spans[n].row(-1)) if spans[n].height else ((), ()),
        )
        for n in range(k)
    ]
