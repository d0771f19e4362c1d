"""A BucketOperator at runtime: one state per bucket, written in the operator's own way after every epoch that touched it (SM-1).

A state is one row: JSON text where the operator leaves the format to us, otherwise its frame as an Arrow file. The newest row of a bucket counts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from springtide.compiler.plan import Exchange
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, bucket_of
from springtide.exchange.routing import Numbering, buckets_of_list
from springtide.operators import holding, versions
from springtide.operators.operator import Clock, Operator, OperatorResult
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable
from springtide.operators.user.kernel import changes, one_key_each, to_each_bucket
from springtide.query import steps
from springtide.query.errors import UserCodeError, article
from springtide.query.operators import OWN_KEYS, BucketOperator, migrates
from springtide.query.types import END_OF_TIME, TS
from springtide.state.manifest import Marks
from springtide.values.user_code import Caller

HELD = "held"
STATES = "states"

JSON = "json"
FRAME = "frame"


class WrittenBucket(NamedTuple):
    """A state as it is kept: one of the two is None."""

    json: str | None
    frame: bytes | None


class OperatorPerBucket(Operator):
    """A user's BucketOperator."""

    def __init__(self, label: str, step: steps.Operate, buckets: int) -> None:
        """Prepare names and checks."""
        assert isinstance(step.operator, BucketOperator)
        self._label, self._step, self._buckets, self._operator = label, step, buckets, step.operator
        self._input = step.inputs[0].schema.names()
        self._columns = [*self._input, *([OWN_KEYS] if step.many else [])]
        self._told = type(step.operator).on_time is not BucketOperator.on_time
        self.tables = {STATES: StateTable(fold=_newest), HELD: holding.HELD}

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send tuples with their places; a tuple with a list of keys goes once to every instance that has one of them (ST-2)."""
        tuples = tuples.select([*self._input, *order.PLACES])
        if self._step.many:
            return buckets_of_list(tuples, self._step.keys[0], self._buckets)
        return tuples.with_columns(bucket_of(self._step.keys, self._buckets))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Let every bucket with ready tuples process them, and tell every bucket that has a state that time has moved on."""
        before = holding.ready_before(view)
        marks = {holding.TIME_MARK: max(clock.time, before)}
        ended = clock.time == END_OF_TIME
        rows, rejected, states = [pl.DataFrame(schema=self._step.schema)], list[pl.DataFrame](), list[Any]()
        if before == END_OF_TIME:
            return OperatorResult(rows[0], marks)
        ready, held = holding.release(view, HELD, self._expanded(view, arrived[0]), clock)
        for bucket, tuples, kept_state in self._work(view, ready, moved=clock.time > before):
            one = OneBucket(self._caller(bucket), self._operator, kept_state)
            if tuples is not None:
                one.process(tuples, clock.time, self._step)
            if self._told and clock.time > before:
                one.tell(clock.time, before)
            rows += one.given
            rejected += one.rejected
            written = one.let_go(write=not ended)
            if written is not None and written != kept_state:
                states.append((bucket, *written))
        writes = {HELD: held} if held is not None else {}
        if states:
            schema = {BUCKET: pl.UInt16, JSON: pl.String, FRAME: pl.Binary}
            writes[STATES] = versions.versioned(pl.DataFrame(states, schema=schema, orient="row"), view)
        return OperatorResult(
            pl.concat(rows), marks, {} if ended else writes, pl.concat(rejected) if rejected else None
        )

    def migrated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Let the user's code convert states that other code has written."""
        if JSON not in rows.columns or FRAME not in rows.columns or not migrates(self._operator):
            return rows
        made = [
            self._migrated(bucket, WrittenBucket(text, data))
            for bucket, text, data in rows.select(BUCKET, JSON, FRAME).iter_rows()
        ]
        return rows.with_columns(
            pl.Series(JSON, [m.json for m in made], dtype=pl.String),
            pl.Series(FRAME, [m.frame for m in made], dtype=pl.Binary),
        )

    def _migrated(self, bucket: int, kept_state: WrittenBucket) -> WrittenBucket:
        caller = self._caller(bucket)
        old = (
            json.loads(kept_state.json)
            if kept_state.json is not None
            else pl.read_ipc(io.BytesIO(kept_state.frame or b""))
        )
        return written(caller, self._operator, caller.run("migrate", old))

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: tuples are held until they are ready, states are kept until the end."""
        time = marks[holding.TIME_MARK]
        return dict.fromkeys(self.tables, END_OF_TIME + 1) if time == END_OF_TIME else {HELD: time}

    def _caller(self, bucket: int) -> Caller:
        return Caller(f"{self._label}, bucket {bucket}", self._operator, self._step.schema)

    def _expanded(self, view: StateView, arrived: pl.DataFrame | None) -> pl.DataFrame | None:
        if arrived is None or not self._step.many:
            return arrived
        own = np.array(view.map.owners) == view.instance
        return to_each_bucket(arrived, self._step.keys[0], self._buckets, own)

    def _work(
        self, view: StateView, ready: pl.DataFrame | None, *, moved: bool
    ) -> Iterator[tuple[int, pl.DataFrame | None, WrittenBucket | None]]:
        """Yield the buckets to be called, with their tuples in the total order and their kept states."""
        tuples: dict[int, pl.DataFrame] = {}
        if ready is not None:
            rows = order.arrange(ready, self._input).sort(BUCKET, maintain_order=True)
            starts = np.flatnonzero(changes(rows[BUCKET].to_numpy()))
            buckets, chosen = rows[BUCKET][starts].to_list(), rows.select(self._columns)
            bounds = [*starts.tolist(), rows.height]
            tuples = {b: chosen.slice(bounds[i], bounds[i + 1] - bounds[i]) for i, b in enumerate(buckets)}
        told = self._told and moved
        if not tuples and not told:
            return
        found = view.read(STATES)
        kept_states: dict[int, WrittenBucket] = {}
        if found:
            rows = _newest(pl.concat(found))
            rows = rows if told else rows.filter(pl.col(BUCKET).is_in(list(tuples)))
            kept_states = {
                b: WrittenBucket(text, data) for b, text, data in rows.select(BUCKET, JSON, FRAME).iter_rows()
            }
        one = {0} if told and not self._step.keys and view.map.owners[0] == view.instance else set()
        for bucket in sorted({*tuples, *(kept_states if told else ()), *one}):
            yield bucket, tuples.get(bucket), kept_states.get(bucket)


class OneBucket:
    """The state of one bucket while it is being worked on."""

    def __init__(self, caller: Caller, operator: BucketOperator[Any], kept_state: WrittenBucket | None) -> None:
        """Restore the kept state, or create a new one."""
        self._caller, self._operator, self._kept_state = caller, operator, kept_state
        self._state = self._made(kept_state)
        self._taken = kept_state is not None
        self.given: list[pl.DataFrame] = []
        self.rejected: list[pl.DataFrame] = []

    def process(self, tuples: pl.DataFrame, ready_ts: int, step: steps.Operate) -> None:
        """Process tuples all at once; if that fails, start again in parts, to find the row that causes the failure."""
        first = tuples[TS].to_physical()[0]
        try:
            self.given.append(self._caller.rows("process", self._state, tuples, ready_ts, earliest=first, cause=tuples))
            self._taken = True
        except UserCodeError:
            self._carefully(one_key_each(tuples) if step.many else tuples, step)

    def tell(self, time: int, before: int) -> None:
        """Tell the state that time has moved on."""
        self.given.append(self._caller.rows("on_time", self._state, time, earliest=before))
        self._taken = True

    def let_go(self, *, write: bool) -> WrittenBucket | None:
        """Write the state down if it is worth keeping, and release it."""
        written = self._written() if write and self._taken else None
        self._caller.run("free", self._state)
        return written

    def _carefully(self, tuples: pl.DataFrame, step: steps.Operate) -> None:
        """Process by halves: each half that fails is halved again, from the state before it, until a single row is left."""
        times = tuples[TS].to_physical().to_list()
        safe, todo = self._kept_state, [range(tuples.height)]
        self._again(safe)
        while todo:
            some = todo.pop()
            part = tuples.slice(some[0], len(some))
            try:
                self.given.append(
                    self._caller.rows(
                        "process", self._state, part, times[some[-1]], earliest=times[some[0]], cause=part
                    )
                )
            except UserCodeError as error:
                if len(some) == 1 and step.on_error == "fail":
                    raise
                if len(some) == 1:
                    names, why = step.inputs[0].schema.names(), pl.lit(error.problem).alias(steps.REASON)
                    self.rejected.append(part.select(names).with_columns(why))
                else:
                    half = len(some) // 2
                    todo += [some[half:], some[:half]]
                self._again(safe)
                continue
            self._taken, safe = True, self._written()

    def _again(self, kept_state: WrittenBucket | None) -> None:
        self._caller.run("free", self._state)
        self._state = self._made(kept_state)

    def _made(self, kept_state: WrittenBucket | None) -> Any:
        if kept_state is None:
            return self._caller.run("init")
        if kept_state.json is not None:
            frame = pl.DataFrame({JSON: [kept_state.json]})
        else:
            frame = pl.read_ipc(io.BytesIO(kept_state.frame or b""))
        return self._caller.run("deserialize", frame)

    def _written(self) -> WrittenBucket:
        return written(self._caller, self._operator, self._state)


def written(caller: Caller, operator: BucketOperator[Any], state: Any) -> WrittenBucket:
    """Let the user's code write a state down."""
    frame = caller.run("serialize", state)
    if not isinstance(frame, pl.DataFrame):
        problem = f"{type(operator).__name__}.serialize returned {article(type(frame).__name__)}"
        raise caller.wrong(problem, "return a DataFrame", None)
    if frame.height == 1 and frame.schema == {JSON: pl.String}:
        return WrittenBucket(frame[JSON][0], None)
    data = io.BytesIO()
    frame.write_ipc(data)
    return WrittenBucket(None, data.getvalue())


def _newest(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort(versions.VERSION, descending=True).unique(BUCKET, keep="first", maintain_order=True)
