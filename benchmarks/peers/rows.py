"""Are the rows of two sides the same? As sets, with repetitions counted; floats may differ in their last digits."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.peers.queries import Query

TIMES = ("window_start", "first_bid", "last_bid", "at")
TIME = pl.Datetime("us", "UTC")


def read(query: Query, folder: Path) -> pl.DataFrame:
    """Read what a side has written, in one form and one order."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.stat().st_size and p.name[0] not in "._"]
    found = [pl.read_parquet(p, glob=False) for p in files if "_spark_metadata" not in p.parts]
    return uniform(query, pl.concat(found) if found else pl.DataFrame())


def uniform(query: Query, rows: pl.DataFrame) -> pl.DataFrame:
    """Bring the rows of any side to one form and one order."""
    names = [*query.columns, *query.floats]
    if not rows.width:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.Null))
    plain = rows.select(_plain(rows, name) for name in names)
    return plain.sort(*query.columns, *query.floats)


def _plain(rows: pl.DataFrame, name: str) -> pl.Expr:
    dtype, column = rows.schema[name], pl.col(name)
    if name in TIMES:
        if dtype.is_integer():  # milliseconds; only the time of a bid is copied as it came, in microseconds
            return (column if name == "at" else column * 1000).cast(TIME)
        zoned = column.dt.replace_time_zone("UTC") if getattr(dtype, "time_zone", None) is None else column
        return zoned.cast(TIME)
    return column.cast(pl.Int64) if dtype.is_integer() else column


def compare(query: Query, name: str, given: pl.DataFrame, wanted: pl.DataFrame) -> int:
    """Count the rows, which are the same on both sides; raise if they are not."""
    if not wanted.height:
        raise AssertionError(f"{name}: there is not one row to compare")
    exact = list(query.columns)
    if given.height != wanted.height:
        missing = wanted.join(given, on=exact, how="anti")
        more = given.join(wanted, on=exact, how="anti")
        raise AssertionError(
            f"{name}: {given.height} rows instead of {wanted.height}; missing:\n{missing.head()}\nnot wanted:\n{more.head()}"
        )
    differ = pl.Series([False]).new_from_index(0, given.height)
    for column in exact:
        differ |= given[column].ne_missing(wanted[column])
    for column in query.floats:
        apart = (given[column] - wanted[column]).abs()
        differ |= apart > 1e-9 * wanted[column].abs() + 1e-6
    if differ.any():
        raise AssertionError(
            f"{name}: {differ.sum()} of {given.height} rows differ:\n{given.filter(differ).head()}\n{wanted.filter(differ).head()}"
        )
    return wanted.height
