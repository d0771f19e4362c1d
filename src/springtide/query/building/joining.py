"""Joins: by keys, by any predicate, and what both share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from springtide.query import steps
from springtide.query.building.checks import check_timed, keys_of, names_of
from springtide.query.building.labels import label_after
from springtide.query.errors import QueryError, no_column, shown
from springtide.query.expressions import predicate_of
from springtide.query.plurals import plural
from springtide.query.types import TS, Length, Names, micros_of, type_text
from springtide.query.windows import LastN, Window

if TYPE_CHECKING:
    from springtide.query.stream import Stream

Renamed = tuple[tuple[str, str], ...]
"""Columns of the right side in a pair: (name on that side, name in the pair)."""


def join_step(
    left: Stream,
    right: Stream,
    *,
    on: Names,
    left_on: Names,
    right_on: Names,
    within: Length | LastN,
    how: steps.How,
    where: pl.Expr | None,
    suffix: str,
    name: str | None,
) -> steps.Join:
    """Pair tuples with equal keys."""
    label = label_after(left, "join", name)
    left_keys, right_keys = _keys(label, left, right, on, left_on, right_on)
    if not isinstance(how, str) or how not in ("inner", "left"):
        raise QueryError(label, f"how={shown(how)} is not a kind of join", "use 'inner' or 'left'")
    shared = {b for a, b in zip(left_keys, right_keys, strict=True) if a == b}
    window, right_columns, schema = _pair(label, left, right, within, shared, suffix)
    if where is not None:
        where = _predicate(label, schema, where, suffix)
    return steps.Join(
        name=name,
        inputs=(left, right),
        schema=schema,
        left_on=left_keys,
        right_on=right_keys,
        window=window,
        how=how,
        where=where,
        right_columns=right_columns,
    )


def theta_join_step(
    left: Stream,
    right: Stream,
    predicate: pl.Expr,
    *,
    within: Length | LastN,
    suffix: str,
    routing: steps.Routing | None,
    name: str | None,
) -> steps.ThetaJoin:
    """Pair tuples for which a predicate holds."""
    label = label_after(left, "theta_join", name)
    window, right_columns, schema = _pair(label, left, right, within, set(), suffix)
    predicate = _predicate(label, schema, predicate, suffix)
    if routing is not None and (not isinstance(routing, str) or routing not in ("grid", "broadcast")):
        hint = "use 'grid', 'broadcast', or leave it to the compiler"
        raise QueryError(label, f"routing={shown(routing)} is unknown", hint)
    if routing == "grid" and isinstance(window, LastN):
        raise QueryError(
            label,
            "routing='grid' cannot be used with the last n tuples: no instance sees all of them",
            "use routing='broadcast', or a window of time",
        )
    return steps.ThetaJoin(
        name=name,
        inputs=(left, right),
        schema=schema,
        predicate=predicate,
        window=window,
        routing=routing,
        right_columns=right_columns,
    )


def _keys(
    label: str, left: Stream, right: Stream, on: Names, left_on: Names, right_on: Names
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of both sides, which must be equal in number and of the same types."""
    both = names_of(label, "on", on)
    ours, others = names_of(label, "left_on", left_on), names_of(label, "right_on", right_on)
    if bool(both) == bool(ours) or bool(ours) != bool(others):
        raise QueryError(
            label, "it is not clear which columns are the keys", "give either on=, or both left_on= and right_on="
        )
    for side, stream, keys in (("left", left, both or ours), ("right", right, both or others)):
        for key in keys:
            if isinstance(key, str) and key not in stream.schema:
                raise no_column(label, key, stream.schema, f" on the {side}")
    left_keys, right_keys = keys_of(label, left, "on", both or ours), keys_of(label, right, "on", both or others)
    if len(left_keys) != len(right_keys):
        raise QueryError(
            label,
            f"it has {plural(len(left_keys), 'key')} on the left, but {len(right_keys)} on the right",
            "give the same number on both sides",
        )
    for a, b in zip(left_keys, right_keys, strict=True):
        mine, theirs = left.schema[a], right.schema[b]
        if mine != theirs:
            raise QueryError(
                label,
                f"the key {a!r} is {type_text(mine)} on the left, but {b!r} is {type_text(theirs)} on the right",
                f"cast one of them: .map(pl.col({b!r}).cast(pl.{mine}))",
            )
    return left_keys, right_keys


def _pair(
    label: str, left: Stream, right: Stream, within: Length | LastN, shared: set[str], suffix: str
) -> tuple[steps.JoinWindow, Renamed, pl.Schema]:
    """Return what both joins share: the window and the columns of a pair."""
    check_timed(label, left)
    check_timed(label, right)
    if not isinstance(suffix, str):
        raise QueryError(label, f"suffix={shown(suffix)} is not a string", "write for example suffix='_right'")
    window = _window(label, within)
    renamed = _right_columns(label, left, right, shared, suffix)
    return window, renamed, pl.Schema({**left.schema, **{to: right.schema[n] for n, to in renamed}})


def _window(label: str, within: Length | LastN) -> steps.JoinWindow:
    if isinstance(within, LastN):
        if within.every != 1:
            problem = f"a join takes the last tuples anew for each tuple, so it cannot use every={within.every}"
            raise QueryError(label, problem, f"use st.last_n({within.size})")
        within.check(label)
        return within
    if isinstance(within, Window):
        hint = "give the greatest time between two tuples of a pair, such as '60s', or st.last_n(n)"
        raise QueryError(label, f"a join cannot use the window '{within}'", hint)
    length = micros_of(label, within)
    if length < 0:
        raise QueryError(label, f"within={shown(within)} is below zero", "give a length of zero or more")
    return steps.Within(length)


def _right_columns(label: str, left: Stream, right: Stream, shared: set[str], suffix: str) -> Renamed:
    """Return the right side's columns in a pair: those whose names are taken get the suffix; shared keys are there already."""
    own = [n for n in right.schema if n != TS and n not in shared]
    renamed = tuple((n, f"{n}{suffix}" if n in left.schema else n) for n in own)
    taken = set(left.schema)
    for n, to in renamed:
        if to in taken:
            problem = f"the right side's {n!r} would be called {to!r}, and there is already such a column"
            raise QueryError(
                label, problem, f"give another suffix= than {suffix!r}, or rename a column before the join"
            )
        taken.add(to)
    return renamed


def _predicate(label: str, schema: pl.Schema, predicate: Any, suffix: str) -> pl.Expr:
    if isinstance(predicate, pl.Expr) and f"{TS}{suffix}" in set(predicate.meta.root_names()) - set(schema):
        hint = "copy the right side's own time before the join: other.map(when=pl.col('ts'))"
        raise QueryError(label, "a pair has one ts, the later of the two", hint)
    return predicate_of(label, schema, predicate)
