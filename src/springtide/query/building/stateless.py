"""Steps that look at one tuple at a time, and the sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from springtide.query import steps
from springtide.query.building.checks import check_unique
from springtide.query.building.labels import label_after, label_of
from springtide.query.connectors import SinkConnector
from springtide.query.errors import MissingColumnError, QueryError, nearest, shown
from springtide.query.expressions import IntoExpr, check_columns, named, predicate_of, resolve
from springtide.query.spelling import spell_out
from springtide.query.types import TIME, TS, instance, type_text

if TYPE_CHECKING:
    from springtide.query.stream import Stream


def map_step(stream: Stream, exprs: Sequence[IntoExpr], more: Mapping[str, IntoExpr], *, name: str | None) -> steps.Map:
    """Add or replace columns."""
    label = label_after(stream, "map", name)
    if name not in more:  # a step may be named after the column that it makes
        _check_meant(label, stream, name)
    for column, text in more.items():
        if isinstance(text, str) and text not in stream.schema:
            hint = f"for the text itself write {column}=pl.lit({text!r}); {nearest(text, stream.schema)}"
            raise MissingColumnError(label, f"there is no column {text!r}", hint, text)
    every = spell_out(label, stream.schema, named(exprs, more, label))
    made = resolve(label, stream.schema, every)
    if not made:
        raise QueryError(label, "no column is made", "give an expression: .map(minutes=pl.col('seconds') / 60)")
    if stream.timed and _changes_ts(every):
        raise QueryError(
            label,
            "a map cannot change ts",
            "st.source says which column is the event time; give the new column another name",
        )
    return steps.Map(name=name, inputs=(stream,), schema=pl.Schema({**stream.schema, **made}), exprs=every)


def select_step(
    stream: Stream, exprs: Sequence[IntoExpr], more: Mapping[str, IntoExpr], *, name: str | None
) -> steps.Select:
    """Keep only these columns and `ts`."""
    label = label_after(stream, "select", name)
    if name not in more and name not in [e for e in exprs if isinstance(e, str)]:
        _check_meant(label, stream, name)
    every = spell_out(label, stream.schema, named(exprs, more, label))
    schema = resolve(label, stream.schema, every)
    if not schema:
        raise QueryError(label, "no column is selected", f"name at least one; {nearest('', stream.schema)}")
    if stream.timed and _changes_ts(every):
        raise QueryError(label, "a select cannot change ts", "give the new column another name")
    if not stream.timed and not any(e.meta.root_names() for e in every):
        raise QueryError(label, "no column of the input is selected", "add constants with .map, then select")
    if stream.timed and TS not in schema:
        every, schema = (*every, pl.col(TS)), pl.Schema({**schema, TS: TIME})
    return steps.Select(name=name, inputs=(stream,), schema=schema, exprs=every)


def drop_step(stream: Stream, columns: Sequence[str], *, name: str | None) -> steps.Select:
    """Keep all columns except these."""
    label = label_after(stream, "drop", name)
    check_columns(label, stream.schema, columns)
    if stream.timed and TS in columns:
        raise QueryError(label, "ts cannot be dropped", "leave it: every stream with time keeps its ts")
    keep = {n: t for n, t in stream.schema.items() if n not in columns}
    if not keep:
        raise QueryError(label, "no column would be left", "drop fewer of them")
    return steps.Select(name=name, inputs=(stream,), schema=pl.Schema(keep), exprs=tuple(pl.col(n) for n in keep))


def rename_step(stream: Stream, columns: Mapping[str, str], *, name: str | None) -> steps.Select:
    """Give columns new names."""
    label = label_after(stream, "rename", name)
    if not isinstance(columns, Mapping):
        raise QueryError(label, f"{shown(columns)} does not map old names to new ones", "write {'old': 'new'}")
    check_columns(label, stream.schema, columns)
    for to in columns.values():
        if not isinstance(to, str):
            raise QueryError(label, f"{shown(to)} is not a name", "write {'old': 'new'}, both as strings")
    if stream.timed and TS in columns:
        raise QueryError(label, "ts cannot be renamed", "copy it: .map(when=pl.col('ts'))")
    if stream.timed and TS in columns.values():
        raise QueryError(label, "the event time has the name ts already", "give the column another name")
    new = {n: columns.get(n, n) for n in stream.schema}
    check_unique(label, list(new.values()))
    return steps.Select(
        name=name,
        inputs=(stream,),
        schema=pl.Schema({to: stream.schema[old] for old, to in new.items()}),
        exprs=tuple(pl.col(old).alias(to) if old != to else pl.col(old) for old, to in new.items()),
    )


def filter_step(stream: Stream, predicate: pl.Expr, *, name: str | None) -> steps.Filter:
    """Keep the tuples for which the predicate holds."""
    label = label_after(stream, "filter", name)
    predicate = predicate_of(label, stream.schema, predicate)
    return steps.Filter(name=name, inputs=(stream,), schema=stream.schema, predicate=predicate)


def explode_step(stream: Stream, column: str, *, name: str | None) -> steps.Explode:
    """Make one tuple for each element of a list."""
    label = label_after(stream, "explode", name)
    check_columns(label, stream.schema, [column])
    dtype = stream.schema[column]
    if not isinstance(dtype, pl.List):
        raise QueryError(
            label,
            f"{column!r} is {type_text(dtype)}, not a list",
            "make a list first, for example with .str.split(' ')",
        )
    schema = pl.Schema({**stream.schema, column: instance(dtype.inner)})
    return steps.Explode(name=name, inputs=(stream,), schema=schema, column=column)


def split_step(stream: Stream, predicates: Mapping[str, pl.Expr], *, rest: str | None, name: str | None) -> steps.Split:
    """Send each tuple to the first output whose predicate holds."""
    label = label_after(stream, "split", name)
    if not predicates:
        raise QueryError(
            label, "there is no predicate", "name at least one output: split(short=pl.col('duration') < 60)"
        )
    if rest is not None and (not isinstance(rest, str) or not rest):
        hint = "rest= is the name of the output for all other tuples: rest='other'"
        raise QueryError(label, f"rest={shown(rest)} is not a name", hint)
    checked = tuple((port, predicate_of(label, stream.schema, p)) for port, p in predicates.items())
    step = steps.Split(name=name, inputs=(stream,), schema=stream.schema, predicates=checked, rest=rest)
    check_unique(label, step.ports, "output")
    return step


def union_step(stream: Stream, others: Sequence[Stream], *, name: str | None) -> steps.Union:
    """Combine streams with the same columns, which are put in the order of the first stream; call `check_same_columns` first."""
    if not others:
        raise QueryError(label_after(stream, "union", name), "there is only one input", "give at least two streams")
    columns = list(stream.schema)
    inputs = (stream, *(other if list(other.schema) == columns else other.select(*columns) for other in others))
    return steps.Union(name=name, inputs=inputs, schema=stream.schema)


def check_same_columns(label: str, stream: Stream, other: Stream) -> None:
    """Refuse to combine streams that differ in columns or types, or of which only one has time."""
    for column in [*stream.schema, *other.schema]:
        if column not in other.schema or column not in stream.schema:
            has, lacks = (stream, other) if column in stream.schema else (other, stream)
            raise QueryError(
                label,
                f"{label_of(has)} has the column {column!r}, {label_of(lacks)} does not",
                "select the same columns on every input",
            )
        mine, theirs = stream.schema[column], other.schema[column]
        if mine != theirs:
            raise QueryError(
                label,
                f"{column!r} is {type_text(mine)} in {label_of(stream)} but {type_text(theirs)} in {label_of(other)}",
                f"cast one of them: .map(pl.col({column!r}).cast(pl.{mine}))",
            )
    if other.timed != stream.timed:
        hint = "give both sources a ts=; rows of .late and .rejected have no time"
        raise QueryError(label, "one input has time and the other does not", hint)


def sink_step(stream: Stream, sink: SinkConnector, *, name: str | None) -> steps.Sink:
    """Send the rows to the outside."""
    label = label_after(stream, "sink", name)
    if isinstance(sink, type) or not isinstance(sink, SinkConnector):
        hint = "use st.parquet_sink(path), st.console(), st.memory_sink() and the like"
        raise QueryError(label, f"{shown(sink)} is not a sink", hint)
    if (lacking := sink.incomplete()) is not None:
        raise QueryError(
            label, f"this sink is incomplete: {lacking}", "define that too; see springtide.connectors.Sink"
        )
    problem = sink.check(stream.schema)
    if problem is not None:
        raise QueryError(
            label,
            f"{sink.describe()} cannot take these rows: {problem}",
            "select or cast the columns before the sink",
        )
    return steps.Sink(name=name, inputs=(stream,), schema=stream.schema, connector=sink)


def _check_meant(label: str, stream: Stream, name: str | None) -> None:
    """Refuse `name="channel"` if `channel` is a column: it was probably meant to become the column `name`."""
    if name is not None and name in stream.schema:
        problem = f"name={name!r} names the step, and {name!r} is a column"
        hint = f"for a column called 'name' write pl.col({name!r}).alias('name'); else call the step something else"
        raise QueryError(label, problem, hint)


def _changes_ts(exprs: Sequence[pl.Expr]) -> bool:
    return any(e.meta.output_name() == TS and not e.meta.undo_aliases().meta.eq(pl.col(TS)) for e in exprs)
