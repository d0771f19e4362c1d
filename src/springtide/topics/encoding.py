"""From columns to the bytes of records: one format each."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from springtide.query.types import TS, type_text

FORMATS = ("json", "text", "bytes")


def unfit(schema: pl.Schema, format: str, key: str | None) -> str | None:
    """Say why rows with these columns cannot be written; None if they can."""
    if key is not None and schema.get(key) not in (pl.String, pl.Binary):
        found = f"is {type_text(schema[key])}" if key in schema else "is not there"
        return f"the key is to be the column {key!r}, which {found}: it must be text or bytes"
    if format == "json":
        return None
    wanted = pl.String() if format == "text" else pl.Binary()
    if schema.get("value") != wanted:
        return f"value={format!r} writes the column 'value', which must be there as {type_text(wanted)}"
    others = [name for name in schema if name not in ("value", key, TS)]
    return f"value={format!r} would leave the column {others[0]!r} out" if others else None


def encoded(rows: pl.DataFrame, format: str, key: str | None) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
    """Return the values and the keys of the records."""
    keys: Sequence[bytes | None] = [None] * rows.height if key is None else rows[key].cast(pl.Binary).to_list()
    column = _objects(rows) if format == "json" else rows["value"]
    return column.cast(pl.Binary).to_list(), keys


def _objects(rows: pl.DataFrame) -> pl.Series:
    """Write rows as JSON objects that `st.kafka` reads again: times as ISO 8601, decimals as text, bytes in base64."""
    plain = [_plain(name, dtype) for name, dtype in rows.schema.items()]
    return rows.select(pl.struct(plain).struct.json_encode()).to_series()


def _plain(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(dtype, pl.Datetime):
        utc = column.dt.convert_time_zone("UTC") if dtype.time_zone else column
        return utc.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.6f{'Z' if dtype.time_zone else ''}")
    if dtype == pl.Date:
        return column.dt.strftime("%Y-%m-%d")
    if dtype == pl.Time:
        return column.dt.strftime("%H:%M:%S%.6f")
    if isinstance(dtype, pl.Decimal | pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    if isinstance(dtype, pl.Duration):
        return column.dt.total_microseconds()
    if dtype == pl.Binary:
        return column.bin.encode("base64")
    return column
