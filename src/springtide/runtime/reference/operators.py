"""User operators: ready tuples in the total order, one at a time; every key has its own state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import polars as pl

from springtide.query import steps
from springtide.query.errors import UserCodeError
from springtide.query.operators import OWN_KEYS, KeyOperator
from springtide.query.types import END_OF_TIME, TS
from springtide.runtime.reference.tuples import BEGINNING_OF_TIME, OrderPlace, Tuple, in_order
from springtide.runtime.reference.values import frame_of, order_key
from springtide.values.user_code import Caller

Given = tuple[int, pl.DataFrame]
"""An output row with its ts."""

Rejected = tuple[pl.DataFrame, str]
"""A row for which `process` failed, and why."""


class Routed(NamedTuple):
    """A tuple on its way to the state of one key."""

    order: tuple[Any, ...]
    """The key in a form that can be compared."""
    key: tuple[Any, ...]
    """The key as the user sees it."""
    ts: int
    row: pl.DataFrame


def operate(
    label: str, origin: str, step: steps.Operate, tuples: list[Tuple], time: int, greatest: int
) -> dict[str, list[Tuple]]:
    """Run a user's operator over the ready tuples, and advance time to `time`; return its rows and those that it rejects."""
    caller = Caller(label, step.operator, step.schema)
    rejected: list[Rejected] | None = [] if step.on_error == "reject" else None
    ready = [routed for t in in_order(tuples) if t.ts < time for routed in route(step, t)]
    if isinstance(step.operator, KeyOperator):
        given = [
            row
            for tuples in by_key(ready).values()
            for row in run_key(caller, step.operator, tuples, time, greatest, rejected)
        ]
    else:
        given = list(_run_buckets(caller, ready, time, keyed=bool(step.keys), rejected=rejected))
    sides = [
        row.select(step.inputs[0].schema.names()).with_columns(pl.lit(why).alias(steps.REASON))
        for row, why in rejected or ()
    ]
    return {
        steps.OUT: [Tuple(ts, OrderPlace(origin), row, step.schema) for ts, row in given],
        steps.REJECTED: [Tuple(0, OrderPlace(origin), row, step.rejected) for row in sides],
    }


def route(step: steps.Operate, t: Tuple) -> Iterator[Routed]:
    """Send a tuple to the state of its key, or of each of its distinct keys; without keys, to the only state."""
    if not step.many:
        key = t.frame.select(step.keys).row(0) if step.keys else ()
        yield Routed(tuple(order_key(t.values[n]) for n in step.keys), key, t.ts, t.frame)
        return
    (column,) = step.keys
    different = dict(zip(t.values[column] or [], t.frame[column].to_list()[0] or [], strict=True))
    for plain, key in different.items():
        own = frame_of([{OWN_KEYS: [plain]}], pl.Schema({OWN_KEYS: t.frame.schema[column]}))
        yield Routed((order_key(plain),), (key,), t.ts, t.frame.hstack(own))


def by_key(ready: list[Routed]) -> dict[tuple[Any, ...], list[Routed]]:
    """Return the tuples of each key, with the keys in order."""
    keys: dict[tuple[Any, ...], list[Routed]] = {}
    for routed in ready:
        keys.setdefault(routed.order, []).append(routed)
    return {order: keys[order] for order in sorted(keys)}


def each(rows: pl.DataFrame) -> Iterator[Given]:
    """Return output rows one by one."""
    for i, ts in enumerate(rows[TS].to_physical().to_list()):
        yield ts, rows.slice(i, 1)


def _run_buckets(
    caller: Caller, ready: list[Routed], time: int, *, keyed: bool, rejected: list[Rejected] | None
) -> Iterator[Given]:
    """Run a BucketOperator with one state per key: time advances to x, then the tuples at x are processed."""
    states: dict[tuple[Any, ...], Any] = {} if keyed else {(): caller.run("init")}
    reached = BEGINNING_OF_TIME
    for ts, now in groupby(ready, key=lambda routed: routed.ts):
        for order in sorted(states):
            yield from each(caller.rows("on_time", states[order], ts, earliest=reached))
        reached = ts
        for routed in now:
            yield from _process(caller, states, routed, rejected)
    for order in sorted(states):
        if time > reached:
            yield from each(caller.rows("on_time", states[order], time, earliest=reached))
        caller.run("free", states[order])


