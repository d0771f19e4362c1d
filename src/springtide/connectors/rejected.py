"""Rows that were rejected, as people see them."""

from __future__ import annotations

import json
import reprlib

import polars as pl


def rows_as_json(rows: pl.DataFrame) -> pl.Series:
    """Write rows as JSON, for people who want to see what was wrong with them: bytes as hex, times outside the calendar as numbers."""
    as_json = pl.struct(pl.all()).struct.json_encode()
    plain = rows.with_columns(pl.col(pl.Binary).bin.encode("hex")) if pl.Binary in rows.dtypes else rows
    try:
        return plain.select(as_json).to_series()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        plain = plain.select(pl.all().to_physical())
    try:
        return plain.select(as_json).to_series()
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ):  # bytes in lists, and anything else that Polars cannot write
        return pl.Series([json.dumps({"row": reprlib.repr(row)}) for row in plain.rows()], dtype=pl.String)
