"""Sources: where a query begins."""

from __future__ import annotations

import polars as pl

from springtide.query import steps
from springtide.query.connectors import SourceConnector
from springtide.query.errors import QueryError, shown
from springtide.query.expressions import check_columns
from springtide.query.ids import Micros
from springtide.query.names import check_name
from springtide.query.stream import Stream
from springtide.query.types import TIME, TS, Length, micros_of, type_text
from springtide.query.usage import usage


@usage("st.source('calls', st.parquet('calls/'), ts='time')")
def source(
    name: str,
    connector: SourceConnector,
    *,
    ts: str | None = None,
    max_disorder: Length = "0s",
    idle_after: Length | None = None,
) -> Stream:
    """Start a query with tuples from outside.

    `ts` names the column with the event time: a time (taken as UTC if it has no zone), or a number of microseconds as an integer;
    in the stream it is called `ts`. Rows of one physical stream may be out of order by up to `max_disorder`; a physical
    stream that has had no rows for `idle_after` no longer holds the others back.

    >>> events = st.source("events", st.memory(schema={"when": pl.Datetime("ms"), "x": pl.Int64}), ts="when")
    >>> events.schema
    Schema([('ts', Datetime(time_unit='us', time_zone='UTC')), ('x', Int64)])
    """
    if not isinstance(name, str):
        raise QueryError("(source)", "the source has no name", "give it first: st.source('calls', …)")
    check_name("source", name)
    label = f"{name} (source)"
    columns = _columns(label, connector)
    step = steps.Source(
        name=name,
        inputs=(),
        schema=_schema(label, columns, ts),
        connector=connector,
        ts=ts,
        max_disorder=_length(label, "max_disorder", max_disorder) or Micros(0),
        idle_after=_length(label, "idle_after", idle_after),
        columns=columns,
    )
    return Stream(step, steps.OUT, step.schema, timed=ts is not None)


def _columns(label: str, connector: SourceConnector) -> pl.Schema:
    """Return the columns as the connector has them."""
    if isinstance(connector, pl.DataFrame | pl.LazyFrame):
        raise QueryError(label, f"{shown(connector)} is not a source", "wrap a frame: st.memory(frame)")
    if isinstance(connector, type) or not isinstance(connector, SourceConnector):
        hint = "use st.parquet(path), st.memory(rows) and the like"
        raise QueryError(label, f"{shown(connector)} is not a source", hint)
    if (lacking := connector.incomplete()) is not None:
        raise QueryError(
            label, f"this source is incomplete: {lacking}", "define that too; see springtide.connectors.Source"
        )
    try:
        columns = connector.schema()
    except QueryError as error:
        raise QueryError(label, error.problem, error.hint) from None
    if not isinstance(columns, pl.Schema):
        problem = f"{type(connector).__name__}.schema() returned {shown(columns)}"
        raise QueryError(label, problem, "return a pl.Schema")
    if not columns:
        raise QueryError(label, f"{connector.describe()} has no columns", "give it a schema=")
    return columns


def _schema(label: str, columns: pl.Schema, ts: str | None) -> pl.Schema:
    """Return the columns of the stream: the event time is called `ts` and has the type that all event times have."""
    if ts is None:
        if TS in columns:
            raise QueryError(
                label,
                "there is a column 'ts', but it is not the event time",
                "say ts='ts', or rename that column in the source",
            )
        return pl.Schema(columns)
    if not isinstance(ts, str):
        raise QueryError(label, f"ts={shown(ts)} is not the name of a column", _ts_hint(ts, columns))
    check_columns(label, columns, [ts])
    dtype = columns[ts]
    if not (isinstance(dtype, pl.Datetime | pl.Date) or dtype in (pl.Int64, pl.String)):
        raise QueryError(
            label,
            f"{ts!r} is {type_text(dtype)}, which cannot be an event time",
            "give a column of times, of ISO texts, or of microseconds as i64",
        )
    if ts != TS and TS in columns:
        raise QueryError(
            label,
            f"{ts!r} is to become ts, but there is already a column 'ts'",
            "use ts='ts', or rename that column in the source",
        )
    return pl.Schema({TS if n == ts else n: TIME if n == ts else t for n, t in columns.items()})


def _ts_hint(ts: object, columns: pl.Schema) -> str:
    """Return what to write instead of something that is not a name: no step comes before a source, so nothing can be computed there."""
    roots = ts.meta.root_names() if isinstance(ts, pl.Expr) else ts if isinstance(ts, list | tuple) else []
    if len(roots) == 1 and isinstance(roots[0], str) and roots[0] in columns:
        return f"write ts={roots[0]!r}: the event time is taken from a column as it is"
    return "write the name of a column that has the event time"


def _length(label: str, option: str, value: Length | None) -> Micros | None:
    if value is None:
        return None
    length = micros_of(label, value, option)
    if length < 0:
        raise QueryError(label, f"{option}={shown(value)} is below zero", "give a length of zero or more")
    return length
