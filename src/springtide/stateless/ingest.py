"""Incoming rows are rejected, late or accepted: decided on whole columns, in position order."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

import polars as pl

from springtide.connectors import MISFIT, Read, Slice, rows_as_json
from springtide.exchange import order
from springtide.query.ids import Micros
from springtide.query.steps import Source
from springtide.query.types import END_OF_TIME, FIRST_TIME, LAST_TIME, TIME, TS
from springtide.values.text_times import read_times

REJECTED = pl.Schema(
    {"source": pl.String(), "stream": pl.String(), "position": pl.Int64(), "reason": pl.String(), "row": pl.String()}
)


@dataclass(frozen=True)
class Ingested:
    """A slice, with its rows sorted into accepted, late and rejected ones."""

    accepted: pl.LazyFrame
    late: pl.DataFrame | None
    rejected: pl.DataFrame | None
    count: int
    """The number of rows accepted."""
    time: Micros | None
    """The stream time after the slice; None if the source has no time."""
    greatest: Micros | None = None
    """The greatest ts that was accepted."""


def ingest(
    source: Source,
    name: str,
    part: Slice,
    read: Read,
    time: Micros,
    *,
    ordered: bool,
    origin: int,
    filtered: bool = True,
) -> Ingested:
    """Accept or refuse the rows of a slice; `time` is the time of its physical stream before the slice.

    Where the rows are `filtered` afterwards, a source may read less of those that are thrown away. Otherwise their times, which are known here, are not read again.
    """
    rows, rejected = _sifted(part, read)
    if source.ts is None:
        count = rows.select(pl.len()).collect().item()
        return Ingested(_bare(rows), None, _rejected(name, part, rejected), count, None)
    times = rows.select(_time(source).alias(TS)).collect().to_series().cast(pl.Int64)
    positioned = source.connector.positions
    plain = times.len() == 0 or (times.null_count() == 0 and times.is_sorted() and _are_plain(times, time))
    accepted = _timed(rows, source.ts, times if plain and not filtered else _time(source))
    if ordered:
        accepted = _with_order(accepted, origin, part, positioned)
    accepted = _bare(accepted, keep_order=ordered)
    if plain:
        after = time if times.len() == 0 else max(time, times.item(-1) - source.max_disorder)
        return Ingested(
            accepted, None, _rejected(name, part, rejected), times.len(), after, times.item(-1) if times.len() else None
        )
    beyond = ((times < FIRST_TIME) | (times > LAST_TIME)).fill_null(False)
    times = times.set(beyond, None) if beyond.any() else times
    unread = times.is_null()
    if unread.any():
        rejected.append(_unread(source, part, rows, unread, beyond))
    # The stream time before each row: the greatest ts so far minus the allowed disorder. Nulls do not advance it.
    greatest = times.cum_max().fill_null(strategy="forward").shift(1)
    before = (
        (greatest - source.max_disorder).fill_null(time).clip(lower_bound=time)
        if positioned
        else pl.Series([time] * times.len(), dtype=pl.Int64)
    )
    late = ((times < before) & ~unread).fill_null(False)
    good = ~late & ~unread
    top = times.filter(good).max()
    highest = Micros(top) if isinstance(top, int) else None
    after = time if highest is None else max(time, Micros(highest - source.max_disorder))
    frame = accepted.collect()
    late_rows = frame.filter(late).drop(order.PLACES, strict=False) if late.any() else None
    count = int(good.sum())
    return Ingested(
        frame.filter(good).lazy(), late_rows, _rejected(name, part, rejected), count, min(after, END_OF_TIME), highest
    )


def _sifted(part: Slice, read: Read) -> tuple[pl.LazyFrame, list[pl.DataFrame]]:
    """Separate the rows that fit, according to the connector, from those that do not."""
    columns = {k: REJECTED[k] for k in ("position", "reason", "row")}
    rejected = [pl.DataFrame(read.rejected, schema=columns)] if read.rejected else []
    if MISFIT not in read.rows.collect_schema():
        return read.rows, rejected
    frame = read.rows.collect()
    misfits = frame[MISFIT]
    frame = frame.drop(MISFIT)
    if misfits.null_count() == misfits.len():
        return frame.lazy(), rejected
    wrong = misfits.is_not_null()
    found = frame.filter(wrong)
    rows = rows_as_json(found.drop(order.POSITION, strict=False))
    places = _positions(part, frame).filter(wrong)
    rejected.append(pl.DataFrame({"position": places, "reason": misfits.filter(wrong), "row": rows}, schema=columns))
    return frame.filter(~wrong).lazy(), rejected


def _positions(part: Slice, frame: pl.DataFrame) -> pl.Series:
    if order.POSITION in frame.columns:
        return frame[order.POSITION]
    return pl.int_range(part.position, part.position + frame.height, eager=True)


def _are_plain(times: pl.Series, time: int) -> bool:
    """Return whether sorted times are all in range and none of them is late."""
    first, last = times.item(0), times.item(-1)
    return bool(max(time, FIRST_TIME) <= first and last <= LAST_TIME)


def _time(source: Source) -> pl.Expr:
    """Return the event time for any type of column; null where it cannot be read or is beyond 64 bits."""
    assert source.ts is not None
    column, dtype = pl.col(source.ts), source.columns[source.ts]
    if isinstance(dtype, pl.Datetime):
        utc = column.dt.replace_time_zone("UTC") if dtype.time_zone is None else column.dt.convert_time_zone("UTC")
        return utc if dtype == TIME else utc.cast(TIME, strict=False)
    if dtype == pl.Date:
        return column.cast(pl.Datetime("us"), strict=False).dt.replace_time_zone("UTC")
    if dtype == pl.String:
        return column.map_batches(read_times, return_dtype=TIME, is_elementwise=True)
    return column.cast(TIME)


def _timed(rows: pl.LazyFrame, ts: str, times: pl.Series | pl.Expr) -> pl.LazyFrame:
    """Return rows with their event time, in the place of the column that it is read from."""
    if isinstance(times, pl.Expr):
        return rows.with_columns(times.alias(ts)).rename({ts: TS} if ts != TS else {})
    known = pl.LazyFrame({TS: times.cast(TIME)})
    columns = [TS if name == ts else name for name in rows.collect_schema()]
    return pl.concat([rows.drop(ts), known], how="horizontal").select(columns)


def _with_order(rows: pl.LazyFrame, origin: int, part: Slice, positioned: bool) -> pl.LazyFrame:
    given = order.POSITION in rows.collect_schema()
    columns = order.of_source(origin, part.stream, part.position if positioned else None)
    if given and positioned:
        columns = [c for c in columns if c.meta.output_name() != order.POSITION]
    return rows.with_columns(columns).select(pl.exclude(order.PLACES), *order.PLACES)  # a fixed order, for unions


def _bare(rows: pl.LazyFrame, *, keep_order: bool = False) -> pl.LazyFrame:
    return rows if keep_order or order.POSITION not in rows.collect_schema() else rows.drop(order.POSITION)


def _unread(source: Source, part: Slice, rows: pl.LazyFrame, unread: pl.Series, beyond: pl.Series) -> pl.DataFrame:
    """Return the reason for each row whose time cannot be used; `beyond` marks times that were read but are out of range."""
    frame = rows.collect()
    wrong, given = frame.filter(unread), frame[source.ts or ""].filter(unread)
    what, beyond = f"the time {source.ts!r}", beyond.filter(unread)
    reasons = pl.Series([f"{what} is not in the years 1 to 9999"], dtype=pl.String).new_from_index(0, wrong.height)
    if given.dtype == pl.String:
        texts = [f"{what} cannot be read: {reprlib.repr(text)} is not ISO 8601" for text in given]
        reasons = reasons.zip_with(beyond, pl.Series(texts, dtype=pl.String))
    reasons = reasons.set(given.is_null(), f"{what} is null")
    rows_found = rows_as_json(wrong.drop(order.POSITION, strict=False))
    return pl.DataFrame({"position": _positions(part, frame).filter(unread), "reason": reasons, "row": rows_found})


def _rejected(name: str, part: Slice, rejected: list[pl.DataFrame]) -> pl.DataFrame | None:
    if not rejected:
        return None
    rows = pl.concat(rejected).sort("position")
    return rows.select(pl.lit(name).alias("source"), pl.lit(part.stream).alias("stream"), "position", "reason", "row")
