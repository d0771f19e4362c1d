"""Joins: pairs of tuples, by brute force over the window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from springtide.query import steps
from springtide.query.types import END_OF_TIME, TS
from springtide.query.windows import LastN
from springtide.runtime.reference.evaluate import holds
from springtide.runtime.reference.tuples import OrderPlace, Tuple
from springtide.runtime.reference.values import Plain

Key = tuple[Any, ...] | None
"""The keys of a tuple; None if one of them is null, which equals nothing."""
LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class Clock:
    """Where time stands after a join: at the step, at its right input, and the greatest time that is known."""

    time: int
    right_time: int
    greatest: int


def join(
    label: str, origin: str, step: steps.Join | steps.ThetaJoin, left: list[Tuple], right: list[Tuple], clock: Clock
) -> list[Tuple]:
    """Return every pair of the window once; with `how="left"`, also the left tuples that are certain to be in no pair."""
    pairs = _Pairs(label, origin, step)
    if isinstance(step.window, LastN):
        return list(_by_count(pairs, step.window.size, left, right, clock))
    return list(_by_time(pairs, step.window.length, left, right, clock))


def _by_time(pairs: _Pairs, within: int, left: list[Tuple], right: list[Tuple], clock: Clock) -> Iterator[Tuple]:
    rights = defaultdict(list)
    for r in right:
        rights[pairs.key(r, RIGHT)].append(r)
    for one in left:
        key = pairs.key(one, LEFT)
        if key is None:
            yield from pairs.alone(one, one.ts)
            continue
        near = (r for r in rights[key] if abs(one.ts - r.ts) <= within)
        found = [pair for r in near if (pair := pairs.pair(one, r))]
        yield from found
        if not found and clock.right_time > one.ts + within:  # else a partner may still come
            yield from pairs.alone(one, one.ts + within)


def _by_count(pairs: _Pairs, n: int, left: list[Tuple], right: list[Tuple], clock: Clock) -> Iterator[Tuple]:
    """Go through both inputs in the total order; each side of each key keeps its last n tuples."""
    both = [_Entry(t, LEFT) for t in left] + [_Entry(t, RIGHT) for t in right]
    last: dict[Key, tuple[list[_Entry], list[_Entry]]] = defaultdict(lambda: ([], []))
    for entry in sorted((e for e in both if e.tuple.ts < clock.time), key=_Entry.order):
        key = pairs.key(entry.tuple, entry.side)
        if key is None:
            if entry.side == LEFT:
                yield from pairs.alone(entry.tuple, entry.tuple.ts)
            continue
        mine, others = last[key][entry.side], last[key][1 - entry.side]
        for other in others:
            one, two = (entry, other) if entry.side == LEFT else (other, entry)
            if pair := pairs.pair(one.tuple, two.tuple):
                one.paired = True
                yield pair
        mine.append(entry)
        if len(mine) > n:
            out = mine.pop(0)
            if out.side == LEFT and not out.paired:
                yield from pairs.alone(out.tuple, entry.tuple.ts)
    if clock.time == END_OF_TIME:
        for out in (e for lefts, _ in last.values() for e in lefts if not e.paired):
            yield from pairs.alone(out.tuple, max(out.tuple.ts, clock.greatest))


@dataclass(eq=False)
class _Entry:
    """A tuple of a count window."""

    tuple: Tuple
    side: int
    paired: bool = False

    def order(self) -> Any:
        """The total order of both inputs together: at the same time and place, the left input comes first."""
        return self.tuple.ts, self.tuple.place, self.side, self.tuple.content


class _Pairs:
    """What a pair of this join looks like, and when two tuples form one."""

    def __init__(self, label: str, origin: str, step: steps.Join | steps.ThetaJoin) -> None:
        self._label, self._place, self._schema = label, OrderPlace(origin), step.schema
        self._names = step.right_columns
        self._nulls = dict.fromkeys(here for _, here in self._names)
        self._true: dict[str, bool] = {}
        if isinstance(step, steps.Join):
            self._on, self._predicate, self._outer = (step.left_on, step.right_on), step.where, step.how == "left"
        else:
            self._on, self._predicate, self._outer = ((), ()), step.predicate, False
        self._asked = list(step.schema)
        if self._predicate is not None and not self._predicate.meta.has_multiple_outputs():
            self._asked = self._predicate.meta.root_names()

    def key(self, t: Tuple, side: int) -> Key:
        key = tuple(t.values[n] for n in self._on[side])
        return None if None in key else key

    def pair(self, left: Tuple, right: Tuple) -> Tuple | None:
        """Return the pair of two tuples if the predicate is true for it, otherwise None."""
        later = left if left.ts >= right.ts else right
        mine = {here: right.values[there] for there, here in self._names}
        pair = self._made(left, later.values[TS], later.ts, mine)
        if self._predicate is None:
            return pair
        asked = repr([pair.values[n] for n in self._asked])  # what is true for one row is true for all equal ones
        if asked not in self._true:
            self._true[asked] = holds(self._label, self._frame(left, right, later), self._predicate)
        return pair if self._true[asked] else None

    def _frame(self, left: Tuple, right: Tuple, later: Tuple) -> pl.DataFrame:
        mine = left.frame.clone().replace_column(left.frame.columns.index(TS), later.frame[TS])
        return mine.hstack([right.frame[there].alias(here) for there, here in self._names])

    def alone(self, left: Tuple, ts: int) -> Iterator[Tuple]:
        """Return a left tuple that is in no pair, if the join keeps such tuples."""
        if self._outer:
            yield self._made(left, ts, ts, self._nulls)

    def _made(self, left: Tuple, time: Any, ts: int, right: Plain) -> Tuple:
        return Tuple(ts, self._place, {**left.values, TS: time, **right}, self._schema)
