"""The work of a KeyOperator in one epoch, in blocks of keys: fast as long as nothing goes wrong.

User code is called key by key; everything around it is done for many keys at once: states are read and written by column, tuples are parts
of one frame, and what comes back is checked together. If something goes wrong with a key, all of its work is done again, tuple by tuple,
from the state that it had before (`one_by_one`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from springtide.operators.user.frame_parts import FrameParts
from springtide.operators.user.kernel import changes
from springtide.query.operators import KeyOperator
from springtide.query.types import TS
from springtide.values.row_checks import Misfit
from springtide.values.user_code import columns_of, frame_of_rows

State = dict[str, Any] | None


@dataclass(frozen=True)
class Until:
    """The time that has been reached."""

    time: int
    """Timers up to this time go off."""
    ended: bool
    """Afterwards, every timer that is still set goes off once more."""


@dataclass(frozen=True)
class Block:
    """Some keys with their states and their tuples: key i has the rows from `starts[i]` up to but not including `ends[i]`."""

    keys: list[tuple[Any, ...]]
    kept_state: pl.DataFrame
    """The state of each key; rows that are not `known` have no meaning."""
    known: list[bool]
    tuples: pl.DataFrame
    starts: np.ndarray
    ends: np.ndarray

    def states(self) -> list[State]:
        """Rebuild the states."""
        names, columns = self.kept_state.columns, [c.to_list() for c in self.kept_state.get_columns()]
        rows = zip(*columns, strict=True) if columns else [()] * len(self.keys)
        return [
            dict(zip(names, row, strict=True)) if known else None for row, known in zip(rows, self.known, strict=True)
        ]

    def state(self, i: int) -> State:
        """Rebuild the state of one key."""
        if not self.known[i]:
            return None
        return self.kept_state.row(i, named=True) if self.kept_state.width else {}

    def rows(self, i: int) -> pl.DataFrame:
        """Return the tuples of one key."""
        return self.tuples.slice(self.starts[i], self.ends[i] - self.starts[i])


@dataclass
class Calls:
    """The results of the calls: for each call its key, what it returned, and the earliest time that this may have."""

    keys: list[int]
    given: list[Any]
    earliest: list[int]

    def cut(self, length: int) -> None:
        """Forget all calls after the first `length`."""
        del self.keys[length:], self.given[length:], self.earliest[length:]

    def chosen(self, numbers: list[int]) -> Calls:
        """Return some of the calls."""
        return Calls(*([values[c] for c in numbers] for values in (self.keys, self.given, self.earliest)))


@dataclass(frozen=True)
class BlockResult:
    """The result of a block: rows, states, and the keys for which something went wrong."""

    rows: pl.DataFrame
    columns: list[pl.Series]
    """The states that are not None, by column."""
    states: list[State]
    wrong: list[int]


class Worker:
    """Calls one KeyOperator."""

    def __init__(self, operator: KeyOperator, schema: pl.Schema) -> None:
        """Find out what the operator defines: this determines how its tuples may be divided."""
        self._operator, self._schema = operator, schema
        self._state = pl.Schema(operator.state)
        self._keeps = type(operator).keep is not KeyOperator.keep

    def work(self, block: Block, until: Until) -> BlockResult:
        """Call the operator for every key of a block, and check what it returns."""
        states = block.states()
        timed = self._operator.timer is not None or self._keeps
        with _no_collection():
            calls, wrong = self._timed(block, states, until) if timed else self._plain(block, states)
        try:
            if not wrong:
                return BlockResult(*self._checked(calls, states), states, [])
        except Misfit:
            pass
        bad = {*wrong, *self._unsound(calls, states, set(wrong))}
        right = calls.chosen([c for c, i in enumerate(calls.keys) if i not in bad])
        states = [None if i in bad else state for i, state in enumerate(states)]
        return BlockResult(*self._checked(right, states), states, sorted(bad))

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _plain(self, block: Block, states: list[State]) -> tuple[Calls, list[int]]:
        """Call `process` once for each key, with all its tuples."""
        init, process, part = self._operator.init, self._operator.process, FrameParts(block.tuples).part
        ts = block.tuples[TS].to_physical().to_numpy()
        starts, ends, last = block.starts.tolist(), block.ends.tolist(), ts[block.ends - 1].tolist()
        given: list[Any] = []
        wrong: list[int] = []
        for i, key in enumerate(block.keys):
            try:
                state = states[i]
                if state is None:
                    state = states[i] = init(key)
                given.append(process(key, state, part(starts[i], ends[i]), last[i]))
            except Exception:
                wrong.append(i)
                given.append(())
        return Calls(list(range(len(given))), given, ts[block.starts].tolist()), wrong

    def _timed(self, block: Block, states: list[State], until: Until) -> tuple[Calls, list[int]]:
        """Call `process` with all tuples of one time (or one by one, if `keep` has to be asked after each), with timers in between."""
        operator, timer, keeps = self._operator, self._operator.timer, self._keeps
        ts = block.tuples[TS].to_physical().to_numpy()
        cut = np.ones(ts.size, dtype=bool) if keeps else changes(ts)
        cut[block.starts[block.starts < block.ends]] = True
        cuts = np.flatnonzero(cut)
        first, last = np.searchsorted(cuts, block.starts).tolist(), np.searchsorted(cuts, block.ends).tolist()
        times, bounds = ts[cuts].tolist(), [*cuts.tolist(), ts.size]
        part = FrameParts(block.tuples).part
        calls, wrong = Calls([], [], []), list[int]()

        def told(i: int, key: Any, state: State, given: Any, time: int) -> State:
            calls.keys.append(i)
            calls.given.append(given)
            calls.earliest.append(time)
            return None if keeps and not operator.keep(key, state) else state  # type: ignore[arg-type]

        def wake(i: int, key: Any, state: State, reached: int) -> tuple[State, int]:
            reached = max(reached, state[timer])  # type: ignore[index]
            state = told(i, key, state, operator.on_time(key, state, reached), reached)  # type: ignore[arg-type]
            if state is not None and state[timer] is not None and state[timer] <= reached:  # type: ignore[index]
                raise ValueError("the timer stands still")
            return state, reached

        def due(state: State, time: int) -> bool:
            return timer is not None and state is not None and state[timer] is not None and state[timer] <= time

        for i, key in enumerate(block.keys):
            state, reached, before = states[i], -(2**63), len(calls.keys)
            try:
                for c in range(first[i], last[i]):
                    while reached != times[c] and due(state, times[c]):  # not between tuples of the same time
                        state, reached = wake(i, key, state, reached)
                    if state is None:
                        state = operator.init(key)
                    given = operator.process(key, state, part(bounds[c], bounds[c + 1]), times[c])
                    state, reached = told(i, key, state, given, times[c]), times[c]
                while due(state, until.time):
                    state, reached = wake(i, key, state, reached)
                if until.ended and timer is not None and state is not None and state[timer] is not None:
                    state, _ = wake(i, key, state, reached)
                states[i] = state
            except Exception:
                wrong.append(i)
                calls.cut(before)
        return calls, wrong

    # ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, calls: Calls, states: Sequence[State]) -> tuple[pl.DataFrame, list[pl.Series]]:
        """Put the rows of all calls into one frame and all states into columns; raise `Misfit` if anything is not as it should be."""
        if not all(issubclass(kind, Sequence) for kind in set(map(type, calls.given))):
            raise Misfit("not rows")
        given = [row for rows in calls.given for row in rows]
        if not all(issubclass(kind, Mapping) for kind in set(map(type, given))):
            raise Misfit("not rows")
        rows = frame_of_rows(given, self._schema)
        counts = [len(rows) for rows in calls.given]
        if (rows[TS].to_physical().to_numpy() < np.repeat(np.array(calls.earliest, dtype=np.int64), counts)).any():
            raise Misfit("before what caused it")
        live = [s for s in states if s is not None]
        if not all(issubclass(kind, dict) for kind in set(map(type, live))):
            raise Misfit("not states")
        return rows, columns_of(live, self._state)

    def _unsound(self, calls: Calls, states: list[State], known: set[int]) -> Iterator[int]:
        """Find the keys for which something is wrong, by bisection; skip those that are already known."""
        of: dict[int, list[int]] = {}
        for c, i in enumerate(calls.keys):
            of.setdefault(i, []).append(c)

        def sound(keys: range) -> bool:
            some = [i for i in keys if i not in known]
            try:
                self._checked(calls.chosen([c for i in some for c in of.get(i, ())]), [states[i] for i in some])
            except Misfit:
                return False
            return True

        return _not_sound(range(len(states)), sound)


def _not_sound(keys: range, sound: Callable[[range], bool]) -> Iterator[int]:
    """Find all keys that are not sound; a range that is sound is not searched further."""
    if not keys or sound(keys):
        return
    if len(keys) == 1:
        yield keys[0]
        return
    half = len(keys) // 2
    yield from _not_sound(keys[:half], sound)
    yield from _not_sound(keys[half:], sound)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause Python's cycle collector, which would otherwise walk over all rows made so far, again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