def _process(
    caller: Caller, states: dict[tuple[Any, ...], Any], routed: Routed, rejected: list[Rejected] | None
) -> Iterator[Given]:
    """Let a state process one tuple; if the tuple is rejected, the state is rebuilt from how it was serialised before."""
    known, row = routed.order in states, routed.row
    state = states[routed.order] if known else caller.run("init")
    before = caller.run("serialize", state).clone() if known and rejected is not None else None
    try:
        rows = caller.rows("process", state, row, routed.ts, earliest=routed.ts, cause=row)
    except UserCodeError as error:
        if rejected is None:
            raise
        rejected.append((row, error.problem))
        caller.run("free", state)
        if known:
            states[routed.order] = caller.run("deserialize", before)
        return
    states[routed.order] = state
    yield from each(rows)


def run_key(
    caller: Caller,
    operator: KeyOperator,
    tuples: list[Routed],
    time: int,
    greatest: int,
    rejected: list[Rejected] | None = None,
) -> Iterator[Given]:
    """Run a KeyOperator over the tuples of one key; a timer goes off before the tuples of its time."""
    one = OneKey(caller, operator, tuples[0].key, rejected)
    for ts, now in groupby(tuples, key=lambda routed: routed.ts):
        yield from one.wake(ts)
        for routed in now:
            yield from one.process(routed.row, ts, ts)
    if time < END_OF_TIME:
        yield from one.wake(time)
    else:
        # Periodic timers would go on for ever: time advances to the greatest time that is known, and then the timer goes off once more.
        yield from one.wake(greatest)
        yield from one.wake_once()


class OneKey:
    """A KeyOperator at work on one key: its state, and the time that it has reached."""

    def __init__(
        self, caller: Caller, operator: KeyOperator, key: tuple[Any, ...], rejected: list[Rejected] | None = None
    ) -> None:
        """Start without a state: it is made with the first tuple. Rows that fail are added to `rejected`; without it, they raise an error."""
        self._caller, self._operator, self._key, self._rejected = caller, operator, key, rejected
        self._schema = pl.Schema(operator.state)
        self._reached = BEGINNING_OF_TIME
        self.state: dict[str, Any] | None = None

    def process(self, rows: pl.DataFrame, ts: int, ready_ts: int) -> Iterator[Given]:
        """Process tuples, the first of which is at `ts`."""
        before = copy.deepcopy(self.state) if self._rejected is not None else None
        if self.state is None:
            self.state = self._caller.state("init", self._caller.run("init", self._key, cause=rows), self._schema)
        try:
            given = self._caller.rows("process", self._key, self.state, rows, ready_ts, earliest=ts, cause=rows)
            self._settle("process")
        except UserCodeError as error:
            if self._rejected is None:
                raise
            self._rejected.append((rows, error.problem))
            self.state = before
            return
        self._reached = ts
        yield from each(given)

    def wake(self, until: int) -> Iterator[Given]:
        """Let the timer go off for as long as it is set to a time that has come."""
        while (timer := self.timer) is not None and timer <= until:
            yield from self.wake_once()

    def wake_once(self) -> Iterator[Given]:
        """Let the timer go off, if it is set. A timer that is set to the past goes off at the time of what set it."""
        timer = self.timer
        if timer is None:
            return
        self._reached = max(timer, self._reached)
        yield from each(self._caller.rows("on_time", self._key, self.state, self._reached, earliest=self._reached))
        self._settle("on_time")
        self._caller.check_timer(self.timer, self._reached, self.state)

    @property
    def timer(self) -> int | None:
        """The time at which the key wants to be called."""
        if self.state is None or self._operator.timer is None:
            return None
        timer: int | None = self.state[self._operator.timer]
        return timer

    def _settle(self, method: str) -> None:
        """Check the state after a call, and drop it if it is not worth keeping."""
        state = self._caller.state(method, self.state, self._schema)
        if not self._caller.run("keep", self._key, state):
            self.state = None
