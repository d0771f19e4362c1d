"""A KeyOperator at runtime: one row of state per key, of which the newest version counts; timers are kept separately and found by their time.

- `states`: hash, key, `state.…`. Written for every key that was called; a key whose state is dropped is written as a row that is not alive.
- `timers`: hash, key, time (the slot). Written when a timer was set; the state shows whether it is still set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from springtide.compiler.plan import Exchange
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH, bucket_of_hash, hash_of
from springtide.exchange.routing import Numbering, buckets_of_list
from springtide.operators import holding, versions
from springtide.operators.operator import Clock, Operator, OperatorResult
from springtide.operators.state_view import StateView
from springtide.operators.tables import ALIVE, StateTable
from springtide.operators.user.calling import Block, State, Until, Worker
from springtide.operators.user.kernel import KEY, in_runs, to_each_key
from springtide.operators.user.one_by_one import CarefulKey
from springtide.query import steps
from springtide.query.operators import OWN_KEYS, KeyOperator, migrates
from springtide.query.types import END_OF_TIME
from springtide.state.manifest import Marks
from springtide.values.row_checks import Misfit
from springtide.values.user_code import Caller, columns_of

HELD = "held"
STATES = "states"
TIMERS = "timers"

TIMER = "__timer"
_START, _END = "__start", "__end"
_KEYS = 1 << 15
"""How many keys are worked on at once: meanwhile their tuples and rows are Python objects."""


@dataclass
class Made:
    """What is made in an epoch, block by block."""

    rows: list[pl.DataFrame] = field(default_factory=list)
    states: list[pl.DataFrame] = field(default_factory=list)
    timers: list[pl.DataFrame] = field(default_factory=list)
    rejected: list[pl.DataFrame] = field(default_factory=list)


class OperatorPerKey(Operator):
    """A user's KeyOperator."""

    def __init__(self, label: str, step: steps.Operate, buckets: int) -> None:
        """Prepare names and checks."""
        assert isinstance(step.operator, KeyOperator)
        self._label, self._step, self._buckets, self._operator = label, step, buckets, step.operator
        self._input = step.inputs[0].schema.names()
        self._columns = [*self._input, *([OWN_KEYS] if step.many else [])]
        self._keys = list(step.keys)
        self._in_tuples = [KEY] if step.many else self._keys
        self._prefix = "state."
        while any(k.startswith(self._prefix) for k in self._keys):  # keys stand next to the state's columns
            self._prefix += "."
        self._state = pl.Schema({self._prefix + n: t for n, t in pl.Schema(step.operator.state).items()})
        self._timer = self._prefix + (step.operator.timer or "")
        self._worker = Worker(step.operator, step.schema)
        self.tables = {STATES: versions.keyed(self._keys), HELD: holding.HELD}
        if step.operator.timer is not None:
            self.tables[TIMERS] = StateTable(slot=TIMER, fold=versions.keyed(self._keys).fold, versions=True)

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send tuples with their places; a tuple with a list of keys goes once to every instance that has one of them (ST-2)."""
        tuples = tuples.select([*self._input, *order.PLACES])
        if self._step.many:
            return buckets_of_list(tuples, self._step.keys[0], self._buckets)
        return tuples.with_columns(hash_of(self._step.keys)).with_columns(bucket_of_hash(pl.col(HASH), self._buckets))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Do the work of all keys that have ready tuples or timers that are due."""
        before = holding.ready_before(view)
        nothing, marks = pl.DataFrame(schema=self._step.schema), {holding.TIME_MARK: max(clock.time, before)}
        if before == END_OF_TIME:
            return OperatorResult(nothing, marks)
        ready, held = holding.release(view, HELD, self._expanded(view, arrived[0]), clock)
        ended = clock.time == END_OF_TIME
        until, done = Until(clock.greatest if ended else clock.time, ended), Made()
        for block, keys in self._blocks(view, ready, before, clock.time):
            self._work(block, keys, until, done)
        writes = {} if held is None else {HELD: held}
        for table, parts in ((STATES, done.states), (TIMERS, done.timers)):
            if parts:
                writes[table] = versions.versioned(pl.concat(parts), view)
        rejected = pl.concat(done.rejected) if done.rejected else None
        return OperatorResult(pl.concat(done.rows) if done.rows else nothing, marks, {} if ended else writes, rejected)

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: tuples until they are ready, timers until they have gone off, and states until the end."""
        time = marks[holding.TIME_MARK]
        return dict.fromkeys(self.tables, END_OF_TIME + 1) if time == END_OF_TIME else {HELD: time, TIMERS: time + 1}

    def migrated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Let the user's code convert states that other code has written; timers stay as they are."""
        if ALIVE not in rows.columns or TIMER in rows.columns or not migrates(self._operator):
            return rows
        old = rows.select(pl.col(f"^{re.escape(self._prefix)}.*$").name.map(lambda n: n.removeprefix(self._prefix)))
        caller, timer = Caller(self._label, self._operator, self._step.schema), self._operator.timer
        made: list[dict[str, Any]] = []
        for state, alive in zip(old.iter_rows(named=True), rows[ALIVE], strict=True):
            new = caller.run("migrate", dict(state)) if alive else dict.fromkeys(self._operator.state)
            if alive and timer is not None and isinstance(new, dict) and new.get(timer) != state.get(timer):
                raise caller.wrong(
                    f"{type(self._operator).__name__}.migrate changed the timer {timer!r}", "leave it as it was", None
                )
            made.append(new)
        try:
            columns = columns_of(made, pl.Schema(self._operator.state))
        except (Misfit, TypeError) as error:
            problem = f"{type(self._operator).__name__}.migrate returned something that is not a state: {error}"
            raise caller.wrong(problem, "return a dict with the columns of `state`", None) from error
        kept = rows.select(pl.exclude(f"^{re.escape(self._prefix)}.*$"))
        made_now = kept.with_columns(c.alias(self._prefix + c.name) for c in columns)
        first = [c for c in kept.columns if c != versions.VERSION]
        return made_now.select(*first, *self._state, versions.VERSION)  # in the same order as rows that are written now

    def _expanded(self, view: StateView, arrived: pl.DataFrame | None) -> pl.DataFrame | None:
        if arrived is None or not self._step.many:
            return arrived
        own = np.array(view.map.owners) == view.instance
        return to_each_key(arrived, self._step.keys[0], self._buckets, own)

    # ── blocks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _blocks(
        self, view: StateView, ready: pl.DataFrame | None, before: int, time: int
    ) -> Iterator[tuple[Block, pl.DataFrame]]:
        """Bring keys, tuples and states together, some keys at a time."""
        work, tuples = self._with_tuples(ready)
        due = self._due(view, before, time)
        hashes = pl.concat([work[HASH], due]) if due is not None else work[HASH]
        found = versions.find(view, STATES, hashes, self._keys)
        kept_state = self._no_kept_state() if found is None else found.filter(ALIVE).select(self._kept_columns)
        on = [HASH, *self._keys]
        if due is not None and kept_state.height:
            late = kept_state.filter(pl.col(self._timer) <= time).join(work, on=on, how="anti", nulls_equal=True)
            work = pl.concat(
                [work, late.select(BUCKET, *on, *(pl.lit(0, dtype=pl.Int64).alias(c) for c in (_START, _END)))]
            )
        work = work.join(kept_state.drop(BUCKET), on=on, how="left", nulls_equal=True, maintain_order="left")
        for start in range(0, work.height, _KEYS):
            some = work.slice(start, _KEYS)
            yield self._block(some, tuples), some

    @property
    def _kept_columns(self) -> list[str]:
        return [BUCKET, HASH, *self._keys, ALIVE, *self._state]

    def _no_kept_state(self) -> pl.DataFrame:
        inputs = self._step.inputs[0].schema
        types = [inputs[k].inner if self._step.many else inputs[k] for k in self._step.keys]  # type: ignore[attr-defined]
        keys = dict(zip(self._keys, types, strict=True))
        schema = {BUCKET: pl.UInt16(), HASH: pl.UInt64(), **keys, ALIVE: pl.Boolean(), **self._state}
        return pl.DataFrame(schema=schema)

    def _with_tuples(self, ready: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Bring the tuples of each key together; return the keys with the bounds of their tuples, and the tuples."""
        if ready is None:
            bare = self._no_kept_state().drop(ALIVE, *self._state).schema
            inputs = {**self._step.inputs[0].schema, **({OWN_KEYS: pl.List(pl.Null)} if self._step.many else {})}
            return pl.DataFrame(schema={**bare, _START: pl.Int64(), _END: pl.Int64()}), pl.DataFrame(schema=inputs)
        rows, starts = in_runs(ready, self._in_tuples, self._input)
        names = [pl.col(a).alias(b) for a, b in zip(self._in_tuples, self._keys, strict=True)]
        keys = rows.select(BUCKET, HASH, *names)[starts]
        ends = np.append(starts[1:], rows.height)
        return keys.with_columns(pl.Series(_START, starts), pl.Series(_END, ends)), rows.select(self._columns)

    def _due(self, view: StateView, before: int, time: int) -> pl.Series | None:
        """Return the hashes of keys whose timers may be due."""
        if TIMERS not in self.tables:
            return None
        found = [f.filter(pl.col(TIMER).is_between(before, time))[HASH] for f in view.read(TIMERS, before, time + 1)]
        return pl.concat(found) if found else None

    def _block(self, work: pl.DataFrame, tuples: pl.DataFrame) -> Block:
        starts, ends = work[_START].to_numpy(), work[_END].to_numpy()
        with_tuples = starts < ends
        low, high = (int(starts[with_tuples].min()), int(ends.max())) if with_tuples.any() else (0, 0)
        return Block(
            work.select(self._keys).rows(),
            work.select(pl.col(s).alias(n) for n, s in zip(self._operator.state, self._state, strict=True)),
            work[ALIVE].is_not_null().to_list(),
            tuples.slice(low, high - low),
            np.where(with_tuples, starts - low, 0),
            np.where(with_tuples, ends - low, 0),
        )

    # ── work ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self, block: Block, keys: pl.DataFrame, until: Until, done: Made) -> None:
        """Do the work of the keys of a block; keys for which something goes wrong are done again, carefully."""
        did = self._worker.work(block, until)
        done.rows.append(did.rows)
        states, columns = did.states, did.columns
        if did.wrong:
            for i in did.wrong:
                states[i] = self._carefully(block, keys, i, until, done)
            columns = columns_of([s for s in states if s is not None], pl.Schema(self._operator.state))
        self._write(keys, states, columns, done)

    def _carefully(self, block: Block, keys: pl.DataFrame, i: int, until: Until, done: Made) -> State:
        """Do the work of one key tuple by tuple, from the state that it had before; return its new state."""
        caller = Caller(f"{self._label}, bucket {keys[BUCKET][i]}", self._operator, self._step.schema)
        one, tuples = CarefulKey(caller, self._operator, block.keys[i], block.state(i)), block.rows(i)
        one.work(tuples, until, rejects=self._step.on_error == "reject")
        done.rows += one.given
        if one.rejected:
            numbers, reasons = zip(*one.rejected, strict=True)
            rows = tuples[list(numbers)].select(self._input)
            done.rejected.append(rows.with_columns(pl.Series(steps.REASON, reasons, dtype=pl.String)))
        return one.state

    def _write(self, keys: pl.DataFrame, states: Sequence[State], columns: Sequence[pl.Series], done: Made) -> None:
        """Make the rows for the states of a block (including those of keys that had a state and drop it) and for timers that were set."""
        alive = pl.Series(ALIVE, [s is not None for s in states], dtype=pl.Boolean)
        named = [BUCKET, HASH, *self._keys]
        live = (
            keys.filter(alive)
            .select(named)
            .with_columns(pl.lit(True).alias(ALIVE), *(c.alias(self._prefix + c.name) for c in columns))
        )
        gone = keys.filter(~alive & keys[ALIVE].is_not_null()).select(named)
        nothing = [pl.lit(None, dtype=t).alias(n) for n, t in self._state.items()]
        done.states += [live, gone.with_columns(pl.lit(False).alias(ALIVE), *nothing)] if gone.height else [live]
        if self._operator.timer is not None:
            now, before = live[self._timer], keys.filter(alive)[self._timer]
            was_set = live.filter(now.is_not_null() & now.ne_missing(before))
            done.timers.append(was_set.select(*named, pl.col(self._timer).alias(TIMER)))
