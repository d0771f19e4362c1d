"""What comes in: rejected, late, or accepted — decided on whole columns, in position order."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from springtide.kernels import order
from springtide.kernels.iso import read_times
from springtide.kernels.slices import Read, Slice
from springtide.query.steps import Source
from springtide.query.types import END_OF_TIME, TIME, TS

REJECTED = pl.Schema(
    {"source": pl.String(), "stream": pl.String(), "position": pl.Int64(), "reason": pl.String(), "row": pl.String()}
)


@dataclass(frozen=True)
class Ingested:
    """A slice after the gatekeeper."""

    accepted: pl.LazyFrame
    late: pl.DataFrame | None
    rejected: pl.DataFrame | None
    count: int
    """Rows accepted."""
    time: int | None
    """The stream time after the slice; None without time."""
    greatest: int | None = None
    """The greatest ts that was accepted."""


def ingest(source: Source, name: str, part: Slice, read: Read, time: int, *, ordered: bool, origin: int) -> Ingested:
    """Judge the rows of a slice of one physical stream whose time is `time` before it."""
    rows = read.rows
    rejected = (
        []
        if not read.rejected
        else [pl.DataFrame(read.rejected, schema={k: REJECTED[k] for k in ("position", "reason", "row")})]
    )
    if source.ts is None:
        count = rows.select(pl.len()).collect().item()
        return Ingested(_bare(rows), None, _rejected(name, part, rejected), count, None)
    times = rows.select(_time(source).alias(TS)).collect().to_series().cast(pl.Int64)
    positioned = source.connector.positions
    accepted = rows.with_columns(_time(source).alias(source.ts)).rename({source.ts: TS} if source.ts != TS else {})
    if ordered:
        accepted = _with_order(accepted, origin, part, positioned)
    accepted = _bare(accepted, keep_order=ordered)
    if times.null_count() == 0 and (times.len() == 0 or (times.is_sorted() and times.item(0) >= time)):
        after = time if times.len() == 0 else max(time, times.item(-1) - source.max_disorder)
        return Ingested(
            accepted, None, _rejected(name, part, rejected), times.len(), after, times.item(-1) if times.len() else None
        )
    unread = times.is_null()
    if unread.any():
        rejected.append(_unread(source, part, rows, unread))
    # The stream time before each row: the greatest ts so far less the disorder. Nulls do not move it.
    greatest = times.cum_max().fill_null(strategy="forward").shift(1)
    before = (
        (greatest - source.max_disorder).fill_null(time).clip(lower_bound=time)
        if positioned
        else pl.Series([time] * times.len(), dtype=pl.Int64)
    )
    late = ((times < before) & ~unread).fill_null(False)
    good = ~late & ~unread
    top = times.filter(good).max()
    after = max(time, top - source.max_disorder) if isinstance(top, int) else time
    frame = accepted.collect()
    behind = frame.filter(late).drop(order.PLACES, strict=False) if late.any() else None
    count, highest = int(good.sum()), top if isinstance(top, int) else None
    return Ingested(
        frame.filter(good).lazy(), behind, _rejected(name, part, rejected), count, min(after, END_OF_TIME), highest
    )


def _time(source: Source) -> pl.Expr:
    """Read the event time, whatever the column's type; null where it cannot be read."""
    assert source.ts is not None
    column, dtype = pl.col(source.ts), source.columns[source.ts]
    if isinstance(dtype, pl.Datetime):
        utc = column.dt.replace_time_zone("UTC") if dtype.time_zone is None else column.dt.convert_time_zone("UTC")
        return utc if dtype == TIME else utc.cast(TIME)
    if dtype == pl.Date:
        return column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    if dtype == pl.String:
        return column.map_batches(read_times, return_dtype=TIME, is_elementwise=True)
    return column.cast(TIME)


def _with_order(rows: pl.LazyFrame, origin: int, part: Slice, positioned: bool) -> pl.LazyFrame:
    given = order.POSITION in rows.collect_schema()
    columns = order.of_source(origin, part.stream, part.position if positioned else None)
    if given and positioned:
        columns = [c for c in columns if c.meta.output_name() != order.POSITION]
    return rows.with_columns(columns).select(pl.exclude(order.PLACES), *order.PLACES)  # in one order, for unions


def _bare(rows: pl.LazyFrame, *, keep_order: bool = False) -> pl.LazyFrame:
    return rows if keep_order or order.POSITION not in rows.collect_schema() else rows.drop(order.POSITION)


def _unread(source: Source, part: Slice, rows: pl.LazyFrame, unread: pl.Series) -> pl.DataFrame:
    frame = rows.collect()
    positions = (
        frame[order.POSITION]
        if order.POSITION in frame.columns
        else pl.int_range(part.position, part.position + frame.height, eager=True)
    )
    what = f"the time {source.ts!r}"
    text = pl.col(source.ts or "")
    reason = pl.lit(f"{what} is null")
    if source.columns[source.ts or ""] == pl.String:
        reason = (
            pl.when(text.is_null())
            .then(reason)
            .otherwise(pl.format(what + " cannot be read: '{}' is not ISO 8601", text))
        )
    found = frame.select(
        positions.alias("position"),
        reason.alias("reason"),
        pl.struct(pl.all().exclude(order.POSITION)).struct.json_encode().alias("row"),
    )
    return found.filter(unread)


def _rejected(name: str, part: Slice, rejected: list[pl.DataFrame]) -> pl.DataFrame | None:
    if not rejected:
        return None
    rows = pl.concat(rejected).sort("position")
    return rows.select(pl.lit(name).alias("source"), pl.lit(part.stream).alias("stream"), "position", "reason", "row")
