"""Calls to a user's operator: what it raises and what it returns is checked, and reported with the step's name.

The reference and the engine share these checks and their wording. Many rows are checked at once; only when something is wrong
are they checked one by one, to name the first bad row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from springtide.query.errors import UserCodeError, article, nearest
from springtide.query.operators import BucketOperator, UserOperator
from springtide.query.types import TS, type_text
from springtide.values.row_checks import Misfit, column, column_of, times_of


class Caller:
    """Calls the methods of one step's operator."""

    def __init__(self, label: str, operator: UserOperator, schema: pl.Schema) -> None:
        """Keep what the messages and the checks need."""
        self._label, self._operator, self._schema = label, operator, schema

    def run(self, method: str, *args: Any, cause: pl.DataFrame | None = None) -> Any:
        """Call a method; an exception becomes an error that names the step and the row."""
        try:
            return getattr(self._operator, method)(*args)
        except Exception as error:
            problem = f"{self._who(method)} raised {type(error).__name__}: {error}"
            hint = "correct the operator, or filter such rows out before"
            raise UserCodeError(self._label, problem, hint, None if cause is None else row_of(cause)) from error

    def rows(self, method: str, *args: Any, earliest: int, cause: pl.DataFrame | None = None) -> pl.DataFrame:
        """Call a method that returns output rows; none may be earlier than `earliest`, the time of what caused them."""
        result = self.run(method, *args, cause=cause)
        check = self._of_frame if isinstance(self._operator, BucketOperator) else self._of_mappings
        rows = check(method, result)
        early = rows.filter(rows[TS].to_physical() < earliest)
        if early.height:
            ts = early[TS].to_physical()[0]
            problem = f"{self._who(method)} gave a row at ts {ts}, earlier than the tuple that caused it, at {earliest}"
            raise self.wrong(
                problem, "let an output row carry the ts of the tuple that caused it, or a later one", row_of(early)
            )
        return rows

    def state(self, method: str, state: Any, schema: pl.Schema) -> dict[str, Any]:
        """Check the state of one key, and return it."""
        if not isinstance(state, dict) or set(state) != set(schema):
            problem = f"{self._who(method)} left the state {state!r}, but its columns are {', '.join(schema)}"
            raise self.wrong(problem, "keep exactly the columns that the operator declares", None)
        for name, dtype in schema.items():
            self._fitting(name, state[name], dtype, f"{self._who(method)} left the state with", state)
        return state

    def check_timer(self, timer: int | None, now: int, state: Any) -> None:
        """Refuse a timer that has gone off and is not set to a later time."""
        if timer is not None and timer <= now:
            problem = f"{self._who('on_time')} left the timer at {timer}, though it is already {now}"
            raise self.wrong(problem, "set it to a later time, or to None", state)

    def wrong(self, problem: str, hint: str, row: Any) -> UserCodeError:
        """Return an error that names the step."""
        return UserCodeError(self._label, problem, hint, row)

    def _of_frame(self, method: str, result: Any) -> pl.DataFrame:
        if result is None or (isinstance(result, pl.DataFrame) and result.height == 0):
            return pl.DataFrame(schema=self._schema)
        if not isinstance(result, pl.DataFrame):
            raise self.wrong(
                f"{self._who(method)} returned {_kind(result)}", "return a frame of the output's columns, or None", None
            )
        self._check_names(method, result.columns, row_of(result))
        for name, dtype in self._schema.items():
            if result.schema[name] != dtype:
                problem = (
                    f"{self._who(method)} gave {name!r} as {type_text(result.schema[name])}, not {type_text(dtype)}"
                )
                raise self.wrong(problem, "cast it, or build the frame with schema=self.output", row_of(result))
        if result[TS].null_count():
            timeless = result.filter(result[TS].is_null())
            raise self.wrong(
                f"{self._who(method)} gave a row without ts", "let every output row carry a time", row_of(timeless)
            )
        return result.select(self._schema.names())

    def _of_mappings(self, method: str, result: Any) -> pl.DataFrame:
        if not isinstance(result, Sequence) or not all(isinstance(row, Mapping) for row in result):
            raise self.wrong(
                f"{self._who(method)} returned {_kind(result)}",
                "return a list of rows, each a dict, or an empty list",
                None,
            )
        try:
            return frame_of_rows(result, self._schema)
        except Misfit:
            for row in result:
                self._check_row(method, row)
            raise

    def _check_row(self, method: str, row: Mapping[str, Any]) -> None:
        self._check_names(method, list(row), row)
        what = f"{self._who(method)} gave a row with"
        try:
            times_of(TS, [row[TS]])
        except Misfit:
            raise self.wrong(f"{what} ts {row[TS]!r}", "give a datetime, or microseconds as an int", row) from None
        for name, dtype in self._schema.items():
            if name != TS:
                self._fitting(name, row[name], dtype, what, row)

    def _check_names(self, method: str, names: Sequence[str], row: Any) -> None:
        for name in names:
            if name not in self._schema:
                raise self.wrong(
                    f"{self._who(method)} gave a column {name!r}, which is not in its output",
                    nearest(str(name), self._schema),
                    row,
                )
        for name in self._schema:
            if name not in names:
                raise self.wrong(
                    f"{self._who(method)} gave no column {name!r}",
                    "give every column of the output, with None where there is no value",
                    row,
                )

    def _fitting(self, name: str, value: Any, dtype: pl.DataType, what: str, row: Any) -> pl.Series:
        try:
            return column(name, value, dtype)
        except Misfit as misfit:
            raise self.wrong(
                f"{what} a wrong value, {misfit}", "cast it to the type that the operator declares", row
            ) from None

    def _who(self, method: str) -> str:
        return f"{type(self._operator).__name__}.{method}"


def frame_of_rows(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Return output rows of a KeyOperator as a frame, all or none: a `Misfit` does not say which row is wrong.

    >>> frame_of_rows([{"n": 1, "ts": 5}], pl.Schema({"n": pl.Int8(), "ts": st.TIME})).height
    1
    """
    return pl.DataFrame(columns_of(rows, schema, TS))


def columns_of(rows: Sequence[Mapping[str, Any]], schema: pl.Schema, time: str | None = None) -> list[pl.Series]:
    """Return the columns of rows, which must be exactly those of `schema`; `time` names one that may be given in microseconds too."""
    if not set(map(len, rows)) <= {len(schema)}:
        raise Misfit("a row has other columns")
    columns = []
    for name, dtype in schema.items():
        try:
            values = [row[name] for row in rows]
        except KeyError:
            raise Misfit(f"a row has no column {name!r}") from None
        columns.append(times_of(name, values) if name == time else column_of(name, values, dtype))
    return columns


def row_of(frame: pl.DataFrame) -> dict[str, Any] | None:
    """Return the first row, for an error message."""
    return frame.row(0, named=True) if frame.height else None


def _kind(value: Any) -> str:
    return "None" if value is None else article(type(value).__name__)
