"""The rows of a run as they are published, to loop over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import NamedTuple

import polars as pl

from springtide.compiler.plan import Plan
from springtide.connectors import InMemory
from springtide.query import steps
from springtide.query.errors import QueryError, nearest


class Kept(NamedTuple):
    """A sink in memory, and the epochs that it had before this run."""

    sink: InMemory
    before: frozenset[int]


class Results:
    """What the sinks in memory get in one run."""

    def __init__(self, plan: Plan) -> None:
        """Remember what they have now, before the run publishes anything."""
        self._query = f"{plan.graph.name} (query)"
        sinks = {name: s.connector for name, s in plan.graph.of_kind(steps.Sink).items()}
        self._kept = {n: Kept(s, frozenset(s.epochs)) for n, s in sinks.items() if isinstance(s, InMemory)}

    def replaced(self, plan: Plan) -> Results:
        """Return what the sinks of another form of the query get; those that stay have what they had."""
        other = Results(plan)
        known = {id(kept.sink): kept for kept in self._kept.values()}
        other._kept = {name: known.get(id(kept.sink), kept) for name, kept in other._kept.items()}
        return other

    def of(self, sink: str | None, finished: Event, end: Callable[[], object]) -> Iterator[pl.DataFrame]:
        """Return the rows of one sink, epoch after epoch, until the run has finished; `end` raises what stopped it."""
        return _follow(self._chosen(sink), finished, end)

    def _chosen(self, sink: str | None) -> Kept:
        if not self._kept:
            hint = "add one: stream.to(st.memory_sink()); or read what the sinks have written"
            raise QueryError(self._query, "none of its sinks keeps its rows in memory", hint)
        if sink is None and len(self._kept) > 1:
            raise QueryError(
                self._query, "several sinks keep rows in memory", f"name one of them: {', '.join(self._kept)}"
            )
        name = next(iter(self._kept)) if sink is None else sink
        if name not in self._kept:
            raise QueryError(self._query, f"there is no sink {name!r} in memory", nearest(name, self._kept))
        return self._kept[name]


_LOOK = 0.05
"""Seconds between two looks for rows."""


def _follow(kept: Kept, finished: Event, end: Callable[[], object]) -> Iterator[pl.DataFrame]:
    given = set(kept.before)
    while True:
        last = finished.is_set()  # asked first: what was published before the end is given below
        for epoch in sorted({*list(kept.sink.epochs)} - given):  # a copy: the run keeps adding
            given.add(epoch)
            rows = kept.sink.epochs[epoch]
            if rows.height:
                yield rows
        if last:
            end()
            return
        finished.wait(_LOOK)
