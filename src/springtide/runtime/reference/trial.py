"""A user operator on trial: its input is cut at random places, and its state is written and read again at every cut."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import groupby
from random import Random
from typing import Any

import polars as pl

from springtide.query import steps
from springtide.query.operators import OWN_KEYS, BucketOperator, KeyOperator
from springtide.query.types import END_OF_TIME
from springtide.runtime.reference.operators import Given, OneKey, Routed, by_key, each, route
from springtide.runtime.reference.tuples import BEGINNING_OF_TIME, OrderPlace, Tuple, in_order
from springtide.values.user_code import Caller

Piece = tuple[list[Tuple], int]
"""Tuples that come together, and the time up to which they complete the input."""


def try_cut(label: str, step: steps.Operate, tuples: list[Tuple], random: Random) -> list[Tuple]:
    """Run an operator over input that is cut at random; a good operator returns the same as without cuts."""
    pieces = list(_pieces(in_order(tuples), random))
    caller = Caller(label, step.operator, step.schema)
    if isinstance(step.operator, KeyOperator):
        given = _keys(caller, step, step.operator, pieces, random)
    else:
        given = _buckets(caller, step, step.operator, pieces, random)
    return [Tuple(ts, OrderPlace(""), row, step.schema) for ts, row in given]


def _pieces(tuples: list[Tuple], random: Random) -> Iterator[Piece]:
    cuts = sorted(random.sample(range(1, len(tuples)), random.randint(0, min(8, len(tuples) - 1)))) if tuples else []
    for start, end in zip([0, *cuts], [*cuts, len(tuples)], strict=True):
        if end == len(tuples):
            yield tuples[start:], END_OF_TIME
        else:  # any time after the last of these tuples will do, as long as no later tuple is before it
            following = tuples[end].ts
            yield tuples[start:end], random.randint(min(tuples[end - 1].ts + 1, following), following)


def _buckets(
    caller: Caller, step: steps.Operate, operator: BucketOperator[Any], pieces: list[Piece], random: Random
) -> Iterator[Given]:
    """Spread the keys over a few buckets at random: an operator must keep its keys apart."""
    count = random.randint(1, 3) if step.keys else 1
    bucket_of: dict[tuple[Any, ...], int] = {}
    states = [caller.run("init") for _ in range(count)]
    reached = BEGINNING_OF_TIME
    for tuples, ready_ts in pieces:
        arriving: list[list[Routed]] = [[] for _ in states]
        for t in tuples:
            for bucket, routed in _to_buckets(step, t, bucket_of, count, random):
                arriving[bucket].append(routed)
        for bucket, routed_here in enumerate(arriving):
            if routed_here:
                rows, first = pl.concat([r.row for r in routed_here]), routed_here[0].ts
                yield from each(caller.rows("process", states[bucket], rows, ready_ts, earliest=first, cause=rows))
            yield from each(caller.rows("on_time", states[bucket], ready_ts, earliest=reached))
            written = _through_a_file(caller.run("serialize", states[bucket]))
            caller.run("free", states[bucket])
            states[bucket] = caller.run("deserialize", written)
        reached = ready_ts


def _to_buckets(
    step: steps.Operate, t: Tuple, bucket_of: dict[tuple[Any, ...], int], count: int, random: Random
) -> Iterator[tuple[int, Routed]]:
    """Send a tuple once to each bucket that has any of its keys."""
    buckets: dict[int, list[Routed]] = {}
    for routed in route(step, t):
        bucket = bucket_of.setdefault(routed.order, random.randrange(count))
        buckets.setdefault(bucket, []).append(routed)
    for bucket, together in buckets.items():
        first = together[0]
        if step.many:
            own = pl.concat([r.row[OWN_KEYS].explode() for r in together]).implode().alias(OWN_KEYS)
            first = first._replace(row=first.row.with_columns(own))
        yield bucket, first


def _keys(
    caller: Caller, step: steps.Operate, operator: KeyOperator, pieces: list[Piece], random: Random
) -> Iterator[Given]:
    """Run each key by itself, with as many of its tuples at a time as its timer allows."""
    keys: dict[tuple[Any, ...], OneKey] = {}
    for tuples, ready_ts in pieces:
        for order, routed_here in by_key([r for t in tuples for r in route(step, t)]).items():
            one = keys.setdefault(order, OneKey(caller, operator, routed_here[0].key))
            # One tuple may set a timer that goes off before the next: with a timer, only tuples of the same time go together.
            times = groupby(routed_here, key=lambda r: r.ts if operator.timer is not None else 0)
            for together in (list(now) for _, now in times):
                yield from one.wake(together[0].ts)
                size = random.randint(1, len(together)) if type(operator).keep is KeyOperator.keep else 1
                for i in range(0, len(together), size):
                    some = together[i : i + size]
                    following = together[i + size].ts if i + size < len(together) else some[-1].ts
                    yield from one.process(pl.concat([r.row for r in some]), some[0].ts, following)
        for one in keys.values():
            if ready_ts < END_OF_TIME:
                yield from one.wake(ready_ts)
            if one.state is not None:
                written = pl.DataFrame([one.state], schema=operator.state, orient="row")
                one.state = _through_a_file(written).row(0, named=True)
    greatest = max((t.ts for tuples, _ in pieces for t in tuples), default=BEGINNING_OF_TIME)
    for one in keys.values():
        yield from one.wake(greatest)
        yield from one.wake_once()


def _through_a_file(frame: pl.DataFrame) -> pl.DataFrame:
    file = io.BytesIO()
    frame.write_ipc(file)
    return pl.read_ipc(io.BytesIO(file.getvalue()))
