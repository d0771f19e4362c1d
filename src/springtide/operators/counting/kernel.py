"""Windows of n tuples: the tuples of each key are numbered in the total order, and a window is emitted when its last tuple is there.

A window of `size` tuples every `every` is cut into panes of gcd(size, every) tuples, just as a window of time is cut by the clock.

    tuple      0  1  2  3  4  5  6  7          size 4, every 2: panes of 2 tuples
    pane       └ 0 ┘└ 1 ┘└ 2 ┘└ 3 ┘
    window 0   └──────────┘
    window 1         └──────────┘

State has, for each key, the panes of windows that are not full, and always the last pane, which tells how many tuples there were. Panes are only
ever added; later panes show that earlier ones are no longer needed. A pane of one tuple is the tuple itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH
from springtide.operators.aggregates.partials import ROWS, Partials
from springtide.operators.counting.merging import gathered, members_of, merge_runs
from springtide.operators.rows_by_key import RowsByKey
from springtide.operators.sliding.kernel import PANE
from springtide.query.aggregates import Aggregate as Function
from springtide.query.aggregates import BoundAggregate
from springtide.query.steps import Aggregate
from springtide.query.types import TIME, TS, WINDOW_END, WINDOW_START
from springtide.query.windows import LastN

_NUMBER = "__number"
_FIRST, _LAST = "__first", "__last"
_SHORT = 16
"""Windows of up to this many tuples are put together tuple by tuple."""


@dataclass(frozen=True)
class CountPanes:
    """The geometry of a window of tuples, with everything counted in panes."""

    width: int
    """The number of tuples in a pane."""
    size: int
    every: int

    @staticmethod
    def of(window: LastN) -> CountPanes:
        """Cut a window into panes."""
        width = math.gcd(window.size, window.every)
        return CountPanes(width, window.size // width, window.every // width)

    def first_kept(self, seen: np.ndarray) -> np.ndarray:
        """Return the first pane that is needed after this many tuples: that of the first window that is not full, or the last one.

        >>> CountPanes(1, 4, 2).first_kept(np.array([1, 3, 4, 5, 6, 7])).tolist()
        [0, 0, 2, 2, 4, 4]
        """
        full = seen // self.width
        first = np.maximum(0, (full - self.size) // self.every + 1) * self.every
        kept: np.ndarray = np.minimum(first, (seen - 1) // self.width)
        return kept


class CountingAggregate:
    """The kernel of an aggregate over windows of n tuples."""

    def __init__(self, step: Aggregate) -> None:
        """Prepare the expressions."""
        assert isinstance(step.window, LastN)
        self.panes = CountPanes.of(step.window)
        self.keys, self.schema = list(step.by), step.schema
        self._input = step.inputs[0].schema
        self.single = self.panes.width == 1
        """Whether a pane is a single tuple."""
        self.content = [*self._input] if order.needs_content(step) else []
        """The columns by which tuples at the same place are ordered."""
        self.inputs = list(dict.fromkeys([TS, *self.keys, *_roots(step.aggregates), *self.content]))
        """The columns of the tuples that are needed."""
        places = [a for a in step.aggregates if a.traits.ordered]
        folds = [a for a in step.aggregates if not a.traits.ordered] if self.single else [*step.aggregates]
        self._places, self._names = places if self.single else [], [a.name for a in step.aggregates]
        if not self.single:
            ends = [(_FIRST, Function("min", pl.col(TS))), (_LAST, Function("max", pl.col(TS)))]
            folds += [function.bind("", name, self._input) for name, function in ends]
        self.partials = Partials(folds, [_NUMBER])
        self.kept = [*dict.fromkeys([TS, *_roots(step.aggregates)])] if self.single else self.partials.columns
        """What panes have besides their keys."""
        self._groups = [BUCKET, HASH, *self.keys]
        self.columns = [*self._groups, PANE, *(c for c in self.kept if c not in self.keys)]
        """The columns of panes in state."""

    def fold(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Merge what several segments have into one row per key and pane; leave out panes that are no longer needed."""
        by_key = self._lined_up(panes)
        first = self.panes.first_kept(self._seen(by_key))
        return by_key.rows.filter(by_key.rows[PANE].to_numpy() >= np.repeat(first, by_key.lengths))

    def advance(self, old: pl.DataFrame | None, tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Take the next tuples of some keys; return the windows that are now full, and the panes to be written.

        `old` has all panes of these keys in state.
        """
        tuples = order.arrange(tuples, self.content)
        before = None if old is None else self.fold(old)
        return self._tuple_by_tuple(before, tuples) if self.single else self._pane_by_pane(before, tuples)

    def _lined_up(self, panes: pl.DataFrame) -> RowsByKey:
        if not self.single:
            panes = self.partials.merge(panes.lazy(), [*self._groups, PANE]).select(self.columns).collect()
        return RowsByKey.of(panes.sort(PANE), self.keys)

    def _seen(self, panes: RowsByKey) -> np.ndarray:
        """Count the tuples of each key."""
        last = panes.rows[PANE].to_numpy()[panes.ends]
        if self.single:
            return np.asarray(last + 1)
        return np.asarray(last * self.panes.width + panes.rows[ROWS].to_numpy()[panes.ends])

    def _ends_window(self, panes: np.ndarray) -> np.ndarray:
        """Return which panes are the last of a window."""
        after = panes + 1 - self.panes.size
        return np.asarray((after >= 0) & (after % self.panes.every == 0))

    def _framed(
        self, keys: pl.DataFrame, first: pl.Series, last: pl.Series, values: Sequence[pl.Series]
    ) -> pl.DataFrame:
        end = (last.to_physical() + 1).cast(TIME)
        bounds = [last.alias(TS), first.alias(WINDOW_START), end.alias(WINDOW_END)]
        columns = [*keys.select(self.keys).get_columns(), *bounds, *values]
        return pl.DataFrame(columns).select([*self.schema, *self.partials.hidden])

    # ── a pane is a tuple ─────────────────────────────────────────────────────────────────────────────────────────

    def _tuple_by_tuple(self, old: pl.DataFrame | None, tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        new = tuples.with_columns(pl.lit(-1, dtype=pl.Int64).alias(PANE)).select(self.columns)
        by_key = RowsByKey.of(pl.concat([old, new]) if old is not None else new, self.keys)
        given = by_key.rows[PANE].to_numpy()
        first = np.maximum(given[by_key.starts], 0)
        numbers = np.arange(given.size) + np.repeat(first - by_key.starts, by_key.lengths)
        rows = by_key.rows.with_columns(pl.Series(PANE, numbers))
        kept = np.repeat(self.panes.first_kept(numbers[by_key.ends] + 1), by_key.lengths)
        ends = np.flatnonzero(self._ends_window(numbers) & (given < 0))
        return self._windows_of_tuples(rows, ends), rows.filter((given < 0) & (numbers >= kept))

    def _windows_of_tuples(self, rows: pl.DataFrame, ends: np.ndarray) -> pl.DataFrame:
        size = self.panes.size
        starts = ends - (size - 1)
        values = [self._at_place(a, rows, starts, ends) for a in self._places]
        if len(self._names) > len(self._places):
            members = rows.select(c for c in rows.columns if c not in (BUCKET, HASH, PANE))
            if size <= _SHORT:
                parts = gathered(self.partials, members, starts, size, self.partials.add)
            else:
                each = self.partials.add(members.with_row_index(_NUMBER).lazy(), [_NUMBER]).sort(_NUMBER).collect()
                parts = merge_runs(self.partials, each, starts, size)
            values += self._finished(parts)
        return self._framed(rows[ends], rows[TS].gather(starts), rows[TS].gather(ends), values)

    def _at_place(self, a: BoundAggregate, rows: pl.DataFrame, starts: np.ndarray, ends: np.ndarray) -> pl.Series:
        """Take the first, the last or all values directly from their positions."""
        assert a.aggregate.input is not None
        values = rows.select(a.aggregate.input.alias(a.name)).to_series()
        if a.aggregate.function != "collect":
            return values.gather(starts if a.aggregate.function == "first" else ends)
        nested = isinstance(values.dtype, pl.List | pl.Array)
        flat = values.to_frame().to_struct(a.name) if nested else values  # reshape looks into lists, not into structs
        size = self.panes.size
        lists = [flat.gather(members).reshape((-1, size)).arr.to_list() for _, members in members_of(starts, size)]
        result = pl.concat(lists)
        return result.list.eval(pl.element().struct.field(a.name)) if nested else result

    # ── panes of several tuples ───────────────────────────────────────────────────────────────────────────────────

    def _pane_by_pane(self, old: pl.DataFrame | None, tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        width = self.panes.width
        by_key = RowsByKey.of(tuples, self.keys)
        before = self._seen_before(old, by_key)
        numbers = np.arange(tuples.height) + np.repeat(before - by_key.starts, by_key.lengths)
        numbered = by_key.rows.with_columns(pl.Series(_NUMBER, numbers), pl.Series(PANE, numbers // width))
        added = self.partials.add(numbered.lazy(), [*self._groups, PANE]).select(self.columns).collect()
        new = RowsByKey.of(added.sort(PANE), self.keys)  # keys in the same order as in `by_key`
        kept = np.repeat(self.panes.first_kept(before + by_key.lengths), new.lengths)
        both = self._lined_up(pl.concat([old, new.rows]) if old is not None else new.rows)
        panes = both.rows[PANE].to_numpy()
        ends, upto = (panes + 1) * width, np.repeat(self._seen(both), both.lengths)
        known = np.repeat(self._seen_before(old, both), both.lengths)
        full = np.flatnonzero(self._ends_window(panes) & (ends > known) & (ends <= upto))
        return self._windows_of_panes(both.rows, full), new.rows.filter(new.rows[PANE].to_numpy() >= kept)

    def _seen_before(self, old: pl.DataFrame | None, by_key: RowsByKey) -> np.ndarray:
        """Count the tuples of each key that are in state."""
        if old is None:
            return np.zeros(by_key.starts.size, dtype=np.int64)
        known = RowsByKey.of(old, self.keys)
        counted = known.rows[known.starts].select(HASH, *self.keys, pl.Series(_NUMBER, self._seen(known)))
        keys = by_key.rows[by_key.starts].select(HASH, *self.keys)
        found = keys.join(counted, on=[HASH, *self.keys], how="left", nulls_equal=True, maintain_order="left")
        return found[_NUMBER].fill_null(0).to_numpy()

    def _windows_of_panes(self, rows: pl.DataFrame, ends: np.ndarray) -> pl.DataFrame:
        parts = merge_runs(self.partials, rows, ends - (self.panes.size - 1), self.panes.size)
        values = {s.name: s for s in self._finished(parts)}
        first, last = values.pop(_FIRST), values.pop(_LAST)
        return self._framed(rows[ends], first, last, list(values.values()))

    def _finished(self, parts: pl.DataFrame) -> list[pl.Series]:
        return self.partials.finish(parts.lazy(), [ROWS]).collect().get_columns()[1:]


def _roots(aggregates: Sequence[BoundAggregate]) -> list[str]:
    """Return the columns that aggregates read."""
    functions = [a.aggregate for a in aggregates]
    exprs = [f.input for f in functions if f.input is not None]
    exprs += [e for f in functions if f.user is not None for e in f.user.add.values()]
    return [name for e in exprs for name in e.meta.root_names()]
