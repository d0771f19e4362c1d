"""Frames as text."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from springtide.compiler.tables import columns

_LONG = 40
_LARGE = 1e15


def table_of(rows: pl.DataFrame) -> list[str]:
    """Write all rows of a frame, numbers to the right.

    >>> at = datetime(2024, 5, 1, 9, 30)
    >>> for line in table_of(pl.DataFrame({"at": [at, at], "x": [1.5, 1000.0], "ok": [None, True]})):
    ...     print(line)
    at                      x  ok
    2024-05-01 09:30      1.5  null
    2024-05-01 09:30  1,000.0  true
    """
    cells = [[name, *_cells(rows[name].to_list())] for name in rows.columns]
    numbers = [i for i, dtype in enumerate(rows.dtypes) if dtype.is_numeric()]
    return columns(list(zip(*cells, strict=True)), right=numbers)


def _cells(values: list[object]) -> list[str]:
    """Write the values of a column, each as exactly as all of them need."""
    times = [v for v in values if isinstance(v, datetime)]
    exact = "%T.%f" if any(t.microsecond for t in times) else "%T" if any(t.second for t in times) else "%H:%M"
    digits = max((len(_short(v).partition(".")[2]) for v in values if isinstance(v, float)), default=0)
    return [_cell(value, exact, digits) for value in values]


def _cell(value: object, exact: str, digits: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:,.{digits}f}" if abs(value) < _LARGE else repr(value)
    text = f"{value:%F {exact}}" if isinstance(value, datetime) else str(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _short(value: float) -> str:
    return f"{value:.3f}".rstrip("0") if abs(value) < _LARGE else ""
