"""Sessions: tuples of a key, each less than `gap` after the one before, kept as pieces that are joined as they grow.

A piece is a partial result with its first and last time; pieces of a key less than `gap` apart belong to one session, whatever comes later.
So do all tuples within one cell of time as long as the gap, so a sender can fold them without looking at the others.

    time      ├──── gap ────┼──── gap ────┼──── gap ────┼──── gap ────┤
    tuples       a  a    a      a                              a
    pieces       └───────┘      └                              └            at the sender
    sessions     └──────────────┘── gap ──┤ is over here       └── gap ──┤

State has pieces with the time at which they are due: when their session would be over if nothing followed. Then the key's other pieces are
looked up. Either the session is over and is emitted, with all its pieces, each of which is due by then. Or it continues: those of its pieces that
are due are written again as one, due when the session would be over as known now. So a piece is only looked at when it is due.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from springtide.exchange.hashing import BUCKET, HASH
from springtide.operators.aggregates.partials import Partials
from springtide.operators.rows_by_key import RowsByKey
from springtide.query.aggregates import Aggregate as Function
from springtide.query.steps import Aggregate
from springtide.query.types import TIME, TS, WINDOW_END, WINDOW_START
from springtide.query.windows import Session

DUE = "__due"
"""The end of a piece's session, as far as it was known when the piece was written, in microseconds."""
_CELL = "__cell"
_SESSION = "__session"
_SAFE = 2**62


class SessionAggregate:
    """The kernel of an aggregate over sessions."""

    def __init__(self, step: Aggregate) -> None:
        """Prepare the expressions."""
        assert isinstance(step.window, Session)
        self.gap, self.keys, self.schema = step.window.gap, list(step.by), step.schema
        ends = {WINDOW_START: Function("min", pl.col(TS)), WINDOW_END: Function("max", pl.col(TS))}
        bounds = [function.bind("", name, step.inputs[0].schema) for name, function in ends.items()]
        self.partials = Partials([*step.aggregates, *bounds])
        n = len(step.aggregates)
        self.start, self._last = f"{n}.m", f"{n + 1}.m"
        self.columns = [BUCKET, HASH, *self.keys, DUE, *self.partials.columns]
        """The columns of pieces in state."""

    def combine(self, tuples: pl.LazyFrame) -> pl.LazyFrame:
        """Fold tuples into pieces. Runs before the exchange; hashes and buckets are added there."""
        cell = pl.col(TS).dt.epoch("us") // self.gap
        due = (pl.col(self._last).dt.epoch("us") + self.gap).alias(DUE)
        return self.partials.add(tuples, [*self.keys, cell.alias(_CELL)]).drop(_CELL).with_columns(due)

    def merge(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Merge pieces that are known to belong to the same session."""
        rows, session = self._sessions(pieces.select(self.columns))
        return self._merged(rows, session)

    def close(self, pieces: pl.DataFrame, time: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the sessions that are over by a time; and for each other session, its pieces that are due by then, merged into one.

        `pieces` has all pieces of some keys, and at least one piece.
        """
        rows, session = self._sessions(pieces.select(self.columns))
        due = rows[DUE].to_numpy()
        ends = np.maximum.reduceat(due, np.flatnonzero(np.diff(session, prepend=-1)))[session]
        over, waiting = ends <= time, (due <= time) & (ends > time)
        again = self._merged(rows.with_columns(pl.Series(DUE, ends)).filter(waiting), session[waiting])
        return self._finished(self._merged(rows.filter(over), session[over])), again

    def _sessions(self, pieces: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        """Line pieces up by key and time; number their sessions."""
        by_key = RowsByKey.of(pieces.sort(self.start), self.keys)
        first, last = (by_key.rows[c].to_physical().to_numpy() for c in (self.start, self._last))
        begins = np.ones(first.size, dtype=bool)
        begins[1:] = first[1:] - _greatest_so_far(last, by_key)[:-1] >= self.gap
        begins[by_key.starts] = True
        return by_key.rows, np.cumsum(begins) - 1

    def _merged(self, rows: pl.DataFrame, session: np.ndarray) -> pl.DataFrame:
        """Merge rows that are adjacent and belong to the same session."""
        starts = np.flatnonzero(np.diff(session, prepend=-1))
        lengths = np.diff(starts, append=session.size)
        alone = np.repeat(lengths == 1, lengths)
        if alone.all():
            return rows
        several = rows.with_columns(pl.Series(_SESSION, session)).filter(~alone)
        merged = self.partials.merge(several.lazy(), [_SESSION]).sort(_SESSION).drop(_SESSION).collect()
        due = pl.Series(DUE, np.maximum.reduceat(rows[DUE].to_numpy(), starts)[lengths > 1])
        keys = rows[starts[lengths > 1]].select(BUCKET, HASH, *self.keys, due)
        whole = pl.concat([keys, merged], how="horizontal").select(self.columns)
        return pl.concat([rows.filter(alone), whole]) if alone.any() else whole

    def _finished(self, rows: pl.DataFrame) -> pl.DataFrame:
        done = self.partials.finish(rows.lazy(), self.keys).collect()
        end = (done[WINDOW_END].to_physical() + self.gap).alias(WINDOW_END)
        times = [end.cast(TIME), (end - 1).cast(TIME).alias(TS)]
        return done.with_columns(times).select([*self.schema, *self.partials.hidden])


def _greatest_so_far(values: np.ndarray, by_key: RowsByKey) -> np.ndarray:
    """Return the greatest value of each row's key up to that row."""
    key = np.repeat(np.arange(by_key.starts.size), by_key.lengths)
    if not values.size:
        return values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span * by_key.starts.size < _SAFE:  # in one go: all values of later keys are above those of earlier ones
        greatest: np.ndarray = np.maximum.accumulate(key * span + (values - low)) - key * span + low
        return greatest
    frame = pl.DataFrame({"key": key, "value": values})
    return frame.select(pl.col("value").cum_max().over("key")).to_series().to_numpy()
