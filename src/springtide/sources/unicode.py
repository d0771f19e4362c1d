"""Strings that are not UTF-8, in columns that Arrow says are strings: other programs write whatever bytes they have."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from springtide.connectors import MISFIT
from springtide.values.row_checks import brief


def checked(batch: pa.StructArray) -> pl.DataFrame:
    """Turn rows into columns, with one that says what is wrong with each row whose strings are not all UTF-8; its bad values are null.

    >>> raw = pa.array([b"yes", b"\\xff"]).view(pa.string())
    >>> checked(pa.StructArray.from_arrays([raw], ["x"])).rows()
    [('yes', None), (None, "column 'x': b'\\\\xff' is not UTF-8")]
    """
    columns: dict[str, pa.Array] = {}
    reasons: dict[int, str] = {}
    for field, column in zip(batch.type, batch.flatten(), strict=True):
        bad = _bad_rows(column)
        for row in bad:
            reasons.setdefault(row, f"column {field.name!r}: {_shown(column[row])} is not UTF-8")
        mask = pa.array([i in bad for i in range(len(column))]) if bad else None
        columns[field.name] = column if mask is None else pc.if_else(mask, pa.scalar(None, column.type), column)
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)
    misfits = pl.Series(MISFIT, [None], dtype=pl.String).new_from_index(0, len(batch))
    if reasons:
        misfits = misfits.scatter(list(reasons), list(reasons.values()))
    return frame.with_columns(misfits)


def _bad_rows(column: pa.Array) -> set[int]:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return {i for i in range(len(column)) if not _is_sound(column.slice(i, 1))}
    return set()


def _is_sound(value: pa.Array) -> bool:
    try:
        pa.concat_arrays([value]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return brief(value.as_buffer().to_pybytes())
    return f"a string in {value.type}"
