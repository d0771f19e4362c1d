"""Steps that turn the tuples of a group and window into one row, or into a ranking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from springtide.query import steps
from springtide.query.aggregates import INPUT, BoundAggregate, UserFunction, overflow_text
from springtide.query.errors import UserCodeError
from springtide.query.types import COUNT, RANK, TS, WINDOW_END, WINDOW_START
from springtide.runtime.reference.evaluate import evaluate
from springtide.runtime.reference.functions import apply, bounded, fits
from springtide.runtime.reference.sketches import heavy, ranked
from springtide.runtime.reference.tuples import OrderPlace, Tuple, in_order
from springtide.runtime.reference.values import plain_rows

Key = tuple[Any, ...]


def aggregate(label: str, origin: str, step: steps.Aggregate, tuples: list[Tuple], time: int) -> dict[str, list[Tuple]]:
    """Compute the aggregates for each group in each window that the merged time completes; those with a sum that does not fit are rejected."""
    inputs = [(b.name, b.aggregate.input.alias(b.name)) for b in step.aggregates if b.aggregate.input is not None]
    exprs = [expr for _, expr in inputs]
    folds = {b.name: _Fold(f"{label}, aggregate {b.name!r}", b, u) for b in step.aggregates if (u := b.aggregate.user)}
    rows, rejected = [], []
    for key, members in _groups(tuples, step.by):
        contributions = []
        for t in members:
            row = plain_rows(evaluate(label, t.frame, exprs))[0] if exprs else {}
            contributions.append((t.ts, row | {name: fold.add(t.frame) for name, fold in folds.items()}))
        for start, end, inside in step.window.cut(contributions, time):
            values, reasons = _window_columns(step.by, key, start, end), list[str]()
            for bound in step.aggregates:
                if bound.name in folds:
                    values[bound.name] = folds[bound.name].finish([row[bound.name] for row in inside])
                elif bound.aggregate.input is None:
                    values[bound.name] = len(inside)
                else:
                    values[bound.name] = apply(bound, [row[bound.name] for row in inside])
                    if not fits(bound, values[bound.name]):
                        reasons.append(overflow_text(bound, values[bound.name]))
            if reasons:
                why = values | {steps.REASON: reasons[0]}
                rejected.append(Tuple(0, OrderPlace(origin), {n: why[n] for n in step.rejected}, step.rejected))
            else:
                rows.append(Tuple(values[TS], OrderPlace(origin), values, step.schema))
    return {steps.OUT: rows, steps.REJECTED: rejected}


def top_k(label: str, origin: str, step: steps.TopK, tuples: list[Tuple], time: int) -> list[Tuple]:
    """Rank the values of each window that the merged time completes."""
    rows = []
    for key, members in _groups(tuples, step.per):
        weighted = [(t.ts, (tuple(t.values[n] for n in step.by), _weight(label, step, t))) for t in members]
        for start, end, inside in step.window.cut(weighted, time):
            counts = _exact(inside) if step.sketch is None else heavy(inside, step.sketch)
            best = ranked((list(value), bounded(count)) for value, count in counts)[: step.k]
            for rank, (value, count) in enumerate(best, 1):
                values = _window_columns(step.per, key, start, end)
                values |= {RANK: rank, **dict(zip(step.by, value, strict=True)), COUNT: count}
                rows.append(Tuple(values[TS], OrderPlace(origin), values, step.schema))
    return rows


def _groups(tuples: list[Tuple], by: tuple[str, ...]) -> Iterator[tuple[Key, list[Tuple]]]:
    """Return the tuples of each group in the total order. Null is a value like any other."""
    groups: dict[Key, list[Tuple]] = {}
    for t in in_order(tuples):
        groups.setdefault(tuple(t.values[n] for n in by), []).append(t)
    yield from groups.items()


def _window_columns(by: tuple[str, ...], key: Key, start: int, end: int) -> dict[str, Any]:
    return {TS: end - 1, **dict(zip(by, key, strict=True)), WINDOW_START: start, WINDOW_END: end}


def _weight(label: str, step: steps.TopK, t: Tuple) -> int:
    weight: int = 1 if step.weight is None else t.values[step.weight] or 0
    if step.sketch is not None and weight < 0:
        raise UserCodeError(
            label,
            f"the weight {weight} is below zero",
            "a sketch only adds: filter such rows out, or rank without sketch",
            t.frame.row(0, named=True),
        )
    return weight


def _exact(weighted: Iterable[tuple[Key, int]]) -> Iterable[tuple[Key, int]]:
    counts: dict[Key, int] = {}
    for value, weight in weighted:
        counts[value] = counts.get(value, 0) + weight
    return counts.items()


class _Fold:
    """A user's own aggregate: `finish` applied to the `merge` of `init` and the `add` of each tuple."""

    def __init__(self, label: str, bound: BoundAggregate, user: UserFunction) -> None:
        self._label, self._partial = label, bound.partial
        self._add = [user.add[n].alias(n) for n in bound.partial]
        self._merge = [user.merge[n].alias(n) for n in bound.partial]
        self._finish = [user.finish.alias(INPUT)]
        self._output = pl.Schema({INPUT: bound.output_type})
        self._init = pl.DataFrame({n: [user.init[n]] for n in bound.partial}, schema=bound.partial)

    def add(self, frame: pl.DataFrame) -> pl.DataFrame:
        return evaluate(f"{self._label}, add", frame, self._add, self._partial)

    def finish(self, added: list[pl.DataFrame]) -> Any:
        merged = evaluate(f"{self._label}, merge", pl.concat([self._init, *added]), self._merge, self._partial)
        return plain_rows(evaluate(f"{self._label}, finish", merged, self._finish, self._output))[0][INPUT]
