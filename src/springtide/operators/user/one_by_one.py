"""The work of one key, tuple by tuple: every call is checked on its own, so that an error can name the row, or the row can be rejected."""

from __future__ import annotations

import copy

import polars as pl

from springtide.operators.user.calling import State, Until
from springtide.query.errors import UserCodeError
from springtide.query.operators import KeyOperator
from springtide.query.types import TS
from springtide.values.user_code import Caller

Rejected = tuple[int, str]
"""The number of a row for which `process` failed, and why."""


class CarefulKey:
    """A key at work: its state, the rows that it has returned, and the rows that it has rejected."""

    def __init__(self, caller: Caller, operator: KeyOperator, key: tuple[object, ...], state: State) -> None:
        """Start from the kept state."""
        self._caller, self._operator, self._key = caller, operator, key
        self._schema = pl.Schema(operator.state)
        self._reached = -(2**63)
        self.state = state
        self.given: list[pl.DataFrame] = []
        self.rejected: list[Rejected] = []

    def work(self, tuples: pl.DataFrame, until: Until, *, rejects: bool) -> None:
        """Process all tuples; let the timer go off in between, and up to the current time."""
        last = None
        for number, ts in enumerate(tuples[TS].to_physical().to_list()):
            if ts != last:  # not between tuples of the same time
                self._wake(ts)
            last = ts
            row = tuples.slice(number, 1)
            if not rejects:
                self._process(row, ts)
                continue
            before = copy.deepcopy(self.state)
            if self.state is None:  # an error here is not the row's fault
                self._init(row)
            try:
                self._process(row, ts)
            except UserCodeError as error:
                self.rejected.append((number, error.problem))
                self.state = before
        self._wake(until.time)
        if until.ended and self._timer is not None:
            self._tell()

    def _init(self, row: pl.DataFrame) -> None:
        self.state = self._caller.state("init", self._caller.run("init", self._key, cause=row), self._schema)

    def _process(self, row: pl.DataFrame, ts: int) -> None:
        if self.state is None:
            self._init(row)
        given = self._caller.rows("process", self._key, self.state, row, ts, earliest=ts, cause=row)
        self._settle("process")
        self._reached = ts
        self.given.append(given)

    def _wake(self, time: int) -> None:
        while self._timer is not None and self._timer <= time:
            self._tell()

    def _tell(self) -> None:
        """Let the timer go off. A timer set in the past goes off at the time of whatever set it."""
        assert self._timer is not None
        now = self._reached = max(self._timer, self._reached)
        self.given.append(self._caller.rows("on_time", self._key, self.state, now, earliest=now))
        self._settle("on_time")
        self._caller.check_timer(self._timer, now, self.state)

    @property
    def _timer(self) -> int | None:
        if self.state is None or self._operator.timer is None:
            return None
        timer: int | None = self.state[self._operator.timer]
        return timer

    def _settle(self, method: str) -> None:
        """Check the state that a call left behind, and drop it if it is not worth keeping."""
        state = self._caller.state(method, self.state, self._schema)
        if not self._caller.run("keep", self._key, state):
            self.state = None
