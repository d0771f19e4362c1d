"""The gate: the deterministic merge in front of every stateful operator (SC-7, ST-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from springtide.exchange.blob import Times
from springtide.query.ids import Micros
from springtide.query.types import TS

BEGINNING = Micros(-(2**63))
"""The time of a physical stream that has not delivered a tuple yet."""

UNSEEN = ""
"""Stands in for the physical streams of a source that has shown none yet and was found idle; it is removed when the first one comes."""


def start(streams: Mapping[str, Micros]) -> Micros:
    """Return the time at which a newly seen physical stream begins: the merged time of those that its source already has.

    >>> start({"0": 5, "1": 7})
    5
    """
    return min(streams.values(), default=BEGINNING)


def later(before: Times, news: Iterable[Times]) -> dict[str, dict[str, Micros]]:
    """Return each physical stream's latest time, from what senders saw and what was known before.

    The merged time never goes back: a stream that was not known before does not begin before it.

    >>> later({"a": {"0": 5}}, [{"a": {"1": 3}}, {"a": {"0": 9}}])
    {'a': {'0': 9, '1': 5}}
    """
    times = {source: dict(streams) for source, streams in before.items()}
    starts = {source: start(streams) for source, streams in before.items()}
    for seen in news:
        for source, streams in seen.items():
            known = times.setdefault(source, {})
            for stream, time in streams.items():
                known[stream] = max(time, known.get(stream, starts.get(source, BEGINNING)))
    for known in times.values():
        if len(known) > 1:
            known.pop(UNSEEN, None)
    return times


def greatest(before: Mapping[str, Micros], news: Iterable[Mapping[str, Micros]]) -> dict[str, Micros]:
    """Return each source's greatest time, from what senders saw and what was known before."""
    known = dict(before)
    for seen in news:
        for source, time in seen.items():
            known[source] = max(time, known.get(source, BEGINNING))
    return known


def merged_time(times: Times, sources: Iterable[str]) -> Micros:
    """Return the time up to which the input of an operator downstream of `sources` is complete.

    >>> merged_time({"a": {"0": 5, "1": 7}, "b": {"0": 6}}, ["a", "b"])
    5
    """
    streams: list[Mapping[str, Micros]] = [times.get(source, {}) for source in sources]
    if any(not s for s in streams):
        return BEGINNING
    return min((time for s in streams for time in s.values()), default=BEGINNING)


def hold_back(
    waiting: Iterable[pl.DataFrame], arrived: pl.DataFrame | None, before: Micros, time: Micros
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Return the tuples that have become ready, in no particular order, and those that arrived but have to wait.

    A tuple is ready when the merged time is past it: from then on, no tuple can come that is before it in the total order. `before` is the merged
    time of the last epoch; `waiting` holds tuples that were not ready then, possibly among some that were.
    """
    ready, held = [], None
    for old in waiting:
        ts = old[TS].to_physical()
        ready.append(old.filter((ts >= before) & (ts < time)))
    if arrived is not None:
        now = arrived[TS].to_physical() < time
        ready.append(arrived.filter(now))
        held = arrived.filter(~now)
    ready = [r.select(ready[-1].columns) for r in ready if r.height]
    return pl.concat(ready) if ready else None, held
